/* Notification of other threads. A thread that waits for this call is told before a worker of the host, which
 * may be asleep or busy with another call; at most one is called for each thing there is to do. */
#include "shared.h"

void inlay_help_call(inlay_activation_t *m)
{
    if (!m->lock) return;
    if (m->shared->caller_waits || m->shared->issuer_waits) {
        if (!m->shared->issuer_waits) m->shared->caller_waits = 0;
        m->shared->issuer_waits = 0;
        m->host->threads->wake(m->host->user, m->lock);
    } else {
        m->host->threads->offer(m->host->user, &m->shared->job);
    }
}

void inlay_help_more(inlay_activation_t *m)
{
    if (!inlay_gather_is_full(m)) inlay_help_call(m);
}

void inlay_help_wake(inlay_activation_t *m)
{
    inlay_shared_t *shared = m->shared;
    int for_caller = shared->own.first || shared->is_over;
    if (!shared->is_issuing && (shared->asked || (m->is_tied && shared->done.first))) for_caller = 1;
    if (!m->lock) return;
    if (shared->is_due || (shared->caller_waits && for_caller)) {
        shared->is_due = 0;
        if (for_caller) shared->caller_waits = 0;
        m->host->threads->wake(m->host->user, m->lock);
    }
}

void inlay_help_leave(inlay_activation_t *m)
{
    inlay_help_wake(m);
    if (inlay_ready_any(m) || (m->shared->done.first && !m->shared->is_issuing)) inlay_help_call(m);
}

void inlay_help_share(inlay_activation_t *m)
{
    inlay_lock(m);
    if (inlay_ready_any(m)) inlay_help_more(m);
    inlay_unlock(m);
    m->issuer.keeps_one = 0;
}
