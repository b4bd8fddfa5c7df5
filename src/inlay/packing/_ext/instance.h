/* What is packed, in the form that the algorithms read: buffers over sections of time.
 *
 * A section is a moment at which the set of live buffers is not part of that of a neighbouring
 * moment (a maximal clique of the interval graph). Two buffers conflict if and only if they share a
 * section, so nothing else of time matters: there are at most as many sections as buffers, and a
 * buffer covers a range of them.
 */
#ifndef INLAY_PACKING_INSTANCE_H
#define INLAY_PACKING_INSTANCE_H

#include <stdint.h>

typedef struct packing_instance {
    int count;            /* buffers; all have a size and a lifetime */
    int sections;         /* sections */
    const int64_t *lower; /* [count] first moment of a buffer */
    const int64_t *upper; /* [count] first moment after it */
    const int64_t *size;  /* [count] units */
    const int64_t *align; /* [count] offsets are multiples of it */
    int32_t *first;       /* [count] first section of a buffer */
    int32_t *last;        /* [count] first section after it */
    int64_t *moment;      /* [sections] a moment of the section */
    int64_t spans;        /* sections of all buffers together */
    int64_t pairs;        /* pairs that conflict */
} packing_instance_t;

/* What an algorithm may spend, and how it says how far it is. */
typedef struct packing_budget {
    int64_t left; /* steps: placements of one buffer, tried or done */
    int64_t used;
    int64_t next_poll; /* `used` at which `poll` is called again */
    int (*poll)(void *context, int64_t used); /* not 0: stop now */
    void *context;
    int is_stopped; /* by `poll` */
} packing_budget_t;

enum {
    PACKING_POLL_STEPS = 1 << 12,
    PACKING_STEP_WORK = 1024 /* sections or buffers looked at that count as one more step */
};

/* Fill `first`, `last`, `moment`, `sections`, `spans` and `pairs` of an instance; 0 without memory.
 * The others are the caller's. Time n log n. */
int packing_sections(packing_instance_t *instance);

/* The same, of buffers whose lower, upper, size and alignment are columns of one array, behind each other. */
int packing_columns(packing_instance_t *instance, const int64_t *columns, int32_t count);
void packing_drop(packing_instance_t *instance);

/* The least multiple of an alignment that is not below an offset. */
static inline int64_t packing_align(int64_t offset, int64_t alignment)
{
    if (alignment == 1) return offset;
    return (offset + alignment - 1) / alignment * alignment;
}

/* What divides all alignments, and so all offsets. */
int64_t packing_common_alignment(const packing_instance_t *instance);

/* Take steps; 0 when there are none left or somebody asked to stop. */
int packing_spend(packing_budget_t *budget, int64_t steps);

/* Sort indices [0, count) by up to three keys, the first first, then by index. */
typedef struct packing_key {
    int64_t major, middle, minor;
    int32_t index;
} packing_key_t;
void packing_sort(packing_key_t *keys, int count);

#endif
