/* What the files of the server of devices share: see serve.c. */
#ifndef INLAY_SERVE_INTERNAL_H
#define INLAY_SERVE_INTERNAL_H

#include <pthread.h>

#include "inlay_serve.h"
#include "platform/key.h"

/* Numbers of things that a client knows by number. */
typedef struct table {
    void **items; /* NULL where free */
    uint32_t room;
} table_t;

typedef struct served_program {
    inlay_program_t *program;
    struct served_kernel *kernels; /* that were found: no other may be launched */
} served_program_t;

typedef struct session {
    struct session *next;
    inlay_server_t *server;
    uint32_t name_bytes;
    uint8_t name[255];
    int64_t heard, patience;  /* milliseconds; of the thread of the server */

    inlay_device_t *device;   /* of the thread of the session */
    inlay_device_facts_t facts;
    table_t memories, programs;

    pthread_mutex_t lock;     /* guards what follows */
    pthread_cond_t changed;
    packet_t *inbox, **inbox_end;
    size_t inbox_bytes;
    size_t bytes_in_flight;
    uint32_t in_flight;
    int is_ending;            /* the server has forgotten it */
    int has_failed;           /* it asks to be forgotten */
} session_t;

struct inlay_server {
    carrier_t carrier;
    const inlay_driver_t *driver;
    char *options;
    size_t options_bytes;
    uint32_t most_clients;
    char endpoint[256];
    inlay_key_t key;
    void *context, *socket;   /* of the thread that runs */
    void *door;               /* where ZeroMQ asks who may come in; NULL: anybody may */
    session_t *sessions;
    uint32_t n_sessions;
    int bell[2];
    volatile int is_stopping; /* set by any thread or signal handler, before the bell */

    pthread_mutex_t lock;     /* guards what follows */
    pthread_cond_t changed;
    packet_t *outbox, **outbox_end;
    uint32_t alive;           /* sessions whose threads have not ended */
};

/* serve.c: the server's clock, in ns; 0 where it has none. Any thread. */
int64_t inlay_serve_now(const inlay_server_t *server);
/* serve.c: hand a packet to the thread that owns the socket. Any thread. */
void inlay_serve_post(session_t *session, packet_t *packet);

/* serve_session.c: begin to serve a client; NULL where there is no memory or no thread. */
session_t *inlay_session_begin(inlay_server_t *server, packet_t *hello, uint32_t patience);
/* Hand the contents of a packet over. */
void inlay_session_give(session_t *session, packet_t *packet);
int inlay_session_has_failed(session_t *session);
/* Let its thread end what is in flight, give everything back and go. */
void inlay_session_end(session_t *session);

/* serve_request.c: requests of a client; false where they make no sense. */
int inlay_session_request(session_t *session, uint32_t kind, wire_reader_t *r, packet_t *packet);

/* A number for a thing, or UINT32_MAX where there is no memory; the thing of a number, or NULL. */
uint32_t inlay_table_add(const carrier_t *carrier, table_t *table, void *item);
void *inlay_table_at(const table_t *table, uint32_t number);

typedef struct served_kernel {
    struct served_kernel *next;
    uint32_t kernel, n_phases;
} served_kernel_t;

#endif
