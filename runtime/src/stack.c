#include "machine.h"

inlay_record_t *inlay_segment_end(inlay_segment_t *segment)
{
    return (inlay_record_t *)(void *)((uint8_t *)segment + segment->bytes);
}

static inlay_segment_t *new_segment(inlay_activation_t *m, size_t bytes)
{
    inlay_segment_t *segment;
    if (bytes > m->config.stack_bytes || m->stack_bytes > m->config.stack_bytes - bytes) {
        int64_t limit = (int64_t)m->config.stack_bytes;
        inlay_fail(m->error, INLAY_STACK_LIMIT,
                   "calls nest deeper than the {1} bytes of the stack allow", &limit, 1);
        return NULL;
    }
    segment = m->host->allocate(m->host->user, bytes, 64);
    if (!segment) {
        inlay_no_memory(m);
        return NULL;
    }
    segment->bytes = bytes;
    segment->next = NULL;
    m->stack_bytes += bytes;
    return segment;
}

static void free_segments(inlay_activation_t *m, inlay_segment_t *segment)
{
    while (segment) {
        inlay_segment_t *next = segment->next;
        m->stack_bytes -= segment->bytes;
        m->host->release(m->host->user, segment, segment->bytes, 64);
        segment = next;
    }
}

/* Records are read at aligned places: sizes are multiples of what a record needs. */
static size_t round_bytes(size_t bytes)
{
    size_t unit = sizeof(inlay_slot_t);
    return (bytes + unit - 1) / unit * unit;
}

inlay_segment_t *inlay_stack_next(inlay_activation_t *m, size_t bytes)
{
    inlay_segment_t *segment = m->current->next;
    size_t regular = m->current->bytes * 2;
    bytes = round_bytes(bytes + sizeof *segment + sizeof(inlay_record_t));
    if (segment && segment->bytes >= bytes) return segment;
    if (regular > INLAY_SEGMENT_MAX_BYTES) regular = INLAY_SEGMENT_MAX_BYTES;
    /* Near the limit a segment that just fits may still be had. */
    if (regular > m->config.stack_bytes - m->stack_bytes) regular = bytes;
    segment = new_segment(m, bytes > regular ? bytes : round_bytes(regular));
    if (!segment) return NULL;
    segment->next = m->current->next;
    m->current->next = segment;
    return segment;
}

static size_t first_bytes(size_t slots)
{
    size_t bytes = round_bytes(sizeof(inlay_segment_t) + slots * sizeof(inlay_slot_t) +
                               2 * sizeof(inlay_record_t));
    return bytes < INLAY_SEGMENT_BYTES ? INLAY_SEGMENT_BYTES : bytes;
}

inlay_segment_t *inlay_stack_open(inlay_activation_t *m, size_t slots)
{
    return new_segment(m, first_bytes(slots));
}

void inlay_stack_close(inlay_activation_t *m, inlay_segment_t *segment)
{
    free_segments(m, segment);
}

inlay_status_t inlay_stack_root(inlay_activation_t *m, size_t slots)
{
    size_t bytes = first_bytes(slots);
    if (!m->first || m->first->bytes < bytes) {
        inlay_segment_t *segment;
        free_segments(m, m->first);
        m->first = NULL;
        segment = new_segment(m, bytes);
        if (!segment) return m->error->status;
        m->first = segment;
    }
    m->current = m->first;
    return INLAY_OK;
}

void inlay_stack_trim(inlay_activation_t *m)
{
    if (!m->first) return;
    free_segments(m, m->first->next);
    m->first->next = NULL;
    m->current = m->first;
}
