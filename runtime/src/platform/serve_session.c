/* A client of a server of devices: a thread with a device of its own. See serve.c. */
#define _POSIX_C_SOURCE 200809L
#include "platform/serve.h"

#include <signal.h>

/* What may lie unread; more is sent by no client that keeps to its window. */
static const size_t MOST_INBOX_BYTES = 2u * (size_t)WIRE_MOST_WINDOW + WIRE_MOST_BODY;

uint32_t inlay_table_add(const carrier_t *carrier, table_t *table, void *item)
{
    uint32_t i = 0, room;
    void **items;
    while (i < table->room && table->items[i]) i++;
    if (i == table->room) {
        room = table->room ? table->room * 2 : 64;
        items = inlay_carrier_take(carrier, room * sizeof *items);
        if (!items) return UINT32_MAX;
        if (table->room) {
            memcpy(items, table->items, table->room * sizeof *items);
            inlay_carrier_give(carrier, table->items, table->room * sizeof *items);
        }
        table->items = items;
        table->room = room;
    }
    table->items[i] = item;
    return i;
}

void *inlay_table_at(const table_t *table, uint32_t number)
{
    return number < table->room ? table->items[number] : NULL;
}

/* -------------------------------------------------------------------------------------- speaking */

static void post(session_t *session, const wire_writer_t *w)
{
    packet_t *packet = inlay_packet_of(&session->server->carrier, w);
    if (packet) inlay_serve_post(session, packet);
}

static void answer(session_t *session, uint32_t call, inlay_status_t status, int64_t value,
                   const char *text)
{
    wire_writer_t w;
    inlay_wire_begin(&w, WIRE_ANSWER);
    inlay_wire_u32(&w, call);
    inlay_wire_u32(&w, (uint32_t)status);
    inlay_wire_i64(&w, value);
    inlay_wire_text(&w, text);
    post(session, &w);
}

static void refuse(session_t *session, inlay_status_t status, const char *why)
{
    wire_writer_t w;
    inlay_wire_begin(&w, WIRE_REFUSED);
    inlay_wire_u64(&w, WIRE_MAGIC);
    inlay_wire_u32(&w, WIRE_VERSION);
    inlay_wire_u32(&w, (uint32_t)status);
    inlay_wire_text(&w, why);
    post(session, &w);
}

static void welcome(session_t *session)
{
    const inlay_device_facts_t *f = &session->facts;
    char name[sizeof f->name + 1];
    wire_writer_t w;
    memcpy(name, f->name, sizeof f->name);
    name[sizeof f->name] = '\0';
    inlay_wire_begin(&w, WIRE_WELCOME);
    inlay_wire_u64(&w, WIRE_MAGIC);
    inlay_wire_u32(&w, WIRE_VERSION);
    inlay_wire_text(&w, name);
    inlay_wire_u32(&w, f->units);
    inlay_wire_u32(&w, f->queues_per_unit);
    inlay_wire_u64(&w, f->memory_bytes);
    inlay_wire_u64(&w, f->largest_bytes);
    inlay_wire_u32(&w, f->has_f64);
    inlay_wire_u32(&w, f->compute_units);
    inlay_wire_text(&w, f->offers);
    post(session, &w);
}

/* Tell the client what it did, and ask to be forgotten. */
static void fail(session_t *session, const char *why)
{
    wire_writer_t w;
    pthread_mutex_lock(&session->lock);
    session->has_failed = 1;
    pthread_mutex_unlock(&session->lock);
    inlay_wire_begin(&w, WIRE_FAILED);
    inlay_wire_text(&w, why);
    post(session, &w);
}

/* ---------------------------------------------------------------------------------------- calls */

static int allocate(session_t *session, wire_reader_t *r)
{
    const uint32_t call = inlay_wire_read_u32(r), unit = inlay_wire_read_u32(r);
    const uint64_t bytes = inlay_wire_read_u64(r);
    const inlay_driver_t *driver = session->server->driver;
    inlay_status_t status = INLAY_OUT_OF_MEMORY;
    inlay_memory_t *memory = NULL;
    char text[512] = "";
    uint32_t number = UINT32_MAX;
    if (!inlay_wire_is_whole(r)) return 0;
    if (bytes <= session->facts.largest_bytes && bytes <= SIZE_MAX)
        status = driver->allocate(session->device, unit, (size_t)bytes, &memory, text, sizeof text);
    else
        memcpy(text, "more than any memory of the device", 35);
    if (status == INLAY_OK) {
        number = inlay_table_add(&session->server->carrier, &session->memories, memory);
        if (number == UINT32_MAX) {
            driver->release(session->device, memory);
            status = INLAY_OUT_OF_MEMORY;
        }
    }
    answer(session, call, status, number, text);
    return 1;
}

static int release(session_t *session, wire_reader_t *r)
{
    const uint32_t number = inlay_wire_read_u32(r);
    inlay_memory_t *memory = inlay_table_at(&session->memories, number);
    if (!inlay_wire_is_whole(r) || !memory) return 0;
    session->memories.items[number] = NULL;
    session->server->driver->release(session->device, memory);
    return 1;
}

static int load(session_t *session, wire_reader_t *r, packet_t *packet)
{
    const carrier_t *carrier = &session->server->carrier;
    const uint32_t call = inlay_wire_read_u32(r);
    char text[WIRE_MOST_TEXT + 1] = "";
    served_program_t *made;
    inlay_status_t status;
    uint32_t number = UINT32_MAX;
    if (!inlay_wire_is_whole(r) || !packet->has_body) return 0;
    made = inlay_carrier_take(carrier, sizeof *made);
    status = made ? session->server->driver->load(
                        session->device, carrier->zmq.data(&packet->body),
                        carrier->zmq.size(&packet->body), &made->program, text, sizeof text)
                  : INLAY_OUT_OF_MEMORY;
    if (status == INLAY_OK) {
        number = inlay_table_add(carrier, &session->programs, made);
        if (number == UINT32_MAX) {
            session->server->driver->unload(session->device, made->program);
            status = INLAY_OUT_OF_MEMORY;
        }
    }
    if (made && status != INLAY_OK) inlay_carrier_give(carrier, made, sizeof *made);
    answer(session, call, status, number, text);
    return 1;
}

static void drop_program(session_t *session, uint32_t number)
{
    const carrier_t *carrier = &session->server->carrier;
    served_program_t *program = session->programs.items[number];
    session->programs.items[number] = NULL;
    session->server->driver->unload(session->device, program->program);
    while (program->kernels) {
        served_kernel_t *next = program->kernels->next;
        inlay_carrier_give(carrier, program->kernels, sizeof *program->kernels);
        program->kernels = next;
    }
    inlay_carrier_give(carrier, program, sizeof *program);
}

static int unload(session_t *session, wire_reader_t *r)
{
    const uint32_t number = inlay_wire_read_u32(r);
    if (!inlay_wire_is_whole(r) || !inlay_table_at(&session->programs, number)) return 0;
    drop_program(session, number);
    return 1;
}

static int find(session_t *session, wire_reader_t *r)
{
    const uint32_t call = inlay_wire_read_u32(r);
    served_program_t *program = inlay_table_at(&session->programs, inlay_wire_read_u32(r));
    const uint32_t n_phases = inlay_wire_read_count(r, WIRE_MOST_PHASES);
    char name[WIRE_MOST_NAME + 2];
    served_kernel_t *kernel;
    int32_t number;
    inlay_wire_read_text(r, name, sizeof name);
    if (!inlay_wire_is_whole(r) || !program) return 0;
    number = session->server->driver->find(session->device, program->program, name, n_phases);
    if (number >= 0) {
        kernel = inlay_carrier_take(&session->server->carrier, sizeof *kernel);
        if (kernel) {
            kernel->kernel = (uint32_t)number;
            kernel->n_phases = n_phases;
            kernel->next = program->kernels;
            program->kernels = kernel;
        } else {
            number = -1;
        }
    }
    answer(session, call, INLAY_OK, number, "");
    return 1;
}

static void hear(session_t *session, packet_t *packet)
{
    wire_reader_t r = inlay_packet_read(&session->server->carrier, packet);
    const uint32_t kind = inlay_wire_read_u32(&r);
    int makes_sense = 0;
    switch (kind) {
    case WIRE_ALLOCATE: makes_sense = allocate(session, &r); break;
    case WIRE_RELEASE: makes_sense = release(session, &r); break;
    case WIRE_LOAD: makes_sense = load(session, &r, packet); break;
    case WIRE_UNLOAD: makes_sense = unload(session, &r); break;
    case WIRE_FIND: makes_sense = find(session, &r); break;
    case WIRE_WRITE:
    case WIRE_READ:
    case WIRE_COPY:
    case WIRE_LAUNCH: makes_sense = inlay_session_request(session, kind, &r, packet); break;
    default: break;
    }
    if (!makes_sense) fail(session, "a message that makes no sense came");
}

/* ------------------------------------------------------------------------------------- the thread */

static size_t weight_of(const carrier_t *carrier, const packet_t *packet)
{
    const size_t body = packet->has_body ? carrier->zmq.size(&packet->body) : 0;
    return sizeof *packet + carrier->zmq.size(&packet->head) + body;
}

/* Return the next packet, NULL when the session ends. Devices without threads work meanwhile. */
static packet_t *next_packet(session_t *session)
{
    const inlay_driver_t *driver = session->server->driver;
    packet_t *packet = NULL;
    pthread_mutex_lock(&session->lock);
    while (!session->inbox && !session->is_ending) {
        if (driver->progress && session->in_flight) {
            pthread_mutex_unlock(&session->lock);
            driver->progress(session->device);
            pthread_mutex_lock(&session->lock);
        } else {
            pthread_cond_wait(&session->changed, &session->lock);
        }
    }
    if (!session->is_ending) {
        packet = session->inbox;
        session->inbox = packet->next;
        if (!session->inbox) session->inbox_end = &session->inbox;
        packet->next = NULL;
        session->inbox_bytes -= weight_of(&session->server->carrier, packet);
    }
    pthread_mutex_unlock(&session->lock);
    return packet;
}

static void close_device(session_t *session)
{
    const inlay_driver_t *driver = session->server->driver;
    const carrier_t *carrier = &session->server->carrier;
    uint32_t i;
    for (i = 0; i < session->programs.room; i++)
        if (session->programs.items[i]) drop_program(session, i);
    for (i = 0; i < session->memories.room; i++)
        if (session->memories.items[i])
            driver->release(session->device, session->memories.items[i]);
    if (session->device) driver->close(session->device);
    if (session->programs.room)
        inlay_carrier_give(carrier, session->programs.items,
                           session->programs.room * sizeof(void *));
    if (session->memories.room)
        inlay_carrier_give(carrier, session->memories.items,
                           session->memories.room * sizeof(void *));
}

static void *run(void *argument)
{
    session_t *session = argument;
    inlay_server_t *server = session->server;
    char text[512] = "";
    packet_t *packet;
    const inlay_status_t status = server->driver->open(server->carrier.host, server->options,
                                                       &session->device, text, sizeof text);
    if (status == INLAY_OK) {
        server->driver->facts(session->device, &session->facts);
        welcome(session);
    } else {
        session->device = NULL;
        refuse(session, status, text);
        pthread_mutex_lock(&session->lock);
        session->has_failed = 1;
        pthread_mutex_unlock(&session->lock);
    }
    while ((packet = next_packet(session)) != NULL) {
        if (session->device && !inlay_session_has_failed(session)) hear(session, packet);
        inlay_packet_drop(&server->carrier, packet);
    }
    close_device(session);
    while (session->inbox) {
        packet = session->inbox;
        session->inbox = packet->next;
        inlay_packet_drop(&server->carrier, packet);
    }
    pthread_cond_destroy(&session->changed);
    pthread_mutex_destroy(&session->lock);
    inlay_carrier_give(&server->carrier, session, sizeof *session);
    /* The last touch of the server. */
    pthread_mutex_lock(&server->lock);
    server->alive--;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->lock);
    return NULL;
}

session_t *inlay_session_begin(inlay_server_t *server, packet_t *hello, uint32_t patience)
{
    session_t *made = inlay_carrier_take(&server->carrier, sizeof *made);
    pthread_attr_t detached;
    pthread_t thread;
    sigset_t all, before;
    int failed;
    if (!made) return NULL;
    made->server = server;
    made->patience = patience < 100 ? 100 : patience;
    made->name_bytes = hello->to_bytes;
    memcpy(made->name, hello->to, hello->to_bytes);
    made->inbox_end = &made->inbox;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    pthread_mutex_lock(&server->lock);
    server->alive++;
    pthread_mutex_unlock(&server->lock);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all); /* signals belong to the program */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&thread, &detached, run, made);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    if (!failed) return made;
    pthread_mutex_lock(&server->lock);
    server->alive--;
    pthread_mutex_unlock(&server->lock);
    pthread_cond_destroy(&made->changed);
    pthread_mutex_destroy(&made->lock);
    inlay_carrier_give(&server->carrier, made, sizeof *made);
    return NULL;
}

void inlay_session_give(session_t *session, packet_t *packet)
{
    const carrier_t *carrier = &session->server->carrier;
    const size_t bytes = weight_of(carrier, packet);
    packet_t *kept = inlay_packet_keep(carrier, packet);
    int has_failed, is_taken;
    pthread_mutex_lock(&session->lock);
    has_failed = session->has_failed;
    is_taken = !has_failed && kept && session->inbox_bytes + bytes <= MOST_INBOX_BYTES;
    if (is_taken) {
        *session->inbox_end = kept;
        session->inbox_end = &kept->next;
        session->inbox_bytes += bytes;
        pthread_cond_signal(&session->changed);
    }
    pthread_mutex_unlock(&session->lock);
    if (is_taken) return;
    if (kept) inlay_packet_drop(carrier, kept);
    if (!has_failed) fail(session, "more came than a client may have on its way");
}

int inlay_session_has_failed(session_t *session)
{
    int has_failed;
    pthread_mutex_lock(&session->lock);
    has_failed = session->has_failed;
    pthread_mutex_unlock(&session->lock);
    return has_failed;
}

void inlay_session_end(session_t *session)
{
    pthread_mutex_lock(&session->lock);
    session->is_ending = 1;
    pthread_cond_signal(&session->changed);
    pthread_mutex_unlock(&session->lock);
}
