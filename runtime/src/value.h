/* Slots and objects.
 *
 *   slot    | tag:32 | index:32 | integer or object:64 |
 *
 * An object begins with a header; `count` counts the references to it. A count of IMMORTAL is
 * never changed: constants of a module are shared by threads that way.
 */
#ifndef INLAY_VALUE_H
#define INLAY_VALUE_H

#include "inlay_rt.h"
#include "intervals.h"

/* Kinds; the numbers are those of bytecode/isa.py. */
enum {
    KIND_EMPTY = 0,
    KIND_INT = 1,
    KIND_TENSOR = 2,
    KIND_STORAGE = 3,
    KIND_TUPLE = 4,
    KIND_ADT = 5,
    KIND_CLOSURE = 6,
    KIND_CELL = 7,
    KIND_FUTURE = 8,
    KIND_ANY = 15
};

#define IMMORTAL UINT32_MAX

/* Effects of functions, of `Effects` in bytecode/program.py; and of values, for calls that get them:
 * those of the functions in them, and of what is or holds a cell. */
enum {
    EFFECT_ORDERED = 1, /* others can see when such a call runs */
    EFFECT_CELLS = 2    /* what such a call gives may hold a cell */
};

typedef struct inlay_object {
    uint32_t count;
    uint16_t kind;      /* KIND_EMPTY while the memory is free */
    uint8_t size_class; /* of heap.c */
    uint8_t effects;    /* of compounds, fixed when they are made; of others 0 */
    struct inlay_object *link; /* in a free list, or among objects about to be freed */
} inlay_object_t;

typedef struct inlay_slot {
    uint32_t tag;
    uint32_t index; /* which result of a call a future is */
    union {
        int64_t integer;
        inlay_object_t *object;
    } as;
} inlay_slot_t;

/* Whose the bytes of a storage are. */
enum {
    STORAGE_LENT = 0,  /* of somebody else, and never written */
    STORAGE_OWNED = 1, /* given back when the object dies; such bytes may be written */
    STORAGE_STATE = 2, /* of somebody else; what is behind the tensor in them may be written */
    STORAGE_SPARE = 3  /* of somebody else, who gave it to be written over */
};

typedef struct inlay_storage {
    inlay_object_t header;
    uint8_t *data;
    size_t bytes;      /* what was asked for */
    size_t capacity;   /* what there is */
    size_t align;
    uint32_t owned;    /* STORAGE_..: whose the bytes are */
    uint32_t pins;     /* accesses of commands in flight: the bytes outlive the object */
    struct inlay_access *accesses; /* those that no later write covers */
    struct inlay_guard *guards;    /* of suspended tasks; each pins it */
#if INLAY_RACES
    uint64_t serial;
    uint64_t newest;           /* the serial of the tensor that was made in it last */
    inlay_interval_t *written; /* which tensors wrote its bytes, where that is watched */
#endif
    const struct inlay_space *space; /* NULL: in the host; else see device.h, and data is no address */
    struct inlay_memory *memory;   /* of the device */
} inlay_storage_t;

typedef struct inlay_view {
    inlay_object_t header;
    inlay_storage_t *storage;
    uint8_t *data;
    size_t bytes;
    uint32_t dtype;
    uint32_t rank;
#if INLAY_RACES
    uint64_t tensor; /* its serial; that of the operand for views, and for what grows in place */
#endif
    int64_t dims[]; /* rank of them */
} inlay_view_t;

/* Tuple, ADT value, closure (captures), cell (one item), and future (results of a call; a slot says
 * which of them; they are empty until it has returned). */
typedef struct inlay_compound {
    inlay_object_t header;
    uint32_t n;
    uint32_t label; /* constructor tag, function of a closure, whether the call has returned */
    inlay_slot_t items[];
} inlay_compound_t;

/* The effects of a value. */
static inline uint32_t inlay_slot_effects(const inlay_slot_t *slot)
{
    return slot->tag > KIND_STORAGE ? slot->as.object->effects : 0;
}

extern const uint8_t inlay_dtype_bytes[INLAY_DTYPES];

const char *inlay_kind_name(uint32_t kind);

/* Bytes of a tensor, or a negative number: -1 for a negative dim, -2 for too large. */
int64_t inlay_tensor_bytes(uint32_t dtype, const int64_t *dims, uint32_t rank);

/* No storage may be larger; a request beyond it is a wrong size, not a lack of memory. */
#define INLAY_MAX_STORAGE ((int64_t)1 << 46)

#endif
