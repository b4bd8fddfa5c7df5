/* Hardware that devices have in common: it works for one of them at a time.
 *
 * A queue of a device keeps its launches in order, but knows nothing of other devices. Where two of
 * them are one piece of hardware (a fabric that is configured for either), each launch passes a gate:
 * it is started behind those of its own device at once, and behind those of another device when the
 * last of them has ended. All calls of a program pass the same gates; other programs do not, nor do
 * copies, which engines make. */
#ifndef INLAY_GATE_H
#define INLAY_GATE_H

#include "inlay_driver.h"

struct inlay_module;
struct inlay_space;

typedef struct inlay_gate {
    void *lock;                     /* NULL where the host has no threads */
    const struct inlay_space *holder; /* whose launches may be in flight; NULL before the first */
    inlay_ticket_t last;            /* of the holder's launches */
} inlay_gate_t;

/* Make the gates of a module whose devices are known; close them when no call is left. */
inlay_status_t inlay_gates_open(struct inlay_module *module);
void inlay_gates_close(struct inlay_module *module);

/* Take a gate, which may be NULL: on return no other device of the hardware is at work. Waits for
 * requests that were started, so it ends when they do. Then give it up, with the ticket of what was
 * started, or NULL. Without the lock of a call: a driver tells ends meanwhile. */
void inlay_gate_take(const struct inlay_module *module, inlay_gate_t *gate,
                     const struct inlay_space *space);
void inlay_gate_give(const struct inlay_module *module, inlay_gate_t *gate,
                     const struct inlay_space *space, const inlay_ticket_t *started);

#endif
