/* The thread pool under the thread sanitizer: rounds of parallel work, from two callers at once, and jobs. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
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

/* ------------------------------------------------------------------------------------------ jobs */

typedef struct counted {
    inlay_job_t job; /* must be found from its address */
    atomic_int runs, kept_away; /* kept_away: runs that could not go to all CPUs of the process */
    int cpus;
} counted_t;

static int cpus(void)
{
#ifdef __linux__
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
#endif
    return 0;
}

static void run(inlay_job_t *job)
{
    counted_t *counted = (counted_t *)(void *)job; /* its first field */
    if (cpus() != counted->cpus) atomic_fetch_add(&counted->kept_away, 1);
    atomic_fetch_add(&counted->runs, 1);
}

/* Offer a job again and again, to workers that spin and to such that sleep; how often one was kept away. */
static int offer_jobs(inlay_posix_t *pool)
{
    const struct timespec moment = {0, 20000}, pause = {0, 1000000};
    counted_t counted;
    int i;
    memset(&counted, 0, sizeof counted);
    counted.job.run = run;
    counted.cpus = cpus();
    for (i = 0; i < 50; i++) {
        inlay_posix_threads.offer(pool, &counted.job);
        while (atomic_load(&counted.runs) <= i) nanosleep(&moment, NULL);
        if (i % 2) nanosleep(&pause, NULL);
    }
    inlay_posix_threads.withdraw(pool, &counted.job);
    return atomic_load(&counted.kept_away);
}

int main(void)
{
    int threads;
    for (threads = 1; threads <= 4; threads++) {
        inlay_posix_t *pool = inlay_posix_open(threads);
        pthread_t other;
        void *theirs, *ours;
        int kept_away = threads > 1 ? offer_jobs(pool) : 0;
        if (kept_away) {
            printf("%d jobs were kept from a CPU with %d threads\n", kept_away, threads);
            return 1;
        }
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
