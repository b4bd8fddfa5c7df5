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
 * remains it, and takes steps of its own in `inlay_progress`. */
#include "rooms.h"

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
        turn = inlay_resume(m);
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
        c = kept->next ? kept->next : inlay_progress_take(m, is_caller);
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
            inlay_progress_wait(m);
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
    inlay_resume_none(m);
    return m->outcome;
}
