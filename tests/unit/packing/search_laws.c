/* Laws of the packing algorithms on drawn lists of buffers.
 *
 *   search_laws plans COUNT SEED   every algorithm gives plans: aligned, within the capacity, nothing shared
 *   search_laws blocks COUNT SEED  a plan of glued blocks is a plan of the buffers, and they fill each moment alike
 *   search_laws exact COUNT SEED   exact search finds what trying all orders finds, and nothing below it
 *
 * Values are drawn and put into groups that share one buffer, as aliases do: a buffer lives as long as any
 * of its values, and is as large as the largest. What fails is printed as a table that `inlay memory` reads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "climb.h"
#include "compose.h"
#include "greedy.h"
#include "random.h"
#include "restart.h"

enum { VALUES = 12, BUFFERS = 8 };

typedef struct drawn {
    packing_instance_t g;
    int64_t lower[BUFFERS], upper[BUFFERS], size[BUFFERS], align[BUFFERS];
    int values, group[VALUES];
    int64_t from[VALUES], to[VALUES], bytes[VALUES];
} drawn_t;

static uint64_t state;

static int64_t draw(uint32_t limit)
{
    return packing_random(&state, limit);
}

static void draw_list(drawn_t *d)
{
    int groups = 1 + (int)draw(BUFFERS), i, b;
    uint32_t moments = 2 + (uint32_t)draw(9), sizes = 1 + (uint32_t)draw(24), aligns = 1 + (uint32_t)draw(5);
    memset(d, 0, sizeof *d);
    d->values = groups + (int)draw((uint32_t)(VALUES - groups) + 1);
    for (i = 0; i < d->values; i++) {
        b = d->group[i] = i < groups ? i : (int)draw((uint32_t)groups);
        d->from[i] = draw(moments);
        d->to[i] = d->from[i] + 1 + draw(moments);
        d->bytes[i] = 1 + draw(sizes);
        if (i < groups || d->from[i] < d->lower[b]) d->lower[b] = d->from[i];
        if (d->to[i] > d->upper[b]) d->upper[b] = d->to[i];
        if (d->bytes[i] > d->size[b]) d->size[b] = d->bytes[i];
        d->align[b] = (int64_t)1 << draw(aligns);
    }
    d->g.count = groups;
    d->g.lower = d->lower;
    d->g.upper = d->upper;
    d->g.size = d->size;
    d->g.align = d->align;
    if (!packing_sections(&d->g)) exit(2);
}

static int fail(const drawn_t *d, const char *what, int64_t capacity, const int64_t *offsets)
{
    int b;
    printf("%s, capacity %lld\nid,lower,upper,size,alignment\n", what, (long long)capacity);
    for (b = 0; b < d->g.count; b++)
        printf("%d,%lld,%lld,%lld,%lld\n", b, (long long)d->lower[b], (long long)d->upper[b],
               (long long)d->size[b], (long long)d->align[b]);
    for (b = 0; offsets && b < d->g.count; b++)
        printf("%s%lld", b ? ", " : "offsets: ", (long long)offsets[b]);
    printf("\n");
    return 0;
}

/* Whether values of different groups that are there at once are apart. */
static int is_plan(const drawn_t *d, const char *what, const int64_t *offsets, int64_t capacity)
{
    int i, j;
    for (i = 0; i < d->values; i++) {
        int64_t at = offsets[d->group[i]];
        if (at < 0 || at % d->align[d->group[i]]) return fail(d, what, capacity, offsets);
        if (at + d->bytes[i] > capacity) return fail(d, what, capacity, offsets);
        for (j = 0; j < i; j++) {
            int64_t other = offsets[d->group[j]];
            if (d->group[i] != d->group[j] && d->from[i] < d->to[j] && d->from[j] < d->to[i] &&
                at < other + d->bytes[j] && other < at + d->bytes[i])
                return fail(d, what, capacity, offsets);
        }
    }
    return 1;
}

static void begin(packing_budget_t *budget, int64_t steps)
{
    memset(budget, 0, sizeof *budget);
    budget->left = steps;
    budget->next_poll = INT64_MAX;
}

/* The most that lives at one moment. */
static int64_t most_alive(const drawn_t *d)
{
    int64_t best = 0, t;
    int b;
    for (t = 0; t < 32; t++) {
        int64_t live = 0;
        for (b = 0; b < d->g.count; b++)
            if (d->lower[b] <= t && t < d->upper[b]) live += d->size[b];
        if (live > best) best = live;
    }
    return best;
}

static int check_plans(const drawn_t *d)
{
    int64_t offsets[BUFFERS + 1], peak = -1, need = 0, capacity = most_alive(d) + draw(4);
    int32_t order[BUFFERS + 1], i;
    packing_answer_t answer;
    packing_budget_t budget;
    packing_fit_t fit;
    for (i = 0; i < d->g.count; i++) {
        int32_t at = (int32_t)draw((uint32_t)i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    if (!packing_fit_init(&fit, &d->g)) exit(2);
    for (i = 0; i < 2; i++) {
        begin(&budget, 1000);
        packing_fit_run(&fit, order, i ? PACKING_BEST_FIT : PACKING_FIRST_FIT, &budget, offsets);
        if (!is_plan(d, i ? "best fit" : "first fit", offsets, INT64_MAX)) return 0;
    }
    packing_fit_drop(&fit);
    if (!packing_stack_run(&d->g, order, offsets)) exit(2);
    if (!is_plan(d, "stacking", offsets, INT64_MAX)) return 0;
    if (!packing_scan_run(&d->g, offsets)) exit(2);
    if (!is_plan(d, "linear scan", offsets, INT64_MAX)) return 0;
    begin(&budget, 60);
    if (!packing_climb_run(&d->g, order, capacity, &budget, offsets, &peak)) exit(2);
    if (peak >= 0 && !is_plan(d, "hill climb", offsets, peak)) return 0;
    begin(&budget, 500);
    answer = packing_search(&d->g, capacity, (int)draw(3), &budget, offsets, &need);
    if (answer == PACKING_FOUND && !is_plan(d, "exact", offsets, capacity)) return 0;
    if (answer == PACKING_NONE && need <= capacity) return fail(d, "a bound that is none", capacity, NULL);
    return 1;
}

/* The bytes that live at a moment, each size rounded up to a multiple of a step. */
static int64_t load_at(const packing_instance_t *g, int64_t moment, int64_t step)
{
    int64_t live = 0;
    int b;
    for (b = 0; b < g->count; b++)
        if (g->lower[b] <= moment && moment < g->upper[b]) live += packing_align(g->size[b], step);
    return live;
}

static int check_blocks(const drawn_t *d)
{
    int64_t offsets[BUFFERS + 1], of_blocks[BUFFERS + 1];
    int32_t order[BUFFERS + 1], i;
    int64_t step = d->align[0]; /* alignments are powers of two: the least one divides all */
    packing_composed_t c;
    packing_budget_t budget;
    packing_fit_t fit;
    for (i = 1; i < d->g.count; i++)
        if (d->align[i] < step) step = d->align[i];
    if (!packing_compose(&d->g, 50 + (int)draw(51), &state, &c)) exit(2);
    if (c.instance.count > d->g.count) return fail(d, "more blocks than buffers", 0, NULL);
    /* Times of blocks are sections of buffers. */
    for (i = 0; i < d->g.sections; i++)
        if (load_at(&c.instance, i, 1) != load_at(&d->g, d->g.moment[i], step))
            return fail(d, "blocks that take other bytes", i, NULL);
    for (i = 0; i < c.instance.count; i++) {
        int32_t at = (int32_t)draw((uint32_t)i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    if (!packing_fit_init(&fit, &c.instance)) exit(2);
    begin(&budget, 1000);
    packing_fit_run(&fit, order, PACKING_FIRST_FIT, &budget, of_blocks);
    packing_fit_drop(&fit);
    for (i = 0; i < d->g.count; i++)
        offsets[i] = of_blocks[c.block[i]] + c.base[i];
    i = is_plan(d, "blocks", offsets, packing_peak(&c.instance, of_blocks));
    packing_composed_drop(&c);
    return i;
}

/* The least peak: in the plan with the least sum of offsets everything lies on something, so buffers can
 * be placed in the order of their offsets, each on what conflicts and is there. All orders are tried. */
static void try_orders(const drawn_t *d, int64_t *offsets, int placed, int64_t last, int64_t *best)
{
    int b, o;
    if (placed == (1 << d->g.count) - 1) {
        *best = packing_peak(&d->g, offsets);
        return;
    }
    for (b = 0; b < d->g.count; b++) {
        int64_t at = 0;
        if (placed >> b & 1) continue;
        for (o = 0; o < d->g.count; o++)
            if ((placed >> o & 1) && d->lower[o] < d->upper[b] && d->lower[b] < d->upper[o] &&
                offsets[o] + d->size[o] > at)
                at = offsets[o] + d->size[o];
        at = packing_align(at, d->align[b]);
        if (at < last || at + d->size[b] >= *best) continue;
        offsets[b] = at;
        try_orders(d, offsets, placed | 1 << b, at, best);
        offsets[b] = 0;
    }
}

static int check_exact(const drawn_t *d)
{
    int64_t offsets[BUFFERS + 1] = {0}, best = INT64_MAX, need = 0, goal;
    int seed = (int)draw(3);
    packing_budget_t budget;
    try_orders(d, offsets, 0, 0, &best);
    begin(&budget, 10000000);
    if (packing_search(&d->g, best, seed, &budget, offsets, &need) != PACKING_FOUND)
        return fail(d, "a plan that was not found", best, NULL);
    if (!is_plan(d, "exact", offsets, best)) return 0;
    for (goal = best - 1 - draw(3); goal < best; goal = need) {
        begin(&budget, 10000000);
        if (packing_search(&d->g, goal, seed, &budget, offsets, &need) != PACKING_NONE)
            return fail(d, "a plan that cannot be", goal, offsets);
        if (need <= goal || need > best) return fail(d, "a bound that is none", goal, NULL);
    }
    return 1;
}

int main(int argc, char **argv)
{
    long i, count = argc > 2 ? atol(argv[2]) : 1000;
    const char *law = argc > 1 ? argv[1] : "plans";
    int (*check)(const drawn_t *) =
        !strcmp(law, "exact") ? check_exact : !strcmp(law, "blocks") ? check_blocks : check_plans;
    int ok = 1;
    drawn_t d;
    state = argc > 3 ? (uint64_t)atol(argv[3]) : 1;
    for (i = 0; ok && i < count; i++) {
        draw_list(&d);
        ok = check(&d);
        packing_drop(&d.g);
    }
    printf("%ld lists\n", i);
    return !ok;
}
