/* Calls that run kernels together, from several threads, under the thread sanitizer.
 *
 *     together FILE FAULT THREADS OWN
 *
 * CALLERS threads call the first entry of a file CALLS times each, with activations of their own that
 * share a batcher, and hold the results against those of a sequential activation. Some are given up on the
 * way. With one thread for all there are no workers, and the calls begin together, so that nobody comes later
 * who would do what was left undone. FAULT 1 plants a lock of the batcher that locks nothing, 2 such locks of the activations: the
 * sanitizer must see that. OWN is own_batches of all activations. Kernels are here and no native code, so that their accesses are seen as well. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "inlay_rt.h"
#include "machine.h"
#include "platform/posix.h"

#define CALLERS 5
#define CALLS 40
#define WIDTH 4
#define TURNS 12

static inlay_posix_t *posix;
static const inlay_module_t *module;
static inlay_config_t config;
static int fault, batches, largest; /* largest: rows of a batch */
static pthread_barrier_t round_begins;
static void *batcher_lock;
static _Thread_local int polls; /* until the call of this thread is given up; 0 for never */
static _Thread_local int polled;

/* ------------------------------------------------------------------------------------- kernels */

static void row(const int64_t *x, const int64_t *w, int64_t *y)
{
    int64_t i, k, sum;
    for (i = 0; i < WIDTH; i++) {
        for (sum = i, k = 0; k < WIDTH; k++) sum += x[k] * w[k * WIDTH + i];
        y[i] = sum % 1009;
    }
}

static int64_t one_row(void *const *buffers, const int64_t *ints, int64_t part, int64_t parts)
{
    (void)ints, (void)parts;
    if (part == 0) row(buffers[0], buffers[1], buffers[2]);
    return 0;
}

static int64_t many_rows(void *const *buffers, const int64_t *ints, int64_t part, int64_t parts)
{
    int64_t i;
    int most = __atomic_load_n(&largest, __ATOMIC_RELAXED);
    if (part == 0) __atomic_fetch_add(&batches, 1, __ATOMIC_RELAXED);
    while (most < ints[0] && !__atomic_compare_exchange_n(&largest, &most, (int)ints[0], 0, __ATOMIC_RELAXED,
                                                          __ATOMIC_RELAXED))
        continue;
    for (i = part; i < ints[0]; i += parts)
        row((const int64_t *)buffers[0] + i * WIDTH, buffers[1], (int64_t *)buffers[2] + i * WIDTH);
    return 0;
}

/* What does not gather: each part has elements of its own. */
static int64_t mix(void *const *buffers, const int64_t *ints, int64_t part, int64_t parts)
{
    const int64_t *x = buffers[0];
    int64_t *y = buffers[1], i;
    (void)ints;
    if (config.parts == 1) usleep(1); /* so that calls overlap */
    for (i = part; i < WIDTH; i += parts) y[i] = (x[i] * 3 + x[(i + 1) % WIDTH]) % 1009;
    return 0;
}

/* The file has places for native code, in this order, and none. */
static void give_code(const inlay_module_t *opened)
{
    static const inlay_phase_t code[3] = {many_rows, one_row, mix};
    uint32_t i;
    for (i = 0; i < 3; i++) opened->kernels[i].phases[0].run = code[i];
}

/* ---------------------------------------------------------------------------------------- host */

static int poll(void *user)
{
    (void)user;
    return polls && ++polled > polls;
}

static int is_broken(const void *lock)
{
    return lock && (fault == 1 ? lock == batcher_lock : fault == 2 && lock != batcher_lock);
}

static void *lock_open(void *user)
{
    void *lock = inlay_posix_threads.open(user);
    if (!batcher_lock) batcher_lock = lock; /* which is the first */
    return lock;
}

static void lock_take(void *user, void *lock)
{
    if (!is_broken(lock)) inlay_posix_threads.lock(user, lock);
}

static void lock_give(void *user, void *lock)
{
    if (!is_broken(lock)) inlay_posix_threads.unlock(user, lock);
}

static void lock_wait(void *user, void *lock, int64_t ns)
{
    if (is_broken(lock)) usleep(50);
    else inlay_posix_threads.wait(user, lock, ns);
}

/* ---------------------------------------------------------------------------------------- calls */

/* Call the entry; whether it ended, with the result in `y`. */
static int call(inlay_activation_t *m, const inlay_host_t *host, int64_t seed, int64_t *y)
{
    static const int64_t x_dims[1] = {WIDTH};
    int64_t x[WIDTH], n = seed % TURNS, i;
    inlay_tensor_t inputs[2] = {{NULL, INLAY_I64, 1, x_dims}, {NULL, INLAY_I64, 0, NULL}};
    inlay_result_t result;
    inlay_error_t error;
    inlay_status_t status;
    for (i = 0; i < WIDTH; i++) x[i] = seed * 7 + i;
    inputs[0].data = x;
    inputs[1].data = &n;
    status = inlay_call(m, 0, inputs, 2, &result, 1, &error);
    if (status == INLAY_CANCELLED) return 0;
    if (status != INLAY_OK) {
        printf("%s %s\n", inlay_status_id(status), error.message);
        exit(1);
    }
    memcpy(y, result.data, WIDTH * sizeof *y);
    inlay_result_release(host, &result);
    return 1;
}

typedef struct caller {
    pthread_t thread;
    const inlay_host_t *host;
    int64_t seed;
    int wrong, given_up;
} caller_t;

static inlay_activation_t *activation(const inlay_host_t *host, const inlay_config_t *with)
{
    inlay_activation_t *made;
    if (inlay_activation_create(module, host, with, &made) != INLAY_OK) exit(2);
    return made;
}

static void *work(void *argument)
{
    caller_t *c = argument;
    inlay_config_t alone = config;
    inlay_activation_t *together = activation(c->host, &config), *by_itself;
    int64_t i, y[WIDTH], expected[WIDTH];
    alone.mode = INLAY_SEQUENTIAL;
    alone.batcher = NULL;
    by_itself = activation(c->host, &alone);
    for (i = 0; i < (config.parts == 1 ? 3 * CALLS : CALLS); i++) {
        const int64_t seed = c->seed + i * 31;
        polls = 0;
        call(by_itself, c->host, seed, expected);
        polls = i % 8 == 3 ? (int)(i % 5) + 1 : 0;
        polled = 0;
        if (config.parts == 1) pthread_barrier_wait(&round_begins);
        if (!call(together, c->host, seed, y)) c->given_up++;
        else c->wrong += memcmp(y, expected, sizeof y) != 0;
        if (inlay_activation_live(together)) c->wrong++;
        if (i % 9 == 0) usleep(300); /* so that calls begin while others are under way */
    }
    inlay_activation_destroy(together);
    inlay_activation_destroy(by_itself);
    return NULL;
}

int main(int argc, char **argv)
{
    static const uint8_t *data;
    static caller_t callers[CALLERS];
    inlay_threads_t threads = inlay_posix_threads;
    inlay_host_t host;
    inlay_module_t *opened;
    inlay_batcher_t *batcher;
    inlay_error_t error;
    size_t bytes;
    int i, wrong = 0, given_up = 0;
    if (argc < 5) return 2;
    alarm(100);
    fault = atoi(argv[2]);
    data = inlay_posix_map_file(argv[1], &bytes);
    config.parts = atoi(argv[3]);
    posix = inlay_posix_open((int)config.parts);
    pthread_barrier_init(&round_begins, NULL, CALLERS);
    memset(&host, 0, sizeof host);
    threads.open = lock_open, threads.lock = lock_take, threads.unlock = lock_give, threads.wait = lock_wait;
    host.user = posix;
    host.allocate = inlay_posix_allocate, host.release = inlay_posix_release;
    host.parallel = inlay_posix_parallel;
    host.poll = poll;
    host.threads = &threads;
    host.now = inlay_posix_now;
    if (inlay_module_open(data, bytes, NULL, 1, &host, &opened, &error) != INLAY_OK) {
        printf("%s\n", error.message);
        return 2;
    }
    give_code(opened);
    module = opened;
    if (inlay_batcher_create(module, &host, &batcher) != INLAY_OK || !batcher) return 2;
    config.mode = INLAY_PARALLEL;
    config.hand_off_ns = 1000;
    config.checks = 1;
    config.own_batches = (uint32_t)atoi(argv[4]);
    config.batcher = batcher;
    for (i = 0; i < CALLERS; i++) {
        callers[i].host = &host;
        callers[i].seed = i * 1000;
        if (pthread_create(&callers[i].thread, NULL, work, &callers[i]) != 0) return 2;
    }
    for (i = 0; i < CALLERS; i++) {
        pthread_join(callers[i].thread, NULL);
        wrong += callers[i].wrong;
        given_up += callers[i].given_up;
    }
    inlay_batcher_destroy(batcher);
    inlay_module_close(opened);
    inlay_posix_close(posix);
    pthread_barrier_destroy(&round_begins);
    printf("wrong %d, given up %s, batches %s, largest %s\n", wrong, given_up ? "some" : "none",
           batches ? "some" : "none", largest > 2 ? "of most calls" : "of a share");
    return wrong != 0;
}
