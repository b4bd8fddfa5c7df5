/* Keys of connections: see key.c. */
#ifndef INLAY_KEY_H
#define INLAY_KEY_H

#include "platform/packet.h"

enum { KEY_TEXT = 40, KEY_BYTES = 32, KEY_PATH = 512 };

#define KEY_NONE "none" /* for a path: do without a key */

typedef struct inlay_key {
    char path[KEY_PATH];       /* of its file */
    char own[KEY_TEXT + 1];    /* what the file holds */
    char told[KEY_TEXT + 1];   /* the public half, which proves the other */
    uint8_t wanted[KEY_BYTES]; /* the public half as bytes */
} inlay_key_t;

/* Store the path of a key (KEY_PATH bytes): `path`, or that of this user where it is NULL. Where there is no
 * file a new key is written, for its owner only; `is_new` tells. */
inlay_status_t inlay_key_find(const char *path, char *found, int *is_new, char *message, size_t bytes);
/* Read a key: that of a file, which must be there, or of this user. */
inlay_status_t inlay_key_read(const carrier_t *carrier, const char *path, inlay_key_t *key,
                              char *message, size_t bytes);
/* Let a socket that will connect, or listen, speak to those with the key only; false on failure. */
int inlay_key_of_client(const carrier_t *carrier, void *socket, const inlay_key_t *key);
int inlay_key_of_server(const carrier_t *carrier, void *socket, const inlay_key_t *key);

/* Make the socket that is asked whether a client may come in; before the server listens. NULL on
 * failure. */
void *inlay_authenticator_open(const carrier_t *carrier, void *context);
/* Answer all that is asked there now. */
void inlay_authenticator_answer(const carrier_t *carrier, void *socket, const inlay_key_t *key);

#endif
