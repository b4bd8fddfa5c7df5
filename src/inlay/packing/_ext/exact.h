/* Exact search: a plan within a capacity, or the knowledge that there is none. */
#ifndef INLAY_PACKING_EXACT_H
#define INLAY_PACKING_EXACT_H

#include "instance.h"

typedef enum packing_answer {
    PACKING_FOUND,
    PACKING_NONE,      /* no plan is within the capacity */
    PACKING_UNDECIDED, /* the budget ended first */
    PACKING_NO_MEMORY
} packing_answer_t;

/* Where the search goes on: of the sections in valleys of floors the one in which this is least. `count` is
 * the number of buffers that could be at its floor. Each finds plans soon that others do not find at all. */
typedef enum packing_branching {
    PACKING_FEWEST,   /* count */
    PACKING_SCARCE,   /* count, by the bytes that may stay free */
    PACKING_LOW,      /* floor in 32nds of the capacity, then count */
    PACKING_FAILING,  /* count, by how often the section was too full */
    PACKING_LOWEST,   /* floor, then count */
    PACKING_BRANCHINGS
} packing_branching_t;

typedef struct packing_exact packing_exact_t;

/* A search over an instance, which it keeps using; NULL without memory. */
packing_exact_t *packing_exact_new(const packing_instance_t *instance);
void packing_exact_free(packing_exact_t *search);

/* [count] How often a buffer was in a section that was too full, in all runs so far. */
const int64_t *packing_exact_blame(const packing_exact_t *search);

/* Search for a plan of at most `capacity`.
 *
 * rank: [count] a permutation: which buffers are tried first.
 * offsets: [count] the plan, if one is found.
 * need: if none is there: no plan is smaller than this, which is more than the capacity.
 */
packing_answer_t packing_exact_run(packing_exact_t *search, const int32_t *rank, packing_branching_t rule,
                                   int64_t capacity, packing_budget_t *budget, int64_t *offsets,
                                   int64_t *need);

#endif
