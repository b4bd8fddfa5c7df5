#include "waiting.h"

inlay_memory_t *inlay_memory_make(const inlay_host_t *host, uint32_t unit, size_t bytes)
{
    inlay_memory_t *made = host->allocate(host->user, HEAD_BYTES + bytes, HEAD_BYTES);
    if (!made) return NULL;
    made->bytes = bytes;
    made->unit = unit;
    made->users = 1;
    return made;
}

void *inlay_region_address(const inlay_region_t *region)
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

const char *inlay_lanes_refuse(const lane_t *lanes, uint32_t n, const inlay_request_t *request)
{
    uint32_t i;
    if (request->queue >= n) return "found a queue that the device has not";
    for (i = 0; i < request->n_after; i++)
        if (request->after[i].queue >= n ||
            request->after[i].number > lanes[request->after[i].queue].started)
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

waiting_t *inlay_lanes_add(const inlay_host_t *host, lane_t *lanes, const inlay_request_t *request,
                           inlay_ticket_t *ticket)
{
    const size_t size = sizeof(waiting_t) + inlay_request_bytes(request);
    lane_t *lane = &lanes[request->queue];
    waiting_t *made = inlay_take(host, size);
    uint32_t i;
    if (!made) return NULL;
    made->size = size;
    inlay_request_keep(request, &made->request, (uint8_t *)(made + 1));
    request = &made->request;
    if (request->to.memory) request->to.memory->users++;
    if (request->from.memory) request->from.memory->users++;
    for (i = 0; i < request->n_buffers; i++) request->buffers[i].memory->users++;
    *lane->end = made;
    lane->end = &made->next;
    ticket->queue = request->queue;
    ticket->number = ++lane->started;
    return made;
}

int inlay_lanes_ready(const lane_t *lanes, const inlay_request_t *request)
{
    uint32_t i;
    for (i = 0; i < request->n_after; i++)
        if (lanes[request->after[i].queue].ended < request->after[i].number) return 0;
    return 1;
}

waiting_t *inlay_lane_take(lane_t *lane)
{
    waiting_t *first = lane->first;
    lane->first = first->next;
    if (!lane->first) lane->end = &lane->first;
    return first;
}
