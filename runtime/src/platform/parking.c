/* Threads that sleep until somebody calls them, or until a time.
 *
 * All of them are in one list under one lock. Whoever calls takes them out of it, gives the lock back, and
 * only then wakes them. A thread that is woken under a lock finds it taken, sleeps again, and is woken a
 * second time: of two threads that hand work to each other that is half of all switches. So one that was
 * called needs no lock at all. One whose time is over takes itself out; where it is out already, somebody is
 * about to call it, and still looks at it: it waits for that.
 *
 * On Linux a thread sleeps on a word (a futex). The wake may come when the memory of the word is used for
 * something else, and be one too many for that: all waits allow for those. Elsewhere it is a condition. */
#define _GNU_SOURCE
#include "parking.h"

#include <time.h>

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* So many are called with the lock taken once. */
#define AT_ONCE 32

int64_t inlay_parking_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void inlay_parking_open_mutex(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
#ifdef __GLIBC__
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
#endif
    pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

void inlay_parking_open(parking_t *parking)
{
    inlay_parking_open_mutex(&parking->lock);
    parking->sleepers.next = parking->sleepers.previous = &parking->sleepers;
    atomic_store(&parking->parked, 0);
}

void inlay_parking_close(parking_t *parking) { pthread_mutex_destroy(&parking->lock); }

/* ------------------------------------------------------------------------------- one sleeper */

#ifdef __linux__

static void open_sleeper(sleeper_t *self) { atomic_store(&self->is_called, 0); }
static void close_sleeper(sleeper_t *self) { (void)self; }

static void wait_for_call(sleeper_t *self, int64_t until)
{
    struct timespec end;
    end.tv_sec = (time_t)(until / 1000000000);
    end.tv_nsec = (long)(until % 1000000000);
    while (!atomic_load(&self->is_called) && (until < 0 || inlay_parking_now() < until))
        syscall(SYS_futex, &self->is_called, FUTEX_WAIT_BITSET_PRIVATE, 0, until < 0 ? NULL : &end, NULL,
                FUTEX_BITSET_MATCH_ANY);
}

static void wake(sleeper_t *sleeper)
{
    atomic_store(&sleeper->is_called, 1);
    syscall(SYS_futex, &sleeper->is_called, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

#else

/* The longest sleep: a condition has the clock of the day, which may be set while somebody sleeps. */
#define NAP_NS 1000000

static void open_sleeper(sleeper_t *self)
{
    atomic_store(&self->is_called, 0);
    pthread_mutex_init(&self->mutex, NULL);
    pthread_cond_init(&self->called, NULL);
}

/* Who called has given the mutex back then. */
static void close_sleeper(sleeper_t *self)
{
    pthread_mutex_lock(&self->mutex);
    pthread_mutex_unlock(&self->mutex);
    pthread_cond_destroy(&self->called);
    pthread_mutex_destroy(&self->mutex);
}

static void wait_for_call(sleeper_t *self, int64_t until)
{
    struct timespec end;
    pthread_mutex_lock(&self->mutex);
    while (!atomic_load(&self->is_called) && (until < 0 || inlay_parking_now() < until)) {
        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_nsec += NAP_NS;
        if (end.tv_nsec >= 1000000000) end.tv_sec++, end.tv_nsec -= 1000000000;
        if (until < 0) pthread_cond_wait(&self->called, &self->mutex);
        else pthread_cond_timedwait(&self->called, &self->mutex, &end);
    }
    pthread_mutex_unlock(&self->mutex);
}

/* With its mutex taken: the sleeper is there until that is given back. */
static void wake(sleeper_t *sleeper)
{
    pthread_mutex_lock(&sleeper->mutex);
    atomic_store(&sleeper->is_called, 1);
    pthread_cond_signal(&sleeper->called);
    pthread_mutex_unlock(&sleeper->mutex);
}

#endif

/* ---------------------------------------------------------------------------------- the list */

static void enlist(parking_t *parking, sleeper_t *self)
{
    pthread_mutex_lock(&parking->lock);
    self->next = parking->sleepers.next;
    self->previous = &parking->sleepers;
    self->next->previous = self->previous->next = self;
    atomic_fetch_add(&parking->parked, 1);
    if (self->count) atomic_fetch_add(self->count, 1);
    pthread_mutex_unlock(&parking->lock);
}

/* With the lock taken. */
static void delist(parking_t *parking, sleeper_t *sleeper)
{
    sleeper->next->previous = sleeper->previous;
    sleeper->previous->next = sleeper->next;
    sleeper->next = sleeper->previous = NULL;
    atomic_fetch_sub(&parking->parked, 1);
    if (sleeper->count) atomic_fetch_sub(sleeper->count, 1);
}

/* Leave without having been called; 0 where somebody is about to call. */
static int leave(parking_t *parking, sleeper_t *self)
{
    int is_listed;
    pthread_mutex_lock(&parking->lock);
    is_listed = self->next != NULL;
    if (is_listed) delist(parking, self);
    pthread_mutex_unlock(&parking->lock);
    return is_listed;
}

void inlay_parking_sleep(parking_t *parking, sleeper_t *self, atomic_uint *word, unsigned seen,
                         int64_t until)
{
    open_sleeper(self);
    enlist(parking, self);
    if (atomic_load(word) == seen) wait_for_call(self, until);
    if (!atomic_load(&self->is_called) && !leave(parking, self)) wait_for_call(self, -1);
    close_sleeper(self);
}

int inlay_parking_call(parking_t *parking, int n, const void *of, int is_other)
{
    sleeper_t *called[AT_ONCE], *s, *next;
    int k, i, all = 0;
    if (n <= 0) return 0;
    do {
        k = 0;
        pthread_mutex_lock(&parking->lock);
        for (s = parking->sleepers.next; s != &parking->sleepers && k < AT_ONCE && all + k < n; s = next) {
            next = s->next;
            if ((s->of == of) == is_other) continue;
            delist(parking, s);
            called[k++] = s;
        }
        pthread_mutex_unlock(&parking->lock);
        for (i = 0; i < k; i++) {
            if (called[i]->before) called[i]->before(called[i]);
            wake(called[i]);
        }
        all += k;
    } while (k == AT_ONCE);
    return all;
}
