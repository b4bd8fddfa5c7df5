/* A device that the host plays: see inlay_driver.h.
 *
 * Requests are copied when they are started and wait in the list of their queue. `progress` picks a
 * queue whose first request has all its tickets ended, by a generator of numbers, and runs it. So
 * what is not ordered by queues and tickets happens in every order, for some seed. Memory is
 * counted: each request in flight holds what it uses. */
#include "waiting.h"

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
    inlay_device_t *made = inlay_take(host, sizeof *made);
    if (!made) return INLAY_OUT_OF_MEMORY;
    made->host = host;
    made->units = 1;
    made->random = 1;
    made->limit = SIZE_MAX / 4;
    for (i = 0; i < MOST_UNITS * QUEUES; i++) made->lanes[i].end = &made->lanes[i].first;
    if (!read_options(made, options)) {
        inlay_give(host, made, sizeof *made);
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
    inlay_give(device->host, device, sizeof *device);
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
        made = inlay_memory_make(device->host, unit, bytes);
    if (!made) {
        say(message, message_bytes, "the memory of the device is full");
        return INLAY_OUT_OF_MEMORY;
    }
    memset((uint8_t *)made + HEAD_BYTES, 0xA5, bytes); /* undefined, and nothing a test would expect */
    device->taken[unit] += bytes;
    *memory = made;
    return INLAY_OK;
}

static void host_release(inlay_device_t *device, inlay_memory_t *memory)
{
    if (--memory->users) return;
    device->taken[memory->unit] -= memory->bytes;
    device->host->release(device->host->user, memory, HEAD_BYTES + memory->bytes, HEAD_BYTES);
}

static inlay_status_t host_start(inlay_device_t *device, const inlay_request_t *request,
                                 inlay_ticket_t *ticket, char *message, size_t message_bytes)
{
    const char *wrong = inlay_lanes_refuse(device->lanes, device->units * QUEUES, request);
    if (wrong) {
        say(message, message_bytes, wrong);
        return INLAY_BAD_ARGUMENT;
    }
    return inlay_lanes_add(device->host, device->lanes, request, ticket) ? INLAY_OK
                                                                         : INLAY_OUT_OF_MEMORY;
}

static int64_t launch(const inlay_request_t *request)
{
    const inlay_host_kernel_t *kernel = &kernels_of(request->program)[request->kernel];
    void *buffers[MOST_BUFFERS];
    int64_t answer, least = 0, part;
    uint32_t i;
    for (i = 0; i < request->n_buffers; i++) buffers[i] = inlay_region_address(&request->buffers[i]);
    for (i = 0; i < request->n_phases && !least; i++)
        for (part = 0; part < request->items[i]; part++) {
            answer = kernel->phases[i](buffers, request->ints, part, request->items[i]);
            if (answer && (!least || answer < least)) least = answer;
        }
    return least;
}

static void run(inlay_device_t *device, lane_t *lane)
{
    waiting_t *top = inlay_lane_take(lane);
    inlay_request_t *request = &top->request;
    inlay_status_t status = INLAY_OK;
    const char *text = "";
    int64_t answer = 0;
    uint32_t i;
    lane->ended++;
    if (device->fail_in && --device->fail_in == 0) {
        status = INLAY_DEVICE_FAILED;
        text = "the device was asked to fail here";
    } else if (request->action == INLAY_COPY) {
        if (request->bytes)
            memcpy(inlay_region_address(&request->to), inlay_region_address(&request->from),
                   request->bytes);
    } else if ((answer = launch(request)) != 0) {
        status = INLAY_CHECK_FAILED;
        text = "an assertion of the kernel does not hold";
    }
    if (request->to.memory) host_release(device, request->to.memory);
    if (request->from.memory) host_release(device, request->from.memory);
    for (i = 0; i < request->n_buffers; i++) host_release(device, request->buffers[i].memory);
    request->done(request->argument, status, answer, text);
    inlay_give(device->host, top, top->size);
}

static int host_progress(inlay_device_t *device)
{
    const uint32_t n = device->units * QUEUES;
    uint32_t i, first;
    device->random = device->random * 6364136223846793005u + 1442695040888963407u;
    first = (uint32_t)(device->random >> 33) % n;
    for (i = 0; i < n; i++) {
        lane_t *lane = &device->lanes[(first + i) % n];
        if (!lane->first || !inlay_lanes_ready(device->lanes, &lane->first->request)) continue;
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
