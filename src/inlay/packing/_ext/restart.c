#include "restart.h"

#include <stdlib.h>
#include <string.h>

#include "random.h"

enum {
    FIRST_STEPS = 3000, /* of a try in the first round */
    SCALE = 1024,       /* of logarithms */
    NOISE = 600         /* keys vary by half */
};

/* What is preferred: large values of the first, then of the second. */
typedef enum measure { FULLNESS, LENGTH, AREA, SECTIONS, SIZE, MEASURES } measure_t;

typedef struct preference {
    measure_t major, minor;
} preference_t;

static const preference_t preferences[] = {
    {FULLNESS, AREA}, {LENGTH, AREA}, {FULLNESS, LENGTH}, {AREA, SIZE}, {SECTIONS, SIZE},
};

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

packing_answer_t packing_search(const packing_instance_t *g, int64_t capacity, int seed,
                                packing_budget_t *budget, int64_t *offsets, int64_t *need)
{
    enum { KINDS = sizeof preferences / sizeof *preferences };
    size_t n = (size_t)g->count + 1;
    int64_t *measures = measure(g);
    packing_key_t *keys = malloc(n * sizeof *keys);
    int32_t *rank = malloc(n * sizeof *rank);
    packing_exact_t *s = packing_exact_new(g);
    packing_answer_t answer = s && measures && keys && rank ? PACKING_UNDECIDED : PACKING_NO_MEMORY;
    int64_t limit = FIRST_STEPS + (int64_t)FIRST_STEPS * seed, whole = budget->left;
    uint64_t random = 1 + (uint64_t)seed;
    int round;
    for (round = 0; answer == PACKING_UNDECIDED && budget->left && !budget->is_stopped; round++) {
        if (round && round % KINDS == 0 && limit < whole) limit += limit / 4;
        set_ranks(g, measures, preferences[round % KINDS], s ? packing_exact_blame(s) : NULL,
                  round < KINDS && !seed ? NULL : &random, keys, rank);
        whole = budget->left;
        if (budget->left > limit) budget->left = limit;
        whole -= budget->left;
        answer = packing_exact_run(s, rank, capacity, budget, offsets, need);
        budget->left += whole;
    }
    packing_exact_free(s);
    free(rank);
    free(keys);
    free(measures);
    return answer;
}
