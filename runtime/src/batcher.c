/* Batches across calls: activations of a module that share a batcher run kernels of each other's calls.
 *
 * Each call remains a call of its own, with its thread, its memory, its limits and its failure; only what
 * gathers is in one place. A call is *still* when no thread can go on with it: what it has gathers, or is
 * with devices and callbacks. When all calls under way are still, whoever found the last one to be so
 * takes a batch and runs it. The calls whose commands these were are then to be *visited*: gone on with,
 * each by one thread, until they are still again. So a few threads, the *carriers*, carry many calls from
 * batch to batch, no more of them than a call may have, and the threads of the calls sleep. A carrier is a
 * worker, or the thread of a call that has nothing to do for that. While there are as many calls to go on
 * with as threads, kernels of a visited call run on one thread in all their parts, with the data at hand;
 * parts are shared in batches, and of the last call. A call joins by beginning, at any time.
 *
 * Who asks for a call mostly asks for another one when that has ended. Where a batch went on at once with
 * those that are left, calls that ended together would begin one by one, and read all weights as often. So
 * as many calls are expected as there were: before a batch that could be taken, the others have a moment to
 * come (a quarter of what calls take, at most INLAY_BATCH_GAP_NS since the last one came or went). When
 * they do not, they are expected no more: a call that was the last of somebody costs the others that once.
 * That moment is no longer than what going on without them costs: the missing part of all calls would wait for
 * the next batch of the kernel, a period later. Steps that end together are all missing, and the next batch is
 * a step away; of loops of many steps few end at once, and the next batch is soon.
 *
 * Many calls are divided among threads: once those that are ready for a kernel are half of a thread's share of
 * all calls, whoever has time runs them by itself, all parts of the kernel and as many calls as its share, and
 * goes on with them, while others do so with the rest. Nobody waits for a thread whose processor does something
 * else meanwhile, and no batch is handed over. Each thread reads all weights then, so it is done where the last
 * cache holds them, and with rows enough to keep a thread busy (inlay_config_t.own_batches). It goes on until a
 * third fewer calls are left: those that end are mostly followed by others, and to change the way for a moment
 * makes a thread wait for the other's batch.
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

/* Calls wait for others to come for this part of what a call takes; not for less than a sleep takes anyway. */
#define GAP_PART 4
#define SHORTEST_GAP_NS 100000
/* A thread runs a batch of its own although this part of its share of all calls is elsewhere: calls end, and
 * begin, all the time. */
#define SLACK_PART 2
/* Calls that are divided stay so until this part of what began it is missing. */
#define MISSING_PART 3
/* Threads of calls look together as often as one alone; each at least once in so many of its times. */
#define MOST_PATIENCE 32

/* ------------------------------------------------------------------------ who has nothing to do */

/* With the lock of the call: whether no thread can go on with it. */
static int is_still(const inlay_shared_t *shared)
{
    return !shared->n_running && !shared->own.first && !shared->ready.first &&
           !shared->starts.first && !shared->is_over &&
           (shared->is_issuing ? shared->issuer_waits && !shared->is_due : !shared->done.first);
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* With the lock of the batcher: until when calls that are all ready wait for more. */
static int64_t end_of_gap(const inlay_batcher_t *batcher)
{
    const uint32_t missing = batcher->n_expected - batcher->n_calls;
    int64_t gap = smaller(batcher->call_ns / GAP_PART, INLAY_BATCH_GAP_NS);
    if (!batcher->host->now || batcher->n_calls >= batcher->n_expected) return 0;
    gap = smaller(gap, batcher->period * missing / batcher->n_expected);
    return gap < SHORTEST_GAP_NS ? 0 : batcher->changed + gap;
}

/* With the lock of the batcher: from when on a batch can be taken of what has gathered, if nothing changes. */
static int64_t due(const inlay_batcher_t *batcher)
{
    if (batcher->n_still >= batcher->n_calls) return end_of_gap(batcher);
    return batcher->since ? batcher->since + INLAY_BATCH_WAIT_NS : INT64_MAX;
}

/* With the lock of the batcher: the calls of each thread, where threads run batches of their own; else 0. */
static uint32_t share(const inlay_batcher_t *batcher)
{
    return batcher->is_divided ? (batcher->n_calls + batcher->threads - 1) / batcher->threads : 0;
}

/* With the lock of the batcher, when a call has come or gone: whether calls are divided among threads. */
static void note_calls(inlay_batcher_t *batcher)
{
    const uint64_t enough = (uint64_t)batcher->threads * batcher->own_batches;
    const uint64_t needed = batcher->is_divided ? enough - enough / MISSING_PART : enough;
    batcher->is_divided = batcher->threads > 1 && enough && batcher->n_calls >= needed;
}

/* With the lock of the batcher: whether a thread may run a batch by itself, of what is alike. */
static int is_share_due(const inlay_batcher_t *batcher)
{
    const uint32_t calls = share(batcher);
    return calls && batcher->most_alike >= calls - calls / SLACK_PART;
}

/* With the lock of the batcher: whether a batch can be taken. */
static int is_due(const inlay_batcher_t *batcher)
{
    return batcher->n_gathered && (is_share_due(batcher) || now(batcher) >= due(batcher));
}

/* With the lock of the batcher: whether there is something to carry; and whether another carrier could. */
static int has_work(const inlay_batcher_t *batcher) { return batcher->first_visit || is_due(batcher); }

static int lacks(const inlay_batcher_t *batcher)
{
    return batcher->n_carriers < batcher->threads && has_work(batcher);
}

/* With the lock of the batcher: so many visits of a call have ended. */
static void end_visits(const inlay_batcher_t *batcher, inlay_shared_t *shared, uint32_t visits)
{
    shared->n_visits -= visits;
    if (visits && !shared->n_visits && batcher->n_leaving)
        batcher->host->threads->wake(batcher->host->user, batcher->lock);
}

/* With the lock of the batcher: nobody needs to go on with a call that has ended; there may be no thread
 * that would, and it waits for its visits. */
static void withdraw_visit(inlay_batcher_t *batcher, inlay_shared_t *shared)
{
    inlay_shared_t *before = NULL, *each = batcher->first_visit;
    if (!shared->is_to_visit) return;
    for (; each != shared; each = each->next_visit) before = each;
    if (before) before->next_visit = shared->next_visit;
    else batcher->first_visit = shared->next_visit;
    if (batcher->last_visit == shared) batcher->last_visit = before;
    shared->is_to_visit = 0;
    shared->n_visits--;
}

/* With the lock of the batcher: a call counts no more. */
static void depart(inlay_batcher_t *batcher, inlay_shared_t *shared)
{
    if (!shared->is_joined) return;
    shared->is_joined = 0;
    withdraw_visit(batcher, shared);
    batcher->n_still -= shared->is_still;
    shared->is_still = 0;
    batcher->n_calls--;
    note_calls(batcher);
    batcher->changed = now(batcher);
    batcher->call_ns += (batcher->changed - shared->joined - batcher->call_ns) / 8;
}

int inlay_batcher_settle(inlay_activation_t *m, uint32_t visits)
{
    inlay_batcher_t *batcher = m->shared->batcher;
    inlay_shared_t *shared = m->shared;
    int has_more;
    if (!inlay_batcher_is_common(m)) return 0;
    lock(batcher);
    end_visits(batcher, shared, visits);
    if (shared->is_ended) depart(batcher, shared);
    if (!shared->n_visits && shared->is_joined && !shared->is_still && is_still(shared)) {
        shared->is_still = 1;
        batcher->n_still++;
    }
    has_more = has_work(batcher);
    unlock(batcher);
    return has_more;
}

int inlay_batcher_lacks(const inlay_activation_t *m)
{
    int is_lacking;
    if (!inlay_batcher_is_common(m)) return 0;
    lock(m->shared->batcher);
    is_lacking = lacks(m->shared->batcher);
    unlock(m->shared->batcher);
    return is_lacking;
}

/* With the lock of the batcher: whether somebody is to look when a batch is due. */
static int waits_for_time(const inlay_batcher_t *batcher)
{
    return batcher->n_gathered && !batcher->is_timed && due(batcher) != INT64_MAX;
}

int64_t inlay_batcher_patience(inlay_activation_t *m)
{
    inlay_batcher_t *batcher = m->shared->batcher;
    int64_t ns = INLAY_WAIT_NS;
    if (!inlay_batcher_is_common(m)) return ns;
    lock(batcher);
    ns *= batcher->n_calls < MOST_PATIENCE ? batcher->n_calls : MOST_PATIENCE;
    if (m->host->poll_in) ns = smaller(ns, m->host->poll_in(m->host->user));
    if (waits_for_time(batcher)) {
        const int64_t left = due(batcher) - now(batcher);
        m->shared->is_timer = batcher->is_timed = 1;
        ns = left < 0 ? 0 : smaller(ns, left);
    }
    unlock(batcher);
    return ns;
}

void inlay_batcher_waited(inlay_activation_t *m)
{
    if (!m->shared->is_timer) return;
    m->shared->is_timer = 0;
    lock(m->shared->batcher);
    m->shared->batcher->is_timed = 0;
    unlock(m->shared->batcher);
}

/* --------------------------------------------------------------------------- calls come and go */

void inlay_batcher_join(inlay_activation_t *m)
{
    inlay_batcher_t *batcher = m->shared->batcher;
    if (!inlay_batcher_is_common(m)) return;
    lock(batcher);
    batcher->changed = m->shared->joined = now(batcher);
    if (!batcher->n_calls++) batcher->since = batcher->changed;
    if (batcher->n_expected < batcher->n_calls) batcher->n_expected = batcher->n_calls;
    batcher->threads = (uint32_t)m->config.parts;
    batcher->own_batches = m->config.own_batches;
    note_calls(batcher);
    m->shared->is_joined = m->shared->is_member = 1;
    unlock(batcher);
}

/* Somebody else is to carry: a worker, or the thread of a call that is to be gone on with. */
static void hand_over(inlay_batcher_t *batcher, inlay_activation_t *m)
{
    batcher->host->threads->offer(batcher->host->user, &batcher->job);
    inlay_lock(m);
    inlay_help_call(m);
    inlay_batcher_settle(m, 1);
    inlay_unlock(m);
}

/* With the lock taken: a call that is to be gone on with, or has a command that gathers; it is visited. */
static inlay_activation_t *any(const inlay_batcher_t *batcher)
{
    uint32_t i = 0;
    inlay_activation_t *m;
    while (!batcher->first_visit && !batcher->gathered[i].first) i++;
    m = batcher->first_visit ? batcher->first_visit->activation : batcher->gathered[i].first->activation;
    m->shared->n_visits++;
    return m;
}

void inlay_batcher_rest(inlay_batcher_t *batcher)
{
    inlay_activation_t *m;
    lock(batcher);
    m = waits_for_time(batcher) && batcher->n_still >= batcher->n_calls ? any(batcher) : NULL;
    unlock(batcher);
    if (!m) return;
    inlay_lock(m);
    inlay_help_call(m);
    inlay_batcher_settle(m, 1);
    inlay_unlock(m);
}

void inlay_batcher_leave(inlay_activation_t *m)
{
    inlay_batcher_t *batcher = m->shared->batcher;
    const inlay_threads_t *threads = m->host->threads;
    inlay_activation_t *next;
    int is_last;
    if (!inlay_batcher_is_common(m) || !m->shared->is_member) return;
    lock(batcher);
    m->shared->is_member = 0;
    depart(batcher, m->shared);
    is_last = !batcher->n_calls;
    next = lacks(batcher) ? any(batcher) : NULL;
    unlock(batcher);
    if (next) hand_over(batcher, next);
    lock(batcher);
    batcher->n_leaving++;
    while (m->shared->n_visits) threads->wait(m->host->user, batcher->lock, INLAY_WAIT_NS);
    batcher->n_leaving--;
    unlock(batcher);
    /* The last visitor has said so with the lock of the call taken, and may not have given it back. */
    inlay_lock(m);
    inlay_unlock(m);
    /* Workers change with the calls that run; the job must not stay with those of this one. */
    if (is_last) threads->withdraw(m->host->user, &batcher->job);
}

/* ----------------------------------------------------------------------------------- carriers */

int inlay_batcher_enter(inlay_batcher_t *batcher)
{
    int is_lacking;
    lock(batcher);
    is_lacking = lacks(batcher);
    batcher->n_carriers += (uint32_t)is_lacking;
    unlock(batcher);
    return is_lacking;
}

int inlay_batcher_exit(inlay_batcher_t *batcher)
{
    int is_lacking;
    lock(batcher);
    batcher->n_carriers--;
    is_lacking = lacks(batcher);
    unlock(batcher);
    return is_lacking;
}

uint32_t inlay_batcher_put(inlay_batcher_t *batcher, const inlay_visits_t *visits,
                           const inlay_activation_t *own)
{
    uint32_t i, n_own = 0;
    lock(batcher);
    for (i = 0; i < visits->n; i++) {
        inlay_shared_t *shared = visits->at[i]->shared;
        if (visits->at[i] == own) {
            n_own++;
        } else if (shared->is_to_visit || !shared->is_joined) {
            end_visits(batcher, shared, 1); /* another one will find what this batch has ended, or it was found */
        } else {
            shared->is_to_visit = 1;
            shared->next_visit = NULL;
            if (batcher->last_visit) batcher->last_visit->next_visit = shared;
            else batcher->first_visit = shared;
            batcher->last_visit = shared;
        }
    }
    unlock(batcher);
    return n_own;
}

inlay_activation_t *inlay_batcher_next(inlay_batcher_t *batcher)
{
    inlay_shared_t *shared;
    int is_lacking;
    lock(batcher);
    shared = batcher->first_visit;
    if (shared) {
        shared->is_to_visit = 0;
        batcher->first_visit = shared->next_visit;
        if (!batcher->first_visit) batcher->last_visit = NULL;
    }
    is_lacking = shared && lacks(batcher);
    unlock(batcher);
    if (is_lacking) batcher->host->threads->offer(batcher->host->user, &batcher->job);
    return shared ? shared->activation : NULL;
}

/* ------------------------------------------------------------------------------------ batches */

/* With the lock of the batcher: a batch is taken. */
static void note_period(inlay_batcher_t *batcher, const inlay_command_t *first)
{
    int64_t *taken = &batcher->gathered[first->index].taken;
    batcher->since = now(batcher);
    batcher->period = *taken ? batcher->since - *taken : INLAY_BATCH_GAP_NS;
    *taken = batcher->since;
}

inlay_command_t *inlay_batcher_take(inlay_batcher_t *batcher, inlay_visits_t *visits)
{
    inlay_command_t *first = NULL, *c;
    int is_lacking;
    visits->n = 0;
    lock(batcher);
    visits->is_alone = (uint32_t)is_share_due(batcher);
    if (is_due(batcher))
        first = inlay_gather_take(batcher, visits->is_alone ? share(batcher) : INLAY_MOST_BATCHED);
    if (first) note_period(batcher, first);
    if (first && batcher->n_still >= batcher->n_calls) batcher->n_expected = batcher->n_calls;
    for (c = first; c; c = c->mates) {
        inlay_shared_t *shared = c->activation->shared;
        if (visits->n && visits->at[visits->n - 1] == c->activation) continue;
        visits->at[visits->n++] = c->activation;
        shared->n_visits++;
        batcher->n_still -= shared->is_still;
        shared->is_still = 0;
    }
    is_lacking = visits->is_alone && lacks(batcher);
    unlock(batcher);
    if (is_lacking) batcher->host->threads->offer(batcher->host->user, &batcher->job);
    return first;
}

void inlay_batcher_run(inlay_command_t *first, int is_alone)
{
    inlay_command_t *c, *next;
    if (!first->mates || !inlay_batch_run(first->activation, first, is_alone))
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
