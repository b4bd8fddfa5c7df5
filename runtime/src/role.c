/* What threads do: one issues, others help, and who can do neither waits.
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
 * remains it, and takes steps of its own in `inlay_role_progress`. */
#include "rooms.h"

int inlay_role_ask(inlay_activation_t *m)
{
    int answer;
    if (m->flow.is_caller) return m->host->poll ? m->host->poll(m->host->user) : 0;
    inlay_flow_lock(m);
    answer = m->flow.asked;
    inlay_flow_unlock(m);
    return answer;
}

/* With the lock taken: what a thread runs now. When replaying, the seed decides. */
static inlay_command_t *take(inlay_activation_t *m, int is_caller)
{
    inlay_flow_t *flow = &m->flow;
    inlay_command_t *c = NULL, *previous = NULL;
    uint64_t n = 0, chosen;
    if (m->config.mode != INLAY_REPLAY) {
        if (is_caller && !inlay_ready_starts(m)) c = inlay_queue_pop(&flow->own);
        if (!c) c = inlay_queue_pop(&flow->ready);
        return c || !flow->is_waiting ? c : inlay_batch_take(m);
    }
    while ((c = inlay_queue_pop(&flow->own))) inlay_queue_push(&flow->ready, c);
    for (c = flow->ready.first; c; c = c->next) n++;
    if (!n) return inlay_batch_take(m);
    chosen = inlay_order_random(m) % n;
    for (c = flow->ready.first; chosen; chosen--, previous = c, c = c->next) continue;
    if (previous) previous->next = c->next;
    else flow->ready.first = c->next;
    if (flow->ready.last == c) flow->ready.last = previous;
    return c;
}

/* With the lock taken: wait until woken. Who waits says so before, in flow->issuer_waits or
 * flow->caller_waits. */
static void wait(inlay_activation_t *m)
{
    int64_t begin = inlay_trace_now(m);
    if (!m->flow.lock) return;
    m->host->threads->wait(m->host->user, m->flow.lock, INLAY_WAIT_NS);
    inlay_trace_wait(m, begin);
}

/* Of the issuer: retire what is done, or run something, or else wait for so many ends (0: for none).
 * 0 where there was nothing to do. */
static int advance(inlay_activation_t *m, uint32_t ends)
{
    inlay_flow_t *flow = &m->flow;
    inlay_command_t *done, *c = NULL;
    inlay_kept_t kept = {{NULL, NULL}, NULL, 0};
    int runs;
    inlay_flow_lock(m);
    flow->is_waiting = 1;
    done = flow->done.first;
    flow->done.first = flow->done.last = NULL;
    if (!done) c = take(m, (int)flow->is_caller);
    runs = c != NULL;
    if (runs) {
        inlay_execute(m, c, &kept);
        while ((c = inlay_queue_pop(&kept.shorts))) inlay_execute(m, c, &kept);
        inlay_ready_give_up(m, &kept);
    } else if (!done && flow->in_flight && ends) {
        flow->issuer_waits = ends;
        wait(m);
        flow->issuer_waits = flow->is_due = 0;
    }
    flow->keeps_one = flow->ready.first != NULL;
    inlay_ahead_look(m);
    inlay_flow_unlock(m);
    inlay_retire(m, done);
    return runs || done;
}

inlay_status_t inlay_role_progress(inlay_activation_t *m, uint32_t ends)
{
    return advance(m, ends) ? INLAY_OK : inlay_poll(m);
}

inlay_status_t inlay_role_settle(inlay_activation_t *m)
{
    while (m->flow.in_flight && !inlay_ahead_pays(m)) {
        INLAY_TRY(inlay_order_stop(m));
        if (!advance(m, 0)) break;
    }
    return inlay_order_stop(m);
}

/* With the lock taken, and given up meanwhile: have the role until all tasks wait. */
static void issue(inlay_activation_t *m, int is_caller)
{
    inlay_flow_t *flow = &m->flow;
    inlay_turn_t turn;
    flow->is_issuing = 1;
    flow->is_waiting = 0;
    flow->is_caller = (uint32_t)is_caller;
    flow->keeps_one = flow->ready.first != NULL;
    do {
        inlay_command_t *done = flow->done.first;
        flow->done.first = flow->done.last = NULL;
        inlay_flow_unlock(m);
        inlay_retire(m, done);
        turn = inlay_task_issue(m);
        inlay_flow_lock(m);
    } while (turn == TURN_WAITS && flow->done.first);
    if (turn == TURN_OVER) {
        flow->is_over = 1;
    } else {
        flow->is_issuing = 0;
        flow->is_waiting = 1;
    }
    inlay_help_wake(m);
}

/* With the lock taken, and given up meanwhile: issue, or run a command. 0 where there was nothing to
 * do. */
static int step(inlay_activation_t *m, int is_caller, inlay_kept_t *kept)
{
    inlay_flow_t *flow = &m->flow;
    inlay_command_t *c = inlay_queue_pop(&kept->shorts);
    if (!c && !flow->is_issuing && flow->done.first && (is_caller || !flow->is_tied)) {
        if (flow->ready.first) inlay_help_call(m);
        inlay_ready_give_up(m, kept);
        issue(m, is_caller);
        return 1;
    }
    if (!c && inlay_ready_starts(m) && m->config.mode != INLAY_REPLAY) {
        c = inlay_queue_pop(&flow->ready);
    } else if (!c) {
        c = kept->next ? kept->next : take(m, is_caller);
        kept->next = NULL;
        kept->ns = 0;
    }
    if (c) inlay_execute(m, c, kept);
    return c != NULL;
}

void inlay_role_work(inlay_job_t *job)
{
    inlay_flow_t *flow =
        (inlay_flow_t *)(void *)((uint8_t *)job - offsetof(inlay_flow_t, job));
    inlay_activation_t *m = flow->activation;
    inlay_kept_t kept = {{NULL, NULL}, NULL, 0};
    inlay_flow_lock(m);
    while (step(m, 0, &kept)) continue;
    inlay_flow_unlock(m);
}

inlay_status_t inlay_role_run(inlay_activation_t *m)
{
    inlay_flow_t *flow = &m->flow;
    inlay_kept_t kept = {{NULL, NULL}, NULL, 0};
    inlay_flow_lock(m);
    issue(m, 1);
    while (!flow->is_over) {
        int answer;
        if (flow->asked && !flow->is_issuing) {
            m->outcome = inlay_give_up(m, flow->asked);
            break;
        }
        if (!step(m, 1, &kept)) {
            flow->caller_waits = 1;
            wait(m);
            flow->caller_waits = 0;
        }
        inlay_flow_unlock(m);
        answer = m->host->poll ? m->host->poll(m->host->user) : 0;
        inlay_flow_lock(m);
        if (answer) flow->asked = answer;
    }
    inlay_ready_give_up(m, &kept);
    flow->is_issuing = flow->is_caller = 1;
    inlay_flow_unlock(m);
    return m->outcome;
}

inlay_status_t inlay_role_drain(inlay_activation_t *m)
{
    while (m->flow.in_flight) {
        INLAY_TRY(inlay_order_stop(m));
        INLAY_TRY(inlay_role_progress(m, m->flow.in_flight));
    }
    return inlay_order_stop(m);
}
