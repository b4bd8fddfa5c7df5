/* A server of a device: offers what a driver drives to clients, which use it as `remote`.
 *
 * Every client gets a process of its own, and in it a device that the same driver opens with the same
 * options. So what one client's code does to its process ends that client alone, and all that a client
 * had is given back when its process ends: when it goes, has been silent for as long as it said it would
 * not be, or has used up what the server allows.
 *
 * A client runs code here: whoever can connect can do what this user can. Processes keep faults apart,
 * not enemies. Only those connect who have the key, and what is said is encrypted; without a key, bind to
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
    const char *key;       /* path of a file with a key (platform/key.c); NULL for that of the user,
                            * which is made where there is none; "none" to let anybody in */
    const char *library;   /* path of libzmq, or NULL for the system's */
    uint32_t most_clients; /* 0 for the default, 16 */
    /* What a client may have; 0 where nothing bounds it. */
    uint64_t memory_bytes; /* of its device, for tensors and code */
    uint32_t seconds;      /* that a request of it, or the building of code, may take */
    uint32_t idle_seconds; /* that it may ask for nothing before its place is given back */
} inlay_server_config_t;

/* Write a new key into a file for its owner only, unless there is a file; `is_new` tells which. `path` is
 * as in the configuration, but for "none"; where it is, is stored in `found`. */
inlay_status_t inlay_server_key(const char *path, char *found, size_t found_bytes, int *is_new,
                                char *message, size_t message_bytes);

/* Begin to listen. Opens a device once, in a process of its own, so that one which is absent is told
 * here. Processes of clients are copies of this one as it is now, without its other threads and its
 * files: they call functions of `host` (allocate, release, now) and of the driver. Best called before
 * there are many threads and much memory. */
inlay_status_t inlay_server_open(const inlay_host_t *host, const inlay_server_config_t *config,
                                 inlay_server_t **server, char *message, size_t message_bytes);
/* Return the endpoint that clients connect to, with the port that was free. */
const char *inlay_server_endpoint(const inlay_server_t *server);
/* Serve until `inlay_server_stop`; then wait for what clients have in flight, a few seconds at most, and
 * end their processes. */
void inlay_server_run(inlay_server_t *server);
/* Any thread, any signal handler; also before `run`. */
void inlay_server_stop(inlay_server_t *server);
/* Give everything back. */
void inlay_server_close(inlay_server_t *server);

#ifdef __cplusplus
}
#endif
#endif
