/* A device that the host plays: see inlay_driver.h.
 *
 * Requests are copied when they are started and wait in the list of their queue. `progress` picks a
 * queue whose first request has all its tickets ended, by a generator of numbers, and runs it. So
 * what is not ordered by queues and tickets happens in every order, for some seed. Memory is
 * counted: each request in flight holds what it uses. */
#include "request.h"

#include <string.h>

enum { MOST_UNITS = 8, QUEUES = 2, MOST_BUFFERS = 64 };
enum { HEAD_BYTES = 64 }; /* of a memory, in front of its contents */

struct inlay_memory {
    size_t bytes;
    uint32_t unit, users; /* users: the owner and requests in flight */
};

typedef struct waiting {
    struct waiting *next;
    inlay_request_t request;
    size_t size; /* of this object with its arrays */
} waiting_t;

typedef struct lane {
    waiting_t *first, **end;
    uint64_t started, ended;
} lane_t;

struct inlay_device {
    const inlay_host_t *host;
    uint32_t units;
    uint64_t random, limit, taken[MOST_UNITS];
    int64_t fail_in; /* requests until one fails; 0 for never */
    lane_t lanes[MOST_UNITS * QUEUES];
};

static void say(char *message, size_t bytes, const char *text)
{
    size_t size = strlen(text);
    if (!bytes) return;
    if (size >= bytes) size = bytes - 1;
    memcpy(message, text, size);
    message[size] = '\0';
}

/* Return what follows a word, or NULL where the text does not begin with it. */
static const char *behind(const char *at, const char *word)
{
    while (*word && *at == *word) at++, word++;
    return *word ? NULL : at;
}

/* Read `key=number`, separated by spaces; false where a word is not one of them. */
static int read_options(inlay_device_t *device, const char *at)
{
    static const char *const keys[] = {"units=", "seed=", "memory=", "fail="};
    while (at && *at) {
        uint64_t values[4] = {0, 0, 0, 0};
        const char *value = NULL;
        size_t k = 0;
        while (k < 4 && !(value = behind(at, keys[k]))) k++;
        if (!value || *value < '0' || *value > '9') return 0;
        for (at = value; *at >= '0' && *at <= '9'; at++)
            values[k] = values[k] * 10 + (uint64_t)(*at - '0');
        if (k == 0) device->units = values[0] > MOST_UNITS ? 0 : (uint32_t)values[0];
        if (k == 1) device->random = values[1] * 2 + 1;
        if (k == 2) device->limit = values[2];
        if (k == 3) device->fail_in = (int64_t)values[3];
        if (*at && *at != ' ') return 0;
        while (*at == ' ') at++;
    }
    return device->units > 0;
}

static inlay_status_t host_open(const inlay_host_t *host, const char *options,
                                inlay_device_t **device, char *message, size_t message_bytes)
{
    uint32_t i;
    inlay_device_t *made = host->allocate(host->user, sizeof *made, sizeof(uint64_t));
    if (!made) return INLAY_OUT_OF_MEMORY;
    memset(made, 0, sizeof *made);
    made->host = host;
    made->units = 1;
    made->random = 1;
    made->limit = SIZE_MAX / 4;
    for (i = 0; i < MOST_UNITS * QUEUES; i++) made->lanes[i].end = &made->lanes[i].first;
    if (!read_options(made, options)) {
        host->release(host->user, made, sizeof *made, sizeof(uint64_t));
        say(message, message_bytes, "options are units=, seed=, memory=, fail=, with numbers");
        return INLAY_BAD_ARGUMENT;
    }
    *device = made;
    return INLAY_OK;
}

static int host_progress(inlay_device_t *device);

static void host_close(inlay_device_t *device)
{
    while (host_progress(device)) continue;
    device->host->release(device->host->user, device, sizeof *device, sizeof(uint64_t));
}

static void host_facts(inlay_device_t *device, inlay_device_facts_t *facts)
{
    memset(facts, 0, sizeof *facts);
    memcpy(facts->name, "host", sizeof "host");
    facts->units = device->units;
    facts->queues_per_unit = QUEUES;
    facts->memory_bytes = facts->largest_bytes = device->limit;
    facts->has_f64 = 1;
    facts->compute_units = 1;
}

static inlay_status_t host_load(inlay_device_t *device, const void *image, size_t bytes,
                                inlay_program_t **program, char *message, size_t message_bytes)
{
    const inlay_host_kernel_t *kernels = image;
    size_t n = bytes / sizeof *kernels;
    (void)device;
    if (!n || bytes % sizeof *kernels || kernels[n - 1].name) {
        say(message, message_bytes, "an image is a table of kernels that ends with a NULL name");
        return INLAY_BUILD_FAILED;
    }
    memcpy(program, &image, sizeof image); /* the table outlives the program */
    return INLAY_OK;
}

static void host_unload(inlay_device_t *device, inlay_program_t *program)
{
    (void)device, (void)program;
}

static const inlay_host_kernel_t *kernels_of(const inlay_program_t *program)
{
    return (const inlay_host_kernel_t *)(const void *)program;
}

static int32_t host_find(inlay_device_t *device, inlay_program_t *program, const char *name,
                         uint32_t n_phases)
{
    const inlay_host_kernel_t *kernels = kernels_of(program);
    int32_t i;
    (void)device;
    for (i = 0; kernels[i].name; i++)
        if (strcmp(kernels[i].name, name) == 0 && kernels[i].n_phases == n_phases) return i;
    return -1;
}

static inlay_status_t host_allocate(inlay_device_t *device, uint32_t unit, size_t bytes,
                                    inlay_memory_t **memory, char *message, size_t message_bytes)
{
    inlay_memory_t *made = NULL;
    if (unit >= device->units) return INLAY_BAD_ARGUMENT;
    if (bytes <= device->limit - device->taken[unit])
        made = device->host->allocate(device->host->user, HEAD_BYTES + bytes, 64);
    if (!made) {
        say(message, message_bytes, "the memory of the device is full");
        return INLAY_OUT_OF_MEMORY;
    }
    memset((uint8_t *)made + HEAD_BYTES, 0xA5, bytes); /* undefined, and nothing a test would expect */
    made->bytes = bytes;
    made->unit = unit;
    made->users = 1;
    device->taken[unit] += bytes;
    *memory = made;
    return INLAY_OK;
}

static void host_release(inlay_device_t *device, inlay_memory_t *memory)
{
    if (--memory->users) return;
    device->taken[memory->unit] -= memory->bytes;
    device->host->release(device->host->user, memory, HEAD_BYTES + memory->bytes, 64);
}

static void *address(const inlay_region_t *region)
{
    if (!region->memory) return region->host;
    return (uint8_t *)region->memory + HEAD_BYTES + region->offset;
}

/* Whether `bytes` from a region on are there; what the host gives is believed. */
static int fits(const inlay_region_t *region, size_t bytes)
{
    const inlay_memory_t *memory = region->memory;
    return !memory || (region->offset <= memory->bytes && bytes <= memory->bytes - region->offset);
}

static const char *wrong_request(const inlay_device_t *device, const inlay_request_t *request)
{
    uint32_t i;
    if (request->queue >= device->units * QUEUES) return "found a queue that the device has not";
    for (i = 0; i < request->n_after; i++)
        if (request->after[i].queue >= device->units * QUEUES ||
            request->after[i].number > device->lanes[request->after[i].queue].started)
            return "found a ticket of no request";
    if (request->action == INLAY_COPY) {
        if (!fits(&request->to, request->bytes) || !fits(&request->from, request->bytes))
            return "found a copy beyond the end of a memory";
        return NULL;
    }
    if (request->n_buffers > MOST_BUFFERS) return "found more buffers than a launch may have";
    for (i = 0; i < request->n_buffers; i++)
        if (!request->buffers[i].memory || !fits(&request->buffers[i], 0))
            return "found a buffer that is not in the memory of the device";
    return NULL;
}

static void hold(const inlay_request_t *request)
{
    uint32_t i;
    if (request->to.memory) request->to.memory->users++;
    if (request->from.memory) request->from.memory->users++;
    for (i = 0; i < request->n_buffers; i++) request->buffers[i].memory->users++;
}

static inlay_status_t host_start(inlay_device_t *device, const inlay_request_t *request,
                                 inlay_ticket_t *ticket, char *message, size_t message_bytes)
{
    const size_t size = sizeof(waiting_t) + inlay_request_bytes(request);
    const char *wrong = wrong_request(device, request);
    waiting_t *made;
    lane_t *lane;
    if (wrong) {
        say(message, message_bytes, wrong);
        return INLAY_BAD_ARGUMENT;
    }
    made = device->host->allocate(device->host->user, size, sizeof(uint64_t));
    if (!made) return INLAY_OUT_OF_MEMORY;
    memset(made, 0, sizeof *made);
    made->size = size;
    inlay_request_keep(request, &made->request, (uint8_t *)(made + 1));
    hold(&made->request);
    lane = &device->lanes[request->queue];
    *lane->end = made;
    lane->end = &made->next;
    ticket->queue = request->queue;
    ticket->number = ++lane->started;
    return INLAY_OK;
}

static int64_t launch(const inlay_request_t *request)
{
    const inlay_host_kernel_t *kernel = &kernels_of(request->program)[request->kernel];
    void *buffers[MOST_BUFFERS];
    int64_t answer, least = 0, part;
    uint32_t i;
    for (i = 0; i < request->n_buffers; i++) buffers[i] = address(&request->buffers[i]);
    for (i = 0; i < request->n_phases && !least; i++)
        for (part = 0; part < request->items[i]; part++) {
            answer = kernel->phases[i](buffers, request->ints, part, request->items[i]);
            if (answer && (!least || answer < least)) least = answer;
        }
    return least;
}

static void run(inlay_device_t *device, lane_t *lane)
{
    waiting_t *top = lane->first;
    inlay_request_t *request = &top->request;
    inlay_status_t status = INLAY_OK;
    const char *text = "";
    int64_t answer = 0;
    uint32_t i;
    lane->first = top->next;
    if (!lane->first) lane->end = &lane->first;
    lane->ended++;
    if (device->fail_in && --device->fail_in == 0) {
        status = INLAY_DEVICE_FAILED;
        text = "the device was asked to fail here";
    } else if (request->action == INLAY_COPY) {
        if (request->bytes) memcpy(address(&request->to), address(&request->from), request->bytes);
    } else if ((answer = launch(request)) != 0) {
        status = INLAY_CHECK_FAILED;
        text = "an assertion of the kernel does not hold";
    }
    if (request->to.memory) host_release(device, request->to.memory);
    if (request->from.memory) host_release(device, request->from.memory);
    for (i = 0; i < request->n_buffers; i++) host_release(device, request->buffers[i].memory);
    request->done(request->argument, status, answer, text);
    device->host->release(device->host->user, top, top->size, sizeof(uint64_t));
}

static int is_ready(const inlay_device_t *device, const lane_t *lane)
{
    uint32_t i;
    if (!lane->first) return 0;
    for (i = 0; i < lane->first->request.n_after; i++) {
        const inlay_ticket_t *t = &lane->first->request.after[i];
        if (device->lanes[t->queue].ended < t->number) return 0;
    }
    return 1;
}

static int host_progress(inlay_device_t *device)
{
    const uint32_t n = device->units * QUEUES;
    uint32_t i, first;
    device->random = device->random * 6364136223846793005u + 1442695040888963407u;
    first = (uint32_t)(device->random >> 33) % n;
    for (i = 0; i < n; i++) {
        lane_t *lane = &device->lanes[(first + i) % n];
        if (!is_ready(device, lane)) continue;
        run(device, lane);
        break;
    }
    for (i = 0; i < n; i++)
        if (device->lanes[i].first) return 1;
    return 0;
}

static void host_wait(inlay_device_t *device, inlay_ticket_t ticket)
{
    while (device->lanes[ticket.queue].ended < ticket.number && host_progress(device)) continue;
}

const inlay_driver_t inlay_driver_host = {
    "host",        host_open,    host_close,   host_facts, host_load,     host_unload, host_find,
    host_allocate, host_release, host_start, host_wait, host_progress,
    NULL,
};
