/* Heads of messages, byte by byte: see wire.h. */
#include "platform/wire.h"

static void put(wire_writer_t *w, uint64_t value, size_t bytes)
{
    size_t i;
    if (bytes > sizeof w->bytes - w->used) return; /* never, by the limits in wire.h */
    for (i = 0; i < bytes; i++) w->bytes[w->used++] = (uint8_t)(value >> (8 * i) & 0xFF);
}

void inlay_wire_u32(wire_writer_t *w, uint32_t value) { put(w, value, 4); }
void inlay_wire_u64(wire_writer_t *w, uint64_t value) { put(w, value, 8); }
void inlay_wire_i64(wire_writer_t *w, int64_t value) { put(w, (uint64_t)value, 8); }

void inlay_wire_digest(wire_writer_t *w, const uint8_t *digest)
{
    size_t i;
    for (i = 0; i < WIRE_DIGEST; i++) put(w, digest[i], 1);
}

void inlay_wire_begin(wire_writer_t *w, uint32_t kind)
{
    w->used = 0;
    inlay_wire_u32(w, kind);
}

void inlay_wire_text(wire_writer_t *w, const char *text)
{
    size_t size = strlen(text), i;
    if (size > WIRE_MOST_TEXT) size = WIRE_MOST_TEXT;
    inlay_wire_u32(w, (uint32_t)size);
    for (i = 0; i < size; i++) put(w, (uint8_t)text[i], 1);
}

static uint64_t get(wire_reader_t *r, size_t bytes)
{
    uint64_t value = 0;
    size_t i;
    if (r->is_bad || bytes > (size_t)(r->end - r->at)) {
        r->is_bad = 1;
        return 0;
    }
    for (i = 0; i < bytes; i++) value |= (uint64_t)r->at[i] << (8 * i);
    r->at += bytes;
    return value;
}

uint32_t inlay_wire_read_u32(wire_reader_t *r) { return (uint32_t)get(r, 4); }
uint64_t inlay_wire_read_u64(wire_reader_t *r) { return get(r, 8); }

int64_t inlay_wire_read_i64(wire_reader_t *r)
{
    const uint64_t bits = get(r, 8);
    int64_t value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void inlay_wire_read_digest(wire_reader_t *r, uint8_t *digest)
{
    size_t i;
    for (i = 0; i < WIRE_DIGEST; i++) digest[i] = (uint8_t)get(r, 1);
}

uint32_t inlay_wire_read_count(wire_reader_t *r, uint32_t most)
{
    const uint32_t count = inlay_wire_read_u32(r);
    if (count > most) r->is_bad = 1;
    return r->is_bad ? 0 : count;
}

void inlay_wire_read_text(wire_reader_t *r, char *text, size_t room)
{
    const uint32_t size = inlay_wire_read_count(r, WIRE_MOST_TEXT);
    size_t i, used = 0;
    if (r->is_bad || size > (size_t)(r->end - r->at)) {
        r->is_bad = 1;
        if (room) text[0] = '\0';
        return;
    }
    for (i = 0; i < size && used + 1 < room; i++) {
        const uint8_t c = r->at[i];
        text[used++] = (c < 32 && c != '\n' && c != '\t') || c == 127 ? '?' : (char)c;
    }
    if (room) text[used] = '\0';
    r->at += size;
}

int inlay_wire_is_whole(const wire_reader_t *r) { return !r->is_bad && r->at == r->end; }
