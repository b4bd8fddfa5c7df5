/* Blocks: buffers that are glued together. What places the blocks places the buffers. */
#ifndef INLAY_PACKING_COMPOSE_H
#define INLAY_PACKING_COMPOSE_H

#include "instance.h"

typedef struct packing_composed {
    packing_instance_t instance; /* the blocks */
    int32_t *block;              /* [count of buffers] of which a buffer is a part */
    int64_t *base;               /* [count of buffers] where it is in it */
    int64_t *columns;
} packing_composed_t;

/* Glue at random; 0 without memory. At each moment blocks take the bytes of the buffers, rounded up to the
 * common divisor of alignments. Time n log n for each round of gluing, of which there are as many as blocks
 * are deep.
 *
 * percent: of the blocks take part in a round. */
int packing_compose(const packing_instance_t *instance, int percent, uint64_t *random,
                    packing_composed_t *composed);
void packing_composed_drop(packing_composed_t *composed);

#endif
