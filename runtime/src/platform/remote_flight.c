/* Requests of a remote device and what they hold, whichever way they are on: see remote.c. */
#define _POSIX_C_SOURCE 200809L
#include "platform/remote.h"

#include <stdio.h>

int64_t inlay_remote_now(const inlay_device_t *device)
{
    const inlay_host_t *host = device->carrier.host;
    return host->now && host->event ? host->now(host->user) : 0;
}

/* All that is known of the clocks bounds the same number, so what was learned is narrowed; clocks that
 * drifted apart since then contradict it, and the newest is believed. */
void inlay_remote_compare_clocks(inlay_device_t *device, int64_t asked, int64_t begun, int64_t over,
                                 int64_t heard)
{
    const int64_t least = asked - begun, most = heard - over;
    const int narrows = device->is_compared && least <= device->skew_most && most >= device->skew_least;
    if (least > most) return; /* the clocks go at different rates */
    if (!narrows || least > device->skew_least) device->skew_least = least;
    if (!narrows || most < device->skew_most) device->skew_most = most;
    device->is_compared = 1;
}

void inlay_remote_say_lost(const inlay_device_t *device, char *message, size_t bytes)
{
    if (bytes) snprintf(message, bytes, "the device at %s: %s", device->endpoint, device->lost);
}

uint32_t inlay_remote_kind_of(const inlay_request_t *r)
{
    if (r->action != INLAY_COPY) return WIRE_LAUNCH;
    if ((r->to.memory && r->from.memory) || !r->bytes) return WIRE_COPY;
    return r->to.memory ? WIRE_WRITE : WIRE_READ;
}

uint64_t inlay_remote_chunks(const inlay_request_t *r)
{
    const uint32_t kind = inlay_remote_kind_of(r);
    return kind == WIRE_WRITE || kind == WIRE_READ ? (r->bytes + WIRE_CHUNK - 1) / WIRE_CHUNK : 1;
}

size_t inlay_remote_chunk_bytes(const flight_t *f, uint64_t chunk)
{
    const uint32_t kind = inlay_remote_kind_of(&f->request);
    const size_t rest = f->request.bytes - (size_t)chunk * WIRE_CHUNK;
    if (kind != WIRE_WRITE && kind != WIRE_READ) return 0;
    return rest < WIRE_CHUNK ? rest : WIRE_CHUNK;
}

/* ------------------------------------------------------------------- messages before any request */

int inlay_remote_post(inlay_device_t *device, const wire_writer_t *head, const void *body,
                      size_t body_bytes)
{
    packet_t *packet;
    if (device->state == LINK_LOST) return 1; /* nobody will read it */
    packet = inlay_packet_of(&device->carrier, head);
    if (!packet) return 0;
    if (body) {
        if (device->carrier.zmq.sized(&packet->body, body_bytes) != 0) {
            inlay_packet_drop(&device->carrier, packet);
            return 0;
        }
        memcpy(device->carrier.zmq.data(&packet->body), body, body_bytes);
        packet->has_body = 1;
    }
    *device->urgent_end = packet;
    device->urgent_end = &packet->next;
    inlay_wakeup_signal(device->wakeup);
    return 1;
}

static void post_number(inlay_device_t *device, uint32_t kind, uint32_t number)
{
    wire_writer_t w;
    inlay_wire_begin(&w, kind);
    inlay_wire_u32(&w, number);
    /* Without memory the server keeps it until the connection ends. */
    (void)inlay_remote_post(device, &w, NULL, 0);
}

/* ---------------------------------------------------------------------------- users of what is there */

void inlay_remote_leave_memory(inlay_device_t *device, inlay_memory_t *memory)
{
    if (--memory->users) return;
    post_number(device, WIRE_RELEASE, memory->id);
    inlay_give(device->carrier.host, memory, sizeof *memory);
}

void inlay_remote_leave_program(inlay_device_t *device, inlay_program_t *program)
{
    if (--program->users) return;
    post_number(device, WIRE_UNLOAD, program->id);
    while (program->found) {
        found_t *next = program->found->next;
        inlay_give(device->carrier.host, program->found, sizeof *program->found);
        program->found = next;
    }
    inlay_give(device->carrier.host, program, sizeof *program);
}

void inlay_remote_hold(const inlay_request_t *r)
{
    uint32_t i;
    if (r->to.memory) r->to.memory->users++;
    if (r->from.memory) r->from.memory->users++;
    if (r->program) r->program->users++;
    for (i = 0; i < r->n_buffers; i++) r->buffers[i].memory->users++;
}

void inlay_remote_let_go(inlay_device_t *device, const inlay_request_t *r)
{
    uint32_t i;
    if (r->to.memory) inlay_remote_leave_memory(device, r->to.memory);
    if (r->from.memory) inlay_remote_leave_memory(device, r->from.memory);
    if (r->program) inlay_remote_leave_program(device, r->program);
    for (i = 0; i < r->n_buffers; i++) inlay_remote_leave_memory(device, r->buffers[i].memory);
}
