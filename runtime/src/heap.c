#include "heap.h"

#include "device.h"

#include <string.h>

static const uint16_t SIZES[HEAP_CLASSES] = {48, 64, 80, 112, 160, 256, 384, 640, 1024};

#define CHUNK_HEAD ((sizeof(inlay_chunk_t) + 15) & ~(size_t)15)

void inlay_heap_open(inlay_heap_t *heap, const inlay_host_t *host, size_t cache_limit)
{
    memset(heap, 0, sizeof *heap);
    heap->host = host;
    inlay_blocks_open(&heap->blocks, host, cache_limit);
    heap->large.next = heap->large.previous = &heap->large;
}

/* --------------------------------------------------------------------------------- objects */

static inlay_object_t *allocate_large(inlay_heap_t *heap, size_t bytes)
{
    inlay_large_t *large;
    inlay_object_t *object;
    bytes += sizeof *large;
    large = heap->host->allocate(heap->host->user, bytes, BLOCK_ALIGN);
    if (!large) return NULL;
    large->bytes = bytes;
    large->next = heap->large.next;
    large->previous = &heap->large;
    large->next->previous = large;
    heap->large.next = large;
    object = (inlay_object_t *)(void *)(large + 1);
    object->size_class = HEAP_LARGE;
    return object;
}

static inlay_object_t *allocate(inlay_heap_t *heap, size_t bytes, uint32_t kind)
{
    uint16_t class = 0;
    inlay_object_t *object;
    while (class < HEAP_CLASSES && SIZES[class] < bytes) class++;
    if (class == HEAP_CLASSES) {
        object = allocate_large(heap, bytes);
        if (!object) return NULL;
    } else if (heap->free[class]) {
        object = heap->free[class];
        heap->free[class] = object->link;
    } else {
        inlay_chunk_t *chunk = heap->chunks[class];
        size_t most = (INLAY_CHUNK_BYTES - CHUNK_HEAD) / SIZES[class];
        if (!chunk || chunk->used == most) {
            chunk = heap->host->allocate(heap->host->user, INLAY_CHUNK_BYTES, BLOCK_ALIGN);
            if (!chunk) return NULL;
            chunk->next = heap->chunks[class];
            chunk->used = 0;
            heap->chunks[class] = chunk;
        }
        object = (inlay_object_t *)(void *)((uint8_t *)chunk + CHUNK_HEAD +
                                            chunk->used++ * SIZES[class]);
        object->size_class = (uint8_t)class;
    }
    object->count = 1;
    object->kind = (uint16_t)kind;
    object->effects = 0;
    heap->live++;
    return object;
}

inlay_view_t *inlay_heap_view(inlay_heap_t *heap, uint32_t rank)
{
    inlay_view_t *view = (inlay_view_t *)(void *)allocate(
        heap, sizeof(inlay_view_t) + rank * sizeof(int64_t), KIND_TENSOR);
    if (!view) return NULL;
    view->rank = rank;
#if INLAY_RACES
    view->tensor = 0;
#endif
    return view;
}

inlay_compound_t *inlay_heap_compound(inlay_heap_t *heap, uint32_t kind, uint32_t n)
{
    inlay_compound_t *compound = (inlay_compound_t *)(void *)allocate(
        heap, sizeof(inlay_compound_t) + n * sizeof(inlay_slot_t), kind);
    if (compound) compound->n = n;
    return compound;
}

/* Inlined: each tensor that a program makes is one of these. */
static inline inlay_storage_t *open_storage(inlay_heap_t *heap, void *data, size_t bytes)
{
    inlay_storage_t *storage =
        (inlay_storage_t *)(void *)allocate(heap, sizeof *storage, KIND_STORAGE);
    if (!storage) return NULL;
    storage->data = data;
    storage->bytes = storage->capacity = bytes;
    storage->align = BLOCK_ALIGN;
    storage->owned = STORAGE_LENT;
    storage->pins = 0;
    storage->accesses = NULL;
    storage->guards = NULL;
#if INLAY_RACES
    storage->serial = ++heap->serials;
    storage->newest = 0;
    storage->written = NULL;
#endif
    storage->space = NULL;
    storage->memory = NULL;
    return storage;
}

inlay_storage_t *inlay_heap_borrow(inlay_heap_t *heap, void *data, size_t bytes)
{
    return open_storage(heap, data, bytes);
}

inlay_storage_t *inlay_heap_storage(inlay_heap_t *heap, size_t bytes, size_t align)
{
    inlay_storage_t *storage;
    size_t capacity = bytes;
    void *data = inlay_blocks_take(&heap->blocks, &capacity, align);
    if (!data) return NULL;
    storage = open_storage(heap, data, bytes);
    if (!storage) {
        inlay_blocks_give(&heap->blocks, data, capacity, align);
        return NULL;
    }
    storage->capacity = capacity;
    storage->align = align < BLOCK_ALIGN ? BLOCK_ALIGN : align;
    storage->owned = STORAGE_OWNED;
    heap->used_bytes += capacity;
    heap->made++;
    inlay_heap_asked(heap, bytes);
    return storage;
}

inlay_storage_t *inlay_heap_adopt(inlay_heap_t *heap, inlay_heap_t *from, inlay_storage_t *storage)
{
    inlay_storage_t *made;
    void *block = storage->data;
    size_t bytes = storage->capacity;
    if (!inlay_blocks_part(&block, &bytes, storage->align)) return NULL;
    made = open_storage(heap, storage->data, storage->bytes);
    if (!made) return NULL;
    made->capacity = storage->capacity;
    made->align = storage->align;
    made->owned = STORAGE_OWNED;
    heap->used_bytes += storage->capacity;
    heap->made++;
    inlay_heap_asked(heap, storage->bytes);
    from->used_bytes -= storage->capacity;
    from->asked -= storage->bytes;
    inlay_heap_disown(storage);
    return made;
}

inlay_storage_t *inlay_heap_lodge(inlay_heap_t *heap, const inlay_space_t *space, size_t bytes)
{
    inlay_storage_t *storage = open_storage(heap, DEVICE_BASE, bytes);
    inlay_memory_t *memory = NULL;
    if (!storage) return NULL;
    if (space->driver->allocate(space->device, space->unit, bytes, &memory, NULL, 0) != INLAY_OK) {
        heap->live--;
        storage->header.kind = KIND_EMPTY;
        storage->header.link = heap->free[storage->header.size_class];
        heap->free[storage->header.size_class] = &storage->header;
        return NULL;
    }
    storage->space = space;
    storage->memory = memory;
    storage->owned = STORAGE_OWNED;
    heap->lodged[space->memory] += bytes;
    heap->made++;
    if (heap->lodged[space->memory] > heap->most_lodged[space->memory])
        heap->most_lodged[space->memory] = heap->lodged[space->memory];
    return storage;
}

void inlay_heap_disown(inlay_storage_t *storage) { storage->owned = STORAGE_LENT; }

/* Return the object's own memory, and a storage's bytes. Its items are the caller's business. */
static void recycle(inlay_heap_t *heap, inlay_object_t *object)
{
    if (object->kind == KIND_STORAGE) {
        inlay_storage_t *storage = (inlay_storage_t *)(void *)object;
#if INLAY_RACES
        if (storage->written) inlay_intervals_clear(&heap->intervals, &storage->written);
#endif
        if (storage->owned == STORAGE_OWNED && storage->space) {
            heap->lodged[storage->space->memory] -= storage->bytes;
            storage->space->driver->release(storage->space->device, storage->memory);
        } else if (storage->owned == STORAGE_OWNED) {
            heap->used_bytes -= storage->capacity;
            heap->asked -= storage->bytes;
            inlay_blocks_give(&heap->blocks, storage->data, storage->capacity, storage->align);
        }
    }
    heap->live--;
    object->kind = KIND_EMPTY;
    if (object->size_class == HEAP_LARGE) {
        inlay_large_t *large = (inlay_large_t *)(void *)object - 1;
        large->next->previous = large->previous;
        large->previous->next = large->next;
        heap->host->release(heap->host->user, large, large->bytes, BLOCK_ALIGN);
        return;
    }
    object->link = heap->free[object->size_class];
    heap->free[object->size_class] = object;
}

static inlay_object_t *drop(inlay_object_t *object, inlay_object_t *pending)
{
    if (object->count == IMMORTAL || --object->count) return pending;
    object->link = pending;
    return object;
}

void inlay_heap_free(inlay_heap_t *heap, inlay_object_t *object)
{
    inlay_object_t *pending = object;
    object->link = NULL;
    while (pending) {
        object = pending;
        pending = object->link;
        if (object->kind == KIND_STORAGE && ((inlay_storage_t *)(void *)object)->pins) {
            heap->held_bytes += ((inlay_storage_t *)(void *)object)->capacity;
            continue;
        }
        if (object->kind == KIND_TENSOR) {
            pending = drop(&((inlay_view_t *)(void *)object)->storage->header, pending);
        } else if (object->kind != KIND_STORAGE) {
            inlay_compound_t *compound = (inlay_compound_t *)(void *)object;
            uint32_t i;
            for (i = 0; i < compound->n; i++)
                if (compound->items[i].tag > KIND_INT)
                    pending = drop(compound->items[i].as.object, pending);
        }
        recycle(heap, object);
    }
}

void inlay_heap_unpin(inlay_heap_t *heap, inlay_storage_t *storage)
{
    if (--storage->pins || storage->header.count) return;
    heap->held_bytes -= storage->capacity;
    recycle(heap, &storage->header);
}

/* ----------------------------------------------------------------------------------- sweep */

void inlay_heap_sweep(inlay_heap_t *heap)
{
    uint32_t class;
    while (heap->large.next != &heap->large)
        recycle(heap, (inlay_object_t *)(void *)(heap->large.next + 1));
    for (class = 0; class < HEAP_CLASSES && heap->live; class++) {
        inlay_chunk_t *chunk;
        for (chunk = heap->chunks[class]; chunk; chunk = chunk->next) {
            size_t i;
            for (i = 0; i < chunk->used; i++) {
                inlay_object_t *object = (inlay_object_t *)(void *)((uint8_t *)chunk + CHUNK_HEAD +
                                                                    i * SIZES[class]);
                if (object->kind != KIND_EMPTY) recycle(heap, object);
            }
        }
    }
}

void inlay_heap_close(inlay_heap_t *heap)
{
    uint32_t class;
    inlay_heap_sweep(heap);
    for (class = 0; class < HEAP_CLASSES; class++) {
        while (heap->chunks[class]) {
            inlay_chunk_t *chunk = heap->chunks[class];
            heap->chunks[class] = chunk->next;
            heap->host->release(heap->host->user, chunk, INLAY_CHUNK_BYTES, BLOCK_ALIGN);
        }
    }
    inlay_blocks_drop(&heap->blocks);
#if INLAY_RACES
    inlay_intervals_close(&heap->intervals, heap->host);
#endif
}
