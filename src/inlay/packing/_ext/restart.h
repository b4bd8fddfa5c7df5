/* Exact search, started again and again with other preferences, of buffers and of blocks of them. */
#ifndef INLAY_PACKING_RESTART_H
#define INLAY_PACKING_RESTART_H

#include "exact.h"

/* As `packing_exact_run`, without an order: the first tries prefer what is long, large or in the
 * fullest sections; later ones vary these at random and prefer what was in the way before. Most
 * tries are short, and the longest are ever longer. The answer is the same on every machine.
 *
 * seed: other random variations. Even ones begin with buffers, odd ones with blocks. */
packing_answer_t packing_search(const packing_instance_t *instance, int64_t capacity, int seed,
                                packing_budget_t *budget, int64_t *offsets, int64_t *need);

#endif
