/* The processor as a device: see inlay_driver.h. What a server on a machine without another device
 * offers, and the plainest driver whose requests really run at the same time.
 *
 * Each queue is a list and a thread. The thread takes the first request, waits until those it comes
 * after have ended, and does it; a launch shares its parts with a pool. One lock of a device guards its
 * lists and counts users of programs. Users of memory are counted under one lock of all devices, since a
 * copy to one reads memory of another. native_program.c reads images. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "platform/native_device.h"
#include "platform/posix.h"

#if defined(__x86_64__)
static const char ARCHITECTURE[] = "x86_64";
#elif defined(__aarch64__)
static const char ARCHITECTURE[] = "aarch64";
#else
static const char ARCHITECTURE[] = "none";
#endif

/* -------------------------------------------------------------------------------------- memory */

static pthread_mutex_t users_lock = PTHREAD_MUTEX_INITIALIZER; /* taken after that of a device */

static inlay_status_t native_allocate(inlay_device_t *device, uint32_t unit, size_t size,
                                      inlay_memory_t **memory, char *message, size_t bytes)
{
    inlay_memory_t *made = NULL;
    if (unit >= device->units)
        return inlay_native_refuse(INLAY_BAD_ARGUMENT, "found a unit that the device has not",
                                   message, bytes);
    if (size <= SIZE_MAX / 4) made = inlay_memory_make(device->host, unit, size);
    if (!made)
        return inlay_native_refuse(INLAY_OUT_OF_MEMORY, "the system has no memory of that size",
                                   message, bytes);
    *memory = made;
    return INLAY_OK;
}

/* Of its owner, and of a request that has ended. */
static void native_release(inlay_device_t *device, inlay_memory_t *memory)
{
    int is_last;
    if (!memory) return;
    pthread_mutex_lock(&users_lock);
    is_last = --memory->users == 0;
    pthread_mutex_unlock(&users_lock);
    if (is_last)
        device->host->release(device->host->user, memory, HEAD_BYTES + memory->bytes, HEAD_BYTES);
}

/* Under the lock. */
static void leave_program(inlay_device_t *device, inlay_program_t *program)
{
    if (program && --program->users == 0) inlay_native_drop(device, program);
}

static void native_unload(inlay_device_t *device, inlay_program_t *program)
{
    pthread_mutex_lock(&device->lock);
    leave_program(device, program);
    pthread_mutex_unlock(&device->lock);
}

/* ------------------------------------------------------------------------------------- requests */

static const char *wrong_launch(const inlay_request_t *request)
{
    const kernel_t *kernel;
    if (request->kernel >= request->program->n_kernels)
        return "found a kernel that was not asked for by `find`";
    kernel = &request->program->kernels[request->kernel];
    if (request->n_phases != kernel->n_phases || request->n_buffers < kernel->n_buffers ||
        request->n_ints < kernel->n_ints)
        return "found another number of buffers, integers or phases than the kernel has";
    return NULL;
}

static void let_go(inlay_device_t *device, const inlay_request_t *request)
{
    uint32_t i;
    native_release(device, request->to.memory);
    native_release(device, request->from.memory);
    leave_program(device, request->program);
    for (i = 0; i < request->n_buffers; i++) native_release(device, request->buffers[i].memory);
}

static inlay_status_t native_start(inlay_device_t *device, const inlay_request_t *request,
                                   inlay_ticket_t *ticket, char *message, size_t bytes)
{
    const char *wrong;
    waiting_t *made = NULL;
    pthread_mutex_lock(&device->lock);
    wrong = inlay_lanes_refuse(device->lanes, device->n_lanes, request);
    if (!wrong && request->action != INLAY_COPY) wrong = wrong_launch(request);
    if (!wrong) {
        pthread_mutex_lock(&users_lock);
        made = inlay_lanes_add(device->host, device->lanes, request, ticket);
        pthread_mutex_unlock(&users_lock);
    }
    if (made) {
        if (made->request.program) made->request.program->users++;
        pthread_cond_broadcast(&device->changed);
    }
    pthread_mutex_unlock(&device->lock);
    if (wrong) return inlay_native_refuse(INLAY_BAD_ARGUMENT, wrong, message, bytes);
    return made ? INLAY_OK : INLAY_OUT_OF_MEMORY;
}

typedef struct phase_run {
    inlay_phase_t phase;
    void *const *buffers;
    const int64_t *ints;
    int64_t parts, least; /* least: of the assertions that fail, under the lock */
    pthread_mutex_t lock;
} phase_run_t;

static void run_part(void *argument, int64_t part)
{
    phase_run_t *run = argument;
    const int64_t answer = run->phase(run->buffers, run->ints, part, run->parts);
    if (!answer) return;
    pthread_mutex_lock(&run->lock);
    if (!run->least || answer < run->least) run->least = answer;
    pthread_mutex_unlock(&run->lock);
}

static int64_t launch(inlay_device_t *device, const inlay_request_t *request)
{
    const kernel_t *kernel = &request->program->kernels[request->kernel];
    void *buffers[MOST_BUFFERS];
    phase_run_t run;
    uint32_t i;
    for (i = 0; i < request->n_buffers; i++) buffers[i] = inlay_region_address(&request->buffers[i]);
    run.buffers = buffers;
    run.ints = request->ints;
    run.least = 0;
    pthread_mutex_init(&run.lock, NULL);
    for (i = 0; i < kernel->n_phases && !run.least; i++) {
        run.phase = kernel->phases[i];
        run.parts = request->items[i];
        if (run.parts == 1)
            run_part(&run, 0);
        else if (run.parts > 1)
            inlay_pool_parallel(device->pool, run_part, &run, run.parts);
    }
    pthread_mutex_destroy(&run.lock);
    return run.least;
}

/* Return when a copy that began at `begin` has taken as long as a slow link would; no thread works
 * meanwhile. */
static void keep_pace(const inlay_device_t *device, int64_t begin, size_t bytes)
{
    struct timespec rest;
    int64_t left = begin + device->latency - inlay_posix_now(NULL);
    if (device->rate) left += (int64_t)(bytes / device->rate) * 1000;
    if (left <= 0) return;
    rest.tv_sec = (time_t)(left / 1000000000);
    rest.tv_nsec = (long)(left % 1000000000);
    while (nanosleep(&rest, &rest) != 0) continue;
}

static int64_t perform(inlay_device_t *device, const inlay_request_t *request)
{
    const int is_slow = device->latency || device->rate;
    const int64_t begin = is_slow ? inlay_posix_now(NULL) : 0;
    if (request->action != INLAY_COPY) return launch(device, request);
    if (!request->bytes) return 0;
    memcpy(inlay_region_address(&request->to), inlay_region_address(&request->from), request->bytes);
    if (is_slow) keep_pace(device, begin, request->bytes);
    return 0;
}

static void *run_lane(void *argument)
{
    worker_t *worker = argument;
    lane_t *lane = worker->lane;
    inlay_device_t *device = worker->device;
    pthread_mutex_lock(&device->lock);
    for (;;) {
        waiting_t *first = lane->first;
        int64_t answer, *times;
        if (!first && device->is_closing) break;
        if (!first || !inlay_lanes_ready(device->lanes, &first->request)) {
            pthread_cond_wait(&device->changed, &device->lock);
            continue;
        }
        first = inlay_lane_take(lane);
        times = device->host->now ? first->request.times : NULL; /* who asks for them watches */
        pthread_mutex_unlock(&device->lock);
        if (times) times[0] = device->host->now(device->host->user);
        answer = perform(device, &first->request);
        if (times) times[1] = device->host->now(device->host->user);
        pthread_mutex_lock(&device->lock);
        let_go(device, &first->request);
        lane->ended++;
        pthread_cond_broadcast(&device->changed);
        pthread_mutex_unlock(&device->lock);
        first->request.done(first->request.argument, answer ? INLAY_CHECK_FAILED : INLAY_OK, answer,
                            answer ? "an assertion of the kernel does not hold" : "");
        inlay_give(device->host, first, first->size);
        pthread_mutex_lock(&device->lock);
        worker->told++;
        pthread_cond_broadcast(&device->changed);
    }
    pthread_mutex_unlock(&device->lock);
    return NULL;
}

/* ------------------------------------------------------------------------------------- opening */

static int read_options(inlay_device_t *device, const char *at)
{
    while (at && *at) {
        const size_t size = strcspn(at, " ");
        int used = 0;
        if (strncmp(at, "offers=", 7) == 0 && size - 7 < sizeof device->offers) {
            memcpy(device->offers, at + 7, size - 7);
            device->offers[size - 7] = '\0';
        } else if (!((sscanf(at, "units=%3u%n", &device->units, &used) == 1 ||
                      sscanf(at, "threads=%3u%n", &device->threads, &used) == 1 ||
                      sscanf(at, "latency=%9u%n", &device->latency, &used) == 1 ||
                      sscanf(at, "rate=%9u%n", &device->rate, &used) == 1) &&
                     (size_t)used == size)) {
            return 0;
        }
        at += size;
        at += strspn(at, " ");
    }
    return device->units >= 1 && device->units <= MOST_UNITS && device->threads >= 1 &&
           device->threads <= 256;
}

static void native_close(inlay_device_t *device)
{
    uint32_t i;
    pthread_mutex_lock(&device->lock);
    device->is_closing = 1;
    pthread_cond_broadcast(&device->changed);
    pthread_mutex_unlock(&device->lock);
    for (i = 0; i < device->n_lanes; i++) pthread_join(device->workers[i].thread, NULL);
    if (device->pool) inlay_pool_close(device->pool);
    pthread_cond_destroy(&device->changed);
    pthread_mutex_destroy(&device->lock);
    inlay_give(device->host, device, sizeof *device);
}

static int begin_threads(inlay_device_t *device)
{
    const uint32_t n = device->units * QUEUES;
    sigset_t all, before;
    int failed = 0;
    sigfillset(&all); /* signals belong to the program */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (device->n_lanes < n && !failed) {
        worker_t *worker = &device->workers[device->n_lanes];
        worker->device = device;
        worker->lane = &device->lanes[device->n_lanes];
        worker->lane->end = &worker->lane->first;
        failed = pthread_create(&worker->thread, NULL, run_lane, worker);
        if (!failed) device->n_lanes++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !failed;
}

static inlay_status_t native_open(const inlay_host_t *host, const char *options,
                                  inlay_device_t **device, char *message, size_t bytes)
{
    inlay_device_t *made = inlay_take(host, sizeof *made);
    if (!made) return INLAY_OUT_OF_MEMORY;
    made->host = host;
    made->units = made->threads = 1;
    memcpy(made->offers, ARCHITECTURE, sizeof ARCHITECTURE);
    if (!read_options(made, options)) {
        inlay_give(made->host, made, sizeof *made);
        return inlay_native_refuse(INLAY_BAD_ARGUMENT,
                                   "options are units=N (1 to 8), threads=N (1 to 256), "
                                   "offers=WORD,WORD,..., latency=NS, rate=BYTES_PER_US",
                                   message, bytes);
    }
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    made->pool = inlay_pool_open((int)made->threads);
    if (!made->pool || !begin_threads(made)) {
        native_close(made);
        return inlay_native_refuse(INLAY_OUT_OF_MEMORY, "the system gives no more threads", message,
                                   bytes);
    }
    *device = made;
    return INLAY_OK;
}

static void native_facts(inlay_device_t *device, inlay_device_facts_t *facts)
{
    memset(facts, 0, sizeof *facts);
    snprintf(facts->name, sizeof facts->name, "native %s", ARCHITECTURE);
    facts->units = device->units;
    facts->queues_per_unit = QUEUES;
    facts->largest_bytes = SIZE_MAX / 4;
    facts->has_f64 = 1;
    facts->compute_units = device->threads;
    memcpy(facts->offers, device->offers, sizeof device->offers);
}

static void native_wait(inlay_device_t *device, inlay_ticket_t ticket)
{
    pthread_mutex_lock(&device->lock);
    while (device->workers[ticket.queue].told < ticket.number)
        pthread_cond_wait(&device->changed, &device->lock);
    pthread_mutex_unlock(&device->lock);
}

const inlay_driver_t inlay_driver_native = {
    "native",      native_open,       native_close,    native_facts,   inlay_native_load,
    native_unload, inlay_native_find, native_allocate, native_release, native_start,
    native_wait,   NULL,              NULL,
};
