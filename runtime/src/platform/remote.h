/* What the files of the driver of remote devices share: see remote.c. */
#ifndef INLAY_REMOTE_H
#define INLAY_REMOTE_H

#include <pthread.h>

#include "inlay_driver.h"
#include "platform/key.h"

struct inlay_memory {
    uint32_t id, unit;
    size_t bytes;
    uint32_t users; /* the owner, and requests that are not sent yet */
};

typedef struct found {
    struct found *next;
    char name[WIRE_MOST_NAME + 1];
    uint32_t n_phases;
    int32_t kernel;
} found_t;

struct inlay_program {
    uint32_t id, users;
    found_t *found; /* kernels that were asked for */
};

/* A request from `start` to `done`. A long copy is several requests to the server, its *chunks*. */
typedef struct flight {
    struct flight *next; /* of its queue, in order */
    inlay_request_t request;
    inlay_ticket_t *after;       /* as the server numbers them; only those that had not ended */
    uint64_t number;             /* of the ticket */
    uint64_t first, chunks;      /* numbers of its chunks at the server: first, first + 1, ... */
    uint64_t sent, ended;        /* chunks */
    uint8_t *is_over;            /* a bit for each chunk */
    inlay_status_t status;
    int64_t answer;
    char *text;                  /* why it failed, or NULL */
    int64_t left, begun;         /* when the first chunk was sent, and the device began with it */
    size_t size;                 /* of this object with its arrays */
} flight_t;

typedef struct lane {
    flight_t *first, *last, *unsent;
    uint64_t started, telling;   /* numbers of the last ticket, and of what is being told; 0: nothing */
    uint64_t chunks, sent;       /* numbers of the last chunk that was made, and that was sent */
    int64_t busy_until;          /* when the last one ended, as far as times are asked for */
} lane_t;

/* A thread that waits for an answer of the server. */
typedef struct call {
    struct call *next;
    uint32_t number;
    int is_over;
    inlay_status_t status;
    int64_t value;
    char *message;
    size_t message_bytes;
} call_t;

typedef enum link_state { LINK_OPENING, LINK_OPEN, LINK_LOST } link_state_t;

struct inlay_device {
    carrier_t carrier;
    char endpoint[256];
    char key[KEY_PATH];           /* file of the key, empty where there is none */
    uint64_t window;              /* bytes of copies on their way, at most */
    int64_t timeout_ms, connect_ms;

    pthread_t thread;             /* owns what follows */
    void *context, *socket, *monitor;
    int64_t begun, heard, spoke;  /* milliseconds */
    int64_t asked;                /* ns: when the server was asked for its clock, or 0 */
    int64_t skew_least, skew_most; /* ns to add to its clock for the host's: within these, once compared */
    int is_compared, to_compare;  /* how many times more */

    pthread_mutex_t lock;         /* guards what follows */
    pthread_cond_t changed;
    int wakeup[2];
    link_state_t state;
    int is_closing;
    inlay_status_t lost_status;
    char lost[512];               /* why */
    inlay_device_facts_t facts;
    packet_t *urgent, **urgent_end; /* to be sent before any request */
    call_t *calls;
    uint32_t last_call, next_lane;
    lane_t lanes[WIRE_MOST_QUEUES];
    uint64_t bytes_on_the_way;
    uint32_t requests_on_the_way, in_flight;
};

/* remote_flight.c: the clock of the host, in ns; 0 where nobody watches. */
int64_t inlay_remote_now(const inlay_device_t *device);
/* Learn from what the server did between two times of its clock, which the host knows to have been after
 * `asked` and before `heard`, how far the clocks are apart. */
void inlay_remote_compare_clocks(inlay_device_t *device, int64_t asked, int64_t begun, int64_t over,
                                 int64_t heard);
/* Say that the connection is lost. Under the lock. */
void inlay_remote_say_lost(const inlay_device_t *device, char *message, size_t bytes);
/* What message says a request, in how many chunks, and bytes of the host that go with one. */
uint32_t inlay_remote_kind_of(const inlay_request_t *request);
uint64_t inlay_remote_chunks(const inlay_request_t *request);
size_t inlay_remote_chunk_bytes(const flight_t *flight, uint64_t chunk);
/* Put a message into the list of those to be sent; false where there is no memory. Under the lock. */
int inlay_remote_post(inlay_device_t *device, const wire_writer_t *head, const void *body,
                      size_t body_bytes);
/* Take one user from a memory or a program; the last one gives it back. Under the lock. */
void inlay_remote_leave_memory(inlay_device_t *device, inlay_memory_t *memory);
void inlay_remote_leave_program(inlay_device_t *device, inlay_program_t *program);
/* Keep what sending a request needs; give it back. Under the lock. */
void inlay_remote_hold(const inlay_request_t *request);
void inlay_remote_let_go(inlay_device_t *device, const inlay_request_t *request);

/* remote_link.c: the thread of a connection. */
void *inlay_remote_run(void *device);

/* remote_start.c: requests until they are sent. */
inlay_status_t inlay_remote_start(inlay_device_t *device, const inlay_request_t *request,
                                  inlay_ticket_t *ticket, char *message, size_t bytes);
/* Send what may be sent now; false where the socket takes no more. Under the lock. */
int inlay_remote_send_requests(inlay_device_t *device);

/* remote_end.c: how they end. */
/* What the server says of the end of a chunk. */
typedef struct ended {
    uint32_t queue;
    uint64_t number;
    inlay_status_t status;
    int64_t answer, begun, over; /* times of the server's clock, or 0 */
    char text[WIRE_MOST_TEXT + 1];
} ended_t;

/* Note that a chunk has ended; returns the flight when that was its last, taken out of its queue.
 * `is_bad` where the server speaks of what is not on its way. Without the lock. */
flight_t *inlay_remote_end_chunk(inlay_device_t *device, const ended_t *ended, packet_t *packet,
                                 int *is_bad);
/* Fail everything that has not ended. Without the lock, when the sockets are closed. */
void inlay_remote_fail_all(inlay_device_t *device);
/* Tell the end of a flight, without the lock, and give it back. */
void inlay_remote_tell(inlay_device_t *device, flight_t *flight);

#endif
