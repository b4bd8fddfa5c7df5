/* What a client waits for, as the messages between it and its process tell: so that the server knows how
 * long each request is under way without believing the process. See serve.c. */
#define _POSIX_C_SOURCE 200809L
#include "platform/serve.h"

static int has_ended(const watch_t *watch, const inlay_ticket_t *ticket)
{
    return ticket->queue >= WIRE_MOST_QUEUES || watch->lanes[ticket->queue].ended >= ticket->number;
}

/* Note which requests begin now: the first of their queues, when what they come after has ended. */
static void look_at_firsts(watch_t *watch, int64_t now)
{
    uint32_t i, k;
    for (i = 0; i < WIRE_MOST_QUEUES; i++) {
        watched_t *first = watch->lanes[i].first;
        if (!first || first->begun) continue;
        for (k = 0; k < first->n_after && has_ended(watch, &first->after[k]); k++) continue;
        if (k == first->n_after) first->begun = now;
    }
}

static int note_request(const carrier_t *carrier, watch_t *watch, wire_reader_t *r, uint32_t slot,
                        int64_t now)
{
    const uint32_t queue = inlay_wire_read_u32(r);
    const uint64_t number = inlay_wire_read_u64(r);
    const uint32_t n = inlay_wire_read_count(r, WIRE_MOST_TICKETS);
    const size_t size = sizeof(watched_t) + n * sizeof(inlay_ticket_t);
    watched_lane_t *lane;
    watched_t *made;
    uint32_t i;
    if (r->is_bad || queue >= WIRE_MOST_QUEUES || watch->in_flight >= 2 * WIRE_MOST_REQUESTS) return 0;
    lane = &watch->lanes[queue];
    if (number != lane->sent + 1) return 0;
    made = inlay_take(carrier->host, size);
    if (!made) return 0;
    made->size = size;
    made->number = number;
    made->slot = slot;
    made->after = (inlay_ticket_t *)(void *)(made + 1);
    made->n_after = n;
    for (i = 0; i < n; i++) {
        made->after[i].queue = inlay_wire_read_u32(r);
        made->after[i].number = inlay_wire_read_u64(r);
    }
    if (lane->last) lane->last->next = made;
    else lane->first = made;
    lane->last = made;
    lane->sent = number;
    watch->in_flight++;
    look_at_firsts(watch, now);
    return !r->is_bad;
}

int inlay_watch_sent(const carrier_t *carrier, watch_t *watch, wire_reader_t r, uint32_t slot,
                     int64_t now)
{
    const uint32_t kind = inlay_wire_read_u32(&r);
    switch (kind) {
    case WIRE_ALLOCATE:
    case WIRE_LOAD:
    case WIRE_FIND:
        if (!watch->calls++) watch->call_begun = now;
        return 1;
    case WIRE_WRITE:
    case WIRE_READ:
    case WIRE_COPY:
    case WIRE_LAUNCH: return note_request(carrier, watch, &r, slot, now);
    case WIRE_RELEASE:
    case WIRE_UNLOAD: return 1;
    default: return 0;
    }
}

static void drop_first(const carrier_t *carrier, watch_t *watch, watched_lane_t *lane)
{
    watched_t *first = lane->first;
    lane->first = first->next;
    if (!lane->first) lane->last = NULL;
    lane->ended = first->number;
    watch->in_flight--;
    inlay_give(carrier->host, first, first->size);
}

int inlay_watch_ended(const carrier_t *carrier, watch_t *watch, wire_reader_t r, uint32_t *slot,
                      int64_t now)
{
    const uint32_t kind = inlay_wire_read_u32(&r), queue = inlay_wire_read_u32(&r);
    const uint64_t number = inlay_wire_read_u64(&r);
    watched_lane_t *lane;
    watched_t *w;
    *slot = CHANNEL_NO_SLOT;
    if (kind == WIRE_ANSWER) {
        watch->call_begun = now;
        if (!watch->calls) return 0;
        watch->calls--;
        return 1;
    }
    if (kind != WIRE_DONE) return kind == WIRE_WELCOME || kind == WIRE_REFUSED || kind == WIRE_FAILED;
    if (r.is_bad || queue >= WIRE_MOST_QUEUES) return 0;
    lane = &watch->lanes[queue];
    for (w = lane->first; w && w->number != number; w = w->next) continue;
    if (!w || w->is_over) return 0;
    w->is_over = 1;
    *slot = w->slot;
    while (lane->first && lane->first->is_over) drop_first(carrier, watch, lane);
    look_at_firsts(watch, now);
    return 1;
}

int64_t inlay_watch_oldest(const watch_t *watch)
{
    int64_t oldest = watch->calls ? watch->call_begun : INT64_MAX;
    uint32_t i;
    for (i = 0; i < WIRE_MOST_QUEUES; i++) {
        const watched_t *first = watch->lanes[i].first;
        if (first && first->begun && first->begun < oldest) oldest = first->begun;
    }
    return oldest;
}

void inlay_watch_clear(const carrier_t *carrier, watch_t *watch)
{
    uint32_t i;
    for (i = 0; i < WIRE_MOST_QUEUES; i++)
        while (watch->lanes[i].first) drop_first(carrier, watch, &watch->lanes[i]);
}
