/* Keys of connections: see key.c. */
#ifndef INLAY_KEY_H
#define INLAY_KEY_H

#include "platform/packet.h"

enum { KEY_TEXT = 40, KEY_BYTES = 32 };

typedef struct inlay_key {
    char own[KEY_TEXT + 1];    /* what the file holds */
    char told[KEY_TEXT + 1];   /* the public half, which proves the other */
    uint8_t wanted[KEY_BYTES]; /* the public half as bytes */
} inlay_key_t;

/* Read a key from a file. */
inlay_status_t inlay_key_read(const carrier_t *carrier, const char *path, inlay_key_t *key,
                              char *message, size_t bytes);
/* Let a socket that will connect, or listen, speak to those with the key only; false on failure. */
int inlay_key_of_client(const carrier_t *carrier, void *socket, const inlay_key_t *key);
int inlay_key_of_server(const carrier_t *carrier, void *socket, const inlay_key_t *key);

/* Make the socket that is asked whether a client may come in; before the server listens. NULL on
 * failure. */
void *inlay_door_open(const carrier_t *carrier, void *context);
/* Answer all that is asked there now. */
void inlay_door_answer(const carrier_t *carrier, void *door, const inlay_key_t *key);

#endif
