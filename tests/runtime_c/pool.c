/* The thread pool under the thread sanitizer: rounds of parallel work, from two callers at once. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "platform/posix.h"

#define PARTS 7
#define ROUNDS 3000

typedef struct work {
    int64_t answers[PARTS];
    int64_t seed;
} work_t;

static void part(void *argument, int64_t index)
{
    work_t *work = argument;
    work->answers[index] = work->seed * 100 + index;
}

static void *caller(void *argument)
{
    inlay_posix_t *pool = argument;
    int64_t round, i, wrong = 0;
    for (round = 0; round < ROUNDS; round++) {
        work_t work;
        memset(&work, 0, sizeof work);
        work.seed = round;
        inlay_posix_parallel(pool, part, &work, PARTS);
        for (i = 0; i < PARTS; i++) wrong += work.answers[i] != round * 100 + i;
        if (round % 500 == 0) {
            /* Long enough for workers to go to sleep. */
            struct timespec pause = {0, 1000000};
            nanosleep(&pause, NULL);
        }
        if (round % 10 == 0) {
            void *memory = inlay_posix_allocate(pool, 65536, 64);
            memset(memory, (int)round, 65536);
            inlay_posix_release(pool, memory, 65536, 64);
        }
    }
    return (void *)(intptr_t)wrong;
}

int main(void)
{
    int threads;
    for (threads = 1; threads <= 4; threads++) {
        inlay_posix_t *pool = inlay_posix_open(threads);
        pthread_t other;
        void *theirs, *ours;
        if (pthread_create(&other, NULL, caller, pool) != 0) return 2;
        ours = caller(pool);
        pthread_join(other, &theirs);
        inlay_posix_close(pool);
        if (ours || theirs) {
            printf("wrong answers with %d threads\n", threads);
            return 1;
        }
    }
    return 0;
}
