#include "instance.h"

#include <stdlib.h>
#include <string.h>

static int by_key(const void *left, const void *right)
{
    const packing_key_t *a = left, *b = right;
    if (a->major != b->major) return a->major < b->major ? -1 : 1;
    if (a->middle != b->middle) return a->middle < b->middle ? -1 : 1;
    if (a->minor != b->minor) return a->minor < b->minor ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

void packing_sort(packing_key_t *keys, int count)
{
    /* No two keys are equal, so the result does not depend on how the library sorts. */
    qsort(keys, (size_t)count, sizeof *keys, by_key);
}

int packing_columns(packing_instance_t *g, const int64_t *columns, int32_t count)
{
    g->count = count;
    g->lower = columns;
    g->upper = columns + count;
    g->size = columns + 2 * (size_t)count;
    g->align = columns + 3 * (size_t)count;
    return packing_sections(g);
}

int packing_sections(packing_instance_t *g)
{
    size_t n = (size_t)g->count, i;
    int closed = 0, is_open = 0;
    int64_t live = 0;
    packing_key_t *events = malloc((2 * n + 1) * sizeof *events);
    g->first = malloc((n + 1) * sizeof *g->first);
    g->last = malloc((n + 1) * sizeof *g->last);
    g->moment = malloc((n + 1) * sizeof *g->moment);
    g->spans = g->pairs = 0;
    if (!events || !g->first || !g->last || !g->moment) {
        free(events);
        packing_drop(g);
        return 0;
    }
    /* At one moment what ends goes before what begins. */
    for (i = 0; i < n; i++) {
        packing_key_t begin = {g->lower[i], 1, (int64_t)i, (int32_t)i};
        packing_key_t end = {g->upper[i], 0, (int64_t)i, (int32_t)i};
        events[2 * i] = begin;
        events[2 * i + 1] = end;
    }
    packing_sort(events, (int)(2 * n));
    /* A section ends where something ends after something has begun. */
    for (i = 0; i < 2 * n; i++) {
        const packing_key_t *e = &events[i];
        if (e->middle) {
            g->first[e->index] = closed;
            g->moment[closed] = e->major;
            is_open = 1;
            g->pairs += live++;
            continue;
        }
        closed += is_open;
        is_open = 0;
        live--;
        g->last[e->index] = closed;
        g->spans += closed - g->first[e->index];
    }
    g->sections = closed;
    free(events);
    return 1;
}

void packing_drop(packing_instance_t *g)
{
    free(g->first);
    free(g->last);
    free(g->moment);
    g->first = g->last = NULL;
    g->moment = NULL;
}

int64_t packing_common_alignment(const packing_instance_t *g)
{
    int64_t found = g->count ? g->align[0] : 1, other, rest;
    int32_t b;
    for (b = 1; b < g->count; b++)
        for (other = g->align[b]; other; other = rest) {
            rest = found % other;
            found = other;
        }
    return found;
}

int packing_spend(packing_budget_t *b, int64_t steps)
{
    if (b->is_stopped) return 0;
    if (b->left < steps) {
        b->used += b->left;
        b->left = 0;
        return 0;
    }
    b->left -= steps;
    b->used += steps;
    if (b->poll && b->used >= b->next_poll) {
        b->next_poll = b->used + PACKING_POLL_STEPS;
        if (b->poll(b->context, b->used)) b->is_stopped = 1;
    }
    return !b->is_stopped;
}
