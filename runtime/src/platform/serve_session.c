/* The process of a client of a server of devices: a device of its own, and what the client has there.
 * See serve.c.
 *
 * One thread hears what the client wants, and waits between; drivers tell ends of requests by threads of
 * their own. What says that the server is gone, or has forgotten the client, is the end of the channel. */
#define _POSIX_C_SOURCE 200809L
#include "platform/serve.h"

#include <poll.h>
#include <stdio.h>

#include "sha256.h"

enum { OBJECT_BYTES = 64 /* that anything counts besides its bytes */ };

/* -------------------------------------------------------------------------------------- speaking */

static void answer(session_t *session, uint32_t call, inlay_status_t status, int64_t value,
                   const char *text)
{
    wire_writer_t w;
    inlay_wire_begin(&w, WIRE_ANSWER);
    inlay_wire_u32(&w, call);
    inlay_wire_u32(&w, (uint32_t)status);
    inlay_wire_i64(&w, value);
    inlay_wire_text(&w, text);
    inlay_session_say(session, &w, NULL, 0, CHANNEL_NO_SLOT);
}

static void refuse(session_t *session, inlay_status_t status, const char *why)
{
    wire_writer_t w;
    inlay_wire_begin(&w, WIRE_REFUSED);
    inlay_wire_u64(&w, WIRE_MAGIC);
    inlay_wire_u32(&w, WIRE_VERSION);
    inlay_wire_u32(&w, (uint32_t)status);
    inlay_wire_text(&w, why);
    inlay_session_say(session, &w, NULL, 0, CHANNEL_NO_SLOT);
}

static void welcome(session_t *session)
{
    const inlay_device_facts_t *f = &session->facts;
    const uint64_t most = session->server->memory_bytes;
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
    inlay_wire_u64(&w, most && (!f->memory_bytes || most < f->memory_bytes) ? most : f->memory_bytes);
    inlay_wire_u64(&w, most && most < f->largest_bytes ? most : f->largest_bytes);
    inlay_wire_u32(&w, f->has_f64);
    inlay_wire_u32(&w, f->compute_units);
    inlay_wire_text(&w, f->offers);
    inlay_wire_u64(&w, session->server->window);
    inlay_session_say(session, &w, NULL, 0, CHANNEL_NO_SLOT);
}

/* Tell the client what it did; this is the end. */
static void fail(session_t *session, const char *why)
{
    wire_writer_t w;
    session->has_failed = 1;
    inlay_wire_begin(&w, WIRE_FAILED);
    inlay_wire_u32(&w, INLAY_LOST);
    inlay_wire_text(&w, why);
    inlay_session_say(session, &w, NULL, 0, CHANNEL_NO_SLOT);
}

/* ---------------------------------------------------------------------------------------- memory */

/* Count bytes that a client is about to have; false, with a sentence, where they are too many. */
static int count(session_t *session, uint64_t bytes, char *text, size_t room)
{
    const uint64_t most = session->server->memory_bytes, used = session->counted;
    if (most && (bytes > most || bytes + OBJECT_BYTES > most - used)) {
        snprintf(text, room,
                 "found %llu bytes in use and %llu asked for, where the server lets a client have %llu "
                 "(inlay serve --memory)",
                 (unsigned long long)used, (unsigned long long)bytes, (unsigned long long)most);
        return 0;
    }
    session->counted = used + bytes + OBJECT_BYTES;
    return 1;
}

static void discount(session_t *session, uint64_t bytes) { session->counted -= bytes + OBJECT_BYTES; }

static inlay_status_t take_memory(session_t *session, uint32_t unit, uint64_t bytes, uint32_t *number,
                                  char *text, size_t room)
{
    const inlay_driver_t *driver = session->server->driver;
    served_memory_t *made = inlay_take(session->carrier->host, sizeof *made);
    inlay_status_t status = INLAY_OUT_OF_MEMORY;
    if (!made) return status;
    made->counted = bytes;
    if (bytes <= session->facts.largest_bytes && bytes <= SIZE_MAX)
        status = driver->allocate(session->device, unit, (size_t)bytes, &made->memory, text, room);
    else
        snprintf(text, room, "more than any memory of the device");
    if (status == INLAY_OK) {
        *number = inlay_table_add(session->carrier, &session->memories, made);
        if (*number != UINT32_MAX) return INLAY_OK;
        driver->release(session->device, made->memory);
        status = INLAY_OUT_OF_MEMORY;
    }
    inlay_give(session->carrier->host, made, sizeof *made);
    return status;
}

static int allocate(session_t *session, wire_reader_t *r)
{
    const uint32_t call = inlay_wire_read_u32(r), unit = inlay_wire_read_u32(r);
    const uint64_t bytes = inlay_wire_read_u64(r);
    inlay_status_t status = INLAY_OUT_OF_MEMORY;
    char text[512] = "";
    uint32_t number = UINT32_MAX;
    if (!inlay_wire_is_whole(r)) return 0;
    if (count(session, bytes, text, sizeof text)) {
        status = take_memory(session, unit, bytes, &number, text, sizeof text);
        if (status != INLAY_OK) discount(session, bytes);
    }
    answer(session, call, status, number, text);
    return 1;
}

static void drop_memory(session_t *session, uint32_t number)
{
    served_memory_t *memory = session->memories.items[number];
    session->memories.items[number] = NULL;
    session->server->driver->release(session->device, memory->memory);
    discount(session, memory->counted);
    inlay_give(session->carrier->host, memory, sizeof *memory);
}

static int release(session_t *session, wire_reader_t *r)
{
    const uint32_t number = inlay_wire_read_u32(r);
    if (!inlay_wire_is_whole(r) || !inlay_table_at(&session->memories, number)) return 0;
    drop_memory(session, number);
    return 1;
}

/* -------------------------------------------------------------------------------------- programs */

static int is_as_sent(const parcel_t *parcel, const uint8_t *digest)
{
    uint8_t found[WIRE_DIGEST];
    inlay_sha256(parcel->body, parcel->body_bytes, found);
    return memcmp(found, digest, WIRE_DIGEST) == 0;
}

static inlay_status_t take_program(session_t *session, const parcel_t *parcel, uint32_t *number,
                                   char *text, size_t room)
{
    const inlay_driver_t *driver = session->server->driver;
    served_program_t *made = inlay_take(session->carrier->host, sizeof *made);
    inlay_status_t status;
    if (!made) return INLAY_OUT_OF_MEMORY;
    made->counted = parcel->body_bytes;
    status = driver->load(session->device, parcel->body, parcel->body_bytes, &made->program, text, room);
    if (status == INLAY_OK) {
        *number = inlay_table_add(session->carrier, &session->programs, made);
        if (*number != UINT32_MAX) return INLAY_OK;
        driver->unload(session->device, made->program);
        status = INLAY_OUT_OF_MEMORY;
    }
    inlay_give(session->carrier->host, made, sizeof *made);
    return status;
}

static int load(session_t *session, wire_reader_t *r, const parcel_t *parcel)
{
    const uint32_t call = inlay_wire_read_u32(r);
    char text[WIRE_MOST_TEXT + 1] = "";
    uint8_t digest[WIRE_DIGEST];
    inlay_status_t status = INLAY_OUT_OF_MEMORY;
    uint32_t number = UINT32_MAX;
    inlay_wire_read_digest(r, digest);
    if (!inlay_wire_is_whole(r) || !parcel->has_body) return 0;
    if (!is_as_sent(parcel, digest)) {
        status = INLAY_BUILD_FAILED;
        snprintf(text, sizeof text,
                 "the image was damaged on its way: %lu bytes came that do not have its digest",
                 (unsigned long)parcel->body_bytes);
    } else if (count(session, parcel->body_bytes, text, sizeof text)) {
        status = take_program(session, parcel, &number, text, sizeof text);
        if (status != INLAY_OK) discount(session, parcel->body_bytes);
    }
    answer(session, call, status, number, text);
    return 1;
}

static void drop_program(session_t *session, uint32_t number)
{
    served_program_t *program = session->programs.items[number];
    session->programs.items[number] = NULL;
    session->server->driver->unload(session->device, program->program);
    while (program->kernels) {
        served_kernel_t *next = program->kernels->next;
        inlay_give(session->carrier->host, program->kernels, sizeof *program->kernels);
        program->kernels = next;
    }
    discount(session, program->counted);
    inlay_give(session->carrier->host, program, sizeof *program);
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
        kernel = inlay_take(session->carrier->host, sizeof *kernel);
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

/* ------------------------------------------------------------------------------------ its process */

static void hear(session_t *session, parcel_t *parcel)
{
    wire_reader_t r;
    uint32_t kind;
    int makes_sense = 0;
    r.at = parcel->head;
    r.end = r.at + parcel->head_bytes;
    r.is_bad = 0;
    kind = inlay_wire_read_u32(&r);
    switch (kind) {
    case WIRE_ALLOCATE: makes_sense = allocate(session, &r); break;
    case WIRE_RELEASE: makes_sense = release(session, &r); break;
    case WIRE_LOAD: makes_sense = load(session, &r, parcel); break;
    case WIRE_UNLOAD: makes_sense = unload(session, &r); break;
    case WIRE_FIND: makes_sense = find(session, &r); break;
    case WIRE_WRITE:
    case WIRE_READ:
    case WIRE_COPY:
    case WIRE_LAUNCH: makes_sense = inlay_session_request(session, kind, &r, parcel); break;
    default: break;
    }
    if (!makes_sense) fail(session, "a message that makes no sense came");
}

static int is_busy(session_t *session)
{
    uint32_t in_flight;
    pthread_mutex_lock(&session->lock);
    in_flight = session->in_flight;
    pthread_mutex_unlock(&session->lock);
    return in_flight > 0;
}

/* Let a device without threads work until a message comes. */
static void work(session_t *session)
{
    const inlay_driver_t *driver = session->server->driver;
    struct pollfd item;
    item.fd = session->line.file;
    item.events = POLLIN;
    while (driver->progress && is_busy(session) && poll(&item, 1, 0) == 0)
        driver->progress(session->device);
}

static void serve(session_t *session, parcel_t *parcel)
{
    welcome(session);
    for (;;) {
        int is_heard;
        work(session);
        is_heard = inlay_channel_hear(session->carrier, &session->line, parcel);
        if (is_heard) hear(session, parcel);
        inlay_channel_drop(session->carrier, parcel);
        if (!is_heard || session->has_failed) return;
    }
}

static void close_device(session_t *session)
{
    const carrier_t *carrier = session->carrier;
    uint32_t i;
    for (i = 0; i < session->programs.room; i++)
        if (session->programs.items[i]) drop_program(session, i);
    for (i = 0; i < session->memories.room; i++)
        if (session->memories.items[i]) drop_memory(session, i);
    session->server->driver->close(session->device);
    if (session->programs.room)
        inlay_give(carrier->host, session->programs.items,
                   session->programs.room * sizeof(void *));
    if (session->memories.room)
        inlay_give(carrier->host, session->memories.items,
                   session->memories.room * sizeof(void *));
}

void inlay_session_run(const void *server, const int *files)
{
    const inlay_server_t *s = server;
    parcel_t *parcel = inlay_take(s->carrier.host, sizeof *parcel);
    session_t session;
    char text[512] = "";
    inlay_status_t status = INLAY_OUT_OF_MEMORY;
    memset(&session, 0, sizeof session);
    session.server = s;
    session.carrier = &s->carrier;
    inlay_channel_join(&session.line, files);
    pthread_mutex_init(&session.lock, NULL);
    pthread_mutex_init(&session.speaking, NULL);
    if (parcel)
        status = s->driver->open(s->carrier.host, s->options, &session.device, text, sizeof text);
    if (status != INLAY_OK) {
        refuse(&session, status, text);
    } else {
        s->driver->facts(session.device, &session.facts);
        serve(&session, parcel);
        close_device(&session);
    }
    if (parcel) inlay_give(s->carrier.host, parcel, sizeof *parcel);
    inlay_channel_leave(&session.line);
}
