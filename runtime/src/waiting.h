/* Devices whose memory is the host's and whose requests wait in lists: what their drivers share. A device
 * that threads use calls all of this under its lock. */
#ifndef INLAY_WAITING_H
#define INLAY_WAITING_H

#include "host.h"
#include "request.h"

enum { MOST_UNITS = 8, QUEUES = 2, MOST_BUFFERS = 64 };
enum { HEAD_BYTES = 64 }; /* of a memory, in front of its contents */

struct inlay_memory {
    size_t bytes;
    uint32_t unit, users; /* users: the owner and requests in flight */
};

typedef struct waiting {
    struct waiting *next;
    inlay_request_t request;
    size_t size; /* of this object with its arrays */
} waiting_t;

typedef struct lane {
    waiting_t *first, **end;
    uint64_t started, ended;
} lane_t;

/* Memory with one user, or NULL. */
inlay_memory_t *inlay_memory_make(const inlay_host_t *host, uint32_t unit, size_t bytes);
void *inlay_region_address(const inlay_region_t *region);
/* Why a request cannot be started on a device with these lanes; NULL where it can. */
const char *inlay_lanes_refuse(const lane_t *lanes, uint32_t n, const inlay_request_t *request);
/* Put a copy of a request, which uses its memories, into its lane; NULL where there is no memory. */
waiting_t *inlay_lanes_add(const inlay_host_t *host, lane_t *lanes, const inlay_request_t *request,
                           inlay_ticket_t *ticket);
/* Whether all that a request comes after has ended. */
int inlay_lanes_ready(const lane_t *lanes, const inlay_request_t *request);
/* Take the first request, which there is, out of its lane. */
waiting_t *inlay_lane_take(lane_t *lane);

#endif
