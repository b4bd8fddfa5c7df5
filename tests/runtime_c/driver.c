/* Runs executables under sanitizers, without Python.
 *
 *     driver LIMIT[,MODE,SEED[,FLOW[,KIND,NTH[,MAPS[,SPARE]]]]] file...
 *
 * For each file: load it, call its first entry on fixed inputs, print one line with the status and
 * the bytes of the results. With LIMIT > 0, the host refuses memory from the LIMIT-th request on,
 * for LIMIT, LIMIT + 1, ... until a run asks for less. MODE is that of inlay_mode_t; in parallel mode
 * callbacks run on the workers of a pool, and with a SEED there is no race detector, so that whole calls
 * do. With FLOW, callbacks are those of generate_flow.py; with FLOW 2 a device of another thread ends them
 * later, in any order. In builds
 * with the race detector, KIND says how a plan is made wrong the NTH time that it can be; then the
 * line begins with "spoiled". With MAPS native code is there; 2 asks the system for what it needs, 3
 * refuses, and 1 does not ask. With SPARE inputs are copies that the call may write over, where their
 * results may stay. Whatever the file holds, this must neither
 * read nor write out of bounds, nor leak, nor hang. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "inlay_driver.h"
#include "inlay_rt.h"
#include "machine.h"
#include "platform/permission.h"
#include "platform/posix.h"

#define MOST_BYTES ((size_t)256 << 20)

/* A kernel that the device was asked for. */
typedef struct asked {
    struct asked *next;
    void *ticket;
    const inlay_tensor_t *tensors;
    uint32_t kernel;
    int64_t k;
} asked_t;

typedef struct device {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t news;
    asked_t *asked;
    unsigned n, random;
    int stop;
} device_t;

typedef struct tester {
    device_t device;
    pthread_mutex_t lock;
    inlay_posix_t *posix;
    unsigned mode, is_flow;
    unsigned long long seed;
    int kind, nth; /* of sabotage */
    int maps;      /* native code: 1 without a function that asks for leave, 2 with one, 3 with one that refuses */
    int is_spare;
    size_t bytes;  /* in use */
    long requests, limit;
    int polls;
} tester_t;

static void *take(void *user, size_t bytes, size_t align)
{
    tester_t *t = user;
    void *memory = NULL;
    pthread_mutex_lock(&t->lock);
    t->requests++;
    if (!(t->limit && t->requests >= t->limit) && bytes <= MOST_BYTES - t->bytes &&
        posix_memalign(&memory, align, bytes) == 0)
        t->bytes += bytes;
    else
        memory = NULL;
    pthread_mutex_unlock(&t->lock);
    return memory;
}

static void give(void *user, void *memory, size_t bytes, size_t align)
{
    tester_t *t = user;
    (void)align;
    pthread_mutex_lock(&t->lock);
    t->bytes -= bytes;
    pthread_mutex_unlock(&t->lock);
    free(memory);
}

static int poll(void *user) { return ++((tester_t *)user)->polls > 2000; }

static void *lock_open(void *user) { return inlay_posix_threads.open(((tester_t *)user)->posix); }
static void lock_close(void *user, void *lock) { (void)user, inlay_posix_threads.close(NULL, lock); }
static void lock_take(void *user, void *lock) { (void)user, inlay_posix_threads.lock(NULL, lock); }
static void lock_give(void *user, void *lock) { (void)user, inlay_posix_threads.unlock(NULL, lock); }
static void lock_wait(void *user, void *lock, int64_t ns)
{
    inlay_posix_threads.wait(((tester_t *)user)->posix, lock, ns);
}
static void lock_wake(void *user, void *lock)
{
    inlay_posix_threads.wake(((tester_t *)user)->posix, lock);
}
static void offer(void *user, inlay_job_t *job)
{
    inlay_posix_threads.offer(((tester_t *)user)->posix, job);
}
static void withdraw(void *user, inlay_job_t *job)
{
    inlay_posix_threads.withdraw(((tester_t *)user)->posix, job);
}
static const inlay_threads_t threads = {lock_open, lock_close, lock_take, lock_give, lock_wait,
                                        lock_wake, offer,      withdraw};

static int64_t elements(const inlay_tensor_t *t)
{
    int64_t n = 1;
    uint32_t i;
    for (i = 0; i < t->rank; i++) n *= t->dims[i];
    return n;
}

static int64_t load(const inlay_tensor_t *t, int64_t i)
{
    switch (t->dtype) {
    case INLAY_I64: return ((const int64_t *)t->data)[i];
    case INLAY_F32: return (int64_t)((const float *)t->data)[i];
    case INLAY_U8: return ((const uint8_t *)t->data)[i];
    default: return 0;
    }
}

static void store(const inlay_tensor_t *t, int64_t i, int64_t value)
{
    switch (t->dtype) {
    case INLAY_I64: ((int64_t *)t->data)[i] = value; break;
    case INLAY_F32: ((float *)t->data)[i] = (float)value; break;
    case INLAY_U8: ((uint8_t *)t->data)[i] = (uint8_t)value; break;
    default: break;
    }
}

static int64_t modulo(int64_t a, int64_t b) { return (a % b + b) % b; }

static int64_t add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }

/* The callbacks of generate_flow.py. */
static inlay_status_t flow_kernel(uint32_t index, const inlay_tensor_t *tensors, int64_t k,
                                  char *message, size_t message_bytes)
{
    const int64_t *source = tensors[0].data;
    int64_t values[3], total = 0, *out = tensors[1].data;
    int i;
    /* Where a plan was made wrong they read what was never written. */
    for (i = 0; i < 3; i++)
        values[i] = index == 0 ? modulo(add(add(out[i] % 1009 * 3, source[2 - i]), k), 1009)
                               : add(source[i], k);
    for (i = 0; i < 3; i++) total = add(total, values[i]);
    if (index == 1 && modulo(total, 37) == 7) {
        snprintf(message, message_bytes, "broken %" PRId64, total);
        return INLAY_KERNEL_FAILED;
    }
    for (i = 0; i < 3; i++) out[i] = values[i];
    return INLAY_OK;
}

/* The callbacks of generate.py. */
static inlay_status_t kernel(void *user, uint32_t index, const inlay_tensor_t *tensors,
                             uint32_t n_tensors, const int64_t *ints, uint32_t n_ints,
                             char *message, size_t message_bytes)
{
    const inlay_tensor_t *out = tensors + n_tensors - 1;
    int64_t i, k = n_ints ? ints[0] : 0, total = 0;
    if (((tester_t *)user)->is_flow)
        return flow_kernel(index, tensors, k, message, message_bytes);
    if (!n_tensors) return INLAY_OK;
    if (n_tensors == 1) {
        for (i = 0; i < elements(out); i++) store(out, i, modulo(i * 7 + k % 50, 50));
        return INLAY_OK;
    }
    for (i = 0; i < elements(tensors); i++) total = modulo(total + load(tensors, i) % 97, 97);
    for (i = 0; i < elements(out); i++)
        store(out, i, modulo(load(out, i) % 50 + total + k % 50, 50));
    return INLAY_OK;
}

static unsigned next_random(device_t *d) { return (d->random = d->random * 1103515245u + 12345u) >> 16; }

/* End what was asked for: any of it, now and then after a while. */
static void *play(void *argument)
{
    device_t *d = argument;
    pthread_mutex_lock(&d->lock);
    for (;;) {
        char message[INLAY_MESSAGE_BYTES] = "";
        struct timespec pause = {0, 50000};
        asked_t **at = &d->asked, *a;
        inlay_status_t status;
        unsigned skip;
        while (!d->asked && !d->stop) pthread_cond_wait(&d->news, &d->lock);
        if (!d->asked) break;
        for (skip = next_random(d) % d->n; skip; skip--) at = &(*at)->next;
        a = *at;
        *at = a->next;
        d->n--;
        skip = next_random(d) % 8;
        pthread_mutex_unlock(&d->lock);
        if (!skip) nanosleep(&pause, NULL);
        status = flow_kernel(a->kernel, a->tensors, a->k, message, sizeof message);
        inlay_complete(a->ticket, status, message);
        free(a);
        pthread_mutex_lock(&d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

static inlay_status_t start(void *user, void *ticket, uint32_t index, const inlay_tensor_t *tensors,
                            uint32_t n_tensors, const int64_t *ints, uint32_t n_ints, char *message,
                            size_t message_bytes)
{
    device_t *d = &((tester_t *)user)->device;
    int64_t k = n_ints ? ints[0] : 0;
    asked_t *a = malloc(sizeof *a);
    unsigned how;
    (void)n_tensors;
    if (!a) exit(2);
    a->ticket = ticket;
    a->tensors = tensors;
    a->kernel = index;
    a->k = k;
    pthread_mutex_lock(&d->lock);
    how = next_random(d) % 8;
    if (how > 1) {
        a->next = d->asked;
        d->asked = a;
        d->n++;
        pthread_cond_signal(&d->news);
    }
    pthread_mutex_unlock(&d->lock);
    if (how > 1) return INLAY_PENDING;
    free(a);
    if (how == 0) return flow_kernel(index, tensors, k, message, message_bytes);
    inlay_complete(ticket, flow_kernel(index, tensors, k, message, message_bytes), message);
    return INLAY_PENDING;
}

static void print_results(const inlay_host_t *host, inlay_result_t *results, uint32_t n)
{
    static const uint8_t sizes[INLAY_DTYPES] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 8};
    uint32_t i, k;
    for (i = 0; i < n; i++) {
        size_t bytes = sizes[results[i].dtype], at;
        printf(" %" PRIu32 ":", results[i].dtype);
        for (k = 0; k < results[i].rank; k++) {
            bytes *= (size_t)results[i].dims[k];
            printf("%" PRId64 ",", results[i].dims[k]);
        }
        printf(":");
        for (at = 0; at < bytes; at++) printf("%02x", ((const uint8_t *)results[i].data)[at]);
        inlay_result_release(host, &results[i]);
    }
}

/* Call an entry with structure on fixed tensors and counts; print counts and results. */
static inlay_status_t run_structured(const inlay_host_t *host, inlay_activation_t *activation,
                                     inlay_error_t *error, int silent)
{
    static int64_t x[3] = {1, 2, 3};
    static float y[6] = {0, 1, 2, 3, 4, 5};
    static const int64_t x_dims[1] = {3}, y_dims[2] = {2, 3}, z_dims[2] = {1, 3};
    static const int64_t counts[2] = {2, 1};
    const inlay_tensor_t tensors[4] = {{x, INLAY_I64, 1, x_dims},
                                       {y, INLAY_F32, 2, y_dims},
                                       {y, INLAY_F32, 2, z_dims},
                                       {x, INLAY_I64, 1, x_dims}};
    inlay_values_t values;
    uint32_t i;
    inlay_status_t status =
        inlay_call_structured(activation, 0, tensors, 4, counts, 2, &values, error);
    if (inlay_activation_live(activation)) printf("LIVE ");
    if (status != INLAY_OK) return status;
    if (!silent) {
        printf("ok");
        for (i = 0; i < values.n_counts; i++) printf(" %" PRId64, values.counts[i]);
        print_results(host, values.tensors, values.n_tensors);
    }
    inlay_values_release(host, &values);
    return INLAY_OK;
}

/* Return a copy of the native code that may run; it stays until the end. */
static const void *copied_image(const uint8_t *data, size_t bytes)
{
    size_t at, size;
    inlay_error_t error;
    if (inlay_container_section(data, bytes, "IMAG", &at, &size, &error) != INLAY_OK) return NULL;
    return size ? inlay_posix_copy_code(data + at, size) : NULL;
}

static int refuse(void *user, const char *feature, size_t bytes)
{
    (void)user, (void)feature, (void)bytes;
    return 0;
}

/* Call with copies of the two inputs that may be written over; what comes back has memory of its own. */
static inlay_status_t call_spare(const inlay_host_t *host, inlay_activation_t *activation,
                                 const inlay_tensor_t *inputs, uint32_t n_inputs, inlay_result_t *results,
                                 uint32_t n_results, inlay_error_t *error)
{
    const size_t sizes[2] = {3 * sizeof(int64_t), 6 * sizeof(float)};
    inlay_tensor_t given[2];
    inlay_state_t states[2];
    inlay_status_t status;
    void *copies[2];
    uint32_t i, n = n_inputs < n_results ? n_inputs : n_results;
    for (i = 0; i < n_inputs; i++) {
        given[i] = inputs[i];
        given[i].data = copies[i] = malloc(sizes[i]); /* exactly as long */
        memcpy(copies[i], inputs[i].data, sizes[i]);
        states[i].input = states[i].result = i;
        states[i].room = sizes[i];
        states[i].is_spare = 1;
    }
    status = inlay_call_state(activation, 0, given, n_inputs, states, n, results, n_results, error);
    for (i = 0; i < n && status == INLAY_OK; i++)
        if (!results[i].block) {
            void *own = host->allocate(host->user, sizes[i], 64);
            if (!own) abort();
            memcpy(own, results[i].data, sizes[i]);
            results[i].data = results[i].block = own;
            results[i].block_bytes = sizes[i];
            results[i].block_align = 64;
        }
    for (i = 0; i < n_inputs; i++) free(copies[i]);
    return status;
}

static inlay_status_t run(const inlay_host_t *host, const uint8_t *data, size_t bytes, int silent)
{
    static int64_t x[3] = {1, 2, 3};
    static float y[6] = {0, 1, 2, 3, 4, 5};
    static const int64_t x_dims[1] = {3}, y_dims[2] = {2, 3};
    inlay_tensor_t inputs[2] = {{x, INLAY_I64, 1, x_dims}, {y, INLAY_F32, 2, y_dims}};
    const tester_t *tester = host->user;
    /* Of the hand-off: a thread keeps two callbacks for itself beside the one that it runs next. */
    inlay_config_t config = {(size_t)1 << 20, (size_t)1 << 20, 2, 3 * INLAY_COMMAND_NS, 0, 1, 0, 6, 4,
                             (size_t)1 << 20};
    inlay_result_t results[8];
    inlay_activation_t *activation;
    inlay_module_t *module;
    inlay_error_t error;
    uint32_t n_inputs, n_results, round;
    const void *image = tester->maps ? copied_image(data, bytes) : NULL;
    inlay_status_t status = inlay_module_open(data, bytes, image, 1, host, &module, &error);
    if (status != INLAY_OK) {
        if (!silent) printf("%s %s\n", inlay_status_id(status), error.message);
        return status;
    }
    config.checks = 1;
    config.races = INLAY_RACES && !(tester->mode == INLAY_PARALLEL && tester->seed);
    config.mode = tester->mode;
    config.seed = tester->seed;
    status = inlay_activation_create(module, host, &config, &activation);
    inlay_module_arity(module, 0, &n_inputs, &n_results);
    for (round = 0; status == INLAY_OK && round < 2; round++) {
#if INLAY_RACES
        if (round == 0) inlay_race_sabotage(activation, tester->kind, tester->nth);
#endif
        ((tester_t *)host->user)->polls = 0;
        status = (tester->is_spare && n_inputs <= 2 ? call_spare(host, activation, inputs, n_inputs, results,
                                                                 n_results < 8 ? n_results : 8, &error)
                                                    : inlay_call(activation, 0, inputs,
                                                                 n_inputs < 2 ? n_inputs : 2, results,
                                                                 n_results < 8 ? n_results : 8, &error));
        if (inlay_activation_live(activation)) printf("LIVE ");
#if INLAY_RACES
        if (!silent && tester->kind && !activation->issuer.race.countdown &&
            (round || status != INLAY_OK))
            printf("spoiled ");
#endif
        if (status == INLAY_BAD_ARGUMENT && strstr(error.message, "has structure")) {
            status = run_structured(host, activation, &error, silent);
            break;
        }
        if (status == INLAY_OK && silent)
            while (n_results) inlay_result_release(host, &results[--n_results]);
        if (status == INLAY_OK && !silent) {
            if (round) printf("ok");
            if (round) print_results(host, results, n_results);
            else for (n_inputs = 0; n_inputs < n_results; n_inputs++)
                inlay_result_release(host, &results[n_inputs]);
            inlay_module_arity(module, 0, &n_inputs, &n_results);
        }
        if (silent) break;
    }
    if (status != INLAY_OK && !silent) printf("%s %s", inlay_status_id(status), error.message);
    if (!silent) printf("\n");
    inlay_activation_destroy(activation);
    inlay_module_close(module);
    return status;
}

static uint8_t *read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data;
    long size;
    if (!file) exit(2);
    fseek(file, 0, SEEK_END);
    size = ftell(file);
    rewind(file);
    /* Exactly as long as the file, so that reading beyond it is seen. */
    data = malloc(size ? (size_t)size : 1);
    *bytes = fread(data, 1, (size_t)size, file);
    fclose(file);
    return data;
}

static int64_t now(void *user)
{
    struct timespec time;
    (void)user;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* One device: the one that the host plays. */
static const inlay_driver_t *find_driver(void *user, const char *name, size_t bytes)
{
    (void)user;
    if (bytes == 6 && memcmp(name, "native", 6) == 0) return &inlay_driver_native;
    return bytes == 4 && memcmp(name, "host", 4) == 0 ? &inlay_driver_host : NULL;
}

int main(int argc, char **argv)
{
    tester_t tester;
    inlay_host_t host = {&tester, take, give, NULL, kernel, NULL, poll, &threads};
    long limit = 0;
    int i;
    memset(&tester, 0, sizeof tester);
    host.driver = find_driver;
    host.now = now;
    pthread_mutex_init(&tester.lock, NULL);
    sscanf(argv[1], "%ld,%u,%llu,%u,%d,%d,%d,%d", &limit, &tester.mode, &tester.seed, &tester.is_flow,
           &tester.kind, &tester.nth, &tester.maps, &tester.is_spare);
    if (tester.maps > 1) host.permit = tester.maps == 2 ? inlay_posix_permit : refuse;
    tester.posix = inlay_posix_open(3);
    pthread_mutex_init(&tester.device.lock, NULL);
    pthread_cond_init(&tester.device.news, NULL);
    if (tester.is_flow == 2) {
        host.start = start;
        if (pthread_create(&tester.device.thread, NULL, play, &tester.device) != 0) return 2;
    }
    for (i = 2; i < argc; i++) {
        size_t bytes;
        uint8_t *data = read_file(argv[i], &bytes);
        if (!limit) run(&host, data, bytes, 0);
        for (tester.limit = limit; limit; tester.limit++) {
            tester.requests = 0;
            run(&host, data, bytes, 1);
            if (tester.requests < tester.limit) break;
        }
        if (tester.bytes) {
            printf("LEAK %zu bytes\n", tester.bytes);
            return 1;
        }
        tester.limit = 0;
        free(data);
    }
    if (tester.is_flow == 2) {
        pthread_mutex_lock(&tester.device.lock);
        tester.device.stop = 1;
        pthread_cond_signal(&tester.device.news);
        pthread_mutex_unlock(&tester.device.lock);
        pthread_join(tester.device.thread, NULL);
    }
    inlay_posix_close(tester.posix);
    return 0;
}
