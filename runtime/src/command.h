/* Commands: what was issued and has not been retired.
 *
 * A command is a kernel with its operands, or a copy. Its *accesses* are ranges of bytes of
 * storages; it waits for every earlier command in flight with a conflicting access, by an *edge*.
 *
 *   waiting --(last predecessor ends)--> ready --(a thread takes it)--> running --> done --> retired
 *      \                                                                  ^
 *       `--(a device takes it, behind predecessors that it has)--> started
 *
 * waiting   the issuer made it; it is in no list. `waits` counts predecessors.
 * ready     in one of the lists of the scheduler, or kept by the thread whose command made it ready.
 * running   taken by one thread, which executes it without the lock.
 * started   a device has it. It is done when the driver has told its end and those that it was
 *           started behind are done; `holds` counts these. A command that runs here holds itself.
 * done      in the list from which the issuer retires: its accesses leave their lists,
 *           what it held is given back, and its failure, if any, is noted.
 *
 * A command of a device need not wait for predecessors that the same device has *started*: it is
 * started behind them, by their tickets, so that the device goes from one to the next without the
 * host. Behind a kernel with assertions nothing is started before it is known that they hold. */
#ifndef INLAY_COMMAND_H
#define INLAY_COMMAND_H

#include "heap.h"
#include "module.h"
#include "race.h"

typedef struct inlay_command inlay_command_t;
typedef struct inlay_access inlay_access_t;

/* Position in the order of the program: commands of one place are ordered by number, places by the
 * list they are in. */
typedef struct inlay_place {
    struct inlay_place *next, *previous;
    uint32_t users; /* tasks and commands */
} inlay_place_t;

/* Where an instruction is: frames from the innermost out. */
typedef struct inlay_where {
    uint32_t depth;
    struct {
        const inlay_function_t *function;
        const uint32_t *pc;
    } frames[INLAY_TRACE_DEPTH];
} inlay_where_t;

struct inlay_access {
    inlay_access_t *next, *previous; /* in the list of the storage */
    inlay_command_t *command;
    inlay_storage_t *storage;
    size_t begin, end;
    uint32_t writes;
    uint32_t is_listed;
};

typedef struct inlay_edge {
    struct inlay_edge *next;
    inlay_command_t *to;
    uint32_t has_ticket; /* `to` is started behind, and counts this among its `holds` */
} inlay_edge_t;

enum { COMMAND_WAITING, COMMAND_READY, COMMAND_RUNNING, COMMAND_STARTED, COMMAND_DONE };

struct inlay_command {
    inlay_command_t *next;            /* ready, done or free */
    inlay_command_t *older, *newer;   /* all in flight, in order of issue */
    const inlay_kernel_t *kernel;     /* NULL for a copy of ints[0] bytes from buffers[0] to [1] */
    struct inlay_delegate *delegate;  /* what runs a call, and there is no kernel; else NULL */
    uint32_t index;                   /* of the kernel */
    uint32_t state;
    uint32_t waits;                   /* predecessors that have not ended */
    uint32_t is_dropped;              /* it is not to be run */
    uint32_t on_caller;               /* only the thread of the call may run it */
    uint32_t by_caller;               /* that does */
    uint32_t n_accesses;
    inlay_edge_t *successors;
    int64_t parts;
    int is_undivided;                 /* whoever runs it does all parts */
    uint32_t is_backwards;            /* pieces of parts, the last one first */
    int64_t ns;                       /* predicted; the hand-off where that is not known */
    uint32_t is_beside;               /* it ran while another one did */
    void *workspace;
    size_t workspace_bytes, workspace_asked;
    uint64_t number;
    inlay_place_t *place;
    inlay_where_t where;
    inlay_status_t status;
    inlay_error_t *error;             /* of the host's memory; NULL where there was none */
    inlay_access_t *accesses;
    void **buffers;
    int64_t *ints;
    int64_t *answers;
    size_t *sizes;                    /* bytes of each tensor */
    inlay_command_t *mates;           /* others that run as one with this */
    uint32_t turn;                    /* of the batcher, when it was gathered */
    struct inlay_activation *activation;
    int64_t begun;                    /* when host.start was asked, for the trace */
    int64_t times[2];                 /* when a device began and ended; 0 where it does not say */
    inlay_tensor_t *tensors;          /* of a kernel that takes tensors */
    inlay_region_t *regions;          /* of a kernel that may work on memory of devices */
    const inlay_space_t *space;       /* whose queue it is for; NULL: it runs here */
    inlay_ticket_t ticket;            /* there */
    uint32_t is_started;              /* and ends by itself */
    uint32_t n_after;
    inlay_ticket_t after[INLAY_MOST_AFTER]; /* what it is started behind, one ticket a queue */
    uint32_t holds;                   /* until it is done: who runs or starts it returns, its end is
                                         told, and those that it was started behind are done */
    int64_t *dims;
#if INLAY_RACES
    uint32_t op;                      /* number of the race detector */
    uint64_t sum;                     /* of what it reads, when it began */
#endif
};

typedef struct inlay_queue {
    inlay_command_t *first, *last;
} inlay_queue_t;

#endif
