/* The state of the exact search: what is placed, from below, and what follows for the rest, and why.
 *
 * The outline is the end of what is placed, by section. From it follow the floor of each section, below
 * which nothing more of it can be, and the least offset of each buffer that is not placed.
 *
 * A reason is a set of decisions, by their depths: in every plan that we look for and that agrees with
 * these, the floor or the offset is at least what it is here. Of a contradiction the reason is `conflict`:
 * no such plan agrees with those decisions. All decisions from a depth on count as one. */
#ifndef INLAY_PACKING_OUTLINE_H
#define INLAY_PACKING_OUTLINE_H

#include <stddef.h>

#include "instance.h"

typedef struct packing_change packing_change_t;
typedef uint64_t packing_reason_t; /* a word of a set of depths */

typedef struct packing_outline {
    const packing_instance_t *g;
    int64_t capacity;
    int64_t need; /* the least end that was beyond the capacity */
    /* Of a buffer. */
    int64_t *offset; /* least that is possible; of a placed one its own */
    int64_t *blame;  /* how often it was in a section that was too full, in all runs */
    uint8_t *placed;
    int32_t *depth; /* of the decision that placed it */
    int32_t **at; /* where it is in the members of its sections */
    /* Of a section. */
    int32_t **members; /* the first `live` are not placed */
    int32_t *live;
    int64_t *rest;     /* sizes of those that are not placed */
    int64_t *floor;    /* none of those is below */
    int32_t *witness;  /* one of those that could be there */
    int64_t *top;      /* end of what is placed */
    int32_t *topmost;  /* that buffer, or -1 */
    int64_t *failures; /* how often it was too full, in this run */
    int32_t *crossing; /* not placed, in this section and the next */
    /* Sections to look at. */
    uint8_t *queued, *dirty;
    int32_t *queue, *dirties;
    int queue_count, dirty_count;
    /* What was changed, so that it can be undone. */
    packing_change_t *changes;
    size_t change_count, change_room;
    /* Reasons: sets of `words` words each. */
    int words;
    packing_reason_t *floor_why;  /* [sections] */
    packing_reason_t *offset_why; /* [buffers] */
    packing_reason_t *placed_why; /* [sections] what is placed is where it is */
    packing_reason_t *conflict;   /* of the last contradiction */
    packing_reason_t *old_whys;   /* [changes] */
    int64_t *saved_top;
    int32_t *saved_topmost;
    size_t saved_count;
    int64_t *scratch; /* twice the larger of buffers and sections */
    int64_t work;     /* buffers looked at since somebody set it to 0 */
    int is_out_of_memory;
    size_t why_bytes; /* of all but `old_whys` */
    void *blocks[4];
} packing_outline_t;

int packing_outline_init(packing_outline_t *outline, const packing_instance_t *instance);
void packing_outline_drop(packing_outline_t *outline);

/* Begin anew: nothing is placed. */
void packing_outline_reset(packing_outline_t *outline, int64_t capacity);

/* Place a buffer at its least offset, or raise the floor of a section for a reason; 0 without memory.
 * The decision to place is of a depth; nothing of its sections that is not placed can be below. */
int packing_outline_place(packing_outline_t *outline, int32_t buffer, int32_t depth);
int packing_outline_raise(packing_outline_t *outline, int32_t section, int64_t to, int32_t witness,
                          const packing_reason_t *why);

/* Draw conclusions; 0 if no plan that we look for is within the capacity, or without memory. */
int packing_outline_propagate(packing_outline_t *outline);

/* The bit of a depth in a reason, and whether it is there. */
static inline int32_t packing_bit(const packing_outline_t *outline, int32_t depth)
{
    int32_t most = outline->words * 64 - 1;
    return depth < most ? depth : most;
}

static inline int packing_reason_has(const packing_outline_t *outline, const packing_reason_t *why,
                                     int32_t depth)
{
    int32_t bit = packing_bit(outline, depth);
    return (int)(why[bit / 64] >> (bit % 64) & 1);
}

/* Add a reason to another one, or one decision. */
static inline void packing_reason_join(const packing_outline_t *outline, packing_reason_t *to,
                                       const packing_reason_t *from)
{
    int i;
    for (i = 0; i < outline->words; i++)
        to[i] |= from[i];
}

static inline void packing_reason_add(const packing_outline_t *outline, packing_reason_t *to,
                                      int32_t depth)
{
    int32_t bit = packing_bit(outline, depth);
    to[bit / 64] |= (packing_reason_t)1 << (bit % 64);
}

/* The reason of a floor, of what is placed in a section, or of an offset. */
static inline packing_reason_t *packing_why(const packing_outline_t *outline, packing_reason_t *of,
                                            int32_t index)
{
    return of + (size_t)index * (size_t)outline->words;
}

/* Undo changes down to a former `change_count`. */
void packing_outline_undo(packing_outline_t *outline, size_t mark);

/* The end of what is placed below a buffer. */
int64_t packing_outline_top(const packing_outline_t *outline, int32_t buffer);

#endif
