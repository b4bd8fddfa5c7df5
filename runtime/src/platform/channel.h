/* What a server of devices and the process of a client say to each other, and how: see channel.c. */
#ifndef INLAY_CHANNEL_H
#define INLAY_CHANNEL_H

#include "platform/packet.h"

enum {
    CHANNEL_FROM = 1 << 15, /* bytes from which a body is worth a slot */
    CHANNEL_SLOTS = WIRE_MOST_WINDOW / WIRE_CHUNK,
    CHANNEL_NO_SLOT = 0,    /* others are numbered from 1 */
    CHANNEL_FILES = 2       /* of a process: the socket, and memory that both share or -1 */
};

/* What comes before each message: how long its parts are. With a slot, the body is there and not
 * behind the head; a request whose answer has a body says where that goes. */
typedef struct channel_frame {
    uint32_t head_bytes, body_bytes, has_body, slot;
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
    uint8_t *memory;        /* slots of WIRE_CHUNK bytes that both share; NULL where there are none */
    uint32_t slots;
    uint8_t is_taken[CHANNEL_SLOTS];
} channel_t;

/* Make two ends, that of the server and files for the process, with room for bodies; false on failure. */
int inlay_channel_open(channel_t *channel, uint64_t window, int *files);
/* Close files for a process. */
void inlay_channel_close_files(const int *files);
/* Return a slot, for bodies of one request, or CHANNEL_NO_SLOT; give one back, if it is one. */
uint32_t inlay_channel_take_slot(channel_t *channel);
void inlay_channel_give_slot(channel_t *channel, uint32_t slot);
void inlay_channel_close(const carrier_t *carrier, channel_t *channel);
/* Put a packet, which is taken, behind what is to be sent. */
void inlay_channel_give(const carrier_t *carrier, channel_t *channel, packet_t *packet);
/* Send what can be sent now. What a process does not take any more is lost. */
void inlay_channel_send(const carrier_t *carrier, channel_t *channel);
/* Fill a packet with the next message: 1; 0 where none is there yet; -1 where none will come, because the
 * other end is closed or speaks nonsense. */
int inlay_channel_next(const carrier_t *carrier, channel_t *channel, packet_t *packet);

/* The end of the process, which waits. */
typedef struct line {
    int file;
    uint8_t *memory;
    uint32_t slots;
} line_t;

/* A message that came. */
typedef struct parcel {
    uint32_t head_bytes, body_bytes;
    uint8_t *body; /* memory of the host, or a slot; NULL where there is none */
    uint32_t slot; /* of the body, or for that of the answer; CHANNEL_NO_SLOT: none */
    int has_body;
    uint8_t head[WIRE_MOST_HEAD];
} parcel_t;

void inlay_channel_join(line_t *line, const int *files);
void inlay_channel_leave(line_t *line);
/* Return where a slot is. */
uint8_t *inlay_channel_slot(const line_t *line, uint32_t slot);
/* Say a message as one, with a body that is in a slot if it has one; one thread at a time. False where
 * nobody listens any more. */
int inlay_channel_say(const line_t *line, const wire_writer_t *head, const void *body,
                      size_t body_bytes, uint32_t slot);
/* Hear the next message; false where none will come, or where there is no memory for it. */
int inlay_channel_hear(const carrier_t *carrier, const line_t *line, parcel_t *parcel);
/* Give back the body of a message, if it is not taken and no slot. */
void inlay_channel_drop(const carrier_t *carrier, parcel_t *parcel);

#endif
