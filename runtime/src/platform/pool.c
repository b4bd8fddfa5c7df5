/* Workers, and what they and waiting callers do.
 *
 * *Parts.* One parallel run at a time is open. Its parts are divided into as many groups as there
 * are threads; whoever is free claims a group: workers, callers that wait for something else, and
 * the one that opened it, which first takes its own and then whatever nobody has begun. So a run
 * never waits for a thread that is busy elsewhere. A second run that comes meanwhile does all of
 * its parts itself, with the same result, because parts, not threads, divide the work.
 *
 * *Jobs* are in a list under a lock. A job is in it at most once, and several workers may run it.
 *
 * A worker looks for a job before it helps with parts: whole kernels on different threads lose less
 * than one on all of them.
 *
 * *Waiting* is spinning for a bounded time, helping with groups meanwhile, then sleeping. A worker with nothing
 * to do spins for about twice what waking it takes: so it is there for the next call of a program that calls
 * again at once, whose border alone takes 50 us where a list has 64 tensors. Who spins now and then yields: with
 * more threads than processors, another one may have work and wait for this very processor. Workers and callers
 * in `inlay_pool_wait` sleep in one place (parking.c). A claim says which run it is for, so that a late comer
 * cannot touch the next one:
 *
 *     claims[g] = 2 * run      group g of that run is open
 *     claims[g] = 2 * run + 1  it is taken */
#define _GNU_SOURCE
#include "pool.h"

#include "parking.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#define SPIN_NS 30000
#define WAIT_SPIN_NS 60000 /* of a caller: about as long as calls take from one batch to the next */
#define IDLE_SPIN_NS 100000
/* Turns of 64 pauses, 1 to 3 us each, from one yield to the next; a yield takes 0.3 us. */
#define TURNS_TO_YIELD 4
#define MAX_WORKERS 255

struct inlay_lock {
    pthread_mutex_t mutex;
    atomic_uint signals;
    atomic_int parked; /* how many sleep on it */
};

typedef struct worker {
    struct inlay_pool *pool;
    pthread_t thread;
    sleeper_t sleeper;
    int index;
    atomic_int avoids; /* a CPU, or -1 */
} worker_t;

struct inlay_pool {
    int workers;
    atomic_int started;
    unsigned forks; /* of the process, when it was opened */
    worker_t *worker;
#ifdef __linux__
    cpu_set_t allowed; /* where workers may run */
#endif
    atomic_int spinning; /* callers that do while they wait */
    atomic_int stop;
    atomic_uint events; /* changes when there is something new to do */
    pthread_mutex_t start_lock;

    parking_t parking; /* workers with nothing to do are there for the pool, callers for their lock */

    atomic_flag busy;
    atomic_uint claims[MAX_WORKERS + 1];
    atomic_int open, remaining; /* groups not taken (a hint), groups not finished */
    unsigned run;
    int groups;
    inlay_part_t part;
    void *argument;
    int64_t parts;

    pthread_mutex_t job_lock;
    pthread_cond_t job_done;
    inlay_job_t *jobs, *last_job;
    atomic_int n_jobs;
};

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __asm__ volatile("pause");
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void yield_at_times(int turns)
{
    if (turns % TURNS_TO_YIELD == 0) sched_yield();
}

/* Threads do not survive a fork. How many there were on the way to this process is counted, for asking the
 * system for its number takes as long as all else that an offer does. */
static unsigned forks;
static pthread_once_t counts_forks = PTHREAD_ONCE_INIT;
static void in_child(void) { forks++; }
static void count_forks(void) { pthread_atfork(NULL, NULL, in_child); }

inlay_pool_t *inlay_pool_open(int threads)
{
    inlay_pool_t *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->workers = threads > 1 ? threads - 1 : 0;
    if (p->workers > MAX_WORKERS) p->workers = MAX_WORKERS;
    p->worker = calloc((size_t)p->workers + 1, sizeof *p->worker);
    if (!p->worker) {
        free(p);
        return NULL;
    }
    inlay_parking_open(&p->parking);
    inlay_parking_open_mutex(&p->start_lock);
    inlay_parking_open_mutex(&p->job_lock);
    pthread_cond_init(&p->job_done, NULL);
    atomic_flag_clear(&p->busy);
    pthread_once(&counts_forks, count_forks);
    p->forks = forks;
    return p;
}

static _Thread_local int is_worker; /* this thread is one, of some pool */

/* -------------------------------------------------------------------------------- sleeping */

/* Keep a worker off the CPU that this thread runs on: one that is woken there would wait until this
 * thread, which goes on or spins for it, is preempted. Threads move, so this is seen to at each call
 * of a sleeper. */
static void keep_away(inlay_pool_t *p, worker_t *worker)
{
#ifdef __linux__
    cpu_set_t others = p->allowed;
    int here = sched_getcpu();
    if (here < 0 || here == atomic_load_explicit(&worker->avoids, memory_order_relaxed)) return;
    if (!CPU_ISSET((size_t)here, &others)) return;
    CPU_CLR((size_t)here, &others);
    if (CPU_COUNT(&others) == 0) return;
    atomic_store_explicit(&worker->avoids, here, memory_order_relaxed);
    pthread_setaffinity_np(worker->thread, sizeof others, &others);
#else
    (void)p, (void)worker;
#endif
}

/* Let a worker run anywhere, of itself before a job. That may take long, and whoever woke it may come to the CPU
 * where it is: kept there, it would share that one while another one idles. */
static void stay_anywhere(inlay_pool_t *p, worker_t *self)
{
#ifdef __linux__
    if (atomic_load_explicit(&self->avoids, memory_order_relaxed) < 0) return;
    atomic_store_explicit(&self->avoids, -1, memory_order_relaxed);
    pthread_setaffinity_np(self->thread, sizeof p->allowed, &p->allowed);
#else
    (void)p, (void)self;
#endif
}

static void before_waking(sleeper_t *sleeper)
{
    uint8_t *at = (uint8_t *)sleeper - offsetof(worker_t, sleeper);
    worker_t *worker = (worker_t *)(void *)at;
    keep_away(worker->pool, worker);
}

/* Say that there is something new; call up to n workers, and where there are fewer asleep, up to so many
 * callers that wait. */
static void announce(inlay_pool_t *p, int n, int callers)
{
    atomic_fetch_add(&p->events, 1);
    if (atomic_load(&p->parking.parked) == 0) return;
    n -= inlay_parking_call(&p->parking, n, p, 0);
    inlay_parking_call(&p->parking, n < callers ? n : callers, p, 1);
}

/* ----------------------------------------------------------------------------------- parts */

static int run_group(inlay_pool_t *p, int g)
{
    unsigned claim = atomic_load_explicit(&p->claims[g], memory_order_relaxed);
    int64_t part;
    if (claim % 2 || !claim) return 0;
    if (!atomic_compare_exchange_strong(&p->claims[g], &claim, claim + 1)) return 0;
    atomic_fetch_sub(&p->open, 1);
    for (part = g; part < p->parts; part += p->groups) p->part(p->argument, part);
    atomic_fetch_sub(&p->remaining, 1);
    return 1;
}

/* Run a group of the open run, the own one first; 0 where there is none. */
static int assist(inlay_pool_t *p, int own)
{
    int g;
    if (atomic_load_explicit(&p->open, memory_order_relaxed) <= 0) return 0;
    if (run_group(p, own)) return 1;
    for (g = 0; g <= p->workers; g++)
        if (run_group(p, g)) return 1;
    return 0;
}

/* ------------------------------------------------------------------------------------ jobs */

static int run_job(inlay_pool_t *p, worker_t *self)
{
    inlay_job_t *job;
    if (atomic_load_explicit(&p->n_jobs, memory_order_relaxed) == 0) return 0;
    pthread_mutex_lock(&p->job_lock);
    job = p->jobs;
    if (job) {
        p->jobs = job->next;
        if (!p->jobs) p->last_job = NULL;
        atomic_fetch_sub(&p->n_jobs, 1);
        job->is_queued = 0;
        job->running++;
    }
    pthread_mutex_unlock(&p->job_lock);
    if (!job) return 0;
    stay_anywhere(p, self);
    job->run(job);
    pthread_mutex_lock(&p->job_lock);
    if (--job->running == 0) pthread_cond_broadcast(&p->job_done);
    pthread_mutex_unlock(&p->job_lock);
    return 1;
}

void inlay_pool_withdraw(inlay_pool_t *p, inlay_job_t *job)
{
    inlay_job_t **at, *previous = NULL;
    int64_t end;
    int i;
    pthread_mutex_lock(&p->job_lock);
    for (at = &p->jobs; job->is_queued && *at; previous = *at, at = &(*at)->next) {
        if (*at != job) continue;
        *at = job->next;
        if (p->last_job == job) p->last_job = previous;
        job->is_queued = 0;
        atomic_fetch_sub(&p->n_jobs, 1);
        break;
    }
    end = job->running ? inlay_parking_now() + SPIN_NS : 0;
    /* A worker that has nothing more to do for it is only about to leave. */
    while (job->running && inlay_parking_now() < end) {
        pthread_mutex_unlock(&p->job_lock);
        for (i = 0; i < 16; i++) pause_cpu();
        pthread_mutex_lock(&p->job_lock);
    }
    while (job->running) pthread_cond_wait(&p->job_done, &p->job_lock);
    pthread_mutex_unlock(&p->job_lock);
}

/* --------------------------------------------------------------------------------- workers */

static void await(inlay_pool_t *p, worker_t *self, unsigned seen)
{
    int64_t end = inlay_parking_now() + IDLE_SPIN_NS;
    int turns = 0, i;
    while (inlay_parking_now() < end) {
        for (i = 0; i < 64; i++) {
            if (atomic_load_explicit(&p->events, memory_order_acquire) != seen) return;
            pause_cpu();
        }
        yield_at_times(++turns);
    }
    inlay_parking_sleep(&p->parking, &self->sleeper, &p->events, seen, -1);
}

static void *work(void *argument)
{
    worker_t *self = argument;
    inlay_pool_t *p = self->pool;
    is_worker = 1;
    for (;;) {
        unsigned seen = atomic_load(&p->events);
        if (atomic_load(&p->stop)) return NULL;
        if (!run_job(p, self) && !assist(p, self->index + 1)) await(p, self, seen);
    }
}

/* Start what can be started; there is no need of any worker. A forked child has none. */
static int has_workers(inlay_pool_t *p)
{
    if (!p->workers || p->forks != forks) return 0;
    if (atomic_load(&p->started)) return 1;
    pthread_mutex_lock(&p->start_lock);
    while (!atomic_load(&p->started)) {
        int n = 0;
#ifdef __linux__
        if (sched_getaffinity(0, sizeof p->allowed, &p->allowed) != 0) CPU_ZERO(&p->allowed);
#endif
        for (; n < p->workers; n++) {
            worker_t *worker = &p->worker[n];
            worker->pool = p;
            worker->index = n;
            atomic_store(&worker->avoids, -1);
            worker->sleeper.of = p;
            worker->sleeper.before = before_waking;
            if (pthread_create(&worker->thread, NULL, work, worker) != 0) break;
            keep_away(p, worker);
        }
        atomic_store(&p->started, n);
        if (!n) break;
    }
    pthread_mutex_unlock(&p->start_lock);
    return atomic_load(&p->started) > 0;
}

void inlay_pool_close(inlay_pool_t *p)
{
    int i, n;
    if (!p) return;
    n = p->forks == forks ? atomic_load(&p->started) : 0;
    atomic_store(&p->stop, 1);
    announce(p, n, 0);
    for (i = 0; i < n; i++) pthread_join(p->worker[i].thread, NULL);
    pthread_cond_destroy(&p->job_done);
    pthread_mutex_destroy(&p->job_lock);
    inlay_parking_close(&p->parking);
    pthread_mutex_destroy(&p->start_lock);
    free(p->worker);
    free(p);
}

void inlay_pool_parallel(inlay_pool_t *p, inlay_part_t part, void *argument, int64_t parts)
{
    int64_t i, end;
    int spins = 0, g;
    if (!has_workers(p) || atomic_flag_test_and_set(&p->busy)) {
        for (i = 0; i < parts; i++) part(argument, i);
        return;
    }
    p->groups = parts < p->workers + 1 ? (int)parts : p->workers + 1;
    p->part = part;
    p->argument = argument;
    p->parts = parts;
    p->run = p->run % 0x7ffffffeu + 1;
    atomic_store(&p->remaining, p->groups);
    atomic_store(&p->open, p->groups);
    for (g = 0; g < p->groups; g++) atomic_store(&p->claims[g], 2 * p->run);
    /* Of the callers that wait at most one is called, in the place of a worker that opens the run, and none
     * where one spins: with more there would be more threads than processors. */
    announce(p, p->groups - 1, is_worker && atomic_load(&p->spinning) == 0);
    for (g = 0; g < p->groups; g++) run_group(p, g);
    end = inlay_parking_now() + SPIN_NS;
    while (atomic_load(&p->remaining) > 0) {
        pause_cpu();
        /* Beyond the bound the helper may be waiting for this very CPU. */
        if (++spins % 64 == 0 && inlay_parking_now() > end) sched_yield();
    }
    atomic_flag_clear(&p->busy);
}

void inlay_pool_offer(inlay_pool_t *p, inlay_job_t *job)
{
    if (!has_workers(p)) return;
    pthread_mutex_lock(&p->job_lock);
    if (!job->is_queued) {
        job->is_queued = 1;
        job->next = NULL;
        if (p->last_job) p->last_job->next = job;
        else p->jobs = job;
        p->last_job = job;
        atomic_fetch_add(&p->n_jobs, 1);
    }
    pthread_mutex_unlock(&p->job_lock);
    announce(p, 1, 0);
}

/* ----------------------------------------------------------------------------------- locks */

inlay_lock_t *inlay_pool_lock_open(void)
{
    inlay_lock_t *lock = calloc(1, sizeof *lock);
    if (!lock) return NULL;
    inlay_parking_open_mutex(&lock->mutex);
    return lock;
}

void inlay_pool_lock_close(inlay_lock_t *lock)
{
    pthread_mutex_destroy(&lock->mutex);
    free(lock);
}

void inlay_pool_lock(inlay_lock_t *lock) { pthread_mutex_lock(&lock->mutex); }
void inlay_pool_unlock(inlay_lock_t *lock) { pthread_mutex_unlock(&lock->mutex); }

void inlay_pool_wake(inlay_pool_t *p, inlay_lock_t *lock)
{
    atomic_fetch_add(&lock->signals, 1);
    if (atomic_load(&lock->parked)) inlay_parking_call(&p->parking, INT_MAX, lock, 0);
}

/* Spin until `end`, or something happened, which may be anything that was announced: then 1. Of many that wait
 * one is enough to help at once; the others would take processors from those who work. */
static int spin(inlay_pool_t *p, const inlay_lock_t *lock, unsigned seen, int64_t end)
{
    const unsigned news = atomic_load(&p->events);
    int happened = 0, turns = 0, i;
    if (atomic_fetch_add(&p->spinning, 1) == 0)
        do {
            for (i = 0; i < 64 && !happened; i++) {
                happened = atomic_load_explicit(&lock->signals, memory_order_acquire) != seen;
                if (atomic_load_explicit(&p->open, memory_order_relaxed) > 0) break;
                happened |= atomic_load_explicit(&p->events, memory_order_relaxed) != news;
                pause_cpu();
            }
            happened = happened || assist(p, 0);
            if (!happened) yield_at_times(++turns);
        } while (!happened && inlay_parking_now() < end);
    atomic_fetch_sub(&p->spinning, 1);
    return happened;
}

static void spin_then_park(inlay_pool_t *p, inlay_lock_t *lock, unsigned seen, int64_t ns)
{
    int64_t start = inlay_parking_now(), end = start + (ns < WAIT_SPIN_NS ? ns : WAIT_SPIN_NS);
    sleeper_t self = {.of = lock, .count = &lock->parked};
    if (spin(p, lock, seen, end)) return;
    inlay_parking_sleep(&p->parking, &self, &lock->signals, seen, start + ns);
}

void inlay_pool_wait(inlay_pool_t *p, inlay_lock_t *lock, int64_t ns)
{
    unsigned seen = atomic_load(&lock->signals);
    pthread_mutex_unlock(&lock->mutex);
    spin_then_park(p, lock, seen, ns);
    pthread_mutex_lock(&lock->mutex);
}
