/* Batches across calls: activations of a module that share a batcher run kernels of each other's calls.
 *
 * Each call remains a call of its own, with its thread, its memory, its limits and its failure; only what
 * gathers is in one place. A call is *still* when no thread can go on with it: what it has gathers, or is
 * with devices and callbacks. When all calls under way are still, whoever found the last one to be so
 * takes a batch, runs it, and then *visits* the calls whose commands these were: it goes on with each
 * until that is still again. So one thread carries many calls from batch to batch, and the threads of the
 * calls sleep. A call joins by beginning, at any time: nobody waits for calls that are not there.
 *
 * While some calls are long at work on what does not gather, the others wait for them, but not for longer
 * than INLAY_BATCH_WAIT_NS.
 *
 * Under the lock of the batcher are its lists and, of each call, is_joined, is_still and n_visits. It is
 * taken behind that of a call, never before. A call that is visited does not end: `leave` waits. */
#include "shared.h"

static void lock(const inlay_batcher_t *batcher)
{
    batcher->host->threads->lock(batcher->host->user, batcher->lock);
}

static void unlock(const inlay_batcher_t *batcher)
{
    batcher->host->threads->unlock(batcher->host->user, batcher->lock);
}

static int64_t now(const inlay_batcher_t *batcher)
{
    return batcher->host->now ? batcher->host->now(batcher->host->user) : 0;
}

/* ------------------------------------------------------------------------ who has nothing to do */

/* With the lock of the call: whether no thread can go on with it. */
static int is_still(const inlay_shared_t *shared)
{
    return !shared->n_running && !shared->own.first && !shared->ready.first &&
           !shared->starts.first && !shared->is_over &&
           (shared->is_issuing ? shared->issuer_waits && !shared->is_due : !shared->done.first);
}

/* With the lock of the batcher: whether a batch can be taken. */
static int is_due(const inlay_batcher_t *batcher)
{
    if (!batcher->n_gathered) return 0;
    if (batcher->n_still >= batcher->n_calls) return 1;
    return batcher->since && now(batcher) - batcher->since > INLAY_BATCH_WAIT_NS;
}

int inlay_batcher_settle(inlay_activation_t *m, uint32_t visits)
{
    inlay_batcher_t *batcher = m->shared->batcher;
    inlay_shared_t *shared = m->shared;
    int is_taken;
    if (!inlay_batcher_is_common(m)) return 0;
    lock(batcher);
    shared->n_visits -= visits;
    if (!shared->n_visits) {
        if (visits && batcher->n_leaving)
            batcher->host->threads->wake(batcher->host->user, batcher->lock);
        if (shared->is_joined && !shared->is_still && is_still(shared)) {
            shared->is_still = 1;
            batcher->n_still++;
        }
    }
    is_taken = is_due(batcher);
    unlock(batcher);
    return is_taken;
}

int64_t inlay_batcher_patience(const inlay_activation_t *m)
{
    uint32_t n = 0;
    if (inlay_batcher_is_common(m)) {
        lock(m->shared->batcher);
        n = m->shared->batcher->n_calls / 8;
        unlock(m->shared->batcher);
    }
    return INLAY_WAIT_NS * (n ? n : 1);
}

/* --------------------------------------------------------------------------- calls come and go */

void inlay_batcher_join(inlay_activation_t *m)
{
    inlay_batcher_t *batcher = m->shared->batcher;
    if (!inlay_batcher_is_common(m)) return;
    lock(batcher);
    if (!batcher->n_calls++) batcher->since = now(batcher);
    m->shared->is_joined = 1;
    unlock(batcher);
}

/* Somebody else is to take a batch: a worker, or the thread of a call with commands in one. */
static void hand_over(inlay_batcher_t *batcher, inlay_activation_t *m)
{
    batcher->host->threads->offer(batcher->host->user, &batcher->job);
    inlay_lock(m);
    inlay_help_call(m);
    inlay_batcher_settle(m, 1);
    inlay_unlock(m);
}

/* With the lock taken: a call with a command that gathers, which is visited then. */
static inlay_activation_t *any(const inlay_batcher_t *batcher)
{
    uint32_t i = 0;
    inlay_activation_t *m;
    while (!batcher->gathered[i].first) i++;
    m = batcher->gathered[i].first->activation;
    m->shared->n_visits++;
    return m;
}

void inlay_batcher_leave(inlay_activation_t *m)
{
    inlay_batcher_t *batcher = m->shared->batcher;
    const inlay_threads_t *threads = m->host->threads;
    inlay_activation_t *next;
    int is_last;
    if (!inlay_batcher_is_common(m) || !m->shared->is_joined) return;
    lock(batcher);
    m->shared->is_joined = 0;
    batcher->n_still -= m->shared->is_still;
    m->shared->is_still = 0;
    is_last = !--batcher->n_calls;
    next = is_due(batcher) ? any(batcher) : NULL;
    unlock(batcher);
    if (next) hand_over(batcher, next);
    lock(batcher);
    batcher->n_leaving++;
    while (m->shared->n_visits) threads->wait(m->host->user, batcher->lock, INLAY_WAIT_NS);
    batcher->n_leaving--;
    unlock(batcher);
    /* Workers change with the calls that run; the job must not stay with those of this one. */
    if (is_last) threads->withdraw(m->host->user, &batcher->job);
}

/* ------------------------------------------------------------------------------------ batches */

inlay_command_t *inlay_batcher_take(inlay_batcher_t *batcher, inlay_visits_t *visits)
{
    inlay_command_t *first = NULL, *c;
    visits->n = 0;
    lock(batcher);
    if (is_due(batcher)) first = inlay_gather_take(batcher);
    if (first) batcher->since = now(batcher);
    for (c = first; c; c = c->mates) {
        inlay_shared_t *shared = c->activation->shared;
        if (visits->n && visits->at[visits->n - 1] == c->activation) continue;
        visits->at[visits->n++] = c->activation;
        shared->n_visits++;
        batcher->n_still -= shared->is_still;
        shared->is_still = 0;
    }
    unlock(batcher);
    return first;
}

void inlay_batcher_run(inlay_command_t *first)
{
    inlay_command_t *c, *next;
    if (!first->mates || !inlay_batch_run(first->activation, first))
        for (c = first; c; c = c->mates) inlay_execute_one(c->activation, c);
    for (c = first; c; c = next) {
        inlay_activation_t *m = c->activation;
        next = c->mates;
        c->mates = NULL;
        inlay_lock(m);
        inlay_ready_let_go(m, c, 2, NULL);
        inlay_help_wake(m);
        inlay_unlock(m);
    }
}
