/* Messages of remote devices as ZeroMQ carries them, and how threads hand them to the one that owns
 * the socket: see packet.c. */
#ifndef INLAY_PACKET_H
#define INLAY_PACKET_H

#include "host.h"
#include "platform/wire.h"
#include "platform/zmq_api.h"

/* The library, and the host that gives memory. */
typedef struct carrier {
    const inlay_host_t *host;
    void *library;
    zmq_api zmq;
} carrier_t;

typedef struct packet {
    struct packet *next;
    uint32_t to_bytes; /* of the name of a client, from a server */
    uint8_t to[255];
    uint8_t has_body;
    uint32_t slot, slot_bytes; /* of a channel: see channel.h */
    zmq_msg head, body;
} packet_t;

/* Find the library at `path`; where that is NULL, the one that the program has loaded for all to use, or
 * the system's. */
inlay_status_t inlay_carrier_open(carrier_t *carrier, const inlay_host_t *host, const char *path,
                                  char *message, size_t bytes);
/* End a context whose sockets are closed; NULL is none. Returns when what lingers is sent. */
void inlay_carrier_end(const carrier_t *carrier, void *context);

/* Give a packet this head, no body and no receiver; false where there is no memory. */
int inlay_packet_fill(const carrier_t *carrier, packet_t *packet, const wire_writer_t *head);
void inlay_packet_clear(const carrier_t *carrier, packet_t *packet);
/* Send a packet and clear it; false where the socket does not take it. What a body points at is read
 * later. */
int inlay_packet_send(const carrier_t *carrier, void *socket, packet_t *packet);
/* Fill a packet with the next message of a socket; false where there is none. `is_bad` where it has
 * another number of frames than it may. With `from`, the first frame is the name of a client. */
int inlay_packet_receive(const carrier_t *carrier, void *socket, int from, packet_t *packet,
                         int *is_bad);

/* Packets in lists are memory of the host. Each returns NULL where there is none, and then has
 * cleared what it was given. */
packet_t *inlay_packet_of(const carrier_t *carrier, const wire_writer_t *head);
packet_t *inlay_packet_keep(const carrier_t *carrier, packet_t *packet);
void inlay_packet_drop(const carrier_t *carrier, packet_t *packet);

wire_reader_t inlay_packet_read(const carrier_t *carrier, packet_t *packet);

/* A pipe that wakes a thread which polls. */
int inlay_wakeup_open(int wakeup[2]);
void inlay_wakeup_close(int wakeup[2]);
void inlay_wakeup_signal(const int wakeup[2]); /* any thread, any signal handler */
void inlay_wakeup_clear(const int wakeup[2]);

int64_t inlay_clock_ms(void);

#endif
