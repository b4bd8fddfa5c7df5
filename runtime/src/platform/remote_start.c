/* Requests of a remote device, until they are sent: see remote.c.
 *
 * A request waits in its queue until it may be sent: those it comes after have been sent (so the
 * server knows their numbers), and what is on the way leaves room. So `start` never blocks, and a
 * long copy holds up neither its neighbors in other queues nor the signs of life of the connection. */
#define _POSIX_C_SOURCE 200809L
#include "platform/remote.h"
#include "request.h"

#include <stdio.h>

enum { POINT_FROM = 1 << 15 }; /* bytes from which a body is read in place and not copied */

static const char *wrong_region(const inlay_region_t *region, size_t bytes)
{
    const inlay_memory_t *memory = region->memory;
    if (!memory || (region->offset <= memory->bytes && bytes <= memory->bytes - region->offset))
        return NULL;
    return "found bytes beyond the end of a memory";
}

static const char *wrong_request(const inlay_device_t *device, const inlay_request_t *request)
{
    const uint32_t n_lanes = device->facts.units * device->facts.queues_per_unit;
    uint32_t i;
    if (request->queue >= n_lanes) return "found a queue that the device has not";
    if (request->n_after > WIRE_MOST_TICKETS)
        return "found more tickets than a request may wait for";
    for (i = 0; i < request->n_after; i++)
        if (request->after[i].queue >= n_lanes ||
            request->after[i].number > device->lanes[request->after[i].queue].started)
            return "found a ticket of no request";
    if (request->action == INLAY_COPY) {
        const char *wrong = wrong_region(&request->to, request->bytes);
        if (!request->to.memory && !request->from.memory && request->bytes)
            return "found a copy from the host to the host";
        return wrong ? wrong : wrong_region(&request->from, request->bytes);
    }
    if (request->n_buffers > WIRE_MOST_BUFFERS) return "found more buffers than a launch may have";
    if (request->n_ints > WIRE_MOST_INTS) return "found more integers than a launch may have";
    if (request->n_phases > WIRE_MOST_PHASES) return "found more phases than a launch may have";
    for (i = 0; i < request->n_buffers; i++)
        if (!request->buffers[i].memory || wrong_region(&request->buffers[i], 0))
            return "found a buffer that is not in the memory of the device";
    return NULL;
}

/* Return the number of the last chunk of a ticket, 0 where it has ended. */
static uint64_t last_chunk(const inlay_device_t *device, const inlay_ticket_t *ticket)
{
    const flight_t *f = device->lanes[ticket->queue].first;
    while (f && f->number < ticket->number) f = f->next;
    return f && f->number == ticket->number ? f->first + f->chunks - 1 : 0;
}

/* Return a request with copies of its arrays, or NULL. */
static flight_t *make_flight(const inlay_device_t *device, const inlay_request_t *r)
{
    const uint64_t chunks = inlay_remote_chunks(r);
    const size_t size = sizeof(flight_t) + inlay_request_bytes(r) + (size_t)(chunks + 7) / 8;
    flight_t *made = inlay_take(device->carrier.host, size);
    if (!made) return NULL;
    made->size = size;
    made->after = (inlay_ticket_t *)(void *)(made + 1); /* where the first of the arrays comes */
    made->is_over = inlay_request_keep(r, &made->request, (uint8_t *)(made + 1));
    made->request.n_after = 0;
    made->chunks = chunks;
    return made;
}

static void append(inlay_device_t *device, flight_t *flight, const inlay_request_t *given)
{
    lane_t *lane = &device->lanes[given->queue];
    uint32_t i;
    for (i = 0; i < given->n_after; i++) {
        const uint64_t last = last_chunk(device, &given->after[i]);
        if (!last || given->after[i].queue == given->queue) continue; /* queues work in order */
        flight->after[flight->request.n_after].queue = given->after[i].queue;
        flight->after[flight->request.n_after++].number = last;
    }
    flight->number = ++lane->started;
    flight->first = lane->chunks + 1;
    lane->chunks += flight->chunks;
    if (lane->last)
        lane->last->next = flight;
    else
        lane->first = flight;
    lane->last = flight;
    if (!lane->unsent) lane->unsent = flight;
    device->in_flight++;
    inlay_remote_hold(&flight->request);
}

inlay_status_t inlay_remote_start(inlay_device_t *device, const inlay_request_t *request,
                                  inlay_ticket_t *ticket, char *message, size_t bytes)
{
    const char *wrong;
    flight_t *flight = NULL;
    inlay_status_t status = INLAY_OK;
    pthread_mutex_lock(&device->lock);
    wrong = wrong_request(device, request);
    if (wrong) {
        if (bytes) snprintf(message, bytes, "%s", wrong);
        status = INLAY_BAD_ARGUMENT;
    } else if (device->state == LINK_LOST) {
        inlay_remote_say_lost(device, message, bytes);
        status = device->lost_status;
    } else if (!(flight = make_flight(device, request))) {
        status = INLAY_OUT_OF_MEMORY;
    } else {
        append(device, flight, request);
        ticket->queue = request->queue;
        ticket->number = flight->number;
        if (!pthread_equal(pthread_self(), device->thread)) inlay_wakeup_signal(device->wakeup);
    }
    pthread_mutex_unlock(&device->lock);
    return status;
}

/* ------------------------------------------------------------------------------------- sending */

/* Whether bytes of the host that a WRITE sends are still to come, by a READ. What it comes after has
 * been sent by now, so a READ that has not been is none of those. */
static int is_awaited(const inlay_device_t *device, const flight_t *f)
{
    const uint8_t *begin = f->request.from.host, *end = begin + f->request.bytes;
    uint32_t i;
    for (i = 0; i < WIRE_MOST_QUEUES; i++) {
        const flight_t *r = device->lanes[i].first;
        for (; r && r->sent; r = r->next) {
            const uint8_t *to = r->request.to.host;
            if (inlay_remote_kind_of(&r->request) == WIRE_READ && to < end &&
                begin < to + r->request.bytes)
                return 1;
        }
    }
    return 0;
}

static int may_send(const inlay_device_t *device, const flight_t *f)
{
    const size_t bytes = inlay_remote_chunk_bytes(f, f->sent);
    uint32_t i;
    if (device->requests_on_the_way >= WIRE_MOST_REQUESTS) return 0;
    if (device->bytes_on_the_way + bytes > device->window) return 0;
    for (i = 0; i < f->request.n_after; i++)
        if (device->lanes[f->after[i].queue].sent < f->after[i].number) return 0;
    return inlay_remote_kind_of(&f->request) != WIRE_WRITE || !is_awaited(device, f);
}

static void write_region(wire_writer_t *w, const inlay_region_t *region, size_t more)
{
    inlay_wire_u32(w, region->memory->id);
    inlay_wire_u64(w, region->offset + more);
}

static void write_launch(wire_writer_t *w, const inlay_request_t *r)
{
    uint32_t i;
    inlay_wire_u32(w, r->program->id);
    inlay_wire_u32(w, r->kernel);
    inlay_wire_u32(w, r->n_buffers);
    for (i = 0; i < r->n_buffers; i++) write_region(w, &r->buffers[i], 0);
    inlay_wire_u32(w, r->n_ints);
    for (i = 0; i < r->n_ints; i++) inlay_wire_i64(w, r->ints[i]);
    inlay_wire_u32(w, r->n_phases);
    for (i = 0; i < r->n_phases; i++) inlay_wire_i64(w, r->items[i]);
}

static void write_head(wire_writer_t *w, const flight_t *f)
{
    const inlay_request_t *r = &f->request;
    const uint32_t kind = inlay_remote_kind_of(r);
    const size_t done = (size_t)f->sent * WIRE_CHUNK;
    uint32_t i;
    inlay_wire_begin(w, kind);
    inlay_wire_u32(w, r->queue);
    inlay_wire_u64(w, f->first + f->sent);
    inlay_wire_u32(w, f->sent ? 0 : r->n_after); /* later chunks come after the first */
    for (i = 0; i < r->n_after && !f->sent; i++) {
        inlay_wire_u32(w, f->after[i].queue);
        inlay_wire_u64(w, f->after[i].number);
    }
    if (kind == WIRE_LAUNCH) {
        write_launch(w, r);
    } else if (kind == WIRE_COPY) {
        /* Without bytes a copy is a wait, and its regions say nothing. */
        inlay_wire_u32(w, r->bytes ? r->to.memory->id : 0);
        inlay_wire_u64(w, r->bytes ? r->to.offset : 0);
        inlay_wire_u32(w, r->bytes ? r->from.memory->id : 0);
        inlay_wire_u64(w, r->bytes ? r->from.offset : 0);
        inlay_wire_u64(w, r->bytes);
    } else if (kind == WIRE_WRITE) {
        write_region(w, &r->to, done);
    } else {
        write_region(w, &r->from, done);
        inlay_wire_u64(w, inlay_remote_chunk_bytes(f, f->sent));
    }
}

static int set_body(const carrier_t *carrier, packet_t *packet, const flight_t *f)
{
    const size_t bytes = inlay_remote_chunk_bytes(f, f->sent);
    const uint8_t *from = (const uint8_t *)f->request.from.host + (size_t)f->sent * WIRE_CHUNK;
    int made;
    if (bytes >= POINT_FROM) {
        made = carrier->zmq.around(&packet->body, (void *)(uintptr_t)from, bytes, NULL, NULL);
    } else {
        made = carrier->zmq.sized(&packet->body, bytes);
        if (made == 0) memcpy(carrier->zmq.data(&packet->body), from, bytes);
    }
    packet->has_body = made == 0;
    return made == 0;
}

/* Send the next chunk of a flight; false where there is no memory, or the socket takes nothing. */
static int send_chunk(inlay_device_t *device, lane_t *lane, flight_t *f)
{
    const carrier_t *carrier = &device->carrier;
    wire_writer_t w;
    packet_t packet;
    write_head(&w, f);
    if (!inlay_packet_fill(carrier, &packet, &w)) return 0;
    if (inlay_remote_kind_of(&f->request) == WIRE_WRITE && !set_body(carrier, &packet, f)) {
        inlay_packet_clear(carrier, &packet);
        return 0;
    }
    if (!f->sent) f->left = inlay_remote_now(device);
    if (!inlay_packet_send(carrier, device->socket, &packet)) return 0;
    device->bytes_on_the_way += inlay_remote_chunk_bytes(f, f->sent);
    device->requests_on_the_way++;
    lane->sent = f->first + f->sent++;
    if (f->sent == f->chunks) {
        lane->unsent = f->next;
        inlay_remote_let_go(device, &f->request);
    }
    return 1;
}

/* One chunk of each queue in turn, so that none waits for the copies of another. */
int inlay_remote_send_requests(inlay_device_t *device)
{
    const uint32_t n = device->facts.units * device->facts.queues_per_unit;
    uint32_t i, idle = 0;
    for (i = device->next_lane; n && idle < n; i = (i + 1) % n) {
        lane_t *lane = &device->lanes[i];
        if (!lane->unsent || !may_send(device, lane->unsent)) {
            idle++;
            continue;
        }
        if (!send_chunk(device, lane, lane->unsent)) return 0;
        device->next_lane = (i + 1) % n;
        idle = 0;
    }
    return 1;
}
