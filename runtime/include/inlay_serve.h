/* A server of a device: offers what a driver drives to clients, which use it as `remote`.
 *
 * Every client gets a device of its own, opened by the same driver with the same options, so clients do
 * not meet; what a client leaves is given back when it goes, or when it has been silent for as long as
 * it said it would not be. A client runs code here: whoever can connect can do what this process can.
 * With a key only those connect who have it too, and what is said is encrypted. Without one, bind to
 * the loopback address of a machine whose users are trusted, or to a network whose machines are.
 *
 *     inlay_server_open -> inlay_server_run (until inlay_server_stop) -> inlay_server_close
 */
#ifndef INLAY_SERVE_H
#define INLAY_SERVE_H

#include "inlay_driver.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct inlay_server inlay_server_t;

typedef struct inlay_server_config {
    const inlay_driver_t *driver;
    const char *options;   /* of the driver */
    const char *endpoint;  /* `tcp://127.0.0.1:5555`; port `*` for any that is free */
    const char *key;       /* path of a file with a key (platform/key.c), or NULL */
    const char *library;   /* path of libzmq, or NULL for the system's */
    uint32_t most_clients; /* 0 for the default, 16 */
} inlay_server_config_t;

/* Begin to listen. Opens a device once, so that one which is absent is told here. */
inlay_status_t inlay_server_open(const inlay_host_t *host, const inlay_server_config_t *config,
                                 inlay_server_t **server, char *message, size_t message_bytes);
/* Return the endpoint that clients connect to, with the port that was free. */
const char *inlay_server_endpoint(const inlay_server_t *server);
/* Serve until `inlay_server_stop`; then wait for what clients have in flight, a few seconds at most. */
void inlay_server_run(inlay_server_t *server);
/* Any thread, any signal handler; also before `run`. */
void inlay_server_stop(inlay_server_t *server);
/* Give everything back; the devices of clients that did not end in time are left as they are. */
void inlay_server_close(inlay_server_t *server);

#ifdef __cplusplus
}
#endif
#endif
