/* Hill climbing over the orders of first fit. */
#ifndef INLAY_PACKING_CLIMB_H
#define INLAY_PACKING_CLIMB_H

#include "instance.h"

/* Improve an order until a plan of it is at most `goal` or the budget ends; 0 without memory.
 *
 * order: [count] where to start; what it is after is of no meaning.
 * offsets: [count] the best plan seen; there is one only if `peak` is set.
 * peak: of that plan, or -1 if the budget was too small for one.
 */
int packing_climb_run(const packing_instance_t *instance, int32_t *order, int64_t goal,
                      packing_budget_t *budget, int64_t *offsets, int64_t *peak);

#endif
