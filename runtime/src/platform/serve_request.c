/* Requests of a client, from a message to the driver and back: see serve.c.
 *
 * The numbers of a client's requests are those that the driver gives, because a session starts
 * exactly one request for each: where the driver refuses one, a wait takes its place and tells why. So
 * tickets mean here what they mean there. */
#define _POSIX_C_SOURCE 200809L
#include "platform/serve.h"

#include <stdio.h>

typedef struct flight {
    session_t *session;
    uint32_t queue;
    uint64_t number;
    uint8_t *body;           /* what is written from, or read into; NULL where there is neither */
    size_t bytes, room;      /* of it */
    uint32_t slot;           /* where it is, or CHANNEL_NO_SLOT: in memory of the host */
    int is_read;
    int64_t times[2];        /* when the device began and ended, if it says so */
    inlay_status_t refusal;  /* why the driver did not start it, and this is a wait */
    char why[256];
} flight_t;

/* The parts of a request that its message holds. */
typedef struct parts {
    inlay_ticket_t after[WIRE_MOST_TICKETS];
    inlay_region_t buffers[WIRE_MOST_BUFFERS];
    int64_t ints[WIRE_MOST_INTS], items[WIRE_MOST_PHASES];
} parts_t;

static void drop_flight(flight_t *flight)
{
    const carrier_t *carrier = flight->session->carrier;
    if (flight->body && !flight->slot)
        carrier->host->release(carrier->host->user, flight->body, flight->room, 64);
    inlay_give(carrier->host, flight, sizeof *flight);
}

/* Tell the client how a request ended. Called by any thread of the driver. */
static void ended(void *argument, inlay_status_t status, int64_t answer, const char *message)
{
    flight_t *flight = argument;
    session_t *session = flight->session;
    int has_read;
    wire_writer_t w;
    if (flight->refusal) {
        status = flight->refusal;
        message = flight->why;
    }
    inlay_wire_begin(&w, WIRE_DONE);
    inlay_wire_u32(&w, flight->queue);
    inlay_wire_u64(&w, flight->number);
    inlay_wire_u32(&w, (uint32_t)status);
    inlay_wire_i64(&w, answer);
    inlay_wire_i64(&w, flight->times[0]);
    inlay_wire_i64(&w, flight->times[1]);
    inlay_wire_text(&w, message);
    has_read = flight->is_read && status == INLAY_OK;
    pthread_mutex_lock(&session->lock);
    session->in_flight--;
    session->bytes_in_flight -= flight->bytes;
    pthread_mutex_unlock(&session->lock);
    inlay_session_say(session, &w, has_read ? flight->body : NULL, has_read ? flight->bytes : 0,
                      has_read ? flight->slot : CHANNEL_NO_SLOT);
    drop_flight(flight);
}

/* --------------------------------------------------------------------------------------- reading */

static void read_tickets(wire_reader_t *r, inlay_request_t *request, parts_t *parts)
{
    uint32_t i;
    request->n_after = inlay_wire_read_count(r, WIRE_MOST_TICKETS);
    request->after = parts->after;
    for (i = 0; i < request->n_after; i++) {
        parts->after[i].queue = inlay_wire_read_u32(r);
        parts->after[i].number = inlay_wire_read_u64(r);
    }
}

static void read_region(const session_t *session, wire_reader_t *r, inlay_region_t *region)
{
    uint64_t offset;
    const served_memory_t *memory = inlay_table_at(&session->memories, inlay_wire_read_u32(r));
    region->memory = memory ? memory->memory : NULL;
    offset = inlay_wire_read_u64(r);
    region->offset = (size_t)offset;
    region->host = NULL;
    if (!region->memory || offset > SIZE_MAX) r->is_bad = 1;
}

static int was_found(const served_program_t *program, uint32_t kernel, uint32_t n_phases)
{
    const served_kernel_t *k = program ? program->kernels : NULL;
    while (k && (k->kernel != kernel || k->n_phases != n_phases)) k = k->next;
    return k != NULL;
}

static void read_launch(const session_t *session, wire_reader_t *r, inlay_request_t *request,
                        parts_t *parts)
{
    const served_program_t *program = inlay_table_at(&session->programs, inlay_wire_read_u32(r));
    uint32_t i;
    request->action = INLAY_LAUNCH;
    request->kernel = inlay_wire_read_u32(r);
    request->n_buffers = inlay_wire_read_count(r, WIRE_MOST_BUFFERS);
    for (i = 0; i < request->n_buffers; i++) read_region(session, r, &parts->buffers[i]);
    request->n_ints = inlay_wire_read_count(r, WIRE_MOST_INTS);
    for (i = 0; i < request->n_ints; i++) parts->ints[i] = inlay_wire_read_i64(r);
    request->n_phases = inlay_wire_read_count(r, WIRE_MOST_PHASES);
    for (i = 0; i < request->n_phases; i++) parts->items[i] = inlay_wire_read_i64(r);
    request->buffers = parts->buffers;
    request->ints = parts->ints;
    request->items = parts->items;
    if (was_found(program, request->kernel, request->n_phases))
        request->program = program->program;
    else
        r->is_bad = 1;
}

static void read_copy(const session_t *session, wire_reader_t *r, inlay_request_t *request)
{
    wire_reader_t again = *r;
    const uint32_t to = inlay_wire_read_u32(&again);
    const uint64_t to_offset = inlay_wire_read_u64(&again);
    const uint32_t from = inlay_wire_read_u32(&again);
    const uint64_t from_offset = inlay_wire_read_u64(&again);
    const uint64_t bytes = inlay_wire_read_u64(&again);
    const uint64_t apart =
        to_offset < from_offset ? from_offset - to_offset : to_offset - from_offset;
    if (bytes) { /* else it is a wait, whose regions say nothing */
        read_region(session, r, &request->to);
        read_region(session, r, &request->from);
        request->bytes = (size_t)bytes;
        /* Drivers are promised that there is no overlap. */
        if ((to == from && apart < bytes) || bytes > SIZE_MAX) r->is_bad = 1;
    }
    again.is_bad |= r->is_bad;
    *r = again;
}

static void read_transfer(const session_t *session, uint32_t kind, wire_reader_t *r,
                          inlay_request_t *request, const parcel_t *parcel)
{
    if (kind == WIRE_WRITE) {
        read_region(session, r, &request->to);
        request->bytes = parcel->body_bytes;
    } else {
        read_region(session, r, &request->from);
        request->bytes = inlay_wire_read_count(r, WIRE_CHUNK);
        if (inlay_wire_read_u32(r)) r->is_bad = 1; /* the upper half of the count */
    }
    if (!request->bytes || request->bytes > WIRE_CHUNK) r->is_bad = 1;
}

/* ------------------------------------------------------------------------------------- starting */

/* Give a flight the bytes of a transfer; false where there is no memory. */
static int set_body(uint32_t kind, inlay_request_t *request, flight_t *flight, parcel_t *parcel)
{
    const inlay_host_t *host = flight->session->carrier->host;
    flight->room = request->bytes + 1;
    flight->bytes = request->bytes;
    flight->slot = parcel->slot;
    if (kind == WIRE_WRITE) {
        flight->body = parcel->body;
        parcel->body = NULL;
        request->from.host = flight->body;
    } else {
        flight->body = flight->slot ? inlay_channel_slot(&flight->session->line, flight->slot)
                                    : host->allocate(host->user, flight->room, 64);
        request->to.host = flight->body;
        flight->is_read = 1;
    }
    return flight->body != NULL;
}

/* Take room for a flight; false where the client has more on its way than it may. */
static int enter(session_t *session, const flight_t *flight)
{
    int fits;
    pthread_mutex_lock(&session->lock);
    fits = session->in_flight < 2 * WIRE_MOST_REQUESTS &&
           session->bytes_in_flight + flight->bytes <= 2 * session->server->window;
    if (fits) {
        session->in_flight++;
        session->bytes_in_flight += flight->bytes;
    }
    pthread_mutex_unlock(&session->lock);
    return fits;
}

static void leave(session_t *session, const flight_t *flight)
{
    pthread_mutex_lock(&session->lock);
    session->in_flight--;
    session->bytes_in_flight -= flight->bytes;
    pthread_mutex_unlock(&session->lock);
}

/* Start a request, or in its place a wait that tells why not; false where not even that starts, or
 * where the client counts otherwise. A flight that was started may be gone at once. */
static int start(session_t *session, inlay_request_t *request, flight_t *flight)
{
    const inlay_driver_t *driver = session->server->driver;
    const uint64_t expected = flight->number;
    inlay_ticket_t ticket = {0, 0};
    const inlay_status_t status =
        driver->start(session->device, request, &ticket, flight->why, sizeof flight->why);
    if (status == INLAY_OK) return ticket.number == expected;
    flight->refusal = status;
    request->action = INLAY_COPY;
    request->bytes = 0;
    memset(&request->to, 0, sizeof request->to);
    memset(&request->from, 0, sizeof request->from);
    request->n_buffers = request->n_ints = request->n_phases = 0;
    request->program = NULL;
    if (driver->start(session->device, request, &ticket, NULL, 0) == INLAY_OK)
        return ticket.number == expected;
    leave(session, flight);
    drop_flight(flight);
    return 0;
}

int inlay_session_request(session_t *session, uint32_t kind, wire_reader_t *r, parcel_t *parcel)
{
    inlay_request_t request;
    flight_t *flight;
    parts_t parts;
    uint64_t number;
    memset(&request, 0, sizeof request);
    request.action = INLAY_COPY;
    request.queue = inlay_wire_read_u32(r);
    number = inlay_wire_read_u64(r);
    read_tickets(r, &request, &parts);
    if (kind == WIRE_LAUNCH)
        read_launch(session, r, &request, &parts);
    else if (kind == WIRE_COPY)
        read_copy(session, r, &request);
    else
        read_transfer(session, kind, r, &request, parcel);
    if (!inlay_wire_is_whole(r) || (kind != WIRE_WRITE && parcel->has_body)) return 0;
    if (request.queue >= session->facts.units * session->facts.queues_per_unit) return 0;
    flight = inlay_take(session->carrier->host, sizeof *flight);
    if (!flight) return 0;
    flight->session = session;
    flight->queue = request.queue;
    flight->number = number;
    request.done = ended;
    request.argument = flight;
    request.times = flight->times;
    if ((kind == WIRE_WRITE || kind == WIRE_READ) && !set_body(kind, &request, flight, parcel)) {
        drop_flight(flight);
        return 0;
    }
    if (!enter(session, flight)) {
        drop_flight(flight);
        return 0;
    }
    return start(session, &request, flight);
}
