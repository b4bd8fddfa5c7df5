/* The processor as a device: see inlay_driver.h. What a server on a machine without another device
 * offers, and the plainest driver whose requests really run at the same time.
 *
 * Each queue is a list and a thread. The thread takes the first request, waits until those it comes
 * after have ended, and does it; a launch shares its parts with a pool. One lock guards the lists and
 * counts users of memory and programs. native_program.c reads images. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "platform/native_device.h"
#include "platform/posix.h"
#include "request.h"

#if defined(__x86_64__)
static const char ARCHITECTURE[] = "x86_64";
#elif defined(__aarch64__)
static const char ARCHITECTURE[] = "aarch64";
#else
static const char ARCHITECTURE[] = "none";
#endif

/* -------------------------------------------------------------------------------------- memory */

static inlay_status_t native_allocate(inlay_device_t *device, uint32_t unit, size_t size,
                                      inlay_memory_t **memory, char *message, size_t bytes)
{
    inlay_memory_t *made = NULL;
    if (unit >= device->units)
        return inlay_native_refuse(INLAY_BAD_ARGUMENT, "found a unit that the device has not",
                                   message, bytes);
    if (size <= SIZE_MAX / 4)
        made = device->host->allocate(device->host->user, HEAD_BYTES + size, HEAD_BYTES);
    if (!made)
        return inlay_native_refuse(INLAY_OUT_OF_MEMORY, "the system has no memory of that size",
                                   message, bytes);
    made->bytes = size;
    made->users = 1;
    *memory = made;
    return INLAY_OK;
}

/* Under the lock. */
static void leave_memory(inlay_device_t *device, inlay_memory_t *memory)
{
    if (memory && --memory->users == 0)
        device->host->release(device->host->user, memory, HEAD_BYTES + memory->bytes, HEAD_BYTES);
}

static void leave_program(inlay_device_t *device, inlay_program_t *program)
{
    if (program && --program->users == 0) inlay_native_drop(device, program);
}

static void native_release(inlay_device_t *device, inlay_memory_t *memory)
{
    pthread_mutex_lock(&device->lock);
    leave_memory(device, memory);
    pthread_mutex_unlock(&device->lock);
}

static void native_unload(inlay_device_t *device, inlay_program_t *program)
{
    pthread_mutex_lock(&device->lock);
    leave_program(device, program);
    pthread_mutex_unlock(&device->lock);
}

static void *address(const inlay_region_t *region)
{
    if (!region->memory) return region->host;
    return (uint8_t *)region->memory + HEAD_BYTES + region->offset;
}

/* ------------------------------------------------------------------------------------- requests */

static int fits(const inlay_region_t *region, size_t bytes)
{
    const inlay_memory_t *memory = region->memory;
    return !memory || (region->offset <= memory->bytes && bytes <= memory->bytes - region->offset);
}

static const char *wrong_launch(const inlay_request_t *request)
{
    const kernel_t *kernel;
    uint32_t i;
    if (request->kernel >= request->program->n_kernels)
        return "found a kernel that was not asked for by `find`";
    kernel = &request->program->kernels[request->kernel];
    if (request->n_phases != kernel->n_phases || request->n_buffers < kernel->n_buffers ||
        request->n_ints < kernel->n_ints || request->n_buffers > MOST_BUFFERS)
        return "found another number of buffers, integers or phases than the kernel has";
    for (i = 0; i < request->n_buffers; i++)
        if (!request->buffers[i].memory || !fits(&request->buffers[i], 0))
            return "found a buffer that is not in the memory of the device";
    return NULL;
}

/* Under the lock. */
static const char *wrong_request(const inlay_device_t *device, const inlay_request_t *request)
{
    uint32_t i;
    if (request->queue >= device->n_lanes) return "found a queue that the device has not";
    for (i = 0; i < request->n_after; i++)
        if (request->after[i].queue >= device->n_lanes ||
            request->after[i].number > device->lanes[request->after[i].queue].started)
            return "found a ticket of no request";
    if (request->action != INLAY_COPY) return wrong_launch(request);
    if (!fits(&request->to, request->bytes) || !fits(&request->from, request->bytes))
        return "found bytes beyond the end of a memory";
    return NULL;
}

static waiting_t *copy_of(const inlay_device_t *device, const inlay_request_t *request)
{
    const size_t size = sizeof(waiting_t) + inlay_request_bytes(request);
    waiting_t *made = inlay_native_take(device, size);
    if (!made) return NULL;
    made->size = size;
    inlay_request_keep(request, &made->request, (uint8_t *)(made + 1));
    return made;
}

static void hold(const inlay_request_t *request)
{
    uint32_t i;
    if (request->to.memory) request->to.memory->users++;
    if (request->from.memory) request->from.memory->users++;
    if (request->program) request->program->users++;
    for (i = 0; i < request->n_buffers; i++) request->buffers[i].memory->users++;
}

static void let_go(inlay_device_t *device, const inlay_request_t *request)
{
    uint32_t i;
    leave_memory(device, request->to.memory);
    leave_memory(device, request->from.memory);
    leave_program(device, request->program);
    for (i = 0; i < request->n_buffers; i++) leave_memory(device, request->buffers[i].memory);
}

static inlay_status_t native_start(inlay_device_t *device, const inlay_request_t *request,
                                   inlay_ticket_t *ticket, char *message, size_t bytes)
{
    const char *wrong;
    waiting_t *made = NULL;
    pthread_mutex_lock(&device->lock);
    wrong = wrong_request(device, request);
    if (!wrong && (made = copy_of(device, request)) != NULL) {
        lane_t *lane = &device->lanes[request->queue];
        hold(&made->request);
        *lane->end = made;
        lane->end = &made->next;
        ticket->queue = request->queue;
        ticket->number = ++lane->started;
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
    for (i = 0; i < request->n_buffers; i++) buffers[i] = address(&request->buffers[i]);
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
    memcpy(address(&request->to), address(&request->from), request->bytes);
    if (is_slow) keep_pace(device, begin, request->bytes);
    return 0;
}

/* Under the lock. */
static int is_ready(const inlay_device_t *device, const inlay_request_t *request)
{
    uint32_t i;
    for (i = 0; i < request->n_after; i++)
        if (device->lanes[request->after[i].queue].ended < request->after[i].number) return 0;
    return 1;
}

static void *run_lane(void *argument)
{
    lane_t *lane = argument;
    inlay_device_t *device = lane->device;
    pthread_mutex_lock(&device->lock);
    for (;;) {
        waiting_t *first = lane->first;
        int64_t answer, *times;
        if (!first && device->is_closing) break;
        if (!first || !is_ready(device, &first->request)) {
            pthread_cond_wait(&device->changed, &device->lock);
            continue;
        }
        lane->first = first->next;
        if (!lane->first) lane->end = &lane->first;
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
        inlay_native_give(device, first, first->size);
        pthread_mutex_lock(&device->lock);
        lane->told++;
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
    for (i = 0; i < device->n_lanes; i++) pthread_join(device->lanes[i].thread, NULL);
    if (device->pool) inlay_pool_close(device->pool);
    pthread_cond_destroy(&device->changed);
    pthread_mutex_destroy(&device->lock);
    inlay_native_give(device, device, sizeof *device);
}

static int begin_threads(inlay_device_t *device)
{
    const uint32_t n = device->units * QUEUES;
    sigset_t all, before;
    int failed = 0;
    sigfillset(&all); /* signals belong to the program */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (device->n_lanes < n && !failed) {
        lane_t *lane = &device->lanes[device->n_lanes];
        lane->device = device;
        lane->end = &lane->first;
        failed = pthread_create(&lane->thread, NULL, run_lane, lane);
        if (!failed) device->n_lanes++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !failed;
}

static inlay_status_t native_open(const inlay_host_t *host, const char *options,
                                  inlay_device_t **device, char *message, size_t bytes)
{
    inlay_device_t *made = host->allocate(host->user, sizeof *made, sizeof(uint64_t));
    if (!made) return INLAY_OUT_OF_MEMORY;
    memset(made, 0, sizeof *made);
    made->host = host;
    made->units = made->threads = 1;
    memcpy(made->offers, ARCHITECTURE, sizeof ARCHITECTURE);
    if (!read_options(made, options)) {
        inlay_native_give(made, made, sizeof *made);
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
    while (device->lanes[ticket.queue].told < ticket.number)
        pthread_cond_wait(&device->changed, &device->lock);
    pthread_mutex_unlock(&device->lock);
}

const inlay_driver_t inlay_driver_native = {
    "native",      native_open,       native_close,    native_facts,   inlay_native_load,
    native_unload, inlay_native_find, native_allocate, native_release, native_start,
    native_wait,   NULL,              NULL,
};
