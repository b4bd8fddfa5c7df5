/* Tasks: calls with a stack of their own, their futures, and what they wait for.
 *
 * The task that runs is the top of a chain; callers below it stand at a SPAWN. If it returns, its
 * caller has the results as after a call. If it has to wait, it is detached: its caller gets futures
 * and goes on, behind it in the order of the program. Suspended tasks have no callers. */
#include "machine.h"

#include <string.h>

/* --------------------------------------------------------------------------------- futures */

const inlay_slot_t *inlay_task_settled(const inlay_slot_t *slot, int *is_sole)
{
    while (slot->tag == KIND_FUTURE) {
        const inlay_compound_t *future = (const inlay_compound_t *)(const void *)slot->as.object;
        if (future->header.count != 1) *is_sole = 0;
        slot = &future->items[slot->index];
    }
    return slot;
}

/* Put the value of a future whose call has returned into its slot. */
static void settle(inlay_activation_t *m, inlay_slot_t *slot)
{
    inlay_compound_t *future = (inlay_compound_t *)(void *)slot->as.object;
    *slot = future->items[slot->index];
    if (slot->tag > KIND_INT) inlay_retain(slot->as.object);
    inlay_release(&m->heap, &future->header);
}

inlay_status_t inlay_task_resolve(inlay_activation_t *m, inlay_slot_t *base, inlay_slot_t *sp)
{
    const inlay_compound_t *future;
    while (sp > base && sp[-1].tag != KIND_FUTURE) sp--;
    if (sp == base) return INLAY_KIND_MISMATCH;
    future = (const inlay_compound_t *)(const void *)sp[-1].as.object;
    if (future->label) {
        settle(m, sp - 1);
        return INLAY_OK;
    }
    memset(&m->task->wait, 0, sizeof m->task->wait);
    m->task->wait.future = future;
    return INLAY_SUSPENDED;
}

/* ---------------------------------------------------------------------------------- waiting */

int inlay_task_is_first(const inlay_activation_t *m, const inlay_task_t *task)
{
    const inlay_task_t *t = m->suspended;
    while (t && (t == task || !inlay_order_is_before(t->place, task->place))) t = t->next;
    return !t;
}

inlay_status_t inlay_task_be_first(inlay_activation_t *m)
{
    if (!m->n_suspended || inlay_task_is_first(m, m->task)) return INLAY_OK;
    inlay_wait_for(m, NULL, NULL, 0, 0);
    m->task->wait.alone = 1;
    return INLAY_SUSPENDED;
}

inlay_status_t inlay_task_wait(inlay_activation_t *m, const inlay_storage_t *storage,
                               const uint8_t *at, size_t bytes, int writes)
{
    if (!storage->pins) return INLAY_OK;
    while (inlay_access_pending(storage, at, bytes, writes) &&
           !inlay_race_spoils(m, SABOTAGE_WAIT)) {
        INLAY_TRY(inlay_order_stop(m));
        /* Without other threads and tasks, nothing is gained by giving up the role. */
        if (m->lock || m->task->caller || m->n_suspended)
            return inlay_wait_for(m, storage, at, bytes, writes);
        INLAY_TRY(inlay_progress(m, 1));
    }
    return inlay_order_stop(m);
}

/* ------------------------------------------------------------------------------------ tasks */

/* Whether nobody can tell when a call runs, given its effects. */
static int is_free(inlay_activation_t *m, uint32_t effects)
{
    return !(effects & EFFECT_ORDERED) || inlay_race_spoils(m, SABOTAGE_EFFECT);
}

inlay_task_t *inlay_task_new(inlay_activation_t *m, const inlay_function_t *callee,
                             const inlay_compound_t *closure, const inlay_slot_t *arguments, uint32_t n)
{
    inlay_task_t *task = m->free_tasks;
    size_t slots = callee->frame;
    uint32_t given = closure ? closure->header.effects : 0, i;
    for (i = 0; i < n; i++) given |= inlay_slot_effects(&arguments[i]);
    if (m->n_tasks >= m->config.most_tasks || !is_free(m, callee->effects | given)) return NULL;
    if (task) {
        m->free_tasks = task->next;
    } else {
        task = m->host->allocate(m->host->user, sizeof *task, 64);
        if (!task) return NULL;
        memset(task, 0, sizeof *task);
    }
    if (task->first &&
        task->first->bytes < sizeof *task->first + slots * sizeof(inlay_slot_t) +
                                 2 * sizeof(inlay_record_t)) {
        inlay_stack_close(m, task->first);
        task->first = NULL;
    }
    if (!task->first) task->first = inlay_stack_open(m, slots);
    if (!task->first) {
        task->next = m->free_tasks;
        m->free_tasks = task;
        return NULL;
    }
    task->current = task->first;
    task->callee = callee;
    task->given = given;
    task->n_results = callee->n_results;
    task->caller = NULL;
    task->future = NULL;
    task->where.depth = 0;
    memset(&task->wait, 0, sizeof task->wait);
    task->delegate = NULL;
    task->has_returned = 0;
    m->n_tasks++;
    return task;
}

void inlay_task_free(inlay_activation_t *m, inlay_task_t *task)
{
    inlay_guard_drop(m, task);
    inlay_stack_close(m, task->first->next);
    task->first->next = NULL;
    task->next = m->free_tasks;
    m->free_tasks = task;
    m->n_tasks--;
}

void inlay_task_close(inlay_activation_t *m)
{
    while (m->free_tasks) {
        inlay_task_t *task = m->free_tasks;
        m->free_tasks = task->next;
        inlay_stack_close(m, task->first);
        m->host->release(m->host->user, task, sizeof *task, 64);
    }
}

void inlay_task_suspend(inlay_activation_t *m, inlay_task_t *task)
{
    task->next = NULL;
    if (m->last_suspended) m->last_suspended->next = task;
    else m->suspended = task;
    m->last_suspended = task;
    m->n_suspended++;
}

int inlay_task_is_late(inlay_activation_t *m)
{
    return m->config.mode == INLAY_REPLAY && inlay_order_random(m) % 2;
}

/* Of a call without effects, they hold only cells of its own. */
uint8_t inlay_task_effects_to_come(const inlay_task_t *task)
{
    const inlay_function_t *callee = task->callee;
    uint32_t i;
    if (!((callee->effects | task->given) & EFFECT_CELLS)) return 0;
    for (i = 0; i < callee->n_results; i++)
        if (callee->results[i] > KIND_STORAGE) return EFFECT_ORDERED | EFFECT_CELLS;
    return 0;
}

inlay_status_t inlay_task_detach(inlay_activation_t *m)
{
    inlay_task_t *task = m->task, *caller = task->caller, *t;
    inlay_place_t *behind = inlay_order_overtake(m);
    uint32_t i;
    task->future = behind ? inlay_heap_compound(&m->heap, KIND_FUTURE, task->n_results) : NULL;
    if (!task->future) return inlay_no_memory(m);
    for (t = caller; t; t = t->caller) t->place = behind;
    m->issuer.place = behind;
    task->future->label = 0;
    task->future->header.effects = inlay_task_effects_to_come(task);
    task->future->header.count = 1 + task->n_results;
    for (i = 0; i < task->n_results; i++) {
        task->future->items[i].tag = KIND_EMPTY;
        caller->sp->tag = KIND_FUTURE;
        caller->sp->index = i;
        caller->sp->as.object = &task->future->header;
        caller->sp++;
    }
    if (!inlay_guard_frames(m, task)) return inlay_no_memory(m);
    task->caller = NULL;
    m->function = caller->function;
    m->pc = caller->pc - 1;
    m->top = caller->top;
    m->current = caller->current;
    m->task = caller;
    inlay_vm_where(m, &task->where);
    inlay_task_suspend(m, task);
    m->has_futures = 1;
    return INLAY_OK;
}

void inlay_task_root(inlay_activation_t *m, uint32_t function)
{
    const inlay_function_t *f = &m->module->functions[function];
    inlay_task_t *root = &m->root;
    inlay_record_t outside;
    memset(root, 0, sizeof *root);
    memset(&outside, 0, sizeof outside);
    outside.sp = m->current->slots;
    outside.segment = m->current;
    root->function = f;
    root->pc = f->code;
    root->base = m->current->slots;
    root->sp = root->base + f->n_params;
    root->top = inlay_segment_end(m->current) - 1;
    *root->top = outside;
    root->first = root->current = m->current;
    root->place = m->issuer.place;
    m->task = root;
    m->suspended = m->last_suspended = NULL;
    m->n_suspended = m->has_futures = 0;
}
