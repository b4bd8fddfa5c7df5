/* What every driver must do: `conformance DRIVER OPTIONS [IMAGE]`.
 *
 * Each test works through the table of functions alone. It prints its name when it has passed; a
 * failure ends the program. Where a driver computes nothing (null), what is computed is not looked
 * at, but that requests end, in order and once, is.
 *
 * The kernels come from loop functions, in C (kernels.c, for the driver `host`) and as an image:
 *   affine(x i32[n]) -> y i32[n]: y = 3*x + 1       phases(x i32[n]) -> y i32[n]: y = 2*x + sum of 2*x
 *   checked(t i64[n]) -> y i64[n]: asserts 0 <= t (1) and t < n (2)
 *   slow(x i32[n]) -> y i32[n]: `steps` rounds of y = 5*y + x */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "inlay_driver.h"

extern const inlay_host_kernel_t kernels[];
extern const size_t kernels_bytes;

static const inlay_driver_t *driver;
static const char *options;
static const void *image;
static size_t image_bytes;
static int computes;
static long live; /* allocations of the host */
static char message[4096];

#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, message);           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* --------------------------------------------------------------------------------- the host */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;

static long allowance = -1; /* allocations until the host refuses one; -1 for never */

static void *take(void *user, size_t bytes, size_t align)
{
    void *memory = NULL;
    int refused;
    (void)user;
    pthread_mutex_lock(&lock);
    refused = allowance == 0;
    if (allowance > 0) allowance--;
    pthread_mutex_unlock(&lock);
    if (refused) return NULL;
    if (align < sizeof(void *)) align = sizeof(void *);
    if (posix_memalign(&memory, align, bytes ? bytes : 1)) return NULL;
    pthread_mutex_lock(&lock);
    live++;
    pthread_mutex_unlock(&lock);
    return memory;
}

static void give(void *user, void *memory, size_t bytes, size_t align)
{
    (void)user, (void)bytes, (void)align;
    free(memory);
    pthread_mutex_lock(&lock);
    live--;
    pthread_mutex_unlock(&lock);
}

static int64_t now(void *user)
{
    struct timespec t;
    (void)user;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void watch(void *user, const inlay_event_t *event) { (void)user, (void)event; }

static inlay_host_t host;

/* --------------------------------------------------------------------------------- requests */

typedef struct outcome {
    int told;
    inlay_status_t status;
    int64_t answer;
    long order; /* how many were told before */
} outcome_t;

static long n_told;

static void done(void *argument, inlay_status_t status, int64_t answer, const char *text)
{
    outcome_t *outcome = argument;
    pthread_mutex_lock(&lock);
    outcome->told++;
    outcome->status = status;
    outcome->answer = answer;
    outcome->order = n_told++;
    snprintf(message, sizeof message, "%s", text);
    pthread_cond_broadcast(&told);
    pthread_mutex_unlock(&lock);
}

static void settle(inlay_device_t *device, const outcome_t *outcome)
{
    pthread_mutex_lock(&lock);
    while (!outcome->told) {
        if (driver->progress) {
            pthread_mutex_unlock(&lock);
            driver->progress(device);
            pthread_mutex_lock(&lock);
        } else {
            pthread_cond_wait(&told, &lock);
        }
    }
    pthread_mutex_unlock(&lock);
}

static inlay_device_t *open_with(const char *words)
{
    inlay_device_t *device = NULL;
    inlay_status_t status;
    message[0] = '\0';
    status = driver->open(&host, words, &device, message, sizeof message);
    if (status == INLAY_ABSENT) {
        printf("ABSENT %s\n", message);
        exit(0);
    }
    NEED(status == INLAY_OK);
    return device;
}

static inlay_device_t *open_one(void) { return open_with(options); }

static inlay_memory_t *memory_of(inlay_device_t *device, uint32_t unit, size_t bytes)
{
    inlay_memory_t *memory = NULL;
    NEED(driver->allocate(device, unit, bytes, &memory, message, sizeof message) == INLAY_OK);
    return memory;
}

static inlay_program_t *program_of(inlay_device_t *device)
{
    inlay_program_t *program = NULL;
    NEED(driver->load(device, image, image_bytes, &program, message, sizeof message) == INLAY_OK);
    return program;
}

static inlay_region_t on_device(inlay_memory_t *memory, size_t offset)
{
    inlay_region_t region = {memory, offset, NULL};
    return region;
}

static inlay_region_t on_host(void *at)
{
    inlay_region_t region = {NULL, 0, at};
    return region;
}

static inlay_ticket_t start(inlay_device_t *device, inlay_request_t *request, outcome_t *outcome)
{
    inlay_ticket_t ticket = {0, 0};
    outcome->told = 0;
    request->done = done;
    request->argument = outcome;
    NEED(driver->start(device, request, &ticket, message, sizeof message) == INLAY_OK);
    NEED(ticket.queue == request->queue && ticket.number > 0);
    return ticket;
}

static inlay_request_t copy_request(uint32_t queue, inlay_region_t to, inlay_region_t from,
                                    size_t bytes)
{
    inlay_request_t request;
    memset(&request, 0, sizeof request);
    request.action = INLAY_COPY;
    request.queue = queue;
    request.to = to;
    request.from = from;
    request.bytes = bytes;
    return request;
}

static inlay_ticket_t copy(inlay_device_t *device, uint32_t queue, inlay_region_t to,
                           inlay_region_t from, size_t bytes, outcome_t *outcome)
{
    inlay_request_t request = copy_request(queue, to, from, bytes);
    return start(device, &request, outcome);
}

static void copy_now(inlay_device_t *device, inlay_region_t to, inlay_region_t from, size_t bytes)
{
    outcome_t outcome;
    copy(device, INLAY_QUEUE_COPY, to, from, bytes, &outcome);
    settle(device, &outcome);
    NEED(outcome.status == INLAY_OK);
}

typedef struct launch {
    inlay_request_t request;
    inlay_region_t buffers[3];
    int64_t ints[2], items[3];
} launch_t;

/* A launch of a kernel of one phase over n elements from x to y. */
static void make_launch(launch_t *launch, inlay_device_t *device, inlay_program_t *program,
                        const char *name, uint32_t queue, inlay_region_t x, inlay_region_t y,
                        int64_t n)
{
    const int32_t kernel = driver->find(device, program, name, 1);
    NEED(kernel >= 0);
    memset(launch, 0, sizeof *launch);
    launch->buffers[0] = x;
    launch->buffers[1] = y;
    launch->ints[0] = n;
    launch->items[0] = n;
    launch->request.action = INLAY_LAUNCH;
    launch->request.queue = queue;
    launch->request.program = program;
    launch->request.kernel = (uint32_t)kernel;
    launch->request.buffers = launch->buffers;
    launch->request.n_buffers = 2;
    launch->request.ints = launch->ints;
    launch->request.n_ints = 1;
    launch->request.items = launch->items;
    launch->request.n_phases = 1;
}

/* ------------------------------------------------------------------------------------ tests */

static void test_options(void)
{
    inlay_device_t *device = NULL;
    NEED(driver->open(&host, "no such=word", &device, message, sizeof message) ==
         INLAY_BAD_ARGUMENT);
    NEED(driver->open(&host, "no such=word", &device, NULL, 0) == INLAY_BAD_ARGUMENT);
    NEED(device == NULL && live == 0);
}

static void test_facts(void)
{
    inlay_device_t *device = open_one();
    inlay_device_facts_t facts;
    driver->facts(device, &facts);
    NEED(facts.name[0] && facts.units >= 1 && facts.queues_per_unit >= 2);
    NEED(facts.largest_bytes > 0 && facts.compute_units >= 1);
    driver->close(device);
    NEED(live == 0);
}

static void test_memory(void)
{
    static const size_t sizes[] = {0, 1, 3, 64, 4097, 1 << 20};
    inlay_device_t *device = open_one();
    inlay_device_facts_t facts;
    inlay_memory_t *memory[6], *none = NULL;
    size_t i;
    for (i = 0; i < 6; i++) memory[i] = memory_of(device, 0, sizes[i]);
    for (i = 0; i < 6; i++) driver->release(device, memory[i]);
    driver->facts(device, &facts);
    if (computes) {
        NEED(driver->allocate(device, 0, (size_t)facts.largest_bytes + 1, &none, message,
                              sizeof message) == INLAY_OUT_OF_MEMORY);
        NEED(message[0] && none == NULL);
    }
    NEED(driver->allocate(device, facts.units, 64, &none, message, sizeof message) ==
         INLAY_BAD_ARGUMENT);
    driver->close(device);
    NEED(live == 0);
}

static void test_copies(void)
{
    static const size_t sizes[] = {0, 1, 3, 64, 4097, 1 << 20};
    static const size_t offsets[] = {0, 1, 4, 64};
    const size_t most = (1 << 20) + 64;
    inlay_device_t *device = open_one();
    inlay_memory_t *a = memory_of(device, 0, most), *b = memory_of(device, 0, most);
    uint8_t *in = malloc(most), *out = malloc(most);
    size_t i, j, k;
    for (i = 0; i < most; i++) in[i] = (uint8_t)(i * 7 + i / 251);
    for (i = 0; i < 6; i++)
        for (j = 0; j < 4; j++) {
            memset(out, 0xEE, most);
            copy_now(device, on_device(a, offsets[j]), on_host(in), sizes[i]);
            copy_now(device, on_device(b, offsets[3 - j]), on_device(a, offsets[j]), sizes[i]);
            copy_now(device, on_host(out + 1), on_device(b, offsets[3 - j]), sizes[i]);
            if (!computes) continue;
            NEED(memcmp(out + 1, in, sizes[i]) == 0 && out[0] == 0xEE);
            for (k = sizes[i] + 1; k < sizes[i] + 60; k++) NEED(out[k] == 0xEE);
        }
    free(in);
    free(out);
    driver->release(device, a);
    driver->release(device, b);
    driver->close(device);
    NEED(live == 0);
}

/* Bytes go to the device and back again and again; nobody waits in between but by tickets. */
static void test_copies_through_the_host(void)
{
    enum { STEPS = 6 };
    const size_t bytes = (5 << 20) + 3;
    inlay_device_t *device = open_one();
    inlay_memory_t *memory = memory_of(device, 0, bytes);
    uint8_t *at[STEPS + 1];
    outcome_t outcomes[2 * STEPS];
    inlay_ticket_t last = {0, 0};
    size_t i, k;
    for (i = 0; i <= STEPS; i++) {
        at[i] = malloc(bytes);
        memset(at[i], 0xEE, bytes);
    }
    for (k = 0; k < bytes; k++) at[0][k] = (uint8_t)(k * 7 + k / 251);
    for (i = 0; i < 2 * STEPS; i++) {
        /* To the device, and back to other bytes; queues take turns. */
        const inlay_region_t here = on_host(at[(i + 1) / 2]), there = on_device(memory, 0);
        inlay_request_t request =
            copy_request(i % 3 ? INLAY_QUEUE_COPY : INLAY_QUEUE_RUN, i % 2 ? here : there,
                         i % 2 ? there : here, bytes);
        request.after = &last;
        request.n_after = i > 0;
        last = start(device, &request, &outcomes[i]);
    }
    for (i = 0; i < 2 * STEPS; i++) {
        settle(device, &outcomes[i]);
        NEED(outcomes[i].status == INLAY_OK);
    }
    for (i = 1; computes && i <= STEPS; i++) NEED(memcmp(at[i], at[0], bytes) == 0);
    for (i = 0; i <= STEPS; i++) free(at[i]);
    driver->release(device, memory);
    driver->close(device);
    NEED(live == 0);
}

/* A driver that knows when a request began and ended says so before it tells the end. */
static void test_times(void)
{
    inlay_device_t *device = open_one();
    inlay_memory_t *memory = memory_of(device, 0, 1 << 20);
    uint8_t *bytes = calloc(1, 1 << 20);
    int64_t times[4][2], before = now(NULL), after;
    outcome_t outcomes[4];
    int i;
    memset(times, 0, sizeof times);
    for (i = 0; i < 4; i++) {
        inlay_request_t request =
            copy_request(INLAY_QUEUE_COPY, on_device(memory, 0), on_host(bytes), 1 << 20);
        request.times = times[i];
        start(device, &request, &outcomes[i]);
    }
    for (i = 0; i < 4; i++) settle(device, &outcomes[i]);
    after = now(NULL);
    for (i = 0; i < 4 && times[i][1]; i++) {
        /* Clocks are compared to about the time of a call. */
        NEED(before - 10000000 <= times[i][0] && times[i][0] <= times[i][1]);
        NEED(times[i][1] <= after + 10000000);
        NEED(i == 0 || times[i - 1][1] <= times[i][0]);
    }
    NEED(i == 0 || i == 4);
    free(bytes);
    driver->release(device, memory);
    driver->close(device);
    NEED(live == 0);
}

static void fill(int32_t *x, int n)
{
    int i;
    for (i = 0; i < n; i++) x[i] = i * 37 % 101 - 50;
}

static void test_launch(void)
{
    static const int sizes[] = {1, 2, 63, 64, 65, 1000};
    static const int items[] = {1, 3, 64, 4096};
    inlay_device_t *device = open_one();
    inlay_program_t *program = program_of(device);
    /* Both operands in one object, at offsets that are multiples of an element only. */
    inlay_memory_t *memory = memory_of(device, 0, 9000);
    int32_t in[1000], out[1000];
    size_t i, j;
    int k;
    fill(in, 1000);
    for (i = 0; i < 6; i++)
        for (j = 0; j < 4; j++) {
            const size_t bytes = (size_t)sizes[i] * 4;
            outcome_t outcome;
            launch_t launch;
            make_launch(&launch, device, program, "affine", INLAY_QUEUE_RUN, on_device(memory, 4),
                        on_device(memory, 4500), sizes[i]);
            launch.items[0] = items[j];
            copy_now(device, on_device(memory, 4), on_host(in), bytes);
            start(device, &launch.request, &outcome);
            settle(device, &outcome);
            NEED(outcome.status == INLAY_OK);
            copy_now(device, on_host(out), on_device(memory, 4500), bytes);
            for (k = 0; computes && k < sizes[i]; k++) NEED(out[k] == 3 * in[k] + 1);
        }
    NEED(!computes || driver->find(device, program, "nothing", 1) < 0);
    NEED(!computes || driver->find(device, program, "affine", 2) < 0);
    driver->release(device, memory);
    driver->unload(device, program);
    driver->close(device);
    NEED(live == 0);
}

static void test_phases(void)
{
    enum { N = 300 };
    inlay_device_t *device = open_one();
    inlay_program_t *program = program_of(device);
    inlay_memory_t *x = memory_of(device, 0, N * 4), *y = memory_of(device, 0, N * 4);
    inlay_memory_t *workspace = memory_of(device, 0, 4096);
    int32_t in[N], out[N], sum = 0;
    outcome_t outcome;
    launch_t launch;
    int k;
    fill(in, N);
    for (k = 0; k < N; k++) sum += 2 * in[k];
    make_launch(&launch, device, program, "affine", INLAY_QUEUE_RUN, on_device(x, 0),
                on_device(y, 0), N);
    launch.buffers[2] = on_device(workspace, 64);
    launch.items[0] = N;
    launch.items[1] = 1;
    launch.items[2] = N;
    launch.request.n_buffers = 3;
    launch.request.n_phases = 3;
    launch.request.kernel = (uint32_t)driver->find(device, program, "phases", 3);
    copy_now(device, on_device(x, 0), on_host(in), sizeof in);
    start(device, &launch.request, &outcome);
    settle(device, &outcome);
    NEED(outcome.status == INLAY_OK);
    copy_now(device, on_host(out), on_device(y, 0), sizeof out);
    for (k = 0; computes && k < N; k++) NEED(out[k] == 2 * in[k] + sum);
    launch.items[0] = launch.items[1] = launch.items[2] = 0; /* nothing to do, and it ends */
    start(device, &launch.request, &outcome);
    settle(device, &outcome);
    NEED(outcome.status == INLAY_OK);
    driver->release(device, x);
    driver->release(device, y);
    driver->release(device, workspace);
    driver->unload(device, program);
    driver->close(device);
    NEED(live == 0);
}

/* Without a wait: copy in, three launches, copy out. */
static void test_order_in_a_queue(void)
{
    enum { N = 5000, ROUNDS = 20 };
    inlay_device_t *device = open_one();
    inlay_program_t *program = program_of(device);
    inlay_memory_t *a = memory_of(device, 0, N * 4), *b = memory_of(device, 0, N * 4);
    static int32_t in[N], out[ROUNDS][N];
    outcome_t outcomes[ROUNDS][5];
    int r, k;
    fill(in, N);
    for (r = 0; r < ROUNDS; r++) {
        launch_t there, back;
        make_launch(&there, device, program, "affine", INLAY_QUEUE_RUN, on_device(a, 0),
                    on_device(b, 0), N);
        make_launch(&back, device, program, "affine", INLAY_QUEUE_RUN, on_device(b, 0),
                    on_device(a, 0), N);
        copy(device, INLAY_QUEUE_RUN, on_device(a, 0), on_host(in), sizeof in, &outcomes[r][0]);
        start(device, &there.request, &outcomes[r][1]);
        start(device, &back.request, &outcomes[r][2]);
        start(device, &there.request, &outcomes[r][3]);
        copy(device, INLAY_QUEUE_RUN, on_host(out[r]), on_device(b, 0), sizeof in, &outcomes[r][4]);
    }
    for (r = 0; r < ROUNDS; r++)
        for (k = 0; k < 5; k++) {
            settle(device, &outcomes[r][k]);
            NEED(outcomes[r][k].told == 1 && outcomes[r][k].status == INLAY_OK);
        }
    for (r = 0; computes && r < ROUNDS; r++)
        for (k = 0; k < N; k++) NEED(out[r][k] == 27 * in[k] + 13);
    driver->release(device, a);
    driver->release(device, b);
    driver->unload(device, program);
    driver->close(device);
    NEED(live == 0);
}

/* Two buffers that copies and launches use in turn, ordered by tickets alone; over all units. */
static void test_waits_across_queues(void)
{
    enum { N = 2000, ROUNDS = 60 };
    inlay_device_t *device = open_one();
    inlay_device_facts_t facts;
    inlay_program_t *program = program_of(device);
    inlay_memory_t *x[2], *y[2];
    static int32_t in[ROUNDS][N], out[ROUNDS][N];
    outcome_t outcomes[ROUNDS][3];
    inlay_ticket_t read[2] = {{0, 0}, {0, 0}};
    int r, k;
    driver->facts(device, &facts);
    for (k = 0; k < 2; k++) {
        x[k] = memory_of(device, 0, N * 4);
        y[k] = memory_of(device, 0, N * 4);
    }
    for (r = 0; r < ROUNDS; r++) {
        const uint32_t unit = (uint32_t)r % facts.units * facts.queues_per_unit;
        const uint32_t next = (uint32_t)(r + 1) % facts.units * facts.queues_per_unit;
        const int s = r % 2;
        inlay_request_t request;
        inlay_ticket_t after[2], ticket;
        launch_t launch;
        for (k = 0; k < N; k++) in[r][k] = r * 1000 + k;
        /* A buffer may be written when what read it two rounds ago has ended. */
        request = copy_request(unit + INLAY_QUEUE_COPY, on_device(x[s], 0), on_host(in[r]), N * 4);
        after[0] = read[s];
        request.after = after;
        request.n_after = 1;
        ticket = start(device, &request, &outcomes[r][0]);
        make_launch(&launch, device, program, "affine", unit + INLAY_QUEUE_RUN, on_device(x[s], 0),
                    on_device(y[s], 0), N);
        after[0] = ticket;
        after[1] = read[s];
        launch.request.after = after;
        launch.request.n_after = 2;
        ticket = start(device, &launch.request, &outcomes[r][1]);
        request = copy_request(next + INLAY_QUEUE_COPY, on_host(out[r]), on_device(y[s], 0), N * 4);
        after[0] = ticket;
        request.after = after;
        request.n_after = 1;
        read[s] = start(device, &request, &outcomes[r][2]);
    }
    for (r = 0; r < ROUNDS; r++)
        for (k = 0; k < 3; k++) {
            settle(device, &outcomes[r][k]);
            NEED(outcomes[r][k].status == INLAY_OK);
        }
    for (r = 0; computes && r < ROUNDS; r++)
        for (k = 0; k < N; k++) NEED(out[r][k] == 3 * in[r][k] + 1);
    for (k = 0; k < 2; k++) {
        driver->release(device, x[k]);
        driver->release(device, y[k]);
    }
    driver->unload(device, program);
    driver->close(device);
    NEED(live == 0);
}

static void test_assertions(void)
{
    enum { N = 100 };
    inlay_device_t *device = open_one();
    inlay_program_t *program = program_of(device);
    inlay_memory_t *t = memory_of(device, 0, N * 8), *y = memory_of(device, 0, N * 8);
    int64_t in[N], cases[3][2] = {{0, 0}, {-1, 1}, {N, 2}};
    int c, k;
    for (c = 0; c < 6; c++) {
        outcome_t outcome;
        launch_t launch;
        for (k = 0; k < N; k++) in[k] = k;
        in[N / 2] = cases[c % 3][0];
        if (c > 2 && c % 3) in[N - 1] = -5; /* of two that fail, the least number is told */
        copy_now(device, on_device(t, 0), on_host(in), sizeof in);
        make_launch(&launch, device, program, "checked", INLAY_QUEUE_RUN, on_device(t, 0),
                    on_device(y, 0), N);
        start(device, &launch.request, &outcome);
        settle(device, &outcome);
        if (!computes) continue;
        NEED(outcome.answer == (c > 2 && c % 3 ? 1 : cases[c % 3][1]));
        NEED(outcome.status == (outcome.answer ? INLAY_CHECK_FAILED : INLAY_OK));
    }
    driver->release(device, t);
    driver->release(device, y);
    driver->unload(device, program);
    driver->close(device);
    NEED(live == 0);
}

static void test_wrong_requests(void)
{
    inlay_device_t *device = open_one();
    inlay_memory_t *memory = memory_of(device, 0, 64);
    inlay_ticket_t ticket = {0, 0}, unknown = {INLAY_QUEUE_RUN, 12345};
    uint8_t bytes[64] = {0};
    inlay_request_t request = copy_request(99, on_device(memory, 0), on_host(bytes), 64);
    outcome_t outcome;
    outcome.told = 0;
    request.done = done;
    request.argument = &outcome;
    NEED(driver->start(device, &request, &ticket, message, sizeof message) == INLAY_BAD_ARGUMENT);
    request.queue = INLAY_QUEUE_COPY;
    if (computes) {
        request.to.offset = 1;
        NEED(driver->start(device, &request, &ticket, message, sizeof message) ==
             INLAY_BAD_ARGUMENT);
        request.to.offset = SIZE_MAX;
        NEED(driver->start(device, &request, &ticket, NULL, 0) == INLAY_BAD_ARGUMENT);
        request.to.offset = 0;
        request.after = &unknown;
        request.n_after = 1;
        NEED(driver->start(device, &request, &ticket, message, sizeof message) ==
             INLAY_BAD_ARGUMENT);
    }
    NEED(outcome.told == 0);
    copy_now(device, on_device(memory, 0), on_host(bytes), 64); /* still usable */
    driver->release(device, memory);
    driver->close(device);
    NEED(live == 0);
}

/* Everything is given back while requests use it; closing waits for them. */
static void test_release_in_flight(void)
{
    enum { N = 3000, ROUNDS = 30 };
    static int32_t in[N], out[ROUNDS][N];
    inlay_device_t *device = open_one();
    inlay_program_t *program = program_of(device);
    outcome_t outcomes[ROUNDS][3];
    int r, k;
    fill(in, N);
    for (r = 0; r < ROUNDS; r++) {
        inlay_memory_t *x = memory_of(device, 0, N * 4), *y = memory_of(device, 0, N * 4);
        launch_t launch;
        copy(device, INLAY_QUEUE_RUN, on_device(x, 0), on_host(in), sizeof in, &outcomes[r][0]);
        make_launch(&launch, device, program, "slow", INLAY_QUEUE_RUN, on_device(x, 0),
                    on_device(y, 0), N);
        launch.ints[1] = 40;
        launch.request.n_ints = 2;
        start(device, &launch.request, &outcomes[r][1]);
        copy(device, INLAY_QUEUE_RUN, on_host(out[r]), on_device(y, 0), sizeof in, &outcomes[r][2]);
        driver->release(device, x);
        driver->release(device, y);
    }
    driver->unload(device, program);
    driver->close(device);
    for (r = 0; r < ROUNDS; r++)
        for (k = 0; k < 3; k++)
            NEED(outcomes[r][k].told == 1 && outcomes[r][k].status == INLAY_OK);
    for (r = 1; computes && r < ROUNDS; r++) NEED(memcmp(out[r], out[0], sizeof in) == 0);
    for (k = 0; computes && k < N; k++) {
        uint32_t y = 0, s;
        for (s = 0; s < 40; s++) y = 5 * y + (uint32_t)in[k];
        NEED((uint32_t)out[0][k] == y);
    }
    NEED(live == 0);
}

static void test_wait(void)
{
    inlay_device_t *device = open_one();
    inlay_memory_t *memory = memory_of(device, 0, 1 << 20);
    static uint8_t in[1 << 20], out[1 << 20];
    outcome_t outcomes[3];
    inlay_request_t back;
    inlay_ticket_t first, second, last;
    memset(in, 7, sizeof in);
    first = copy(device, INLAY_QUEUE_COPY, on_device(memory, 0), on_host(in), sizeof in,
                 &outcomes[0]);
    second = copy(device, INLAY_QUEUE_COPY, on_device(memory, 0), on_host(in), sizeof in,
                  &outcomes[1]);
    back = copy_request(INLAY_QUEUE_RUN, on_host(out), on_device(memory, 0), sizeof out);
    back.after = &second;
    back.n_after = 1;
    last = start(device, &back, &outcomes[2]);
    driver->wait(device, last);
    NEED(outcomes[2].told == 1);
    driver->wait(device, second);
    driver->wait(device, first);
    driver->wait(device, last);
    NEED(outcomes[0].told == 1 && outcomes[1].told == 1);
    NEED(!computes || memcmp(in, out, sizeof in) == 0);
    driver->release(device, memory);
    driver->close(device);
    NEED(live == 0);
}

static void test_many_in_flight(void)
{
    enum { MANY = 600 };
    static outcome_t outcomes[MANY];
    static int32_t in[MANY], out[MANY];
    inlay_device_t *device = open_one();
    inlay_memory_t *memory = memory_of(device, 0, MANY * 4);
    inlay_ticket_t last = {0, 0};
    int i;
    for (i = 0; i < MANY; i++) {
        in[i] = i;
        last = copy(device, INLAY_QUEUE_COPY, on_device(memory, (size_t)i * 4), on_host(&in[i]), 4,
                    &outcomes[i]);
        NEED(last.number == (uint64_t)i + 1);
    }
    for (i = 0; i < MANY; i++) settle(device, &outcomes[i]);
    for (i = 0; i < MANY; i++) NEED(outcomes[i].told == 1 && outcomes[i].status == INLAY_OK);
    {
        inlay_request_t request = copy_request(INLAY_QUEUE_RUN, on_host(out), on_device(memory, 0),
                                               sizeof out);
        outcome_t outcome;
        request.after = &last; /* long over */
        request.n_after = 1;
        start(device, &request, &outcome);
        settle(device, &outcome);
        NEED(!computes || memcmp(in, out, sizeof in) == 0);
    }
    driver->release(device, memory);
    driver->close(device);
    NEED(live == 0);
}

static void test_reload(void)
{
    inlay_device_t *device = open_one();
    int r;
    for (r = 0; r < 3; r++) {
        inlay_program_t *a = program_of(device), *b = program_of(device);
        NEED(driver->find(device, a, "affine", 1) >= 0);
        driver->unload(device, a);
        NEED(driver->find(device, b, "affine", 1) >= 0);
        NEED(driver->find(device, b, "phases", 3) >= 0);
        driver->unload(device, b);
    }
    if (computes) {
        static const char wrong[] = "this is no program of any device";
        inlay_program_t *program = NULL;
        message[0] = '\0';
        NEED(driver->load(device, wrong, sizeof wrong - 1, &program, message, sizeof message) ==
             INLAY_BUILD_FAILED);
        NEED(message[0] && program == NULL);
    }
    driver->close(device);
    NEED(live == 0);
}

static void test_two_at_once(void)
{
    inlay_device_t *a = open_one(), *b = open_one();
    inlay_memory_t *on_a = memory_of(a, 0, 64), *on_b = memory_of(b, 0, 64);
    uint8_t in[64], out[64];
    memset(in, 17, sizeof in);
    copy_now(a, on_device(on_a, 0), on_host(in), 64);
    copy_now(a, on_host(out), on_device(on_a, 0), 64);
    copy_now(b, on_device(on_b, 0), on_host(out), 64);
    memset(out, 0, sizeof out);
    copy_now(b, on_host(out), on_device(on_b, 0), 64);
    NEED(!computes || memcmp(in, out, 64) == 0);
    driver->release(a, on_a);
    driver->close(a);
    driver->release(b, on_b);
    driver->close(b);
    NEED(live == 0);
}

/* Requests from several threads, of one kernel: none takes another's arguments. */
enum { THREADS = 4, EACH = 40, PIECE = 256 };

typedef struct worker {
    pthread_t thread;
    inlay_device_t *device;
    inlay_program_t *program;
    int seed, right;
} worker_t;

static void *work(void *argument)
{
    worker_t *w = argument;
    int32_t in[PIECE], out[PIECE];
    inlay_memory_t *x = memory_of(w->device, 0, sizeof in), *y = memory_of(w->device, 0, sizeof in);
    int r, k;
    w->right = 1;
    for (r = 0; r < EACH; r++) {
        outcome_t outcomes[3];
        inlay_ticket_t after;
        inlay_request_t back;
        launch_t launch;
        for (k = 0; k < PIECE; k++) in[k] = w->seed * 100000 + r * 300 + k;
        after = copy(w->device, INLAY_QUEUE_COPY, on_device(x, 0), on_host(in), sizeof in,
                     &outcomes[0]);
        make_launch(&launch, w->device, w->program, "affine", INLAY_QUEUE_RUN, on_device(x, 0),
                    on_device(y, 0), PIECE);
        launch.request.after = &after;
        launch.request.n_after = 1;
        after = start(w->device, &launch.request, &outcomes[1]);
        back = copy_request(INLAY_QUEUE_COPY, on_host(out), on_device(y, 0), sizeof out);
        back.after = &after;
        back.n_after = 1;
        start(w->device, &back, &outcomes[2]);
        for (k = 0; k < 3; k++) settle(w->device, &outcomes[k]);
        for (k = 0; computes && k < PIECE; k++) w->right &= out[k] == 3 * in[k] + 1;
    }
    driver->release(w->device, x);
    driver->release(w->device, y);
    return NULL;
}

static void test_threads(void)
{
    worker_t workers[THREADS];
    inlay_device_t *device = open_one();
    inlay_program_t *program = program_of(device);
    int i;
    for (i = 0; i < THREADS; i++) {
        workers[i].device = device;
        workers[i].program = program;
        workers[i].seed = i;
        /* A device that is driven by whoever waits takes one thread at a time. */
        if (driver->progress)
            work(&workers[i]);
        else
            NEED(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    }
    for (i = 0; i < THREADS; i++) {
        if (!driver->progress) pthread_join(workers[i].thread, NULL);
        NEED(workers[i].right);
    }
    driver->unload(device, program);
    driver->close(device);
    NEED(live == 0);
}

/* Two devices whose memory is that of the process read one memory at once, and each counts itself. */
enum { TURNS = 800 };

typedef struct reader {
    pthread_t thread;
    inlay_device_t *device;
    inlay_memory_t *from, *to;
    int right;
} reader_t;

static void *read_again(void *argument)
{
    reader_t *r = argument;
    outcome_t outcomes[8];
    int n, k;
    r->right = 1;
    for (n = 0; n < TURNS / 8; n++) {
        for (k = 0; k < 8; k++)
            copy(r->device, INLAY_QUEUE_COPY, on_device(r->to, 0), on_device(r->from, 0), 64, &outcomes[k]);
        for (k = 0; k < 8; k++) {
            settle(r->device, &outcomes[k]);
            r->right &= outcomes[k].status == INLAY_OK;
        }
    }
    return NULL;
}

static void test_memory_of_another_device(void)
{
    reader_t readers[2];
    inlay_memory_t *shared;
    uint8_t in[64], out[64];
    int i;
    if (driver != &inlay_driver_native) return; /* others copy through the host */
    for (i = 0; i < 2; i++) readers[i].device = open_one();
    shared = memory_of(readers[0].device, 0, 64);
    memset(in, 23, sizeof in);
    copy_now(readers[0].device, on_device(shared, 0), on_host(in), 64);
    for (i = 0; i < 2; i++) {
        readers[i].from = shared;
        readers[i].to = memory_of(readers[i].device, 0, 64);
        NEED(pthread_create(&readers[i].thread, NULL, read_again, &readers[i]) == 0);
    }
    for (i = 0; i < 2; i++) pthread_join(readers[i].thread, NULL);
    for (i = 0; i < 2; i++) {
        memset(out, 0, sizeof out);
        copy_now(readers[i].device, on_host(out), on_device(readers[i].to, 0), 64);
        NEED(readers[i].right && memcmp(in, out, 64) == 0);
        driver->release(readers[i].device, readers[i].to);
    }
    driver->release(readers[0].device, shared);
    for (i = 0; i < 2; i++) driver->close(readers[i].device);
    NEED(live == 0);
}

/* A host that refuses the n-th allocation, for every n: a status each time, and nothing is lost. */
static void test_refused_memory(void)
{
    long n;
    int whole = 0;
    for (n = 0; !whole; n++) {
        inlay_device_t *device = NULL;
        inlay_program_t *program = NULL;
        inlay_memory_t *x = NULL;
        inlay_status_t status;
        uint8_t bytes[64] = {0};
        allowance = n;
        status = driver->open(&host, options, &device, message, sizeof message);
        NEED(status == INLAY_OK || (status == INLAY_OUT_OF_MEMORY && !device));
        if (device) {
            status = driver->load(device, image, image_bytes, &program, message, sizeof message);
            NEED(status == INLAY_OK || (status == INLAY_OUT_OF_MEMORY && !program));
            status = driver->allocate(device, 0, 64, &x, message, sizeof message);
            NEED(status == INLAY_OK || (status == INLAY_OUT_OF_MEMORY && !x));
        }
        if (program && x && driver->find(device, program, "affine", 1) >= 0) {
            inlay_request_t request = copy_request(INLAY_QUEUE_COPY, on_device(x, 0),
                                                   on_host(bytes), 64);
            inlay_ticket_t ticket;
            outcome_t outcome;
            outcome.told = 0;
            request.done = done;
            request.argument = &outcome;
            status = driver->start(device, &request, &ticket, message, sizeof message);
            NEED(status == INLAY_OK || status == INLAY_OUT_OF_MEMORY);
            whole = status == INLAY_OK;
            if (whole) settle(device, &outcome);
        }
        allowance = -1;
        if (x) driver->release(device, x);
        if (program) driver->unload(device, program);
        if (device) driver->close(device);
        NEED(live == 0 && n < 100);
    }
}

/* ------------------------------------------------------------------------------------- main */

static void read_image(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text;
    NEED(file != NULL);
    fseek(file, 0, SEEK_END);
    image_bytes = (size_t)ftell(file);
    rewind(file);
    text = malloc(image_bytes + 1);
    NEED(fread(text, 1, image_bytes, file) == image_bytes);
    fclose(file);
    image = text;
}

int main(int count, char **words)
{
    static const inlay_driver_t *const drivers[] = {
        &inlay_driver_null,   &inlay_driver_host,   &inlay_driver_opencl,
        &inlay_driver_native, &inlay_driver_remote,
    };
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {
        {"options", test_options},
        {"facts", test_facts},
        {"memory", test_memory},
        {"copies", test_copies},
        {"copies through the host", test_copies_through_the_host},
        {"times", test_times},
        {"launch", test_launch},
        {"phases", test_phases},
        {"order in a queue", test_order_in_a_queue},
        {"waits across queues", test_waits_across_queues},
        {"assertions", test_assertions},
        {"wrong requests", test_wrong_requests},
        {"release in flight", test_release_in_flight},
        {"wait", test_wait},
        {"many in flight", test_many_in_flight},
        {"reload", test_reload},
        {"two at once", test_two_at_once},
        {"threads", test_threads},
        {"memory of another device", test_memory_of_another_device},
        {"refused memory", test_refused_memory},
    };
    size_t i;
    if (count < 3) return 2;
    /* `remote-null` is a remote device behind which nothing computes. */
    for (i = 0; i < sizeof drivers / sizeof drivers[0]; i++)
        if (strncmp(drivers[i]->name, words[1], strlen(drivers[i]->name)) == 0) driver = drivers[i];
    if (!driver) return 2;
    options = words[2];
    computes = strstr(words[1], "null") == NULL;
    image = kernels;
    image_bytes = kernels_bytes;
    if (count > 3) read_image(words[3]);
    host.allocate = take;
    host.release = give;
    host.now = now;
    host.event = watch;
    setbuf(stdout, NULL);
    for (i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        message[0] = '\0';
        tests[i].run();
        printf("passed %s\n", tests[i].name);
    }
    if (count > 3) free((void *)(size_t)image);
    return 0;
}
