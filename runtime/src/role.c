/* The roles of threads: one issues, others help, and who can do neither waits.
 *
 * A thread of the call or a worker takes steps, each with the lock taken at its begin and end:
 *
 *   run what it kept      short commands that its last one made ready;
 *   start                 what devices do, ahead of what threads do;
 *   issue                 where nobody does and commands are done, whose tasks may go on;
 *   run what is ready     the one that it kept, else one of the lists.
 *
 * A worker leaves when there is no step to take. The thread of the call waits, until the call is over.
 * An issuer that has to wait in the middle of an instruction (for room, or for all that is in flight)
 * remains it, and takes steps of its own in `inlay_progress`.
 *
 * Where calls share a batcher, a thread with no step to take looks for a batch of them (batcher.c). */
#include "shared.h"

/* Of the issuer, when all tasks have returned: whether it is for any thread to end what is in flight, as
 * that may gather with commands of other calls. Else the thread of the call does it. */
static int drains(const inlay_activation_t *m)
{
    return inlay_batcher_is_common(m) && m->outcome == INLAY_OK && m->issuer.in_flight;
}

/* With the lock taken, and given up meanwhile: have the role until all tasks wait. */
static void issue(inlay_activation_t *m, int is_caller)
{
    inlay_shared_t *shared = m->shared;
    inlay_issuer_t *issuer = &m->issuer;
    inlay_turn_t turn;
    shared->is_issuing = 1;
    shared->is_waiting = 0;
    issuer->is_caller = (uint32_t)is_caller;
    issuer->keeps_one = (uint32_t)inlay_ready_any(m);
    do {
        inlay_command_t *done = inlay_queue_empty(&shared->done);
        inlay_unlock(m);
        inlay_retire(m, done);
        turn = inlay_resume(m);
        inlay_lock(m);
    } while (turn == TURN_WAITS && shared->done.first);
    if (turn == TURN_OVER && !drains(m)) {
        shared->is_over = 1;
        shared->is_ended = !issuer->in_flight;
    } else {
        shared->is_issuing = 0;
        shared->is_waiting = 1;
    }
    inlay_help_wake(m);
}

/* With the lock taken, and given up meanwhile: issue, or run a command. 0 where there was nothing to
 * do. */
static int step(inlay_activation_t *m, int is_caller, inlay_kept_t *kept)
{
    inlay_shared_t *shared = m->shared;
    inlay_command_t *c = inlay_queue_pop(&kept->shorts);
    if (!c && !shared->is_issuing && shared->done.first && (is_caller || !m->is_tied)) {
        if (inlay_ready_any(m)) inlay_help_more(m);
        inlay_ready_give_up(m, kept);
        issue(m, is_caller);
        return 1;
    }
    if (!c) c = inlay_queue_pop(&shared->starts);
    if (!c) {
        c = kept->next ? kept->next : inlay_progress_take(m, is_caller);
        kept->next = NULL;
        kept->ns = 0;
    }
    if (c) inlay_execute(m, c, kept);
    return c != NULL;
}

void inlay_role_work(inlay_job_t *job)
{
    const uint8_t *shared = (const uint8_t *)job - offsetof(inlay_shared_t, job);
    inlay_activation_t *m = ((const inlay_shared_t *)(const void *)shared)->activation;
    inlay_kept_t kept = {{NULL, NULL}, NULL, 0};
    inlay_lock(m);
    while (step(m, 0, &kept)) continue;
    inlay_batcher_settle(m, 0);
    if (inlay_batcher_lacks(m))
        m->host->threads->offer(m->host->user, &m->shared->batcher->job);
    inlay_unlock(m);
    if (inlay_batcher_is_common(m)) inlay_batcher_rest(m->shared->batcher);
}

/* Without locks: go on with a call that was visited. */
static void visit(inlay_activation_t *m)
{
    inlay_kept_t kept = {{NULL, NULL}, NULL, 0};
    inlay_lock(m);
    while (step(m, 0, &kept)) continue;
    inlay_batcher_settle(m, 1);
    inlay_unlock(m);
}

/* Of a carrier, without locks: go on with a call, or else run a batch and leave its calls but `own` to
 * carriers; `n_own` is how often that is one of them. 0 where there is nothing to do. */
static int carry(inlay_batcher_t *batcher, const inlay_activation_t *own, uint32_t *n_own)
{
    inlay_activation_t *m = inlay_batcher_next(batcher);
    inlay_command_t *first;
    inlay_visits_t visits;
    *n_own = 0;
    if (m) {
        visit(m);
        return 1;
    }
    first = inlay_batcher_take(batcher, &visits);
    if (!first) return 0;
    inlay_batcher_run(first, (int)visits.is_alone);
    *n_own = inlay_batcher_put(batcher, &visits, own);
    return 1;
}

void inlay_role_batch(inlay_job_t *job)
{
    inlay_batcher_t *batcher = (inlay_batcher_t *)(void *)job; /* its first field */
    uint32_t unused;
    while (inlay_batcher_enter(batcher)) {
        while (carry(batcher, NULL, &unused)) continue;
        if (!inlay_batcher_exit(batcher)) break;
    }
    inlay_batcher_rest(batcher);
}

/* With the lock taken, and given up meanwhile: a thread of a call that has nothing to do for it is a carrier
 * for one step; 0 where none is needed. Else something may have come for its own call meanwhile. */
static int batch(inlay_activation_t *m)
{
    inlay_batcher_t *batcher = m->shared->batcher;
    uint32_t own = 0;
    inlay_batcher_settle(m, 0);
    if (!inlay_batcher_lacks(m)) return 0;
    inlay_unlock(m);
    if (inlay_batcher_enter(batcher)) {
        carry(batcher, m, &own);
        inlay_batcher_exit(batcher);
    }
    inlay_lock(m);
    if (own) inlay_batcher_settle(m, own);
    return 1;
}

inlay_status_t inlay_role_run(inlay_activation_t *m)
{
    inlay_shared_t *shared = m->shared;
    inlay_issuer_t *issuer = &m->issuer;
    inlay_kept_t kept = {{NULL, NULL}, NULL, 0};
    inlay_lock(m);
    issue(m, 1);
    while (!shared->is_over) {
        int answer;
        if (shared->asked && !shared->is_issuing) {
            m->outcome = inlay_give_up(m, shared->asked);
            break;
        }
        if (!step(m, 1, &kept) && !batch(m)) {
            shared->caller_waits = 1;
            inlay_progress_wait(m);
            shared->caller_waits = 0;
        }
        inlay_unlock(m);
        answer = m->host->poll ? m->host->poll(m->host->user) : 0;
        inlay_lock(m);
        if (answer) shared->asked = answer;
    }
    inlay_ready_give_up(m, &kept);
    shared->is_issuing = issuer->is_caller = 1;
    inlay_unlock(m);
    inlay_resume_none(m);
    return m->outcome;
}
