/* Calls as tasks: which one runs, what the others wait for, and what they still have to read.
 *
 * The task that runs is the top of a chain; callers below it stand at a SPAWN. If it returns, its
 * caller has the results as after a call. If it has to wait, it is detached: its caller gets futures
 * and goes on, behind it in the order of the program. Suspended tasks have no callers. */
#include "machine.h"

#include <string.h>

/* A suspended task may still issue reads of a range. */
typedef struct inlay_guard {
    struct inlay_guard *next_of_task; /* also in the list of the free */
    struct inlay_guard *next, *previous;
    const inlay_task_t *task;
    inlay_storage_t *storage;
    size_t begin, end;
} inlay_guard_t;

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

/* ---------------------------------------------------------------------------------- guards */

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

static void drop_guards(inlay_activation_t *m, inlay_task_t *task)
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

static int guard_frames(inlay_activation_t *m, inlay_task_t *task)
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

/* Whether another chain than that of `task`, and an earlier one, may still read a range. */
static int is_guarded(const inlay_task_t *task, const inlay_storage_t *storage, size_t begin,
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

/* ---------------------------------------------------------------------------------- waiting */

static void wait_for(inlay_activation_t *m, const inlay_storage_t *storage, const uint8_t *at,
                     size_t bytes, int writes)
{
    inlay_wait_t *wait = &m->task->wait;
    wait->future = NULL;
    wait->storage = storage;
    wait->at = at;
    wait->bytes = bytes;
    wait->writes = writes;
    wait->alone = 0;
}

static int is_first(const inlay_activation_t *m, const inlay_task_t *task)
{
    const inlay_task_t *t = m->suspended;
    while (t && (t == task || !inlay_order_is_before(t->place, task->place))) t = t->next;
    return !t;
}

inlay_status_t inlay_task_be_first(inlay_activation_t *m)
{
    if (!m->n_suspended || is_first(m, m->task)) return INLAY_OK;
    wait_for(m, NULL, NULL, 0, 0);
    m->task->wait.alone = 1;
    return INLAY_SUSPENDED;
}

inlay_status_t inlay_task_may_write(inlay_activation_t *m, const inlay_storage_t *storage,
                                    const uint8_t *at, size_t bytes)
{
    size_t begin = (size_t)(at - storage->data);
    if (!storage->guards || !is_guarded(m->task, storage, begin, begin + bytes))
        return INLAY_OK;
    if (inlay_race_spoils(m, SABOTAGE_GUARD)) return INLAY_OK;
    wait_for(m, storage, at, bytes, 1);
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
        if (m->flow.lock || m->task->caller || m->n_suspended) {
            wait_for(m, storage, at, bytes, writes);
            return INLAY_SUSPENDED;
        }
        INLAY_TRY(inlay_role_progress(m, 1));
    }
    return inlay_order_stop(m);
}

/* Whether a task has to go on: there is no failure before what it would do. */
static int is_needed(const inlay_activation_t *m, const inlay_task_t *task)
{
    const inlay_failure_t *failure = &m->flow.failure;
    return !failure->status || inlay_order_is_before(task->place, failure->place);
}

static int is_ready(inlay_activation_t *m, const inlay_task_t *task)
{
    const inlay_wait_t *wait = &task->wait;
    size_t begin;
    if (!is_needed(m, task)) return 0;
    if (wait->future) return (int)wait->future->label;
    if (wait->alone) return is_first(m, task);
    if (!wait->storage) return 1;
    begin = (size_t)(wait->at - wait->storage->data);
    if (!wait->writes)
        return !inlay_access_pending(wait->storage, wait->at, wait->bytes, 0);
    return !is_guarded(task, wait->storage, begin, begin + wait->bytes);
}

/* ------------------------------------------------------------------------------------ tasks */

inlay_task_t *inlay_task_new(inlay_activation_t *m, const inlay_function_t *callee)
{
    inlay_task_t *task = m->free_tasks;
    size_t slots = callee->frame;
    if (m->n_tasks >= m->config.most_tasks) return NULL;
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
    task->n_results = callee->n_results;
    task->caller = NULL;
    task->future = NULL;
    task->where.depth = 0;
    memset(&task->wait, 0, sizeof task->wait);
    m->n_tasks++;
    return task;
}

void inlay_task_free(inlay_activation_t *m, inlay_task_t *task)
{
    drop_guards(m, task);
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

static void suspend(inlay_activation_t *m, inlay_task_t *task)
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

inlay_status_t inlay_task_detach(inlay_activation_t *m)
{
    inlay_task_t *task = m->task, *caller = task->caller, *t;
    inlay_place_t *behind = inlay_order_overtake(m);
    uint32_t i;
    task->future = behind ? inlay_heap_compound(&m->heap, KIND_FUTURE, task->n_results) : NULL;
    if (!task->future) return inlay_no_memory(m);
    for (t = caller; t; t = t->caller) t->place = behind;
    m->flow.place = behind;
    task->future->label = 0;
    task->future->header.count = 1 + task->n_results;
    for (i = 0; i < task->n_results; i++) {
        task->future->items[i].tag = KIND_EMPTY;
        caller->sp->tag = KIND_FUTURE;
        caller->sp->index = i;
        caller->sp->as.object = &task->future->header;
        caller->sp++;
    }
    if (!guard_frames(m, task)) return inlay_no_memory(m);
    task->caller = NULL;
    m->function = caller->function;
    m->pc = caller->pc - 1;
    m->top = caller->top;
    m->current = caller->current;
    m->task = caller;
    inlay_vm_where(m, &task->where);
    suspend(m, task);
    m->has_futures = 1;
    return INLAY_OK;
}

/* A detached task has returned: its results become those of the future. */
static void finish(inlay_activation_t *m, inlay_task_t *task)
{
    inlay_compound_t *future = task->future;
    if (task->n_results)
        memcpy(future->items, task->first->slots, task->n_results * sizeof *future->items);
    future->label = 1;
    inlay_release(&m->heap, &future->header);
    inlay_order_leave(m, task->place);
    inlay_task_free(m, task);
}

/* A chain does not go on; what its slots hold is swept at the end of the call. */
static void abandon(inlay_activation_t *m, inlay_task_t *task)
{
    inlay_order_leave(m, task->place);
    while (task) {
        inlay_task_t *caller = task->caller;
        if (task != &m->root) inlay_task_free(m, task);
        task = caller;
    }
}

/* Take a task that can go on out of the list; NULL where all of them wait. */
static inlay_task_t *take(inlay_activation_t *m)
{
    inlay_task_t *task, *before = NULL, *found = NULL, *before_found = NULL;
    uint64_t n = 0;
    for (task = m->suspended; task; before = task, task = task->next) {
        if (!is_ready(m, task)) continue;
        n++;
        if (found && (m->config.mode != INLAY_REPLAY || inlay_order_random(m) % n)) continue;
        found = task;
        before_found = before;
        if (m->config.mode != INLAY_REPLAY) break;
    }
    if (!found) return NULL;
    if (before_found) before_found->next = found->next;
    else m->suspended = found->next;
    if (m->last_suspended == found) m->last_suspended = before_found;
    m->n_suspended--;
    return found;
}

static int is_one_needed(const inlay_activation_t *m)
{
    const inlay_task_t *task = m->suspended;
    while (task && !is_needed(m, task)) task = task->next;
    return task != NULL;
}

static inlay_turn_t over(inlay_activation_t *m, inlay_status_t status)
{
    m->task = NULL;
    m->outcome = status;
    return TURN_OVER;
}

/* Choose the task that goes on into m->task, if it is NULL; it remains so where none can or has to. */
static inlay_turn_t choose(inlay_activation_t *m)
{
    if (m->task) return TURN_WAITS;
    if (!is_one_needed(m)) return over(m, m->flow.failure.status);
    m->task = take(m);
    if (m->task) m->flow.place = m->task->place;
    if (m->task || m->flow.in_flight) return TURN_WAITS;
    inlay_fail(m->error, INLAY_CHECK_FAILED, "calls wait for each other", NULL, 0);
    inlay_order_fail(m, INLAY_CHECK_FAILED);
    return over(m, INLAY_CHECK_FAILED);
}

static int is_given_up(inlay_status_t status)
{
    return status == INLAY_CANCELLED || status == INLAY_DEADLINE;
}

inlay_turn_t inlay_task_issue(inlay_activation_t *m)
{
    for (;;) {
        inlay_turn_t turn = choose(m);
        inlay_status_t status;
        inlay_task_t *task;
        if (!m->task) return turn;
        status = inlay_vm_run(m);
        task = m->task;
        if (status == INLAY_SUSPENDED && task->caller) {
            status = inlay_task_detach(m);
            if (status == INLAY_OK) continue;
        }
        if (status == INLAY_SUSPENDED) {
            suspend(m, task);
        } else if (status != INLAY_OK) {
            int is_end = is_given_up(status) && !m->flow.is_stopped;
            if (!is_end) inlay_order_fail(m, status);
            abandon(m, task);
            if (is_end) return over(m, status);
        } else if (task != &m->root) {
            finish(m, task);
        } else {
            inlay_order_leave(m, task->place);
        }
        m->task = NULL;
    }
}

inlay_status_t inlay_task_run(inlay_activation_t *m, uint32_t function)
{
    const inlay_function_t *f = &m->module->functions[function];
    inlay_task_t *root = &m->root;
    inlay_record_t outside;
    inlay_status_t status;
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
    root->place = m->flow.place;
    m->task = root;
    m->suspended = m->last_suspended = NULL;
    m->n_suspended = m->has_futures = 0;
    if (m->flow.is_sequential) return inlay_vm_run(m);
    status = inlay_role_run(m);
    while (m->suspended) {
        inlay_task_t *task = m->suspended;
        m->suspended = task->next;
        abandon(m, task);
    }
    m->last_suspended = NULL;
    m->n_suspended = 0;
    return status;
}
