/* Steps of the issuer in the middle of an instruction that has to wait: for room, for a value, or for
 * all that is in flight. It remains the issuer, and does what there is to do meanwhile. */
#include "shared.h"

/* Of what gathers for this call alone. */
static inlay_command_t *take_alone(inlay_activation_t *m)
{
    inlay_command_t *first = inlay_gather_take(&m->shared->alone, INLAY_MOST_BATCHED), *c;
    for (c = first; c; c = c->mates) c->state = COMMAND_RUNNING;
    return first;
}

inlay_command_t *inlay_progress_take(inlay_activation_t *m, int is_caller)
{
    inlay_shared_t *shared = m->shared;
    inlay_command_t *c = NULL, *previous = NULL;
    uint64_t n = 0, chosen;
    if (m->config.mode != INLAY_REPLAY) {
        c = inlay_queue_pop(&shared->starts);
        if (!c && is_caller) c = inlay_queue_pop(&shared->own);
        if (!c) c = inlay_queue_pop(&shared->ready);
        if (!c) c = inlay_queue_pop(&shared->calls);
        if (c) c->by_caller = (uint32_t)is_caller;
        return c || !shared->is_waiting ? c : take_alone(m);
    }
    while ((c = inlay_queue_pop(&shared->own))) inlay_queue_push(&shared->ready, c);
    for (c = shared->ready.first; c; c = c->next) n++;
    if (!n) return take_alone(m);
    chosen = inlay_order_random(m) % n;
    for (c = shared->ready.first; chosen; chosen--, previous = c, c = c->next) continue;
    if (previous) previous->next = c->next;
    else shared->ready.first = c->next;
    if (shared->ready.last == c) shared->ready.last = previous;
    return c;
}

void inlay_progress_wait(inlay_activation_t *m)
{
    int64_t begin = inlay_trace_now(m);
    if (!m->lock) return;
    m->host->threads->wait(m->host->user, m->lock, inlay_batcher_patience(m));
    inlay_batcher_waited(m);
    inlay_trace_wait(m, begin);
}

/* Leave all calls that are to be gone on with to threads of theirs: this one cannot, in the middle of an
 * instruction. */
static void leave_visits(inlay_batcher_t *batcher)
{
    inlay_activation_t *other;
    while ((other = inlay_batcher_next(batcher))) {
        inlay_lock(other);
        inlay_help_leave(other);
        inlay_batcher_settle(other, 1);
        inlay_unlock(other);
    }
}

int inlay_progress_batch(inlay_activation_t *m)
{
    inlay_batcher_t *batcher = m->shared->batcher;
    inlay_visits_t visits;
    inlay_command_t *first;
    uint32_t own = 0;
    if (!inlay_batcher_settle(m, 0)) return 0;
    inlay_unlock(m);
    leave_visits(batcher);
    first = inlay_batcher_take(batcher, &visits);
    if (first) {
        inlay_batcher_run(first, (int)visits.is_alone);
        own = inlay_batcher_put(batcher, &visits, m);
        leave_visits(batcher);
    }
    inlay_lock(m);
    if (own) inlay_batcher_settle(m, own);
    return 1;
}

/* Of the issuer: retire what is done, or run something, or else wait for so many ends (0: for none).
 * 0 where there was nothing to do. */
static int advance(inlay_activation_t *m, uint32_t ends)
{
    inlay_shared_t *shared = m->shared;
    inlay_issuer_t *issuer = &m->issuer;
    inlay_command_t *done, *c = NULL;
    inlay_kept_t kept = {{NULL, NULL}, NULL, 0};
    int runs;
    inlay_lock(m);
    shared->is_waiting = 1;
    done = inlay_queue_empty(&shared->done);
    if (!done) c = inlay_progress_take(m, (int)issuer->is_caller);
    runs = c != NULL;
    if (runs) {
        inlay_execute(m, c, &kept);
        while ((c = inlay_queue_pop(&kept.shorts))) inlay_execute(m, c, &kept);
        inlay_ready_give_up(m, &kept);
    } else if (!done && issuer->in_flight && ends) {
        shared->issuer_waits = ends;
        runs = inlay_progress_batch(m);
        if (!runs) inlay_progress_wait(m);
        shared->issuer_waits = shared->is_due = 0;
    }
    issuer->keeps_one = (uint32_t)inlay_ready_any(m);
    inlay_lookahead_look(m);
    inlay_unlock(m);
    inlay_retire(m, done);
    return runs || done;
}

inlay_status_t inlay_give_up(inlay_activation_t *m, int answer)
{
    if (!answer) return INLAY_OK;
    if (answer == INLAY_DEADLINE)
        return inlay_fail(m->error, INLAY_DEADLINE, "the run did not end in time", NULL, 0);
    return inlay_fail(m->error, INLAY_CANCELLED, "the run was interrupted", NULL, 0);
}

/* What host.poll answers; not 0: the call is to end. Other threads than that of the call learn what
 * it was answered; and a delegate, on any thread, whether anybody wants what it runs. */
static int ask(const inlay_activation_t *m)
{
    const inlay_activation_t *of = m->parent ? m->parent : m;
    int answer = 0;
    if (m->issuer.is_caller) {
        answer = m->host->poll ? m->host->poll(m->host->user) : 0;
        if (!m->parent) return answer;
    }
    inlay_lock(of);
    if (answer) of->shared->asked = answer;
    else answer = of->shared->asked;
    if (m->parent && m->part_of->is_dropped && !answer) answer = 1;
    inlay_unlock(of);
    return answer;
}

inlay_status_t inlay_poll(inlay_activation_t *m) { return inlay_give_up(m, ask(m)); }

inlay_status_t inlay_progress(inlay_activation_t *m, uint32_t ends)
{
    return advance(m, ends) ? INLAY_OK : inlay_poll(m);
}

inlay_status_t inlay_progress_settle(inlay_activation_t *m)
{
    while (m->issuer.in_flight > m->n_delegated && !inlay_lookahead_pays(m)) {
        INLAY_TRY(inlay_order_stop(m));
        if (!advance(m, 0)) break;
    }
    return inlay_order_stop(m);
}

inlay_status_t inlay_progress_drain(inlay_activation_t *m)
{
    while (m->issuer.in_flight) {
        INLAY_TRY(inlay_order_stop(m));
        INLAY_TRY(inlay_progress(m, m->issuer.in_flight));
    }
    return inlay_order_stop(m);
}
