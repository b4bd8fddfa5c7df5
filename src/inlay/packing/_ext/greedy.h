/* Greedy placement: one buffer after the other, each for good. */
#ifndef INLAY_PACKING_GREEDY_H
#define INLAY_PACKING_GREEDY_H

#include "instance.h"

typedef enum packing_rule {
    PACKING_FIRST_FIT, /* the lowest gap that is large enough */
    PACKING_BEST_FIT   /* the smallest */
} packing_rule_t;

/* What placing in orders needs beside an instance: a search tree over the beginnings of buffers, in
 * which each node knows the last end of what is placed below it. */
typedef struct packing_fit {
    const packing_instance_t *g;
    int32_t *by_first; /* [count] the tree: buffers in the order of their beginnings */
    int32_t *node;     /* [count] where a buffer is in it */
    int32_t *latest;   /* [count] last end of what is placed in the subtree, 0 without */
    int64_t *taken;    /* [2 * count] offsets and ends of those that conflict */
    int64_t *spare;    /* [2 * count] */
} packing_fit_t;

int packing_fit_init(packing_fit_t *fit, const packing_instance_t *instance); /* 0: no memory */
void packing_fit_drop(packing_fit_t *fit);

/* Place buffers in an order; 0 if the budget ended before all were. Linear memory; time is the sum
 * over buffers of k log k, for k that conflict and were placed before. */
int packing_fit_run(packing_fit_t *fit, const int32_t *order, packing_rule_t rule,
                    packing_budget_t *budget, int64_t *offsets);

/* Place buffers in an order, each on the highest that was placed before and conflicts; 0 without
 * memory. Time n log n. */
int packing_stack_run(const packing_instance_t *instance, const int32_t *order, int64_t *offsets);

/* Place buffers in the order of their beginnings, each into the smallest gap among those that live;
 * 0 without memory. Time n log n, and the number that live for each buffer. */
int packing_scan_run(const packing_instance_t *instance, int64_t *offsets);

/* The end of the highest. */
int64_t packing_peak(const packing_instance_t *instance, const int64_t *offsets);

#endif
