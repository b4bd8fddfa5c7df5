/* What a server of devices and the process of a client say to each other, and how: see channel.c. */
#ifndef INLAY_CHANNEL_H
#define INLAY_CHANNEL_H

#include "platform/packet.h"

/* What comes before each message: how long its parts are. */
typedef struct channel_frame {
    uint32_t head_bytes, body_bytes, has_body;
} channel_frame_t;

/* The server's end, which never waits. */
typedef struct channel {
    int file; /* -1 where there is none */
    packet_t *first, **end; /* to be sent */
    size_t sent;            /* bytes of the first */
    size_t waiting;         /* bytes of all */
    channel_frame_t frame;  /* of what comes */
    size_t got;             /* bytes of it, with its frame */
    packet_t coming;
} channel_t;

/* Make two ends, that of the server and a file for the process; false on failure. */
int inlay_channel_open(channel_t *channel, int *other);
void inlay_channel_close(const carrier_t *carrier, channel_t *channel);
/* Put a packet, which is taken, behind what is to be sent. */
void inlay_channel_give(const carrier_t *carrier, channel_t *channel, packet_t *packet);
/* Send what can be sent now. What a process does not take any more is lost. */
void inlay_channel_send(const carrier_t *carrier, channel_t *channel);
/* Fill a packet with the next message: 1; 0 where none is there yet; -1 where none will come, because the
 * other end is closed or speaks nonsense. */
int inlay_channel_next(const carrier_t *carrier, channel_t *channel, packet_t *packet);

/* The end of the process, which waits. A message that came; `body` is memory of the host. */
typedef struct parcel {
    uint32_t head_bytes, body_bytes;
    uint8_t *body; /* NULL where there is none */
    int has_body;
    uint8_t head[WIRE_MOST_HEAD];
} parcel_t;

/* Say a message as one; one thread at a time. False where nobody listens any more. */
int inlay_channel_say(int file, const wire_writer_t *head, const void *body, size_t body_bytes);
/* Hear the next message; false where none will come, or where there is no memory for it. */
int inlay_channel_hear(const carrier_t *carrier, int file, parcel_t *parcel);

#endif
