/* What the files of the server of devices share: see serve.c. */
#ifndef INLAY_SERVE_INTERNAL_H
#define INLAY_SERVE_INTERNAL_H

#include <pthread.h>

#include "inlay_serve.h"
#include "platform/channel.h"
#include "platform/key.h"
#include "platform/spawner.h"

/* ---------------------------------------------------------------------------- what a client waits for */

/* A request that has not ended. */
typedef struct watched {
    struct watched *next;
    inlay_ticket_t *after; /* of other queues */
    uint32_t n_after;
    int is_over;
    uint64_t number;
    uint32_t slot; /* of its body, or of that of its answer */
    int64_t begun; /* when nothing was before it any more, in ms; 0: something is */
    size_t size;
} watched_t;

typedef struct watched_lane {
    watched_t *first, *last;
    uint64_t sent, ended; /* numbers; all up to `ended` have */
} watched_lane_t;

typedef struct watch {
    watched_lane_t lanes[WIRE_MOST_QUEUES];
    uint32_t in_flight, calls;
    int64_t call_begun; /* when the oldest call became that, in ms */
} watch_t;

/* serve_watch.c: note a message of a client with its slot, or of its process; false where it makes no
 * sense. `slot` is then that of the request that has ended. */
int inlay_watch_sent(const carrier_t *carrier, watch_t *watch, wire_reader_t r, uint32_t slot,
                     int64_t now);
int inlay_watch_ended(const carrier_t *carrier, watch_t *watch, wire_reader_t r, uint32_t *slot,
                      int64_t now);
/* Return since when what is longest under way is, in ms; INT64_MAX where nothing is. */
int64_t inlay_watch_oldest(const watch_t *watch);
void inlay_watch_clear(const carrier_t *carrier, watch_t *watch);

/* ---------------------------------------------------------------------------- clients, in the server */

typedef struct client {
    struct client *next;
    uint32_t id; /* of its process */
    uint32_t name_bytes;
    uint8_t name[255];
    int64_t heard, used, patience; /* milliseconds; used: when it last wanted something */
    int64_t parted;                /* when it was forgotten, or its process hung up; 0: not yet */
    int is_killed;
    channel_t channel;
    watch_t watch;
} client_t;

struct inlay_server {
    carrier_t carrier;
    const inlay_driver_t *driver;
    char *options;
    size_t options_bytes;
    uint64_t memory_bytes, window;
    int64_t most_ms, idle_ms; /* 0: nothing bounds them */
    uint32_t most_clients;
    char endpoint[256];
    inlay_key_t key;
    void *context, *socket;
    void *authenticator;               /* where ZeroMQ asks who may come in; NULL: anybody may */
    spawner_t spawner;
    client_t *clients, *leaving; /* leaving: forgotten, with a process that has not ended yet */
    uint32_t n_clients, last_id;
    int wakeup[2];
    volatile int is_stopping; /* set by any thread or signal handler, before the wakeup */
};

/* serve_outbox.c: say a message to a client, whether or not it is there. */
void inlay_serve_say(inlay_server_t *server, const uint8_t *to, uint32_t to_bytes,
                     const wire_writer_t *w);

/* serve_client.c: begin to serve; returns why not, or NULL. */
const char *inlay_client_begin(inlay_server_t *server, const packet_t *hello, uint32_t patience);
/* Hear a message of a client, or what its process says. Packets are given or cleared. */
void inlay_client_hear(inlay_server_t *server, client_t *client, packet_t *packet);
void inlay_client_hear_process(inlay_server_t *server, client_t *client);
/* Hear how a process ended. */
void inlay_client_bury(inlay_server_t *server, const spawner_report_t *report);
/* Forget a client; its process ends what is in flight, for a while. */
void inlay_client_forget(inlay_server_t *server, client_t *client);
/* End clients that are silent, idle, or over their limits, and processes that do not end. */
void inlay_client_look_at_all(inlay_server_t *server);

/* -------------------------------------------------------------------------- the process of a client */

/* Numbers of things that a client knows by number. */
typedef struct table {
    void **items; /* NULL where free */
    uint32_t room;
} table_t;

typedef struct served_memory {
    inlay_memory_t *memory;
    uint64_t counted; /* bytes */
} served_memory_t;

typedef struct served_kernel {
    struct served_kernel *next;
    uint32_t kernel, n_phases;
} served_kernel_t;

typedef struct served_program {
    inlay_program_t *program;
    served_kernel_t *kernels; /* that were found: no other may be launched */
    uint64_t counted;
} served_program_t;

typedef struct session {
    const inlay_server_t *server; /* as it was when the spawner was made: nothing is open */
    const carrier_t *carrier;
    line_t line;
    int has_failed;
    inlay_device_t *device;
    inlay_device_facts_t facts;
    table_t memories, programs;
    uint64_t counted; /* bytes of memories and programs */

    pthread_mutex_t speaking; /* one message at a time */
    pthread_mutex_t lock;     /* guards what follows */
    size_t bytes_in_flight;
    uint32_t in_flight;
} session_t;

/* serve_session.c: the work of a process. */
void inlay_session_run(const void *server, const int *files);

/* serve_outbox.c: say a message to the server, its body in a slot if it has one. Any thread. */
void inlay_session_say(session_t *session, const wire_writer_t *head, const void *body, size_t bytes,
                       uint32_t slot);

/* serve_request.c: requests of a client; false where they make no sense. */
int inlay_session_request(session_t *session, uint32_t kind, wire_reader_t *r, parcel_t *parcel);

/* serve_table.c: a number for a thing, or UINT32_MAX where there is no memory; the thing of a number, or NULL. */
uint32_t inlay_table_add(const carrier_t *carrier, table_t *table, void *item);
void *inlay_table_at(const table_t *table, uint32_t number);

#endif
