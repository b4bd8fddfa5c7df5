/* Requests of the OpenCL driver, from `start` to `done`: see opencl.c. */
#define _POSIX_C_SOURCE 200809L
#include "platform/opencl_device.h"

#include <stdio.h>
#include <string.h>

static const uint32_t NO_FAILURE = 0xFFFFFFFFu;

/* Store when the device began and ended, if it can say so. */
static void note_times(const flight_t *flight)
{
    const inlay_device_t *device = flight->device;
    uint64_t begin = 0, end = 0;
    if (!device->has_times || !flight->times) return;
    if (device->cl.GetEventProfilingInfo(flight->first ? flight->first : flight->event,
                                         CL_PROFILING_COMMAND_START, sizeof begin, &begin,
                                         NULL) != CL_SUCCESS ||
        device->cl.GetEventProfilingInfo(flight->event, CL_PROFILING_COMMAND_END, sizeof end, &end,
                                         NULL) != CL_SUCCESS)
        return;
    flight->times[0] = (int64_t)begin + device->skew;
    flight->times[1] = (int64_t)end + device->skew;
}

static void tell(flight_t *flight, cl_status status)
{
    char text[64];
    if (status >= 0) note_times(flight);
    if (status < 0) {
        inlay_cl_failed(status, "a command", text, sizeof text);
        flight->done(flight->argument, inlay_cl_status(status), 0, text);
    } else if (flight->asserts && flight->failure != NO_FAILURE) {
        flight->done(flight->argument, INLAY_CHECK_FAILED, (int64_t)flight->failure,
                     "an assertion of the kernel does not hold");
    } else {
        flight->done(flight->argument, INLAY_OK, 0, "");
    }
}

/* Take a request out of the list of its queue, where it need not be the first: events of a queue are
 * told by several threads. */
static void land(flight_t *flight)
{
    inlay_device_t *device = flight->device;
    lane_t *lane = &device->lanes[flight->queue];
    flight_t **at = &lane->first, *before = NULL;
    while (*at != flight) {
        before = *at;
        at = &before->next;
    }
    *at = flight->next;
    if (lane->last == flight) lane->last = before;
}

static void INLAY_CL_CALL ended(cl_event event, cl_status status, void *user)
{
    flight_t *flight = user;
    inlay_device_t *device = flight->device;
    (void)event;
    tell(flight, status);
    pthread_mutex_lock(&device->lock);
    land(flight);
    pthread_cond_broadcast(&device->landed);
    pthread_mutex_unlock(&device->lock);
    device->cl.ReleaseEvent(flight->event);
    if (flight->first) device->cl.ReleaseEvent(flight->first);
    if (flight->word) device->cl.ReleaseMemObject(flight->word);
    inlay_give(device->host, flight, sizeof *flight);
    /* The last touch of the device: `close` goes on when it sees zero. */
    pthread_mutex_lock(&device->lock);
    if (--device->in_flight == 0) pthread_cond_broadcast(&device->landed);
    pthread_mutex_unlock(&device->lock);
}

void inlay_cl_wait(inlay_device_t *device, inlay_ticket_t ticket)
{
    const flight_t *flight;
    pthread_mutex_lock(&device->lock);
    do {
        flight = device->lanes[ticket.queue].first;
        while (flight && flight->number < ticket.number) flight = flight->next;
        if (!flight || flight->number != ticket.number) break;
        pthread_cond_wait(&device->landed, &device->lock);
    } while (1);
    pthread_mutex_unlock(&device->lock);
}

static const char *wrong_region(const inlay_region_t *region, size_t bytes)
{
    const inlay_memory_t *memory = region->memory;
    if (!memory || (region->offset <= memory->bytes && bytes <= memory->bytes - region->offset))
        return NULL;
    return "found bytes beyond the end of a memory";
}

static const char *wrong_request(const inlay_device_t *device, const inlay_request_t *request)
{
    const uint32_t n_lanes = device->facts.units * QUEUES;
    uint32_t i;
    if (request->queue >= n_lanes) return "found a queue that the device has not";
    if (request->n_after > MOST_WAITS) return "found more tickets than a request may wait for";
    for (i = 0; i < request->n_after; i++)
        if (request->after[i].queue >= n_lanes ||
            request->after[i].number > device->lanes[request->after[i].queue].started)
            return "found a ticket of no request";
    if (request->action == INLAY_COPY) {
        const char *wrong = wrong_region(&request->to, request->bytes);
        return wrong ? wrong : wrong_region(&request->from, request->bytes);
    }
    if (request->n_buffers > MOST_BUFFERS) return "found more buffers than a launch may have";
    for (i = 0; i < request->n_buffers; i++)
        if (!request->buffers[i].memory || wrong_region(&request->buffers[i], 0))
            return "found a buffer that is not in the memory of the device";
    return NULL;
}

/* Return the events of the requests that have not ended yet, retained. Under the lock. */
static uint32_t waits_of(inlay_device_t *device, const inlay_request_t *request, cl_event *events)
{
    uint32_t i, n = 0;
    for (i = 0; i < request->n_after; i++) {
        const inlay_ticket_t *t = &request->after[i];
        const flight_t *f = device->lanes[t->queue].first;
        if (t->queue == request->queue) continue; /* queues work in order */
        while (f && f->number < t->number) f = f->next;
        if (f && f->number == t->number && device->cl.RetainEvent(f->event) == CL_SUCCESS)
            events[n++] = f->event;
    }
    return n;
}

typedef struct enqueue {
    inlay_device_t *device;
    cl_queue queue;
    const cl_event *events; /* for the first command */
    uint32_t n_events;
    flight_t *flight;
} enqueue_t;

/* The event of the command that follows takes the place of the one before. */
static cl_event *next_event(enqueue_t *e)
{
    flight_t *flight = e->flight;
    if (flight->event && flight->times && !flight->first) flight->first = flight->event;
    else if (flight->event) e->device->cl.ReleaseEvent(flight->event);
    flight->event = NULL;
    return &flight->event;
}

static const cl_event *first_waits(enqueue_t *e, uint32_t *n)
{
    *n = e->n_events;
    e->n_events = 0;
    return *n ? e->events : NULL;
}

static cl_status enqueue_marker(enqueue_t *e)
{
    uint32_t n;
    const cl_event *events = first_waits(e, &n);
    return e->device->cl.EnqueueMarkerWithWaitList(e->queue, n, events, next_event(e));
}

static cl_status enqueue_copy(enqueue_t *e, const inlay_request_t *r)
{
    const cl_api *cl = &e->device->cl;
    const cl_event *events;
    uint32_t n;
    if (!r->bytes) return enqueue_marker(e);
    events = first_waits(e, &n);
    if (r->to.memory && r->from.memory)
        return cl->EnqueueCopyBuffer(e->queue, r->from.memory->object, r->to.memory->object,
                                     r->from.offset, r->to.offset, r->bytes, n, events,
                                     next_event(e));
    if (r->to.memory)
        return cl->EnqueueWriteBuffer(e->queue, r->to.memory->object, 0, r->to.offset, r->bytes,
                                      r->from.host, n, events, next_event(e));
    return cl->EnqueueReadBuffer(e->queue, r->from.memory->object, 0, r->from.offset, r->bytes,
                                 r->to.host, n, events, next_event(e));
}

/* Set the arguments of a phase. Under the lock. */
static cl_status set_arguments(enqueue_t *e, const inlay_request_t *r, cl_kernel phase,
                               uint32_t has_word)
{
    const cl_api *cl = &e->device->cl;
    cl_status status = CL_SUCCESS;
    uint32_t i, at = 0;
    for (i = 0; i < r->n_buffers && status == CL_SUCCESS; i++) {
        const int64_t offset = (int64_t)r->buffers[i].offset;
        status = cl->SetKernelArg(phase, at++, sizeof(cl_memory), &r->buffers[i].memory->object);
        if (status == CL_SUCCESS) status = cl->SetKernelArg(phase, at++, sizeof offset, &offset);
    }
    for (i = 0; i < r->n_ints && status == CL_SUCCESS; i++)
        status = cl->SetKernelArg(phase, at++, sizeof(int64_t), &r->ints[i]);
    if (has_word && status == CL_SUCCESS)
        status = cl->SetKernelArg(phase, at, sizeof(cl_memory), &e->flight->word);
    return status;
}

/* Return the items of a work group, 0 where the library had better choose. A group runs on one
 * compute unit: there should be some for each. Below the width of its vectors a GPU is idle.
 * Libraries for processors compile a kernel anew for each size of a group, which takes as long as
 * building it: so there are three sizes, of which the largest is enough for vectors of items. */
static size_t group_of(const inlay_device_t *device, const kernel_t *kernel, uint32_t p,
                       size_t items)
{
    const size_t least = device->is_cpu ? 1 : 32, step = device->is_cpu ? 8 : 2;
    const size_t share = items / ((size_t)device->facts.compute_units * 4);
    size_t local = device->is_cpu ? 64 : 256;
    while (local > least && (local > kernel->group[p] || local > share || items % local))
        local /= step;
    return local > kernel->group[p] || items % local ? 0 : local;
}

static cl_status enqueue_phase(enqueue_t *e, const kernel_t *kernel, uint32_t p, int64_t items)
{
    const size_t global = (size_t)items, local = group_of(e->device, kernel, p, global);
    const cl_event *events;
    uint32_t n;
    events = first_waits(e, &n);
    return e->device->cl.EnqueueNDRangeKernel(e->queue, kernel->phases[p], 1, NULL, &global,
                                              local ? &local : NULL, n, events, next_event(e));
}

static cl_status open_word(enqueue_t *e)
{
    const cl_api *cl = &e->device->cl;
    cl_status status = CL_SUCCESS;
    const cl_event *events;
    uint32_t n;
    e->flight->asserts = 1;
    e->flight->failure = NO_FAILURE;
    e->flight->word = cl->CreateBuffer(e->device->context, CL_MEM_READ_WRITE, sizeof(uint32_t),
                                       NULL, &status);
    if (!e->flight->word) return status;
    events = first_waits(e, &n);
    return cl->EnqueueWriteBuffer(e->queue, e->flight->word, 0, 0, sizeof(uint32_t), &NO_FAILURE,
                                  n, events, next_event(e));
}

static cl_status enqueue_launch(enqueue_t *e, const inlay_request_t *r, const kernel_t *kernel)
{
    const uint32_t plain = 2 * r->n_buffers + r->n_ints;
    cl_status status = CL_SUCCESS;
    uint32_t p;
    for (p = 0; p < kernel->n_phases && status == CL_SUCCESS; p++)
        if (kernel->n_arguments[p] == plain + 1 && !e->flight->word) status = open_word(e);
    for (p = 0; p < kernel->n_phases && status == CL_SUCCESS; p++) {
        const uint32_t has_word = kernel->n_arguments[p] == plain + 1;
        if (r->items[p] <= 0) continue;
        status = set_arguments(e, r, kernel->phases[p], has_word);
        if (status == CL_SUCCESS) status = enqueue_phase(e, kernel, p, r->items[p]);
    }
    if (status == CL_SUCCESS && e->flight->word)
        return e->device->cl.EnqueueReadBuffer(e->queue, e->flight->word, 0, 0, sizeof(uint32_t),
                                               &e->flight->failure, 0, NULL, next_event(e));
    if (status == CL_SUCCESS && !e->flight->event) return enqueue_marker(e);
    return status;
}

static const kernel_t *kernel_of(const inlay_request_t *r, char *message, size_t bytes)
{
    const kernel_t *kernel = r->program->kernels;
    uint32_t p;
    while (kernel && kernel->number != r->kernel) kernel = kernel->next;
    if (!kernel || kernel->n_phases != r->n_phases) {
        inlay_cl_refuse("found a kernel that was not asked for by `find`", message, bytes);
        return NULL;
    }
    for (p = 0; p < kernel->n_phases; p++) {
        const uint32_t plain = 2 * r->n_buffers + r->n_ints;
        if (kernel->n_arguments[p] == plain || kernel->n_arguments[p] == plain + 1) continue;
        if (bytes)
            snprintf(message, bytes, "%s has %u arguments, found %u buffers and %u integers",
                     kernel->name, (unsigned)kernel->n_arguments[p], (unsigned)r->n_buffers,
                     (unsigned)r->n_ints);
        return NULL;
    }
    return kernel;
}

/* Enqueue the commands of a request and put it into the list of its queue. Under the lock. */
static inlay_status_t enqueue(inlay_device_t *device, const inlay_request_t *request,
                              flight_t *flight, char *message, size_t bytes)
{
    const char *wrong = wrong_request(device, request);
    const kernel_t *kernel = NULL;
    lane_t *lane;
    cl_event events[MOST_WAITS];
    cl_status status;
    uint32_t n, i;
    enqueue_t e;
    if (wrong) return inlay_cl_refuse(wrong, message, bytes);
    if (request->action == INLAY_LAUNCH && !(kernel = kernel_of(request, message, bytes)))
        return INLAY_BAD_ARGUMENT;
    n = waits_of(device, request, events);
    lane = &device->lanes[request->queue];
    e.device = device;
    e.queue = lane->queue;
    e.events = events;
    e.n_events = n;
    e.flight = flight;
    status = kernel ? enqueue_launch(&e, request, kernel) : enqueue_copy(&e, request);
    for (i = 0; i < n; i++) device->cl.ReleaseEvent(events[i]);
    if (status != CL_SUCCESS) return inlay_cl_failed(status, "an enqueued command", message, bytes);
    flight->number = ++lane->started;
    if (lane->last)
        lane->last->next = flight;
    else
        lane->first = flight;
    lane->last = flight;
    device->in_flight++;
    return INLAY_OK;
}

inlay_status_t inlay_cl_start(inlay_device_t *device, const inlay_request_t *request,
                                   inlay_ticket_t *ticket, char *message, size_t bytes)
{
    inlay_status_t status;
    cl_queue queue;
    flight_t *flight = inlay_take(device->host, sizeof *flight);
    if (!flight) return INLAY_OUT_OF_MEMORY;
    flight->device = device;
    flight->queue = request->queue;
    flight->done = request->done;
    flight->argument = request->argument;
    flight->times = request->times;
    pthread_mutex_lock(&device->lock);
    status = enqueue(device, request, flight, message, bytes);
    if (status == INLAY_OK) {
        ticket->queue = request->queue;
        ticket->number = flight->number;
    }
    pthread_mutex_unlock(&device->lock);
    if (status != INLAY_OK) {
        /* Commands in front of the one that failed may still be running. */
        if (flight->event) {
            device->cl.Finish(device->lanes[request->queue].queue);
            device->cl.ReleaseEvent(flight->event);
        }
        if (flight->first) device->cl.ReleaseEvent(flight->first);
        if (flight->word) device->cl.ReleaseMemObject(flight->word);
        inlay_give(device->host, flight, sizeof *flight);
        return status;
    }
    queue = device->lanes[request->queue].queue;
    if (device->cl.SetEventCallback(flight->event, CL_COMPLETE, ended, flight) != CL_SUCCESS) {
        /* No thread will tell it, so this one waits and does. */
        device->cl.Finish(queue);
        ended(flight->event, CL_COMPLETE, flight);
        return INLAY_OK;
    }
    device->cl.Flush(queue);
    return INLAY_OK;
}
