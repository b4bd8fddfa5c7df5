#include "outline.h"

#include <stdlib.h>
#include <string.h>

/* Words of a reason: enough for two decisions for each buffer. Of more buffers only the first 63 decisions
 * are told apart, as reasons would take more memory and time than they save. */
enum { MOST_WORDS = 24 };

typedef enum change_kind { FLOOR, OFFSET, PLACED } change_kind_t;

struct packing_change {
    int64_t old;
    int32_t index;
    int32_t witness; /* FLOOR */
    change_kind_t kind;
};

/* Note what a change undoes: a number, a witness, and the reason of both (or none). */
static int record(packing_outline_t *o, change_kind_t kind, int32_t index, int64_t old,
                  int32_t witness, const packing_reason_t *why)
{
    size_t words = (size_t)o->words;
    packing_change_t *c;
    if (o->change_count == o->change_room) {
        size_t room = o->change_room * 2 + 1024;
        packing_change_t *bigger = realloc(o->changes, room * sizeof *bigger);
        packing_reason_t *whys = realloc(o->old_whys, room * words * sizeof *whys);
        if (bigger) o->changes = bigger;
        if (whys) o->old_whys = whys;
        if (!bigger || !whys) {
            o->is_out_of_memory = 1;
            return 0;
        }
        o->change_room = room;
    }
    if (why) memcpy(o->old_whys + o->change_count * words, why, words * sizeof *why);
    c = &o->changes[o->change_count++];
    c->kind = kind;
    c->index = index;
    c->old = old;
    c->witness = witness;
    return 1;
}

static void enqueue(packing_outline_t *o, int32_t section)
{
    if (!o->queued[section]) {
        o->queued[section] = 1;
        o->queue[o->queue_count++] = section;
    }
    if (!o->dirty[section]) {
        o->dirty[section] = 1;
        o->dirties[o->dirty_count++] = section;
    }
}

static void set_reason(const packing_outline_t *o, packing_reason_t *to, const packing_reason_t *why)
{
    memcpy(to, why, (size_t)o->words * sizeof *to);
}

/* Whether a section is too full if it ends where it must. */
static int is_full(packing_outline_t *o, int32_t section, int64_t end)
{
    int32_t i;
    if (end <= o->capacity) return 0;
    if (end < o->need) o->need = end;
    o->failures[section]++;
    for (i = 0; i < o->live[section]; i++)
        o->blame[o->members[section][i]]++;
    return 1;
}

int packing_outline_raise(packing_outline_t *o, int32_t section, int64_t to, int32_t witness,
                          const packing_reason_t *why)
{
    packing_reason_t *own = packing_why(o, o->floor_why, section);
    if (!record(o, FLOOR, section, o->floor[section], o->witness[section], own)) return 0;
    o->floor[section] = to;
    o->witness[section] = witness;
    if (own != why) set_reason(o, own, why);
    enqueue(o, section);
    return 1;
}

/* Raise the offset of a buffer to the floor of a section; sections that relied on it look for another. */
static int raise_offset(packing_outline_t *o, int32_t b, int32_t section)
{
    packing_reason_t *own = packing_why(o, o->offset_why, b);
    int32_t k;
    if (!record(o, OFFSET, b, o->offset[b], 0, own)) return 0;
    o->offset[b] = packing_align(o->floor[section], o->g->align[b]);
    set_reason(o, own, packing_why(o, o->floor_why, section));
    for (k = o->g->first[b]; k < o->g->last[b]; k++) {
        if (o->witness[k] == b) {
            enqueue(o, k);
        } else if (!o->dirty[k]) {
            o->dirty[k] = 1;
            o->dirties[o->dirty_count++] = k;
        }
    }
    return 1;
}

/* The floor of a section is the least offset of its buffers, for the reasons of all of them. */
static int raise_to_least(packing_outline_t *o, int32_t k, int32_t best)
{
    packing_reason_t *why = o->conflict; /* free while there is no contradiction */
    int32_t i;
    memset(why, 0, (size_t)o->words * sizeof *why);
    for (i = 0; i < o->live[k]; i++)
        packing_reason_join(o, why, packing_why(o, o->offset_why, o->members[k][i]));
    return packing_outline_raise(o, k, o->offset[best], best, why);
}

/* Offsets of a section's buffers are at its floor or above, and its floor is the least of them. */
static int settle(packing_outline_t *o, int32_t k)
{
    packing_reason_t *why = packing_why(o, o->floor_why, k);
    int32_t i, best;
    do {
        const int32_t *members = o->members[k];
        int64_t floor = o->floor[k];
        if (!o->live[k]) return 1;
        o->work += o->live[k];
        if (is_full(o, k, floor + o->rest[k])) {
            set_reason(o, o->conflict, why);
            return 0;
        }
        best = members[0];
        for (i = 0; i < o->live[k]; i++) {
            int32_t b = members[i];
            if (o->offset[b] < floor && !raise_offset(o, b, k)) return 0;
            if (o->offset[b] < o->offset[best]) best = b;
        }
        if (o->offset[best] > floor) {
            if (!raise_to_least(o, k, best)) return 0;
        } else if (o->witness[k] != best) {
            if (!record(o, FLOOR, k, floor, o->witness[k], why)) return 0;
            o->witness[k] = best;
        }
    } while (o->offset[best] > o->floor[k]);
    return 1;
}

/* A section's buffers one on another, each not below its least offset. */
static int64_t stacked(packing_outline_t *o, int32_t k, int64_t *base)
{
    int64_t *keys = o->scratch, end = o->floor[k];
    int32_t i, j, n = 0;
    o->work += o->live[k];
    for (i = 0; i < o->live[k]; i++) {
        int32_t b = o->members[k][i];
        int64_t offset = o->offset[b], size = o->g->size[b];
        if (offset <= o->floor[k]) {
            end += size; /* most are here, and need no order */
            continue;
        }
        for (j = n++; j > 0 && keys[2 * j - 2] > offset; j--) {
            keys[2 * j] = keys[2 * j - 2];
            keys[2 * j + 1] = keys[2 * j - 1];
        }
        keys[2 * j] = offset;
        keys[2 * j + 1] = size;
    }
    *base = o->floor[k];
    for (i = 0; i < n; i++) {
        if (end < keys[2 * i]) *base = end = keys[2 * i];
        end += keys[2 * i + 1];
    }
    return end;
}

/* Whether a section is too full with each buffer at its least offset or above. Those from the last gap
 * on are too many. */
static int is_overfull(packing_outline_t *o, int32_t k)
{
    int64_t base, end = stacked(o, k, &base);
    int32_t i;
    if (!is_full(o, k, end)) return 0;
    memset(o->conflict, 0, (size_t)o->words * sizeof *o->conflict);
    for (i = 0; i < o->live[k]; i++)
        if (o->offset[o->members[k][i]] >= base)
            packing_reason_join(o, o->conflict, packing_why(o, o->offset_why, o->members[k][i]));
    return 1;
}

/* Whether a buffer could move down in any plan that follows: then a better one is elsewhere. */
static int could_drop(packing_outline_t *o, int32_t b)
{
    int64_t floor = INT64_MAX, top = 0, size = o->g->size[b];
    int32_t k;
    for (k = o->g->first[b]; k < o->g->last[b]; k++) {
        if (o->floor[k] < floor) floor = o->floor[k];
        if (o->top[k] > top) top = o->top[k];
        if (top + size > floor) return 0;
    }
    if (packing_align(top, o->g->align[b]) + size > floor) return 0;
    memset(o->conflict, 0, (size_t)o->words * sizeof *o->conflict);
    for (k = o->g->first[b]; k < o->g->last[b]; k++) {
        packing_reason_join(o, o->conflict, packing_why(o, o->floor_why, k));
        packing_reason_join(o, o->conflict, packing_why(o, o->placed_why, k));
    }
    return 1;
}

int packing_outline_propagate(packing_outline_t *o)
{
    int ok = 1, i;
    while (ok && o->queue_count) {
        int32_t k = o->queue[--o->queue_count];
        o->queued[k] = 0;
        ok = settle(o, k);
    }
    while (o->queue_count)
        o->queued[o->queue[--o->queue_count]] = 0;
    for (i = 0; i < o->dirty_count; i++) {
        int32_t k = o->dirties[i], j;
        o->dirty[k] = 0;
        if (ok && o->live[k]) {
            if (is_overfull(o, k)) ok = 0;
            for (j = 0; ok && j < o->live[k]; j++) {
                int32_t b = o->members[k][j];
                if (o->floor[k] - o->top[k] >= o->g->size[b] && could_drop(o, b)) ok = 0;
            }
        }
    }
    o->dirty_count = 0;
    return ok;
}

int packing_outline_place(packing_outline_t *o, int32_t b, int32_t depth)
{
    const packing_instance_t *g = o->g;
    int64_t end = o->offset[b] + g->size[b];
    int32_t k;
    if (!record(o, PLACED, b, 0, 0, NULL)) return 0;
    o->placed[b] = 1;
    o->depth[b] = depth;
    for (k = g->first[b]; k < g->last[b]; k++) {
        int32_t *members = o->members[k], *at = &o->at[b][k - g->first[b]];
        int32_t last = --o->live[k], other = members[last];
        members[*at] = other;
        o->at[other][k - g->first[other]] = *at;
        members[last] = b;
        *at = last;
        o->rest[k] -= g->size[b];
        o->saved_top[o->saved_count] = o->top[k];
        o->saved_topmost[o->saved_count++] = o->topmost[k];
        o->top[k] = end;
        o->topmost[k] = b;
        if (k + 1 < g->last[b]) o->crossing[k]--;
        /* What was not below the old floor is not below this buffer, and so not below its end. */
        if (!packing_outline_raise(o, k, end, -1, packing_why(o, o->floor_why, k))) return 0;
        packing_reason_add(o, packing_why(o, o->floor_why, k), depth);
        packing_reason_add(o, packing_why(o, o->placed_why, k), depth);
    }
    return 1;
}

/* Take a decision out of a reason; what several depths share stays. */
static void forget(packing_outline_t *o, packing_reason_t *why, int32_t depth)
{
    if (depth < o->words * 64 - 1) why[depth / 64] &= ~((packing_reason_t)1 << (depth % 64));
}

static void unplace(packing_outline_t *o, int32_t b)
{
    const packing_instance_t *g = o->g;
    int32_t k;
    o->placed[b] = 0;
    for (k = g->last[b] - 1; k >= g->first[b]; k--) {
        o->live[k]++;
        o->rest[k] += g->size[b];
        o->top[k] = o->saved_top[--o->saved_count];
        o->topmost[k] = o->saved_topmost[o->saved_count];
        if (k + 1 < g->last[b]) o->crossing[k]++;
        forget(o, packing_why(o, o->placed_why, k), o->depth[b]);
    }
}

void packing_outline_undo(packing_outline_t *o, size_t mark)
{
    while (o->change_count > mark) {
        packing_change_t *c = &o->changes[--o->change_count];
        const packing_reason_t *why = o->old_whys + o->change_count * (size_t)o->words;
        switch (c->kind) {
        case FLOOR:
            o->floor[c->index] = c->old;
            o->witness[c->index] = c->witness;
            set_reason(o, packing_why(o, o->floor_why, c->index), why);
            break;
        case OFFSET:
            o->offset[c->index] = c->old;
            set_reason(o, packing_why(o, o->offset_why, c->index), why);
            break;
        case PLACED:
            unplace(o, c->index);
            break;
        }
    }
}

void packing_outline_reset(packing_outline_t *o, int64_t capacity)
{
    const packing_instance_t *g = o->g;
    int32_t b, k;
    o->change_count = o->saved_count = 0;
    o->capacity = capacity;
    o->need = INT64_MAX;
    o->queue_count = o->dirty_count = 0;
    o->is_out_of_memory = 0;
    memset(o->floor_why, 0, o->why_bytes);
    for (k = 0; k < g->sections; k++) {
        o->live[k] = 0;
        o->failures[k] = 0;
        o->rest[k] = o->floor[k] = o->top[k] = 0;
        o->witness[k] = o->topmost[k] = -1;
        o->crossing[k] = 0;
        o->queued[k] = o->dirty[k] = 0;
    }
    for (b = 0; b < g->count; b++) {
        o->offset[b] = 0;
        o->placed[b] = 0;
        for (k = g->first[b]; k < g->last[b]; k++) {
            o->at[b][k - g->first[b]] = o->live[k];
            o->members[k][o->live[k]++] = b;
            o->rest[k] += g->size[b];
            if (k + 1 < g->last[b]) o->crossing[k]++;
        }
    }
    for (k = 0; k < g->sections; k++)
        enqueue(o, k);
}

int64_t packing_outline_top(const packing_outline_t *o, int32_t b)
{
    int64_t top = 0;
    int32_t k;
    for (k = o->g->first[b]; k < o->g->last[b]; k++)
        if (o->top[k] > top) top = o->top[k];
    return top;
}

int packing_outline_init(packing_outline_t *o, const packing_instance_t *g)
{
    size_t n = (size_t)g->count + 1, m = (size_t)g->sections + 1, spans = (size_t)g->spans + 1;
    size_t i, room = n > m ? n : m;
    int64_t *longs;
    int32_t *ints, **lists;
    uint8_t *bytes;
    memset(o, 0, sizeof *o);
    o->g = g;
    o->words = n / 32 < MOST_WORDS ? (int)(n / 32) + 1 : 1;
    o->why_bytes = (n + 2 * m + 1) * (size_t)o->words * sizeof *o->floor_why;
    o->floor_why = o->blocks[3] = malloc(o->why_bytes);
    longs = o->blocks[0] = calloc(2 * n + 4 * m + 2 * room + spans, sizeof *longs);
    ints = o->blocks[1] = calloc(n + 6 * m + 3 * spans, sizeof *ints);
    lists = o->blocks[2] = malloc((n + m) * sizeof *lists + n + 2 * m);
    if (!longs || !ints || !lists || !o->floor_why) {
        packing_outline_drop(o);
        return 0;
    }
    o->offset = longs, longs += n;
    o->blame = longs, longs += n;
    o->rest = longs, longs += m;
    o->floor = longs, longs += m;
    o->top = longs, longs += m;
    o->failures = longs, longs += m;
    o->scratch = longs, longs += 2 * room;
    o->saved_top = longs;
    o->placed_why = packing_why(o, o->floor_why, (int32_t)m);
    o->offset_why = packing_why(o, o->placed_why, (int32_t)m);
    o->conflict = packing_why(o, o->offset_why, (int32_t)n);
    o->depth = ints, ints += n;
    o->live = ints, ints += m;
    o->witness = ints, ints += m;
    o->topmost = ints, ints += m;
    o->crossing = ints, ints += m;
    o->queue = ints, ints += m;
    o->dirties = ints, ints += m;
    o->saved_topmost = ints, ints += spans;
    o->at = lists;
    o->members = lists + n;
    bytes = (uint8_t *)(lists + n + m);
    o->placed = bytes;
    o->queued = bytes + n;
    o->dirty = bytes + n + m;
    for (i = 0; i < (size_t)g->count; i++) {
        int32_t k;
        o->at[i] = ints, ints += g->last[i] - g->first[i];
        for (k = g->first[i]; k < g->last[i]; k++)
            o->live[k]++;
    }
    for (i = 0; i < (size_t)g->sections; i++)
        o->members[i] = ints, ints += o->live[i];
    return 1;
}

void packing_outline_drop(packing_outline_t *o)
{
    int i;
    for (i = 0; i < 4; i++)
        free(o->blocks[i]);
    free(o->changes);
    free(o->old_whys);
    memset(o, 0, sizeof *o);
}
