/* Tensors at the border of the machine: inputs become values, results leave with their memory. */
#include "machine.h"

#include <string.h>

inlay_status_t inlay_push_input(inlay_activation_t *m, inlay_slot_t *slot,
                                const inlay_tensor_t *input)
{
    int64_t bytes = inlay_tensor_bytes(input->dtype, input->dims, input->rank);
    inlay_storage_t *storage;
    inlay_view_t *view;
    if (bytes < 0)
        return inlay_fail(m->error, INLAY_BAD_ARGUMENT, "an input has impossible dims", NULL, 0);
    storage = inlay_heap_borrow(&m->heap, input->data, (size_t)bytes);
    view = storage ? inlay_heap_view(&m->heap, input->rank) : NULL;
    if (!view) return inlay_no_memory(m);
    view->storage = storage;
    view->data = input->data;
    view->bytes = (size_t)bytes;
    view->dtype = input->dtype;
    if (input->rank) memcpy(view->dims, input->dims, input->rank * sizeof *input->dims);
    slot->tag = KIND_TENSOR;
    slot->as.object = &view->header;
    return INLAY_OK;
}

/* Whether most of a storage is something else than a tensor. */
static int is_part(const inlay_view_t *view)
{
    return view->storage->capacity > 4096 && view->bytes < view->storage->capacity / 3;
}

/* Whether a tensor was planned into a larger storage, to leave it as pages. Others are copied: that takes memory
 * once more, and a fifth of the time of pages that are fresh for the next call. */
static int is_lifted(const inlay_activation_t *m, const inlay_view_t *view)
{
    return m->host->lift && view->bytes >= INLAY_LIFT_BYTES && is_part(view);
}

int inlay_is_lifted(const inlay_activation_t *m, const inlay_slot_t *slot)
{
    int is_sole = 1;
    slot = inlay_task_settled(slot, &is_sole);
    if (slot->tag != KIND_TENSOR) return 0;
    return is_lifted(m, (const inlay_view_t *)(const void *)slot->as.object);
}

/* Give such a tensor pages of its own; 0 where the host cannot, now. */
static int lift(const inlay_activation_t *m, const inlay_view_t *view, inlay_result_t *result)
{
    if (!is_lifted(m, view)) return 0;
    result->data = m->host->lift(m->host->user, view->data, view->bytes, &result->block,
                                 &result->block_bytes);
    result->block_align = INLAY_LIFTED;
    return result->data != NULL;
}

/* Its memory goes along where nothing else refers to it, and it is most of its storage or has pages. */
inlay_status_t inlay_export(inlay_activation_t *m, const inlay_slot_t *slot, int is_sole,
                            inlay_result_t *result)
{
    inlay_view_t *view;
    inlay_storage_t *storage;
    void *block;
    size_t bytes;
    int is_own;
    slot = inlay_task_settled(slot, &is_sole);
    if (slot->tag != KIND_TENSOR) return inlay_wrong_kind(m, KIND_TENSOR, slot->tag);
    view = (inlay_view_t *)(void *)slot->as.object;
    storage = view->storage;
    if (storage->space) return inlay_not_in_host(m, storage->space);
    INLAY_TRY(inlay_race_tensor(m, view, view->data, view->bytes, NULL, 0));
    block = storage->data;
    bytes = storage->capacity;
    result->dtype = view->dtype;
    result->rank = view->rank;
    if (view->rank) memcpy(result->dims, view->dims, view->rank * sizeof *view->dims);
    is_own = is_sole && view->header.count == 1 && storage->header.count == 1 &&
             storage->owned == STORAGE_OWNED;
    if (is_own && !is_part(view) && inlay_blocks_part(&block, &bytes, storage->align)) {
        result->data = view->data;
        result->block = block;
        result->block_bytes = bytes;
        result->block_align = storage->align;
        result->room = storage->capacity - (size_t)(view->data - storage->data);
        m->heap.used_bytes -= storage->capacity;
        inlay_heap_disown(storage);
    } else if (!is_own || !lift(m, view, result)) {
        result->block_bytes = view->bytes;
        result->block_align = BLOCK_ALIGN;
        result->block = inlay_blocks_outside(&m->heap.blocks, &result->block_bytes);
        if (!result->block) return inlay_no_memory(m);
        result->data = result->block;
        inlay_heap_asked(&m->heap, view->bytes);
        result->room = result->block_bytes;
        m->heap.copied += view->bytes;
        if (view->bytes) memcpy(result->data, view->data, view->bytes);
    } else {
        result->room = view->bytes;
    }
    return INLAY_OK;
}

inlay_status_t inlay_push_state(inlay_activation_t *m, inlay_slot_t *slot,
                                const inlay_tensor_t *input, const inlay_state_t *state)
{
    inlay_view_t *view;
    INLAY_TRY(inlay_push_input(m, slot, input));
    view = (inlay_view_t *)(void *)slot->as.object;
    if (state->room < view->bytes)
        return inlay_fail(m->error, INLAY_BAD_ARGUMENT, "a state has less room than bytes", NULL, 0);
    if (!state->is_spare) view->storage->capacity = state->room;
    view->storage->owned = state->is_spare ? STORAGE_SPARE : STORAGE_STATE;
    inlay_race_name(&m->heap, view);
    return INLAY_OK;
}

inlay_status_t inlay_export_state(inlay_activation_t *m, const inlay_slot_t *slot, const void *was,
                                  inlay_result_t *result)
{
    int is_sole = 1;
    const inlay_slot_t *settled = inlay_task_settled(slot, &is_sole);
    const inlay_view_t *view = (const inlay_view_t *)(const void *)settled->as.object;
    if (settled->tag != KIND_TENSOR || view->data != was ||
        (view->storage->owned != STORAGE_STATE && view->storage->owned != STORAGE_SPARE))
        return inlay_export(m, slot, 1, result);
    INLAY_TRY(inlay_race_tensor(m, view, view->data, view->bytes, NULL, 0));
    memset(result, 0, sizeof *result);
    result->data = view->data;
    result->dtype = view->dtype;
    result->rank = view->rank;
    result->room = view->storage->capacity;
    if (view->rank) memcpy(result->dims, view->dims, view->rank * sizeof *view->dims);
    return INLAY_OK;
}

void inlay_result_release(const inlay_host_t *host, inlay_result_t *result)
{
    if (result->block) host->release(host->user, result->block, result->block_bytes,
                                     result->block_align);
    result->block = NULL;
}
