/* Telling other threads. A thread that waits for this call is told before a worker of the host, which
 * may be asleep or busy with another call; at most one is called for each thing there is to do. */
#include "rooms.h"

void inlay_help_call(inlay_activation_t *m)
{
    if (!m->flow.lock) return;
    if (m->flow.caller_waits || m->flow.issuer_waits) {
        if (!m->flow.issuer_waits) m->flow.caller_waits = 0;
        m->flow.issuer_waits = 0;
        m->host->threads->wake(m->host->user, m->flow.lock);
    } else {
        m->host->threads->offer(m->host->user, &m->flow.job);
    }
}

void inlay_help_wake(inlay_activation_t *m)
{
    inlay_flow_t *flow = &m->flow;
    int for_caller = flow->own.first || flow->is_over;
    if (!flow->is_issuing && (flow->asked || (flow->is_tied && flow->done.first))) for_caller = 1;
    if (!flow->lock) return;
    if (flow->is_due || (flow->caller_waits && for_caller)) {
        flow->is_due = 0;
        if (for_caller) flow->caller_waits = 0;
        m->host->threads->wake(m->host->user, flow->lock);
    }
}

void inlay_help_leave(inlay_activation_t *m)
{
    inlay_help_wake(m);
    if (m->flow.ready.first || (m->flow.done.first && !m->flow.is_issuing)) inlay_help_call(m);
}

void inlay_help_share(inlay_activation_t *m)
{
    inlay_flow_lock(m);
    if (m->flow.ready.first) inlay_help_call(m);
    inlay_flow_unlock(m);
    m->flow.keeps_one = 0;
}
