/* An interval map: which tensor wrote the bytes of a storage last.
 *
 * Intervals are disjoint and ordered by where they begin, in a treap (a search tree whose shape
 * follows from priorities drawn at random, hence of logarithmic depth). Writing and asking take a time
 * that is logarithmic in the number of intervals, plus the number of those met. */
#ifndef INLAY_INTERVALS_H
#define INLAY_INTERVALS_H

#include "inlay_rt.h"

struct inlay_kernel;
struct inlay_function;

/* Who wrote: a tensor, when, and the instruction. */
typedef struct inlay_writer {
    uint64_t tensor, at;
    const struct inlay_kernel *kernel; /* NULL for copies */
    const struct inlay_function *function;
    const uint32_t *pc;
} inlay_writer_t;

typedef struct inlay_interval {
    struct inlay_interval *left, *right; /* left: the next of the free ones */
    size_t begin, end;
    uint64_t priority;
    inlay_writer_t writer;
} inlay_interval_t;

/* Memory of intervals. */
typedef struct inlay_intervals {
    inlay_interval_t *free;
    struct inlay_intervals_slab *slabs;
    uint64_t random;
} inlay_intervals_t;

/* Note that [begin, end) was written. Intervals of the same tensor beside it become one with it where
 * they were written after `since`. 0 without memory. */
int inlay_intervals_write(inlay_intervals_t *pool, const inlay_host_t *host, inlay_interval_t **map,
                          size_t begin, size_t end, const inlay_writer_t *writer, uint64_t since);
/* The first interval in [begin, end) that another tensor has written after `since`; NULL for none. */
const inlay_interval_t *inlay_intervals_find(const inlay_interval_t *map, size_t begin, size_t end,
                                             uint64_t tensor, uint64_t since);
/* Give the intervals of a storage back. */
void inlay_intervals_clear(inlay_intervals_t *pool, inlay_interval_t **map);
void inlay_intervals_close(inlay_intervals_t *pool, const inlay_host_t *host);

#endif
