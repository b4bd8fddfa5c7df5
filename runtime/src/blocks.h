/* Memory for the bytes of tensors, kept between uses.
 *
 * Small blocks are kept by size class, four to each doubling, and given out whole. Large ones are
 * *pieces* of *extents*, which are single allocations of the host and have the sizes of classes, too,
 * so that the host is asked for the same sizes again. An extent begins as one piece. A free piece serves any request that it can hold, and what is left of
 * it stays behind as a piece of its own where that is large; free neighbours become one again. So
 * sizes that differ from call to call reuse the same extents.
 *
 *   extent | header | bytes of a piece | header | bytes of a piece | ...
 *
 * An extent that is free as a whole can go back to the host, and does where more is kept than the
 * limit. */
#ifndef INLAY_BLOCKS_H
#define INLAY_BLOCKS_H

#include "inlay_rt.h"

#define BLOCK_ALIGN 64
#define BLOCK_SMALL 32768  /* bytes; beyond, blocks are pieces */
#define SMALL_CLASSES 37   /* of 64 .. 32768 bytes */
#define PIECE_CLASSES 180

typedef struct inlay_block {
    struct inlay_block *next;
} inlay_block_t;

/* In front of the bytes of a piece; BLOCK_ALIGN bytes at most. */
typedef struct inlay_piece {
    struct inlay_piece *before, *after;  /* neighbours in the extent */
    struct inlay_piece *next, *previous; /* in the list of its class, while it is free */
    size_t bytes;                        /* behind the header */
    uint32_t is_free, class;
} inlay_piece_t;

typedef struct inlay_blocks {
    const inlay_host_t *host;
    inlay_block_t *small[SMALL_CLASSES];
    inlay_piece_t *pieces[PIECE_CLASSES];
    uint64_t filled[(PIECE_CLASSES + 63) / 64]; /* which lists of pieces are not empty */
    size_t kept_bytes, limit;
} inlay_blocks_t;

void inlay_blocks_open(inlay_blocks_t *blocks, const inlay_host_t *host, size_t limit);

/* Give everything that is free back to the host. */
void inlay_blocks_drop(inlay_blocks_t *blocks);

/* NULL where the host refuses. `bytes` becomes what there is, and is named again in `give`. */
void *inlay_blocks_take(inlay_blocks_t *blocks, size_t *bytes, size_t align);
void inlay_blocks_give(inlay_blocks_t *blocks, void *memory, size_t bytes, size_t align);

/* Let a block leave for good: whoever has it gives it back to the host, as the allocation that
 * `memory` and `bytes` become. 0 where it is part of a larger one, and must stay. */
int inlay_blocks_part(void **memory, size_t *bytes, size_t align);

/* Memory that may leave, as an allocation of the host. */
void *inlay_blocks_outside(inlay_blocks_t *blocks, size_t *bytes);

#endif
