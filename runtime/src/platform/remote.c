/* The driver of devices behind a server (serve.c), in another process or on another machine: see
 * inlay_driver.h, and wire.h for what the two say to each other.
 *
 * A device is one connection with a thread of its own, which alone touches the sockets of ZeroMQ.
 * Other threads put requests into the queues of the device, under its lock, and wake it. The thread
 * sends them as the bytes on the way and their tickets allow, takes answers in any order, and tells
 * `done`. Nothing is asked of the server that can be known here: facts came with the welcome, bounds
 * and tickets are checked where a request is started. `load`, `find` (the first time) and `allocate`
 * wait for an answer, so they cost a round trip and must not be called by `done`.
 *
 * A connection is lost when its peer goes away, is silent for too long or says what makes no sense.
 * Then the thread first ends the sockets, after which ZeroMQ reads no memory of requests any more;
 * only then everything in flight fails, and so does every later call. What the device held is gone,
 * so nothing is tried again behind the caller's back: whoever wants to go on opens another device.
 *
 * remote.c has the functions of the table, remote_start.c requests until they are sent,
 * remote_end.c how they end, remote_flight.c what both need, remote_link.c the thread. */
#define _POSIX_C_SOURCE 200809L
#include "platform/remote.h"
#include "sha256.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* ------------------------------------------------------------------------------------- opening */

static inlay_status_t refuse(const char *why, char *message, size_t bytes)
{
    if (bytes) snprintf(message, bytes, "%s", why);
    return INLAY_BAD_ARGUMENT;
}

/* Read a number up to the end of a word; false where it is none or out of range. */
static int read_number(const char *at, const char *end, int64_t least, int64_t most, int64_t *value)
{
    int64_t found = 0;
    if (at == end) return 0;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9' || found > most) return 0;
        found = found * 10 + (*at - '0');
    }
    *value = found;
    return found >= least && found <= most;
}

typedef struct options {
    char library[512], key[512];
    int64_t mebibytes;
} options_t;

static int read_option(inlay_device_t *device, options_t *options, const char *at, const char *end)
{
    const char *value = memchr(at, '=', (size_t)(end - at));
    size_t key, size;
    if (!value) return 0;
    key = (size_t)(value++ - at);
    size = (size_t)(end - value);
#define IS(word) (key == sizeof word - 1 && memcmp(at, word, key) == 0)
    if (IS("endpoint") && size < sizeof device->endpoint) {
        memcpy(device->endpoint, value, size);
        return size > 0;
    }
    if (IS("library") && size < sizeof options->library) {
        memcpy(options->library, value, size);
        return size > 0;
    }
    if (IS("key") && size < sizeof options->key) {
        memcpy(options->key, value, size);
        return size > 0;
    }
    if (IS("timeout")) return read_number(value, end, 10, 86400000, &device->timeout_ms);
    if (IS("connect")) return read_number(value, end, 10, 86400000, &device->connect_ms);
    if (IS("window"))
        return read_number(value, end, 4, WIRE_MOST_WINDOW >> 20, &options->mebibytes);
#undef IS
    return 0;
}

static int read_options(inlay_device_t *device, options_t *options, const char *at)
{
    memset(options, 0, sizeof *options);
    options->mebibytes = 32;
    device->timeout_ms = 10000;
    device->connect_ms = 5000;
    while (at && *at) {
        const char *end = at + strcspn(at, " ");
        if (!read_option(device, options, at, end)) return 0;
        at = end + strspn(end, " ");
    }
    device->window = (uint64_t)options->mebibytes << 20;
    return device->endpoint[0] != '\0';
}

static int open_sockets(inlay_device_t *device, const inlay_key_t *key)
{
    const zmq_api *zmq = &device->carrier.zmq;
    const int none = 0, soon = 10, v6 = strchr(device->endpoint, '[') != NULL;
    const int64_t most = WIRE_MOST_BODY;
    char where[64];
    snprintf(where, sizeof where, "inproc://lost-%p", (void *)device);
    device->context = zmq->make_context();
    device->socket = device->context ? zmq->make_socket(device->context, ZMQ_DEALER) : NULL;
    device->monitor = device->socket ? zmq->make_socket(device->context, ZMQ_PAIR) : NULL;
    return device->monitor && !zmq->set(device->socket, ZMQ_LINGER, &none, sizeof none) &&
           !zmq->set(device->monitor, ZMQ_LINGER, &none, sizeof none) &&
           !zmq->set(device->socket, ZMQ_SNDHWM, &none, sizeof none) &&
           !zmq->set(device->socket, ZMQ_RECONNECT_IVL, &soon, sizeof soon) &&
           !zmq->set(device->socket, ZMQ_MAXMSGSIZE, &most, sizeof most) &&
           !zmq->set(device->socket, ZMQ_IPV6, &v6, sizeof v6) &&
           (!key || inlay_key_of_client(&device->carrier, device->socket, key)) &&
           !zmq->monitor(device->socket, where,
                         ZMQ_EVENT_CONNECTED | ZMQ_EVENT_DISCONNECTED |
                             ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                             ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
                             ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                             ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) &&
           !zmq->connect(device->monitor, where) && !zmq->connect(device->socket, device->endpoint);
}

static void close_sockets(inlay_device_t *device)
{
    const zmq_api *zmq = &device->carrier.zmq;
    if (device->monitor) zmq->end_socket(device->monitor);
    if (device->socket) zmq->end_socket(device->socket);
    inlay_carrier_end(&device->carrier, device->context);
    device->monitor = device->socket = device->context = NULL;
}

/* Give back everything but the thread, which has ended or was never there. */
static void dismantle(inlay_device_t *device)
{
    close_sockets(device);
    while (device->urgent) {
        packet_t *next = device->urgent->next;
        inlay_packet_drop(&device->carrier, device->urgent);
        device->urgent = next;
    }
    inlay_wakeup_close(device->wakeup);
    pthread_cond_destroy(&device->changed);
    pthread_mutex_destroy(&device->lock);
    inlay_give(device->carrier.host, device, sizeof *device);
}

/* The thread of a connection takes no signals: they belong to the program. */
static int begin_thread(inlay_device_t *device)
{
    sigset_t all, before;
    int answer;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    answer = pthread_create(&device->thread, NULL, inlay_remote_run, device);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return answer == 0;
}

static int say_hello(inlay_device_t *device)
{
    wire_writer_t w;
    int is_posted;
    inlay_wire_begin(&w, WIRE_HELLO);
    inlay_wire_u64(&w, WIRE_MAGIC);
    inlay_wire_u32(&w, WIRE_VERSION);
    inlay_wire_u32(&w, (uint32_t)device->timeout_ms);
    pthread_mutex_lock(&device->lock);
    is_posted = inlay_remote_post(device, &w, NULL, 0);
    pthread_mutex_unlock(&device->lock);
    return is_posted;
}

static inlay_status_t greet(inlay_device_t *device, char *message, size_t bytes)
{
    inlay_status_t status = INLAY_OK;
    pthread_mutex_lock(&device->lock);
    while (device->state == LINK_OPENING) pthread_cond_wait(&device->changed, &device->lock);
    if (device->state == LINK_LOST) {
        inlay_remote_say_lost(device, message, bytes);
        status = device->lost_status;
    }
    pthread_mutex_unlock(&device->lock);
    if (status != INLAY_OK) pthread_join(device->thread, NULL);
    return status;
}

static inlay_status_t remote_open(const inlay_host_t *host, const char *words,
                                  inlay_device_t **device, char *message, size_t bytes)
{
    inlay_status_t status;
    options_t options;
    inlay_key_t key;
    int has_key;
    inlay_device_t *made = inlay_take(host, sizeof *made);
    if (!made) return INLAY_OUT_OF_MEMORY;
    made->carrier.host = host;
    made->urgent_end = &made->urgent;
    made->lost_status = INLAY_LOST;
    if (!read_options(made, &options, words)) {
        inlay_give(made->carrier.host, made, sizeof *made);
        return refuse("options are endpoint=tcp://HOST:PORT (needed), timeout=MS, connect=MS, "
                      "window=MIB (4 to 256), key=PATH (or none), library=PATH",
                      message, bytes);
    }
    if (!inlay_wakeup_open(made->wakeup)) {
        inlay_give(made->carrier.host, made, sizeof *made);
        return INLAY_OUT_OF_MEMORY;
    }
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    status = inlay_carrier_open(&made->carrier, host, options.library[0] ? options.library : NULL,
                                message, bytes);
    has_key = strcmp(options.key, KEY_NONE) != 0;
    if (status == INLAY_OK && has_key)
        status = inlay_key_read(&made->carrier, options.key[0] ? options.key : NULL, &key, message,
                                bytes);
    if (status == INLAY_OK && has_key) memcpy(made->key, key.path, sizeof made->key);
    if (status == INLAY_OK && !open_sockets(made, has_key ? &key : NULL)) {
        const int why = made->carrier.zmq.failure();
        if (bytes)
            snprintf(message, bytes, "cannot connect to %s: %s", made->endpoint,
                     made->carrier.zmq.describe(why));
        status = INLAY_BAD_ARGUMENT;
    }
    made->begun = made->heard = made->spoke = inlay_clock_ms();
    if (status == INLAY_OK && (!say_hello(made) || !begin_thread(made)))
        status = INLAY_OUT_OF_MEMORY;
    if (status == INLAY_OK) status = greet(made, message, bytes);
    if (status == INLAY_OK)
        *device = made;
    else
        dismantle(made);
    return status;
}

static void remote_close(inlay_device_t *device)
{
    pthread_mutex_lock(&device->lock);
    device->is_closing = 1;
    inlay_wakeup_signal(device->wakeup);
    pthread_mutex_unlock(&device->lock);
    pthread_join(device->thread, NULL);
    dismantle(device);
}

static void remote_facts(inlay_device_t *device, inlay_device_facts_t *facts)
{
    *facts = device->facts; /* written before `open` returned */
}

/* --------------------------------------------------------------------------------------- calls */

/* Begin a message that wants an answer. */
static void begin_call(inlay_device_t *device, wire_writer_t *w, uint32_t kind, call_t *call)
{
    call->number = ++device->last_call;
    inlay_wire_begin(w, kind);
    inlay_wire_u32(w, call->number);
}

/* Send a call and wait for its answer. Under the lock, which is free while this waits. */
static inlay_status_t finish_call(inlay_device_t *device, wire_writer_t *w, const void *body,
                                  size_t body_bytes, call_t *call)
{
    if (device->state == LINK_LOST) {
        inlay_remote_say_lost(device, call->message, call->message_bytes);
        return device->lost_status;
    }
    if (pthread_equal(pthread_self(), device->thread))
        return refuse("a call that waits for a server was made where the end of a request is told",
                      call->message, call->message_bytes);
    if (!inlay_remote_post(device, w, body, body_bytes)) return INLAY_OUT_OF_MEMORY;
    call->next = device->calls;
    device->calls = call;
    while (!call->is_over) pthread_cond_wait(&device->changed, &device->lock);
    return call->status;
}

static void begin_answer(call_t *call, char *message, size_t bytes)
{
    memset(call, 0, sizeof *call);
    call->message = message;
    call->message_bytes = bytes;
}

static inlay_status_t remote_load(inlay_device_t *device, const void *image, size_t size,
                                  inlay_program_t **program, char *message, size_t bytes)
{
    inlay_program_t *made;
    inlay_status_t status;
    uint8_t digest[WIRE_DIGEST];
    wire_writer_t w;
    call_t call;
    if (size > WIRE_MOST_BODY) return refuse("the image is too large to send", message, bytes);
    inlay_sha256(image, size, digest);
    made = inlay_take(device->carrier.host, sizeof *made);
    if (!made) return INLAY_OUT_OF_MEMORY;
    begin_answer(&call, message, bytes);
    pthread_mutex_lock(&device->lock);
    begin_call(device, &w, WIRE_LOAD, &call);
    inlay_wire_digest(&w, digest);
    status = finish_call(device, &w, image, size, &call);
    pthread_mutex_unlock(&device->lock);
    if (status != INLAY_OK) {
        inlay_give(device->carrier.host, made, sizeof *made);
        return status;
    }
    made->id = (uint32_t)call.value;
    made->users = 1;
    *program = made;
    return INLAY_OK;
}

static void remote_unload(inlay_device_t *device, inlay_program_t *program)
{
    pthread_mutex_lock(&device->lock);
    inlay_remote_leave_program(device, program);
    pthread_mutex_unlock(&device->lock);
}

static found_t *known(const inlay_program_t *program, const char *name, uint32_t n_phases)
{
    found_t *f = program->found;
    while (f && (f->n_phases != n_phases || strcmp(f->name, name) != 0)) f = f->next;
    return f;
}

static int32_t remote_find(inlay_device_t *device, inlay_program_t *program, const char *name,
                           uint32_t n_phases)
{
    found_t *found;
    wire_writer_t w;
    call_t call;
    int32_t kernel = -1;
    if (strlen(name) > WIRE_MOST_NAME || n_phases > WIRE_MOST_PHASES) return -1;
    begin_answer(&call, NULL, 0);
    pthread_mutex_lock(&device->lock);
    found = known(program, name, n_phases);
    if (found) {
        kernel = found->kernel;
    } else {
        begin_call(device, &w, WIRE_FIND, &call);
        inlay_wire_u32(&w, program->id);
        inlay_wire_u32(&w, n_phases);
        inlay_wire_text(&w, name);
        if (finish_call(device, &w, NULL, 0, &call) == INLAY_OK && call.value >= 0 &&
            call.value <= INT32_MAX)
            kernel = (int32_t)call.value;
        found = kernel < 0 ? NULL : inlay_take(device->carrier.host, sizeof *found);
        if (found) {
            memcpy(found->name, name, strlen(name) + 1);
            found->n_phases = n_phases;
            found->kernel = kernel;
            found->next = program->found;
            program->found = found;
        }
    }
    pthread_mutex_unlock(&device->lock);
    return kernel;
}

static inlay_status_t remote_allocate(inlay_device_t *device, uint32_t unit, size_t size,
                                      inlay_memory_t **memory, char *message, size_t bytes)
{
    inlay_memory_t *made;
    inlay_status_t status;
    wire_writer_t w;
    call_t call;
    if (unit >= device->facts.units)
        return refuse("found a unit that the device has not", message, bytes);
    made = inlay_take(device->carrier.host, sizeof *made);
    if (!made) return INLAY_OUT_OF_MEMORY;
    begin_answer(&call, message, bytes);
    pthread_mutex_lock(&device->lock);
    begin_call(device, &w, WIRE_ALLOCATE, &call);
    inlay_wire_u32(&w, unit);
    inlay_wire_u64(&w, size);
    status = finish_call(device, &w, NULL, 0, &call);
    pthread_mutex_unlock(&device->lock);
    if (status != INLAY_OK) {
        inlay_give(device->carrier.host, made, sizeof *made);
        return status;
    }
    made->id = (uint32_t)call.value;
    made->unit = unit;
    made->bytes = size;
    made->users = 1;
    *memory = made;
    return INLAY_OK;
}

static void remote_release(inlay_device_t *device, inlay_memory_t *memory)
{
    pthread_mutex_lock(&device->lock);
    inlay_remote_leave_memory(device, memory);
    pthread_mutex_unlock(&device->lock);
}

/* Whether all ends up to a number were told: they come in any order. */
static int is_told(const lane_t *lane, uint64_t number)
{
    return (!lane->first || lane->first->number > number) &&
           (!lane->telling || lane->telling > number);
}

static void remote_wait(inlay_device_t *device, inlay_ticket_t ticket)
{
    pthread_mutex_lock(&device->lock);
    while (!is_told(&device->lanes[ticket.queue], ticket.number))
        pthread_cond_wait(&device->changed, &device->lock);
    pthread_mutex_unlock(&device->lock);
}

static int remote_is_lost(inlay_device_t *device)
{
    int is_lost;
    pthread_mutex_lock(&device->lock);
    is_lost = device->state == LINK_LOST;
    pthread_mutex_unlock(&device->lock);
    return is_lost;
}

const inlay_driver_t inlay_driver_remote = {
    "remote",    remote_open,     remote_close,   remote_facts,       remote_load, remote_unload,
    remote_find, remote_allocate, remote_release, inlay_remote_start, remote_wait, NULL,
    remote_is_lost,
};
