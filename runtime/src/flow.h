/* Commands: what was issued and has not ended, and what waits for what.
 *
 * A command is a kernel with its operands, or a copy. Its *accesses* are ranges of bytes of
 * storages; a new command waits for every command in flight with a conflicting access. The *issuer*,
 * the thread that executes instructions, owns all lists of accesses, the memory and the order; under
 * the lock are the states of commands, their edges, and the lists of what is ready and what is done.
 * A command that ends is only moved to the list of those done; the issuer *retires* it: gives back
 * what it held, and looks whether it failed.
 *
 *   waiting --(last predecessor ends)--> ready --(somebody takes it)--> running --> done --> retired
 *
 * A command of a device need not wait for predecessors that the same device has *started*: it is
 * started behind them, by their tickets, so that the device goes from one to the next without the
 * host. It is done when the driver has told its end and those that it was started behind are done.
 * Behind a kernel with assertions nothing is started before it is known that they hold.
 *
 * Issuing is a role, which at most one thread has. It is given up when all tasks wait, and then
 * taken, under the lock, by whoever next ends a command: the thread of the call, or a worker. So who
 * has just made a value goes on with the task that needs it, and nobody has to be woken for that.
 *
 * See docs/design/0010-futures.md. */
#ifndef INLAY_FLOW_H
#define INLAY_FLOW_H

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
    uint32_t index;                   /* of the kernel */
    uint32_t state;
    uint32_t waits;                   /* predecessors that have not ended */
    uint32_t is_dropped;              /* it is not to be run */
    uint32_t on_caller;               /* only the thread of the call may run it */
    uint32_t n_accesses;
    inlay_edge_t *successors;
    int64_t parts;
    int64_t ns;                       /* predicted; of a long one, the hand-off */
    void *workspace;
    size_t workspace_bytes;
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
    struct inlay_activation *activation;
    int64_t begun;                    /* when host.start was asked, for the trace */
    int64_t times[2];                 /* when a device began and ended; 0 where it does not say */
    inlay_tensor_t *tensors;          /* of a kernel that takes tensors */
    inlay_region_t *regions;          /* of a kernel that may work on memory of devices */
    const inlay_home_t *home;         /* whose queue it is for; NULL: it runs here */
    inlay_ticket_t ticket;            /* there */
    uint32_t is_started;              /* and ends by itself */
    uint32_t n_after;
    inlay_ticket_t after[INLAY_MOST_AFTER]; /* what it is started behind, one ticket a queue */
    uint32_t holds;                   /* until it is done: who runs or starts it returns, its end is
                                         told, and those that it was started behind are done */
    int64_t *dims;
#if INLAY_RACES
    uint32_t op;                      /* number of the race detector */
#endif
};

typedef struct inlay_queue {
    inlay_command_t *first, *last;
} inlay_queue_t;

/* Ready commands of one kernel that gather to run as one. */
typedef struct inlay_gathered {
    inlay_command_t *first, *last;
    uint32_t count;
} inlay_gathered_t;

/* The earliest failure of a call. */
typedef struct inlay_failure {
    inlay_status_t status; /* INLAY_OK: none */
    inlay_place_t *place;
    uint64_t number;
    inlay_where_t where;
    inlay_error_t error;
} inlay_failure_t;

typedef struct inlay_flow {
    void *lock;                     /* of the host; NULL where it has no threads */
    inlay_job_t job;                /* must be found from its address: see flow.c */
    struct inlay_activation *activation;
    /* Under the lock. */
    inlay_queue_t ready, own, done; /* `own` is for the thread of the call */
    inlay_gathered_t *gathered;     /* one for each kernel; NULL where no kernel has a batch */
    uint32_t n_gathered, is_waiting; /* is_waiting: batches may be run */
    uint32_t n_started;             /* commands that devices have */
    uint32_t is_issuing;            /* some thread has the role */
    uint32_t is_over;               /* nothing more is to be issued */
    uint32_t issuer_waits, is_due;  /* for so many ends of commands; they have come */
    uint32_t caller_waits;          /* the thread of the call does, for anything to do */
    int asked;                      /* host.poll said to end the call; asked by its thread */
    uint8_t *room;                  /* memory that a batch left for the next; NULL for none */
    size_t room_bytes;
    /* Of the issuer. */
    uint32_t is_caller;             /* it is the thread of the call */
    uint32_t keeps_one;             /* it has made one ready, and told nobody */
    inlay_command_t *oldest, *newest, *free;
    inlay_edge_t *free_edges, *edges; /* edges: found for the command being issued */
    struct inlay_slab *slabs;
    inlay_place_t *free_places, first;
    inlay_place_t *place;           /* of what is issued now */
    uint32_t in_flight, n_ports, n_ints, shows_tensors;
    uint32_t is_stopped;            /* an instruction saw the failure */
    size_t command_bytes;
    uint32_t is_tied;               /* only the thread of the call may issue */
    uint32_t is_alone;              /* nothing is gained by putting a kernel off */
    uint64_t number;                /* of the next command */
    uint64_t random;
    inlay_failure_t failure;
#if INLAY_RACES
    inlay_race_t race;
#endif
} inlay_flow_t;

struct inlay_activation;

inlay_status_t inlay_flow_open(struct inlay_activation *m);
void inlay_flow_close(struct inlay_activation *m);

/* Before and after the instructions of a call. Between them, `run` executes them: tasks go on until
 * all have returned, on this thread and on workers. `end` finishes or drops what is in flight, and
 * returns the earliest failure, which may be the one given. */
void inlay_flow_begin(struct inlay_activation *m);
inlay_status_t inlay_flow_run(struct inlay_activation *m);
inlay_status_t inlay_flow_end(struct inlay_activation *m, inlay_status_t status);

/* Take and leave the lock; nothing where there are no threads. */
void inlay_flow_lock(const struct inlay_activation *m);
void inlay_flow_unlock(const struct inlay_activation *m);

/* Issue a kernel whose operands were checked: `parts` of it; `workspace_bytes` 0 for none. */
inlay_status_t inlay_flow_invoke(struct inlay_activation *m, uint32_t kernel,
                                 const inlay_slot_t *tensors, const int64_t *ints, int64_t parts,
                                 size_t workspace_bytes);
/* Before the issuer is busy with something else: others are told of what it keeps for itself. */
void inlay_flow_share(struct inlay_activation *m);
/* Run or start what only the thread of the call may and is ready, if this is that. */
void inlay_flow_run_own(struct inlay_activation *m);
/* Whether kernels that are callbacks are started, and end later. */
int inlay_flow_starts(const struct inlay_activation *m);
/* Issue a copy, or make it now where nothing is pending and it is short. */
inlay_status_t inlay_flow_copy(struct inlay_activation *m, inlay_storage_t *to, uint8_t *at,
                               inlay_storage_t *from, const uint8_t *source, size_t bytes);
/* Whether a command in flight conflicts with an access to a range. Retires what is done. */
int inlay_flow_pending(struct inlay_activation *m, const inlay_storage_t *storage,
                       const uint8_t *at, size_t bytes, int writes);
/* A new place behind the one of what is issued now; NULL without memory. */
inlay_place_t *inlay_flow_overtake(struct inlay_activation *m);
/* One user less. */
void inlay_flow_leave_place(struct inlay_activation *m, inlay_place_t *place);
/* Whether a place is before another one. */
int inlay_flow_is_before(const inlay_place_t *a, const inlay_place_t *b);
/* The failure, where it is before what would be issued now; else INLAY_OK. */
inlay_status_t inlay_flow_stop(struct inlay_activation *m);
/* Keep a failure of the instruction at hand, unless there is an earlier one. */
void inlay_flow_fail(struct inlay_activation *m, inlay_status_t status);
/* A number that the seed decides. */
uint64_t inlay_flow_random(struct inlay_activation *m);
/* A list of items, linked by their first field, that lives as long as the activation. */
void *inlay_flow_slab(struct inlay_activation *m, size_t item_bytes);
/* What host.poll answers; not 0: the call is to end. Other threads than that of the call learn what
 * it was answered. */
int inlay_flow_ask(struct inlay_activation *m);
/* Wait until nothing is in flight. */
inlay_status_t inlay_flow_drain(struct inlay_activation *m);
/* Give back what is done, and run something or wait: for so many ends of commands, or until there is
 * something to run. The issuer remains it. */
inlay_status_t inlay_flow_progress(struct inlay_activation *m, uint32_t ends);

/* batch.c. Whether commands of a kernel gather; under the lock: add one, and take the first of those
 * that run next as one, the others in its `mates`; without the lock: run them all, or answer 0 where
 * they are to be run one by one. */
int inlay_batch_is_for(const struct inlay_activation *m, const inlay_kernel_t *kernel);
void inlay_batch_add(struct inlay_activation *m, inlay_command_t *command);
inlay_command_t *inlay_batch_take(struct inlay_activation *m);
int inlay_batch_run(struct inlay_activation *m, inlay_command_t *first);

/* trace.c: tell the host, if it watches. */
int64_t inlay_trace_now(const struct inlay_activation *m);
void inlay_trace_run(const struct inlay_activation *m, const inlay_command_t *command,
                     int64_t begin);
void inlay_trace_wait(const struct inlay_activation *m, int64_t begin);
void inlay_trace_call(const struct inlay_activation *m, uint32_t function, int64_t begin);
void inlay_trace_needs(const struct inlay_activation *m, const inlay_command_t *later,
                       const inlay_command_t *earlier);
void inlay_trace_memory(const struct inlay_activation *m);
/* kernel.c: note where the tensors of a command are that may leave the host. */
void inlay_command_address(const struct inlay_activation *m, inlay_command_t *command,
                           const inlay_slot_t *tensors);

/* command.c: run a command; its status, with `error` filled on failure. Any thread. */
inlay_status_t inlay_command_run(struct inlay_activation *m, inlay_command_t *command,
                                 inlay_error_t *error);

#endif
