/* Threads for a host: parts of kernels, jobs, and waits that help. C11 atomics; see pool.c. */
#ifndef INLAY_POOL_H
#define INLAY_POOL_H

#include "inlay_rt.h"

typedef struct inlay_pool inlay_pool_t;
typedef struct inlay_lock inlay_lock_t;

/* `threads` counts the caller: n - 1 workers are started when there is first something to do. */
inlay_pool_t *inlay_pool_open(int threads);
void inlay_pool_close(inlay_pool_t *pool);

/* What `inlay_host_t` and `inlay_threads_t` say of functions of these names. */
void inlay_pool_parallel(inlay_pool_t *pool, inlay_part_t part, void *argument, int64_t parts);
void inlay_pool_offer(inlay_pool_t *pool, inlay_job_t *job);
void inlay_pool_withdraw(inlay_pool_t *pool, inlay_job_t *job);
inlay_lock_t *inlay_pool_lock_open(void);
void inlay_pool_lock_close(inlay_lock_t *lock);
void inlay_pool_lock(inlay_lock_t *lock);
void inlay_pool_unlock(inlay_lock_t *lock);
void inlay_pool_wait(inlay_pool_t *pool, inlay_lock_t *lock, int64_t ns);
void inlay_pool_wake(inlay_pool_t *pool, inlay_lock_t *lock);

#endif
