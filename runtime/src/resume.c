/* Suspended tasks: which of them goes on, until all have returned or wait. Of the issuer alone. */
#include "delegate.h"

#include <string.h>

/* Whether a task has to go on: there is no failure before what it would do. */
static int is_needed(const inlay_activation_t *m, const inlay_task_t *task)
{
    const inlay_failure_t *failure = &m->issuer.failure;
    return !failure->status || inlay_order_is_before(task->place, failure->place);
}

static int is_ready(inlay_activation_t *m, const inlay_task_t *task)
{
    const inlay_wait_t *wait = &task->wait;
    size_t begin;
    if (!is_needed(m, task)) return 0;
    if (task->delegate) return !task->delegate->is_running;
    if (task->has_returned) return 1;
    if (wait->future) return (int)wait->future->label;
    if (wait->alone) return inlay_task_is_first(m, task);
    if (!wait->storage) return 1;
    begin = (size_t)(wait->at - wait->storage->data);
    if (!wait->writes)
        return !inlay_access_pending(wait->storage, wait->at, wait->bytes, 0);
    return !inlay_guard_covers(task, wait->storage, begin, begin + wait->bytes);
}

/* A detached task has returned: its results become those of the future. */
static void finish(inlay_activation_t *m, inlay_task_t *task)
{
    inlay_compound_t *future = task->future;
    uint32_t effects = 0, i;
    if (task->n_results)
        memcpy(future->items, task->first->slots, task->n_results * sizeof *future->items);
    for (i = 0; i < task->n_results; i++) effects |= inlay_slot_effects(&future->items[i]);
    future->header.effects = (uint8_t)effects;
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
        inlay_delegate_abandon(task);
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
    if (!is_one_needed(m)) return over(m, m->issuer.failure.status);
    m->task = take(m);
    if (m->task) m->issuer.place = m->task->place;
    if (m->task || m->issuer.in_flight) return TURN_WAITS;
    inlay_fail(m->error, INLAY_CHECK_FAILED, "calls wait for each other", NULL, 0);
    inlay_order_fail(m, INLAY_CHECK_FAILED);
    return over(m, INLAY_CHECK_FAILED);
}

static int is_given_up(inlay_status_t status)
{
    return status == INLAY_CANCELLED || status == INLAY_DEADLINE;
}

inlay_turn_t inlay_resume(inlay_activation_t *m)
{
    for (;;) {
        inlay_turn_t turn = choose(m);
        inlay_status_t status;
        inlay_task_t *task;
        if (!m->task) return turn;
        if (m->task->delegate) inlay_delegate_end(m, m->task);
        status = m->task->has_returned ? INLAY_OK : inlay_vm_run(m);
        task = m->task;
        if (status == INLAY_SUSPENDED && task->caller) {
            status = inlay_task_detach(m);
            if (status == INLAY_OK) continue;
        }
        if (status == INLAY_SUSPENDED) {
            inlay_task_suspend(m, task);
        } else if (status != INLAY_OK) {
            int is_end = is_given_up(status) && !m->issuer.is_stopped;
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

void inlay_resume_none(inlay_activation_t *m)
{
    while (m->suspended) {
        inlay_task_t *task = m->suspended;
        m->suspended = task->next;
        abandon(m, task);
    }
    m->last_suspended = NULL;
    m->n_suspended = 0;
}
