/* Memory that is taken piece by piece and given back at once: the tables of a module. */
#ifndef INLAY_ARENA_H
#define INLAY_ARENA_H

#include "inlay_rt.h"

typedef struct inlay_arena_block {
    struct inlay_arena_block *next;
    size_t bytes, used;
    size_t unused;
} inlay_arena_block_t;

typedef struct inlay_arena {
    const inlay_host_t *host;
    inlay_arena_block_t *blocks;
} inlay_arena_t;

/* Return zeroed memory for n items, aligned for any object; NULL where there is none. */
void *inlay_arena_take(inlay_arena_t *arena, size_t n, size_t item_bytes);
void inlay_arena_close(inlay_arena_t *arena);

#endif
