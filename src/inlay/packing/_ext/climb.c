#include "climb.h"

#include <stdlib.h>
#include <string.h>

#include "greedy.h"
#include "random.h"

/* A plan is as large as its highest end. What ends there, and what forces it up, was placed too late:
 * exchanging it with something earlier, and placing all again, gives a neighbour. It is kept if it is
 * not larger, now and then even if it is. */

typedef struct climb {
    const packing_instance_t *g;
    packing_fit_t fit;
    int32_t *order, *candidate, *some;
    int64_t *offsets, *found;
    uint64_t random;
} climb_t;

static int conflict(const packing_instance_t *g, int32_t a, int32_t b)
{
    return a != b && g->first[a] < g->last[b] && g->first[b] < g->last[a];
}

/* One of `some`. */
static int32_t pick(climb_t *c, int32_t count)
{
    return c->some[packing_random(&c->random, (uint32_t)count)];
}

static void make_candidate(climb_t *c, int64_t peak)
{
    const packing_instance_t *g = c->g;
    int32_t n = g->count, count = 0, b, i, at = 0, to, high;
    for (b = 0; b < n; b++)
        if (c->offsets[b] + g->size[b] == peak) c->some[count++] = b;
    high = pick(c, count);
    for (count = 0, b = 0; b < n; b++)
        if (conflict(g, b, high) && c->offsets[b] < c->offsets[high]) c->some[count++] = b;
    if (count && packing_random(&c->random, 2)) high = pick(c, count);
    while (c->order[at] != high)
        at++;
    for (count = 0, i = 0; i < at; i++)
        if (conflict(g, c->order[i], high)) c->some[count++] = i;
    to = count ? pick(c, count) : (int32_t)packing_random(&c->random, (uint32_t)n);
    memcpy(c->candidate, c->order, (size_t)n * sizeof *c->order);
    if (packing_random(&c->random, 2)) {
        c->candidate[at] = c->order[to];
        c->candidate[to] = high;
        return;
    }
    if (to > at) {
        int32_t swap = to;
        to = at;
        at = swap;
    }
    memmove(c->candidate + to + 1, c->order + to, (size_t)(at - to) * sizeof *c->order);
    c->candidate[to] = c->order[at];
}

static void climb(climb_t *c, int64_t goal, packing_budget_t *budget, int64_t *best, int64_t *peak)
{
    size_t bytes = (size_t)c->g->count * sizeof *best;
    int64_t now;
    *peak = -1;
    if (!packing_fit_run(&c->fit, c->order, PACKING_FIRST_FIT, budget, c->offsets)) return;
    now = *peak = packing_peak(c->g, c->offsets);
    memcpy(best, c->offsets, bytes);
    while (*peak > goal) {
        int64_t then;
        make_candidate(c, now);
        if (!packing_fit_run(&c->fit, c->candidate, PACKING_FIRST_FIT, budget, c->found)) return;
        then = packing_peak(c->g, c->found);
        if (then < *peak) {
            *peak = then;
            memcpy(best, c->found, bytes);
        }
        /* A slightly larger plan may lead out of a dead end. */
        if (then <= now || packing_random(&c->random, 50) == 0) {
            int32_t *order = c->order;
            int64_t *offsets = c->offsets;
            c->order = c->candidate;
            c->candidate = order;
            c->offsets = c->found;
            c->found = offsets;
            now = then;
        }
    }
}

int packing_climb_run(const packing_instance_t *g, int32_t *order, int64_t goal,
                      packing_budget_t *budget, int64_t *offsets, int64_t *peak)
{
    size_t n = (size_t)g->count + 1;
    int32_t *ints = malloc(2 * n * sizeof *ints);
    int64_t *longs = malloc(2 * n * sizeof *longs);
    climb_t c;
    int ok = 0;
    memset(&c, 0, sizeof c);
    c.g = g;
    c.random = 1;
    if (ints && longs && packing_fit_init(&c.fit, g)) {
        c.order = order;
        c.candidate = ints;
        c.some = ints + n;
        c.offsets = longs;
        c.found = longs + n;
        climb(&c, goal, budget, offsets, peak);
        packing_fit_drop(&c.fit);
        ok = 1;
    }
    free(ints);
    free(longs);
    return ok;
}
