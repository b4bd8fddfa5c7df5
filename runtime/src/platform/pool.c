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
 * *Lending.* There is one worker more than processors; it runs jobs only while some caller says that it
 * needs its own processor for nothing but waiting.
 *
 * *Waiting* is spinning for a bounded time, helping with groups meanwhile, then sleeping. Whoever
 * sleeps is in one list under one lock: workers, and callers in `inlay_pool_wait`. A claim says
 * which run it is for, so that a late comer cannot touch the next one:
 *
 *     claims[g] = 2 * run      group g of that run is open
 *     claims[g] = 2 * run + 1  it is taken */
#define _GNU_SOURCE
#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define SPIN_NS 30000
#define MAX_WORKERS 255

typedef struct sleeper {
    struct sleeper *next, *previous;
    pthread_cond_t called;
    int is_called, is_worker, is_spare;
} sleeper_t;

struct inlay_lock {
    pthread_mutex_t mutex;
    sleeper_t sleeper; /* one thread at a time waits */
    atomic_uint signals;
    atomic_int parked;
};

typedef struct worker {
    struct inlay_pool *pool;
    pthread_t thread;
    sleeper_t sleeper;
    int index;
} worker_t;

struct inlay_pool {
    int workers;
    atomic_int started;
    pid_t pid;
    worker_t *worker;
    atomic_int stop;
    atomic_uint events; /* changes when there is something new to do */
    pthread_mutex_t start_lock;

    pthread_mutex_t park_lock;
    sleeper_t sleepers; /* head of a circular list */
    atomic_int parked;

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
    atomic_int n_jobs, lent;
};

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __asm__ volatile("pause");
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

int64_t inlay_pool_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A condition whose time is that of inlay_pool_now. */
static void open_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
#ifdef __linux__
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
#endif
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

inlay_pool_t *inlay_pool_open(int threads)
{
    inlay_pool_t *p = calloc(1, sizeof *p);
    int i;
    if (!p) return NULL;
    p->workers = threads > 1 ? threads : 1;
    if (p->workers > MAX_WORKERS) p->workers = MAX_WORKERS;
    p->worker = calloc((size_t)p->workers + 1, sizeof *p->worker);
    if (!p->worker) {
        free(p);
        return NULL;
    }
    for (i = 0; i < p->workers; i++) open_condition(&p->worker[i].sleeper.called);
    p->sleepers.next = p->sleepers.previous = &p->sleepers;
    pthread_mutex_init(&p->start_lock, NULL);
    pthread_mutex_init(&p->park_lock, NULL);
    pthread_mutex_init(&p->job_lock, NULL);
    pthread_cond_init(&p->job_done, NULL);
    atomic_flag_clear(&p->busy);
    p->pid = getpid();
    return p;
}

/* -------------------------------------------------------------------------------- sleeping */

/* With park_lock taken: sleep until called or `end`. */
static void sleep_until(inlay_pool_t *p, sleeper_t *self, int64_t end)
{
    struct timespec until = {(time_t)(end / 1000000000), (long)(end % 1000000000)};
    if (end < 0) pthread_cond_wait(&self->called, &p->park_lock);
#ifdef __linux__
    else pthread_cond_timedwait(&self->called, &p->park_lock, &until);
#else
    else {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 1000000;
        if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
        pthread_cond_timedwait(&self->called, &p->park_lock, &until);
    }
#endif
}

static void enlist(inlay_pool_t *p, sleeper_t *self)
{
    self->is_called = 0;
    self->next = p->sleepers.next;
    self->previous = &p->sleepers;
    self->next->previous = self->previous->next = self;
    if (!self->is_spare) atomic_fetch_add(&p->parked, 1);
}

static void delist(inlay_pool_t *p, sleeper_t *self)
{
    self->next->previous = self->previous;
    self->previous->next = self->next;
    if (!self->is_spare) atomic_fetch_sub(&p->parked, 1);
}

/* Say that there is something new; call up to n sleepers. The spare is left asleep unless a processor
 * is lent: awake, it would only take the time of another thread. */
static void announce(inlay_pool_t *p, int n, int only_workers)
{
    sleeper_t *s;
    int calls_spare = atomic_load(&p->lent) > 0 || atomic_load(&p->stop);
    atomic_fetch_add(&p->events, 1);
    if (atomic_load(&p->parked) == 0 && !calls_spare) return;
    pthread_mutex_lock(&p->park_lock);
    for (s = p->sleepers.next; s != &p->sleepers && n > 0; s = s->next) {
        if (s->is_called || (only_workers && !s->is_worker)) continue;
        if (s->is_spare && !calls_spare) continue;
        s->is_called = 1;
        pthread_cond_signal(&s->called);
        n--;
    }
    pthread_mutex_unlock(&p->park_lock);
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
    for (g = 0; g < p->workers; g++)
        if (run_group(p, g)) return 1;
    return 0;
}

/* ------------------------------------------------------------------------------------ jobs */

static int run_job(inlay_pool_t *p)
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
    job->run(job);
    pthread_mutex_lock(&p->job_lock);
    if (--job->running == 0) pthread_cond_broadcast(&p->job_done);
    pthread_mutex_unlock(&p->job_lock);
    return 1;
}

void inlay_pool_withdraw(inlay_pool_t *p, inlay_job_t *job)
{
    inlay_job_t **at, *previous = NULL;
    pthread_mutex_lock(&p->job_lock);
    for (at = &p->jobs; job->is_queued && *at; previous = *at, at = &(*at)->next) {
        if (*at != job) continue;
        *at = job->next;
        if (p->last_job == job) p->last_job = previous;
        job->is_queued = 0;
        atomic_fetch_sub(&p->n_jobs, 1);
        break;
    }
    while (job->running) pthread_cond_wait(&p->job_done, &p->job_lock);
    pthread_mutex_unlock(&p->job_lock);
}

/* --------------------------------------------------------------------------------- workers */

static void await(inlay_pool_t *p, worker_t *self, unsigned seen)
{
    int64_t end = inlay_pool_now() + SPIN_NS;
    if (self->sleeper.is_spare && atomic_load(&p->lent) == 0) end = 0;
    while (inlay_pool_now() < end) {
        int i;
        for (i = 0; i < 64; i++) {
            if (atomic_load_explicit(&p->events, memory_order_acquire) != seen) return;
            pause_cpu();
        }
    }
    pthread_mutex_lock(&p->park_lock);
    enlist(p, &self->sleeper);
    while (atomic_load(&p->events) == seen && !self->sleeper.is_called)
        sleep_until(p, &self->sleeper, -1);
    delist(p, &self->sleeper);
    pthread_mutex_unlock(&p->park_lock);
}

static void *work(void *argument)
{
    worker_t *self = argument;
    inlay_pool_t *p = self->pool;
    for (;;) {
        unsigned seen = atomic_load(&p->events);
        if (atomic_load(&p->stop)) return NULL;
        /* The last one is the spare. */
        if (self->index == p->workers - 1) {
            if (atomic_load(&p->lent) > 0 && run_job(p)) continue;
        } else if (assist(p, self->index + 1) || run_job(p)) {
            continue;
        }
        await(p, self, seen);
    }
}

/* Keep workers off the CPU that the caller runs on: a sleeping worker that is woken there would
 * wait until the caller, which spins for it, is preempted. */
static void keep_away(pthread_t thread)
{
#ifdef __linux__
    cpu_set_t allowed;
    int here = sched_getcpu();
    if (here < 0 || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    if (CPU_COUNT(&allowed) < 2 || !CPU_ISSET((size_t)here, &allowed)) return;
    CPU_CLR((size_t)here, &allowed);
    pthread_setaffinity_np(thread, sizeof allowed, &allowed);
#else
    (void)thread;
#endif
}

/* Start what can be started; there is no need of any worker. A forked child has none. */
static int has_workers(inlay_pool_t *p)
{
    if (!p->workers || getpid() != p->pid) return 0;
    if (atomic_load(&p->started)) return 1;
    pthread_mutex_lock(&p->start_lock);
    while (!atomic_load(&p->started)) {
        int n = 0;
        for (; n < p->workers; n++) {
            worker_t *worker = &p->worker[n];
            worker->pool = p;
            worker->index = n;
            worker->sleeper.is_worker = 1;
            worker->sleeper.is_spare = n == p->workers - 1;
            if (pthread_create(&worker->thread, NULL, work, worker) != 0) break;
            if (n + 1 < p->workers) keep_away(worker->thread); /* not the spare */
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
    n = getpid() == p->pid ? atomic_load(&p->started) : 0;
    atomic_store(&p->stop, 1);
    announce(p, n, 0);
    for (i = 0; i < n; i++) pthread_join(p->worker[i].thread, NULL);
    for (i = 0; i < p->workers; i++) pthread_cond_destroy(&p->worker[i].sleeper.called);
    pthread_cond_destroy(&p->job_done);
    pthread_mutex_destroy(&p->job_lock);
    pthread_mutex_destroy(&p->park_lock);
    pthread_mutex_destroy(&p->start_lock);
    free(p->worker);
    free(p);
}

void inlay_pool_parallel(inlay_pool_t *p, inlay_part_t part, void *argument, int64_t parts)
{
    int64_t i, end;
    int spins = 0, g;
    if (p->workers < 2 || !has_workers(p) || atomic_flag_test_and_set(&p->busy)) {
        for (i = 0; i < parts; i++) part(argument, i);
        return;
    }
    p->groups = parts < p->workers ? (int)parts : p->workers;
    p->part = part;
    p->argument = argument;
    p->parts = parts;
    p->run = p->run % 0x7ffffffeu + 1;
    atomic_store(&p->remaining, p->groups);
    atomic_store(&p->open, p->groups);
    for (g = 0; g < p->groups; g++) atomic_store(&p->claims[g], 2 * p->run);
    announce(p, p->groups - 1, 0);
    for (g = 0; g < p->groups; g++) run_group(p, g);
    end = inlay_pool_now() + SPIN_NS;
    while (atomic_load(&p->remaining) > 0) {
        pause_cpu();
        /* Beyond the bound the helper may be waiting for this very CPU. */
        if (++spins % 64 == 0 && inlay_pool_now() > end) sched_yield();
    }
    atomic_flag_clear(&p->busy);
}

int inlay_pool_lend(inlay_pool_t *p)
{
    if (!has_workers(p) || atomic_load(&p->started) < p->workers) return 0;
    atomic_fetch_add(&p->lent, 1);
    if (atomic_load(&p->n_jobs)) announce(p, p->workers, 1);
    return 1;
}

void inlay_pool_take_back(inlay_pool_t *p) { atomic_fetch_sub(&p->lent, 1); }

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
    /* Calling the spare alone would be no use while nobody lends. */
    announce(p, atomic_load(&p->lent) > 0 ? p->workers : 2, 1);
}

/* ----------------------------------------------------------------------------------- locks */

inlay_lock_t *inlay_pool_lock_open(inlay_pool_t *p)
{
    inlay_lock_t *lock = calloc(1, sizeof *lock);
    (void)p;
    if (!lock) return NULL;
    pthread_mutex_init(&lock->mutex, NULL);
    open_condition(&lock->sleeper.called);
    return lock;
}

void inlay_pool_lock_close(inlay_lock_t *lock)
{
    pthread_cond_destroy(&lock->sleeper.called);
    pthread_mutex_destroy(&lock->mutex);
    free(lock);
}

void inlay_pool_lock(inlay_lock_t *lock) { pthread_mutex_lock(&lock->mutex); }
void inlay_pool_unlock(inlay_lock_t *lock) { pthread_mutex_unlock(&lock->mutex); }

void inlay_pool_wake(inlay_pool_t *p, inlay_lock_t *lock)
{
    atomic_fetch_add(&lock->signals, 1);
    if (!atomic_load(&lock->parked)) return;
    pthread_mutex_lock(&p->park_lock);
    pthread_cond_signal(&lock->sleeper.called);
    pthread_mutex_unlock(&p->park_lock);
}

static void spin_then_park(inlay_pool_t *p, inlay_lock_t *lock, unsigned seen, int64_t ns)
{
    int64_t start = inlay_pool_now(), end = start + (ns < SPIN_NS ? ns : SPIN_NS);
    do {
        int i;
        for (i = 0; i < 64; i++) {
            if (atomic_load_explicit(&lock->signals, memory_order_acquire) != seen) return;
            pause_cpu();
        }
        if (assist(p, 0)) return;
    } while (inlay_pool_now() < end);
    pthread_mutex_lock(&p->park_lock);
    enlist(p, &lock->sleeper);
    atomic_store(&lock->parked, 1);
    if (atomic_load(&lock->signals) == seen && !lock->sleeper.is_called)
        sleep_until(p, &lock->sleeper, start + ns);
    atomic_store(&lock->parked, 0);
    delist(p, &lock->sleeper);
    pthread_mutex_unlock(&p->park_lock);
}

void inlay_pool_wait(inlay_pool_t *p, inlay_lock_t *lock, int64_t ns)
{
    unsigned seen = atomic_load(&lock->signals);
    pthread_mutex_unlock(&lock->mutex);
    spin_then_park(p, lock, seen, ns);
    pthread_mutex_lock(&lock->mutex);
}
