/* Threads that sleep until somebody calls them, or until a time. C11 atomics; see parking.c. */
#ifndef INLAY_PARKING_H
#define INLAY_PARKING_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

/* A thread that may sleep. Its memory is that of the thread, and may be gone as soon as it was called. */
typedef struct sleeper {
    struct sleeper *next, *previous; /* in the list, or NULL */
    const void *of;                  /* what it waits for: who calls knows it by that */
    atomic_int *count;               /* NULL, or how many sleep for the same */
    void (*before)(struct sleeper *sleeper); /* NULL, or what is done right before it is woken */
    atomic_int is_called;
#ifndef __linux__
    pthread_mutex_t mutex;
    pthread_cond_t called;
#endif
} sleeper_t;

/* Those that sleep. */
typedef struct parking {
    pthread_mutex_t lock;
    sleeper_t sleepers; /* head of a circular list */
    atomic_int parked;  /* how many there are */
} parking_t;

/* Nanoseconds of the clock that `until` is of. */
int64_t inlay_parking_now(void);

/* A mutex that is held for a fraction of a microsecond: who finds it taken spins before it sleeps. */
void inlay_parking_open_mutex(pthread_mutex_t *mutex);

void inlay_parking_open(parking_t *parking);
void inlay_parking_close(parking_t *parking);

/* Sleep until called, or until a time; below 0: for ever. Not at all where `word` is no longer `seen`:
 * whoever changes it looks at `count`, or at `parked`, afterwards, and calls. `of`, `count` and `before` are
 * set. */
void inlay_parking_sleep(parking_t *parking, sleeper_t *self, atomic_uint *word, unsigned seen,
                         int64_t until);

/* Call up to `n` of those that wait for `of`, or, where `is_other`, for anything else. Returns how many. */
int inlay_parking_call(parking_t *parking, int n, const void *of, int is_other);

#endif
