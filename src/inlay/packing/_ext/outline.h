/* The state of the exact search: what is placed, from below, and what follows for the rest.
 *
 * The outline is the end of what is placed, by section. From it follow the floor of each section, below
 * which nothing more of it can be, and the least offset of each buffer that is not placed. */
#ifndef INLAY_PACKING_OUTLINE_H
#define INLAY_PACKING_OUTLINE_H

#include <stddef.h>

#include "instance.h"

typedef struct packing_change packing_change_t;

typedef struct packing_outline {
    const packing_instance_t *g;
    int64_t capacity;
    int64_t need; /* the least end that was beyond the capacity */
    /* Of a buffer. */
    int64_t *offset; /* least that is possible; of a placed one its own */
    int64_t *blame;  /* how often it was in a section that was too full, in all runs */
    uint8_t *placed;
    int32_t **at; /* where it is in the members of its sections */
    /* Of a section. */
    int32_t **members; /* the first `live` are not placed */
    int32_t *live;
    int64_t *rest;     /* sizes of those that are not placed */
    int64_t *floor;    /* none of those is below */
    int32_t *witness;  /* one of those that could be there */
    int64_t *top;      /* end of what is placed */
    int32_t *topmost;  /* that buffer, or -1 */
    int64_t *failures; /* how often it was too full, in all runs */
    int32_t *crossing; /* not placed, in this section and the next */
    /* Sections to look at. */
    uint8_t *queued, *dirty;
    int32_t *queue, *dirties;
    int queue_count, dirty_count;
    /* What was changed, so that it can be undone. */
    packing_change_t *changes;
    size_t change_count, change_room;
    int64_t *saved_top;
    int32_t *saved_topmost;
    size_t saved_count;
    int64_t *scratch; /* twice the larger of buffers and sections */
    int64_t work;     /* buffers looked at since somebody set it to 0 */
    int is_out_of_memory;
    void *blocks[3];
} packing_outline_t;

int packing_outline_init(packing_outline_t *outline, const packing_instance_t *instance);
void packing_outline_drop(packing_outline_t *outline);

/* Begin anew: nothing is placed. */
void packing_outline_reset(packing_outline_t *outline, int64_t capacity);

/* Place a buffer at its least offset, or raise the floor of a section; 0 without memory. */
int packing_outline_place(packing_outline_t *outline, int32_t buffer);
int packing_outline_raise(packing_outline_t *outline, int32_t section, int64_t to, int32_t witness);

/* Draw conclusions; 0 if no plan that we look for is within the capacity, or without memory. */
int packing_outline_propagate(packing_outline_t *outline);

/* Undo changes down to a former `change_count`. */
void packing_outline_undo(packing_outline_t *outline, size_t mark);

/* The end of what is placed below a buffer. */
int64_t packing_outline_top(const packing_outline_t *outline, int32_t buffer);

#endif
