/* The memory of one activation: objects in size classes, and the bytes of tensors (blocks.h).
 *
 * Objects are cut from chunks and die by reference count, without recursion. At the end of a
 * call everything that is still alive (cycles through cells, or anything after an error) is
 * swept.
 */
#ifndef INLAY_HEAP_H
#define INLAY_HEAP_H

#include "blocks.h"
#include "value.h"

#define HEAP_CLASSES 9      /* objects of 48 .. 1024 bytes; larger ones are on their own */
#define HEAP_LARGE HEAP_CLASSES

typedef struct inlay_chunk {
    struct inlay_chunk *next;
    size_t used; /* objects cut so far */
} inlay_chunk_t;

/* A large object is preceded by this; all of them are in one list. */
typedef struct inlay_large {
    struct inlay_large *next, *previous;
    size_t bytes;
    size_t unused;
} inlay_large_t;

typedef struct inlay_heap {
    const inlay_host_t *host;
    inlay_object_t *free[HEAP_CLASSES];
    inlay_chunk_t *chunks[HEAP_CLASSES];
    inlay_large_t large; /* head of a circular list */
    size_t live;
    inlay_blocks_t blocks;
#if INLAY_RACES
    uint64_t serials;  /* of storages, tensors and writes: what is later has a greater one */
    inlay_intervals_t intervals;
#endif
    size_t used_bytes; /* of all storages that own theirs */
    size_t *lodged;    /* bytes of storages in each memory of a device; NULL where there is none */
    size_t held_bytes; /* of storages that died while commands in flight use them */
    /* What a call asks for, as it asks: without what blocks are rounded up to. */
    size_t asked;      /* bytes of storages, of workspaces, and of results that were copied out */
    size_t most_asked; /* the most of that at once, since the call began */
    size_t lately;     /* the most of it since delegates last began or ended (delegate.c) */
    uint64_t made;     /* storages with bytes of their own, since the call began */
    uint64_t copied;   /* bytes that instructions and leaving results were copied in, since then */
    size_t *most_lodged; /* the most in each memory of a device, since the call began */
} inlay_heap_t;

void inlay_heap_open(inlay_heap_t *heap, const inlay_host_t *host, size_t cache_limit);
void inlay_heap_close(inlay_heap_t *heap);

/* Free every object. */
void inlay_heap_sweep(inlay_heap_t *heap);

/* Each returns NULL where the host refuses memory. Counts are 1. */
inlay_view_t *inlay_heap_view(inlay_heap_t *heap, uint32_t rank);
inlay_compound_t *inlay_heap_compound(inlay_heap_t *heap, uint32_t kind, uint32_t n);
inlay_storage_t *inlay_heap_storage(inlay_heap_t *heap, size_t bytes, size_t align);
/* A storage in the memory of a device; NULL too where the device refuses it. */
inlay_storage_t *inlay_heap_lodge(inlay_heap_t *heap, const struct inlay_space *space, size_t bytes);
/* A storage with the bytes of one of another heap, which no longer owns them; NULL too where they cannot
 * leave it. */
inlay_storage_t *inlay_heap_adopt(inlay_heap_t *heap, inlay_heap_t *from, inlay_storage_t *storage);
/* A storage whose bytes belong to somebody else. */
inlay_storage_t *inlay_heap_borrow(inlay_heap_t *heap, void *data, size_t bytes);

/* Bytes were asked for, beyond those of storages; and are no longer needed. */
static inline void inlay_heap_asked(inlay_heap_t *heap, size_t bytes)
{
    heap->asked += bytes;
    if (heap->asked > heap->lately) heap->lately = heap->asked;
    if (heap->asked > heap->most_asked) heap->most_asked = heap->asked;
}

/* Give a storage's memory away: the object stays, and no longer owns it. */
void inlay_heap_disown(inlay_storage_t *storage);

/* A command in flight has done with a storage: one pin less. */
void inlay_heap_unpin(inlay_heap_t *heap, inlay_storage_t *storage);

/* Free an object whose count has reached 0, and all that dies with it. */
void inlay_heap_free(inlay_heap_t *heap, inlay_object_t *object);

/* Whether what grows out of a storage is to outlive the call with its room. */
static inline int inlay_is_state(const inlay_storage_t *storage)
{
    return storage->owned == STORAGE_STATE || storage->align == INLAY_STATE_ALIGN;
}

/* Whether the bytes of a storage may be written. */
static inline int inlay_may_write(const inlay_storage_t *storage)
{
    return storage->owned == STORAGE_OWNED || storage->owned == STORAGE_SPARE;
}

static inline void inlay_retain(inlay_object_t *object)
{
    if (object->count != IMMORTAL) object->count++;
}

static inline void inlay_release(inlay_heap_t *heap, inlay_object_t *object)
{
    if (object->count != IMMORTAL && --object->count == 0) inlay_heap_free(heap, object);
}

static inline void inlay_slot_release(inlay_heap_t *heap, const inlay_slot_t *slot)
{
    if (slot->tag > KIND_INT) inlay_release(heap, slot->as.object);
}

#endif
