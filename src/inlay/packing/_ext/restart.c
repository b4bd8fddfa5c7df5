#include "restart.h"

#include <stdlib.h>
#include <string.h>

#include "compose.h"
#include "random.h"

enum {
    BUFFER_STEPS = 1000, /* of the shortest try with buffers */
    FEW = 64,            /* buffers, of which a try may be a proof */
    FEW_STEPS = 8000,    /* of the shortest try with few buffers */
    BLOCK_STEPS = 500,   /* of the shortest try with blocks */
    LAST_TRY = 30,       /* percent of all steps, where there is one */
    LEFT_OUT = 30,       /* percent of blocks that at most are left out of a round of gluing */
    SCALE = 1024,        /* of logarithms */
    NOISE = 600          /* keys vary by half */
};

/* What is preferred: large values of the first, then of the second. */
typedef enum measure { FULLNESS, LENGTH, AREA, SECTIONS, SIZE, MEASURES } measure_t;

typedef struct preference {
    measure_t major, minor;
} preference_t;

static const preference_t preferences[] = {
    {FULLNESS, AREA}, {LENGTH, AREA}, {FULLNESS, LENGTH}, {AREA, SIZE}, {SECTIONS, SIZE},
};
enum { KINDS = sizeof preferences / sizeof *preferences };

/* The logarithm to base 2 of a number from 1 on, times SCALE, by a chord from power to power. */
static int64_t logarithm(int64_t value)
{
    int64_t bits = 0, rest = value;
    while (rest > 1) {
        rest >>= 1;
        bits++;
    }
    if (bits >= 10) return bits * SCALE + (value >> (bits - 10)) - SCALE;
    return bits * SCALE + (value << (10 - bits)) - SCALE;
}

static int64_t *measure(const packing_instance_t *g)
{
    size_t n = (size_t)g->count;
    int64_t *found = malloc((n + 1) * MEASURES * sizeof *found);
    int64_t *full = calloc((size_t)g->sections + 1, sizeof *full);
    int32_t b, k;
    if (found && full) {
        for (b = 0; b < g->count; b++)
            for (k = g->first[b]; k < g->last[b]; k++)
                full[k] += g->size[b];
        for (b = 0; b < g->count; b++) {
            int64_t *of = found + (size_t)b * MEASURES, most = 0;
            for (k = g->first[b]; k < g->last[b]; k++)
                if (full[k] > most) most = full[k];
            of[FULLNESS] = logarithm(most);
            of[LENGTH] = logarithm(g->upper[b] - g->lower[b]);
            of[SIZE] = logarithm(g->size[b]);
            of[AREA] = of[LENGTH] + of[SIZE];
            of[SECTIONS] = logarithm(g->last[b] - g->first[b]);
        }
    } else {
        free(found);
        found = NULL;
    }
    free(full);
    return found;
}

/* Number the buffers by a preference. */
static void set_ranks(const packing_instance_t *g, const int64_t *measures, preference_t by,
                      const int64_t *blame, uint64_t *random, packing_key_t *keys, int32_t *rank)
{
    int32_t i;
    for (i = 0; i < g->count; i++) {
        const int64_t *of = measures + (size_t)i * MEASURES;
        packing_key_t key = {-of[by.major], -of[by.minor], 0, i};
        if (random) key.major -= packing_random(random, NOISE) + logarithm(1 + blame[i] / 100);
        keys[i] = key;
    }
    packing_sort(keys, g->count);
    for (i = 0; i < g->count; i++)
        rank[keys[i].index] = i;
}

/* What tries of one instance share. */
typedef struct tries {
    const packing_instance_t *g;
    int64_t *measures;
    packing_key_t *keys;
    int32_t *rank;
    packing_exact_t *search;
} tries_t;

static int begin_tries(tries_t *t, const packing_instance_t *g)
{
    size_t n = (size_t)g->count + 1;
    t->g = g;
    t->measures = measure(g);
    t->keys = malloc(n * sizeof *t->keys);
    t->rank = malloc(n * sizeof *t->rank);
    t->search = packing_exact_new(g);
    return t->measures && t->keys && t->rank && t->search;
}

static void end_tries(tries_t *t)
{
    packing_exact_free(t->search);
    free(t->rank);
    free(t->keys);
    free(t->measures);
}

/* One try: a preference, a rule, and no more than so many steps. */
static packing_answer_t try_once(tries_t *t, int round, uint64_t *random, int64_t limit, int64_t capacity,
                                 packing_budget_t *budget, int64_t *offsets, int64_t *need)
{
    /* Each preference meets each rule. */
    packing_branching_t rule = (packing_branching_t)((round + round / KINDS) % PACKING_BRANCHINGS);
    int64_t whole = budget->left;
    packing_answer_t answer;
    set_ranks(t->g, t->measures, preferences[round % KINDS], packing_exact_blame(t->search), random, t->keys,
              t->rank);
    if (budget->left > limit) budget->left = limit;
    whole -= budget->left;
    answer = packing_exact_run(t->search, t->rank, rule, capacity, budget, offsets, need);
    budget->left += whole;
    return answer;
}

/* The number of an index from 1 on in 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 and so on: how long tries last where
 * nobody knows how long one takes that succeeds (Luby, Sinclair and Zuckerman, 1993). Most that succeed do so
 * soon, so many are short; a proof needs a long one. */
static int64_t luby(int64_t index)
{
    int64_t power = 1;
    while (power < index + 1)
        power *= 2;
    return power == index + 1 ? power / 2 : luby(index - power / 2 + 1);
}

/* Steps of a try, from 0 on. Of many buffers the shortest is longer, as each takes a step to place. */
static int64_t length_of(int64_t try, int64_t shortest, int32_t count)
{
    return luby(try + 1) * (shortest > 2 * (int64_t)count ? shortest : 2 * (int64_t)count);
}

static int64_t shorter(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* One try with blocks in the place of buffers. That no plan has these blocks says nothing. */
static packing_answer_t try_blocks(const packing_instance_t *g, int round, uint64_t *random, int64_t capacity,
                                   packing_budget_t *budget, int64_t *offsets, int *is_useful)
{
    packing_composed_t c;
    tries_t t;
    int64_t need;
    int32_t b;
    packing_answer_t answer = PACKING_NO_MEMORY;
    if (!packing_spend(budget, 1 + g->count / 2)) return PACKING_UNDECIDED;
    if (!packing_compose(g, 100 - (int)packing_random(random, LEFT_OUT), random, &c)) return answer;
    *is_useful = c.instance.count < g->count;
    if (*is_useful) {
        int64_t limit = length_of(round, BLOCK_STEPS, c.instance.count);
        if (begin_tries(&t, &c.instance))
            answer = try_once(&t, round, random, limit, capacity, budget, t.measures, &need);
        for (b = 0; answer == PACKING_FOUND && b < g->count; b++)
            offsets[b] = t.measures[c.block[b]] + c.base[b];
        end_tries(&t);
    }
    packing_composed_drop(&c);
    return answer == PACKING_NONE || !*is_useful ? PACKING_UNDECIDED : answer;
}

/* Search a part that nothing connects with another one: for plans of buffers and of blocks, each as long as
 * it has taken fewer steps. Even seeds begin with buffers, so what is easy is decided, and end with one long
 * try, as a proof takes a try that comes to its end. */
static packing_answer_t search_part(const packing_instance_t *g, int64_t capacity, int seed,
                                    packing_budget_t *budget, int64_t *offsets, int64_t *need)
{
    tries_t t;
    packing_answer_t answer = begin_tries(&t, g) ? PACKING_UNDECIDED : PACKING_NO_MEMORY;
    int64_t of_buffers = seed % 2, of_blocks = 0; /* steps */
    int64_t shortest = g->count <= FEW ? FEW_STEPS : BUFFER_STEPS;
    int64_t last = seed % 2 ? 0 : budget->left / 100 * LAST_TRY;
    uint64_t random = 1 + (uint64_t)seed;
    int round = 0, tried = 0, is_useful = 1;
    while (answer == PACKING_UNDECIDED && budget->left && !budget->is_stopped) {
        int64_t before = budget->used, length = budget->left;
        if (is_useful && budget->left > last && of_blocks < of_buffers) {
            answer = try_blocks(g, tried++, &random, capacity, budget, offsets, &is_useful);
            of_blocks += budget->used - before;
            continue;
        }
        if (length > last) length = shorter(length - last, length_of(round, shortest, g->count));
        answer = try_once(&t, round, round < KINDS && !seed ? NULL : &random, length, capacity, budget,
                          offsets, need);
        of_buffers += budget->used - before;
        round++;
    }
    end_tries(&t);
    return answer;
}

/* A part of an instance: the buffers of some sections. */
typedef struct part {
    packing_instance_t instance;
    int64_t *columns; /* lower, upper, size, align, and offsets, each [count] */
    int32_t *indices; /* [count] of the whole */
} part_t;

static void drop_part(part_t *part)
{
    packing_drop(&part->instance);
    free(part->columns);
    free(part->indices);
}

/* The buffers of sections from one up to another one; 0 without memory. */
static int make_part(const packing_instance_t *g, int32_t from, int32_t to, part_t *part)
{
    int32_t b, i;
    size_t n = 0;
    memset(part, 0, sizeof *part);
    for (b = 0; b < g->count; b++)
        n += g->first[b] >= from && g->first[b] < to;
    part->columns = malloc((5 * n + 1) * sizeof *part->columns);
    part->indices = malloc((n + 1) * sizeof *part->indices);
    if (!part->columns || !part->indices) return 0;
    for (i = 0, b = 0; b < g->count; b++) {
        int64_t *to_column = part->columns + i;
        if (g->first[b] < from || g->first[b] >= to) continue;
        part->indices[i++] = b;
        to_column[0] = g->lower[b];
        to_column[n] = g->upper[b];
        to_column[2 * n] = g->size[b];
        to_column[3 * n] = g->align[b];
    }
    return packing_columns(&part->instance, part->columns, i);
}

/* The first section from one on that no buffer before it reaches: there another part begins. */
static int32_t part_end(const packing_instance_t *g, const int32_t *reach, int32_t from)
{
    int32_t k = from, end = from + 1;
    for (; k < end && k < g->sections; k++)
        if (reach[k] > end) end = reach[k];
    return end;
}

/* For each section, where those buffers end that begin in it; NULL without memory. */
static int32_t *find_reach(const packing_instance_t *g)
{
    int32_t b, *reach = calloc((size_t)g->sections + 1, sizeof *reach);
    for (b = 0; reach && b < g->count; b++)
        if (g->last[b] > reach[g->first[b]]) reach[g->first[b]] = g->last[b];
    return reach;
}

/* Search part by part. */
static packing_answer_t search_parts(const packing_instance_t *g, int64_t capacity, int seed,
                                     packing_budget_t *budget, int64_t *offsets, int64_t *need)
{
    packing_answer_t answer = PACKING_FOUND;
    int32_t *reach = find_reach(g), from, to, i;
    if (!reach) return PACKING_NO_MEMORY;
    if (part_end(g, reach, 0) >= g->sections) {
        free(reach);
        return search_part(g, capacity, seed, budget, offsets, need);
    }
    for (from = 0; answer == PACKING_FOUND && from < g->sections; from = to) {
        part_t part;
        to = part_end(g, reach, from);
        answer = PACKING_NO_MEMORY;
        if (make_part(g, from, to, &part)) {
            int64_t *found = part.columns + 4 * (size_t)part.instance.count;
            answer = search_part(&part.instance, capacity, seed, budget, found, need);
            for (i = 0; answer == PACKING_FOUND && i < part.instance.count; i++)
                offsets[part.indices[i]] = found[i];
        }
        drop_part(&part);
    }
    free(reach);
    return answer;
}

/* Where all offsets are multiples of a step, what follows a buffer begins at a multiple. So sizes may be rounded
 * up to it, which bounds see; of what is highest too, if the capacity is a multiple. */
packing_answer_t packing_search(const packing_instance_t *g, int64_t capacity, int seed,
                                packing_budget_t *budget, int64_t *offsets, int64_t *need)
{
    int64_t step = packing_common_alignment(g), *sizes;
    packing_instance_t rounded = *g;
    packing_answer_t answer;
    int32_t b;
    if (step == 1 || capacity % step) return search_parts(g, capacity, seed, budget, offsets, need);
    sizes = malloc(((size_t)g->count + 1) * sizeof *sizes);
    if (!sizes) return PACKING_NO_MEMORY;
    for (b = 0; b < g->count; b++)
        sizes[b] = packing_align(g->size[b], step);
    rounded.size = sizes;
    answer = search_parts(&rounded, capacity, seed, budget, offsets, need);
    /* A plan of less would be one of less than a step more when it is rounded. */
    if (answer == PACKING_NONE) *need -= step - 1;
    free(sizes);
    return answer;
}
