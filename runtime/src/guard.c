/* Guards: ranges of storages that suspended tasks may still issue reads of. A write by another task
 * that is later in the order of the program waits for them. */
#include "machine.h"

/* A suspended task may still issue reads of a range. */
typedef struct inlay_guard {
    struct inlay_guard *next_of_task; /* also in the list of the free */
    struct inlay_guard *next, *previous;
    const inlay_task_t *task;
    inlay_storage_t *storage;
    size_t begin, end;
} inlay_guard_t;

static int guard(inlay_activation_t *m, inlay_task_t *task, inlay_storage_t *storage, size_t begin,
                 size_t bytes)
{
    inlay_guard_t *made;
    if (!storage->owned || !bytes) return 1;
    if (!m->free_guards) m->free_guards = inlay_items_slab(m, sizeof *made);
    made = m->free_guards;
    if (!made) return 0;
    m->free_guards = made->next_of_task;
    made->task = task;
    made->storage = storage;
    made->begin = begin;
    made->end = begin + bytes;
    made->next_of_task = task->guards;
    task->guards = made;
    made->previous = NULL;
    made->next = storage->guards;
    if (made->next) made->next->previous = made;
    storage->guards = made;
    storage->pins++;
    return 1;
}

void inlay_guard_drop(inlay_activation_t *m, inlay_task_t *task)
{
    while (task->guards) {
        inlay_guard_t *g = task->guards;
        task->guards = g->next_of_task;
        if (g->previous) g->previous->next = g->next;
        else g->storage->guards = g->next;
        if (g->next) g->next->previous = g->previous;
        inlay_heap_unpin(&m->heap, g->storage);
        g->next_of_task = m->free_guards;
        m->free_guards = g;
    }
}

/* What the values in some slots let a task read, where somebody else can write it. */
static int guard_slots(inlay_activation_t *m, inlay_task_t *task, const inlay_slot_t *slot,
                       const inlay_slot_t *end)
{
    for (; slot < end; slot++) {
        if (slot->tag == KIND_TENSOR) {
            inlay_view_t *view = (inlay_view_t *)(void *)slot->as.object;
            if (view->header.count == 1 && view->storage->header.count == 1) continue;
            if (!guard(m, task, view->storage, (size_t)(view->data - view->storage->data),
                       view->bytes))
                return 0;
        } else if (slot->tag == KIND_STORAGE) {
            inlay_storage_t *storage = (inlay_storage_t *)(void *)slot->as.object;
            if (storage->header.count > 1 && !guard(m, task, storage, 0, storage->bytes)) return 0;
        }
    }
    return 1;
}

int inlay_guard_frames(inlay_activation_t *m, inlay_task_t *task)
{
    const inlay_record_t *top = task->top;
    const inlay_segment_t *segment = task->current;
    const inlay_slot_t *base = task->base, *end = task->sp;
    for (;;) {
        inlay_record_t record = *top;
        if (!guard_slots(m, task, base, end)) return 0;
        if (!record.function) return 1;
        base = record.base;
        end = record.sp;
        if (record.segment != segment) {
            segment = record.segment;
            top = segment->top;
        } else {
            top++;
        }
    }
}

int inlay_guard_covers(const inlay_task_t *task, const inlay_storage_t *storage, size_t begin,
                      size_t end)
{
    const inlay_guard_t *g;
    for (g = storage->guards; g; g = g->next) {
        const inlay_task_t *t = task;
        if (end <= g->begin || g->end <= begin) continue;
        while (t && t != g->task) t = t->caller;
        if (!t && inlay_order_is_before(g->task->place, task->place)) return 1;
    }
    return 0;
}

inlay_status_t inlay_guard_may_write(inlay_activation_t *m, const inlay_storage_t *storage,
                                    const uint8_t *at, size_t bytes)
{
    size_t begin = (size_t)(at - storage->data);
    if (!storage->guards || !inlay_guard_covers(m->task, storage, begin, begin + bytes))
        return INLAY_OK;
    if (inlay_race_spoils(m, SABOTAGE_GUARD)) return INLAY_OK;
    return inlay_wait_for(m, storage, at, bytes, 1);
}
