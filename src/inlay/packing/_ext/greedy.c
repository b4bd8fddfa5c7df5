#include "greedy.h"

#include <stdlib.h>
#include <string.h>

int64_t packing_peak(const packing_instance_t *g, const int64_t *offsets)
{
    int64_t peak = 0;
    int32_t b;
    for (b = 0; b < g->count; b++)
        if (offsets[b] + g->size[b] > peak) peak = offsets[b] + g->size[b];
    return peak;
}

/* ------------------------------------------------------------------ first and best fit */

int packing_fit_init(packing_fit_t *f, const packing_instance_t *g)
{
    size_t n = (size_t)g->count + 1;
    packing_key_t *keys = malloc(n * sizeof *keys);
    int32_t i;
    memset(f, 0, sizeof *f);
    f->g = g;
    f->by_first = malloc(n * sizeof *f->by_first);
    f->node = malloc(n * sizeof *f->node);
    f->latest = malloc(n * sizeof *f->latest);
    f->taken = malloc(2 * n * sizeof *f->taken);
    f->spare = malloc(2 * n * sizeof *f->spare);
    if (!keys || !f->by_first || !f->node || !f->latest || !f->taken || !f->spare) {
        free(keys);
        packing_fit_drop(f);
        return 0;
    }
    for (i = 0; i < g->count; i++) {
        packing_key_t key = {g->first[i], 0, 0, i};
        keys[i] = key;
    }
    packing_sort(keys, g->count);
    for (i = 0; i < g->count; i++) {
        f->by_first[i] = keys[i].index;
        f->node[keys[i].index] = i;
    }
    free(keys);
    return 1;
}

void packing_fit_drop(packing_fit_t *f)
{
    free(f->by_first);
    free(f->node);
    free(f->latest);
    free(f->taken);
    free(f->spare);
    memset(f, 0, sizeof *f);
}

/* The subtree of the positions [low, high) has its root in the middle. */
static void mark(packing_fit_t *f, int32_t b)
{
    int32_t low = 0, high = f->g->count, at = f->node[b], end = f->g->last[b];
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (f->latest[middle] < end) f->latest[middle] = end;
        if (at == middle) return;
        if (at < middle)
            high = middle;
        else
            low = middle + 1;
    }
}

/* Gather offsets and ends of what is placed and conflicts with a buffer; returns how many. */
static int32_t gather(packing_fit_t *f, int32_t b, const int64_t *offsets)
{
    const packing_instance_t *g = f->g;
    int32_t stack[2 * 64], depth = 0, count = 0, begin = g->first[b], end = g->last[b];
    stack[depth++] = 0;
    stack[depth++] = g->count;
    while (depth) {
        int32_t high = stack[--depth], low = stack[--depth], middle = low + (high - low) / 2, other;
        if (low >= high || f->latest[middle] <= begin) continue;
        other = f->by_first[middle];
        stack[depth++] = low;
        stack[depth++] = middle;
        if (g->first[other] >= end) continue;
        stack[depth++] = middle + 1;
        stack[depth++] = high;
        if (offsets[other] >= 0 && g->last[other] > begin) {
            f->taken[2 * count] = offsets[other];
            f->taken[2 * count + 1] = offsets[other] + g->size[other];
            count++;
        }
    }
    return count;
}

/* Sort pairs by their first numbers: merges of runs, which start as sorted pieces of eight. */
static int64_t *sort_pairs(int64_t *pairs, int64_t *spare, int32_t count)
{
    int32_t width = 8, begin, i, j, k;
    for (begin = 0; begin < count; begin += width) {
        int32_t end = begin + width < count ? begin + width : count;
        for (i = begin + 1; i < end; i++) {
            int64_t key = pairs[2 * i], value = pairs[2 * i + 1];
            for (j = i; j > begin && pairs[2 * j - 2] > key; j--) {
                pairs[2 * j] = pairs[2 * j - 2];
                pairs[2 * j + 1] = pairs[2 * j - 1];
            }
            pairs[2 * j] = key;
            pairs[2 * j + 1] = value;
        }
    }
    for (; width < count; width *= 2) {
        int64_t *swap = pairs;
        for (begin = 0; begin < count; begin += 2 * width) {
            int32_t middle = begin + width < count ? begin + width : count;
            int32_t end = middle + width < count ? middle + width : count;
            for (i = begin, j = middle, k = begin; k < end; k++) {
                int32_t from = i < middle && (j >= end || pairs[2 * i] <= pairs[2 * j]) ? i++ : j++;
                spare[2 * k] = pairs[2 * from];
                spare[2 * k + 1] = pairs[2 * from + 1];
            }
        }
        pairs = spare;
        spare = swap;
    }
    return pairs;
}

static int64_t find_gap(const int64_t *taken, int32_t count, int64_t size, int64_t align,
                        packing_rule_t rule)
{
    int64_t end = 0, best = -1, best_room = INT64_MAX;
    int32_t i;
    for (i = 0; i < count; i++) {
        int64_t start = taken[2 * i], at = packing_align(end, align);
        if (at + size <= start) {
            if (rule == PACKING_FIRST_FIT) return at;
            if (start - end < best_room) {
                best_room = start - end;
                best = at;
            }
        }
        if (taken[2 * i + 1] > end) end = taken[2 * i + 1];
    }
    return best >= 0 ? best : packing_align(end, align);
}

int packing_fit_run(packing_fit_t *f, const int32_t *order, packing_rule_t rule,
                    packing_budget_t *budget, int64_t *offsets)
{
    const packing_instance_t *g = f->g;
    int32_t i;
    for (i = 0; i < g->count; i++) {
        f->latest[i] = 0;
        offsets[i] = -1;
    }
    for (i = 0; i < g->count; i++) {
        int32_t b = order[i], count;
        count = gather(f, b, offsets);
        if (!packing_spend(budget, 1 + count / PACKING_STEP_WORK)) return 0;
        offsets[b] = find_gap(sort_pairs(f->taken, f->spare, count), count, g->size[b], g->align[b],
                              rule);
        mark(f, b);
    }
    return 1;
}

/* ------------------------------------------------------------------ stacking */

/* Highest ends by section: `most` of a node is the highest in its range, `all` what was put on all
 * of it. Ends only rise, so a later one covers what is below. */
typedef struct heights {
    int64_t *most, *all;
} heights_t;

static int64_t highest(const heights_t *h, int32_t node, int32_t low, int32_t high, int32_t from,
                       int32_t to)
{
    int32_t middle = low + (high - low) / 2;
    int64_t best = h->all[node], side;
    if (from <= low && high <= to) return h->most[node];
    if (from < middle) {
        side = highest(h, 2 * node, low, middle, from, to);
        if (side > best) best = side;
    }
    if (to > middle) {
        side = highest(h, 2 * node + 1, middle, high, from, to);
        if (side > best) best = side;
    }
    return best;
}

static void put(heights_t *h, int32_t node, int32_t low, int32_t high, int32_t from, int32_t to,
                int64_t end)
{
    int32_t middle = low + (high - low) / 2;
    if (end > h->most[node]) h->most[node] = end;
    if (from <= low && high <= to) {
        h->all[node] = end;
        return;
    }
    if (from < middle) put(h, 2 * node, low, middle, from, to, end);
    if (to > middle) put(h, 2 * node + 1, middle, high, from, to, end);
}

int packing_stack_run(const packing_instance_t *g, const int32_t *order, int64_t *offsets)
{
    heights_t h;
    int32_t i;
    h.most = calloc(4 * (size_t)g->sections + 4, sizeof *h.most);
    h.all = calloc(4 * (size_t)g->sections + 4, sizeof *h.all);
    if (h.most && h.all) {
        for (i = 0; i < g->count; i++) {
            int32_t b = order[i], from = g->first[b], to = g->last[b];
            int64_t at = packing_align(highest(&h, 1, 0, g->sections, from, to), g->align[b]);
            offsets[b] = at;
            put(&h, 1, 0, g->sections, from, to, at + g->size[b]);
        }
    }
    i = h.most && h.all;
    free(h.most);
    free(h.all);
    return i;
}

/* ------------------------------------------------------------------ scan */

/* Where an offset is among the pairs of what lives, which are sorted. */
static int32_t find_pair(const int64_t *live, int32_t count, int64_t offset)
{
    int32_t low = 0, high = count;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (live[2 * middle] < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int packing_scan_run(const packing_instance_t *g, int64_t *offsets)
{
    size_t n = (size_t)g->count;
    packing_key_t *events = malloc((2 * n + 1) * sizeof *events);
    int64_t *live = malloc((2 * n + 2) * sizeof *live);
    int32_t count = 0, at;
    size_t i;
    int ok = events && live;
    for (i = 0; ok && i < n; i++) {
        packing_key_t begin = {g->lower[i], 1, -g->size[i], (int32_t)i};
        packing_key_t end = {g->upper[i], 0, 0, (int32_t)i};
        events[2 * i] = begin;
        events[2 * i + 1] = end;
    }
    if (ok) packing_sort(events, (int)(2 * n));
    for (i = 0; ok && i < 2 * n; i++) {
        int32_t b = events[i].index;
        if (events[i].middle == 0) {
            at = find_pair(live, count--, offsets[b]);
            memmove(live + 2 * at, live + 2 * at + 2, (size_t)(count - at) * 2 * sizeof *live);
            continue;
        }
        offsets[b] = find_gap(live, count, g->size[b], g->align[b], PACKING_BEST_FIT);
        at = find_pair(live, count, offsets[b]);
        memmove(live + 2 * at + 2, live + 2 * at, (size_t)(count++ - at) * 2 * sizeof *live);
        live[2 * at] = offsets[b];
        live[2 * at + 1] = offsets[b] + g->size[b];
    }
    free(events);
    free(live);
    return ok;
}
