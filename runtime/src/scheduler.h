/* The command scheduler of a call: which commands are in flight, and which thread does what.
 *
 * *Issuing* is executing the instructions of the call. It is a role that at most one thread has, the
 * *issuer*. It is given up when all tasks wait, and then taken by whoever next ends a command: the
 * thread of the call or a worker. So who has just made a value goes on with the task that needs it,
 * and nobody has to be woken for that. All other threads help: they run commands that are ready.
 *
 * Who may touch what:
 *
 *   the issuer, without the lock     `issuer`: accesses, memory of items, places, what a command
 *                                    holds; the heap, tasks and stacks. They pass to the next issuer
 *                                    with the role, which is given and taken under the lock.
 *   any thread, under the lock       `shared`: lists of what is ready and what is done, who waits for
 *                                    what; states of commands and their edges. Only files that
 *                                    include shared.h know what is in it.
 *   who has taken a command          its operands and its status, without the lock, until it is done.
 *   nobody, once issued              kernel, operands, place, number of a command.
 *
 * The lock is held for a few hundred instructions at most, never while a kernel runs or a host is
 * asked. No other lock is taken under it but that of a batcher and those of the host's `wake`, `offer` and
 * `event`.
 * Functions say "with the lock taken" where they need it; the others must be called without.
 *
 * Files, each of which uses only those below it:
 *
 *   scheduler.c  its life: opened, begun, ended, closed
 *   choice.c     whether a call runs as in sequential mode, without any of what follows
 *   role.c       what threads do: issue, help, wait
 *   resume.c     which suspended task goes on
 *   delegate.c   calls that run whole on other threads
 *   issue.c      a command is made and submitted
 *   progress.c   what an issuer does that has to wait
 *   retire.c     a command that is done gives back what it held
 *   batcher.c    batches of several calls
 *   batch.c      commands that run as one
 *   execute.c    a command that was taken runs, or is started on a device
 *   ready.c      what begins and ends make ready, and who keeps it
 *   help.c       telling other threads
 *   lookahead.c  how far the issuer looks ahead
 *   access.c     which commands in flight conflict
 *   order.c      the order of the program, and the earliest failure in it
 *   gather.c     which commands run as one
 *   items.c      memory of commands, edges and places
 *
 * See docs/design/0010-futures.md. */
#ifndef INLAY_SCHEDULER_H
#define INLAY_SCHEDULER_H

#include "command.h"

/* The earliest failure of a call. */
typedef struct inlay_failure {
    inlay_status_t status; /* INLAY_OK: none */
    inlay_place_t *place;
    uint64_t number;
    inlay_where_t where;
    inlay_error_t error;
} inlay_failure_t;

/* What threads share under the lock: see shared.h. */
typedef struct inlay_shared inlay_shared_t;

/* What passes from issuer to issuer, and nobody else touches. */
typedef struct inlay_issuer {
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
    uint32_t is_beside;             /* somebody else worked, when last seen */
    int64_t credit;                 /* ns; see lookahead.c */
    uint32_t is_sequential;         /* this call puts nothing off */
    int64_t work;                   /* ns predicted of the kernels of this call */
    int64_t unasked;                /* ns predicted since host.poll was asked by a kernel */
    uint64_t number;                /* of the next command */
    uint64_t random;
    inlay_failure_t failure;
#if INLAY_RACES
    inlay_race_t race;
#endif
} inlay_issuer_t;

struct inlay_activation;

inlay_status_t inlay_scheduler_open(struct inlay_activation *m);
void inlay_scheduler_close(struct inlay_activation *m);

/* Before and after the instructions of a call; `inlay_role_run` executes them between. `end` finishes
 * or drops what is in flight, and returns the earliest failure, which may be the one given. */
void inlay_scheduler_begin(struct inlay_activation *m);
inlay_status_t inlay_scheduler_end(struct inlay_activation *m, inlay_status_t status);

/* choice.c. Before a call: decide issuer.is_sequential; after it, where it went well: note its time. */
int64_t inlay_choice_begin(struct inlay_activation *m, uint32_t entry);
void inlay_choice_end(struct inlay_activation *m, uint32_t entry, int64_t begin);

/* ------------------------------------------------------------------- for instructions and tasks */

/* role.c. Execute the instructions of a call: tasks go on until all have returned, on this thread and
 * on workers. */
inlay_status_t inlay_role_run(struct inlay_activation *m);

/* progress.c. Of the issuer, which remains it: give back what is done, and run something or wait: for
 * so many ends of commands, or until there is something to run. */
inlay_status_t inlay_progress(struct inlay_activation *m, uint32_t ends);
/* Run what is ready, until looking ahead pays or there is nothing; wait for nobody. */
inlay_status_t inlay_progress_settle(struct inlay_activation *m);
/* Wait until nothing is in flight. */
inlay_status_t inlay_progress_drain(struct inlay_activation *m);
/* Ask the host whether to go on. */
inlay_status_t inlay_poll(struct inlay_activation *m);

/* issue.c. Issue a kernel whose operands were checked: m->now has its integers, `parts` of it and the
 * prediction; `workspace_bytes` 0 for none. */
inlay_status_t inlay_issue_kernel(struct inlay_activation *m, uint32_t kernel,
                                  const inlay_slot_t *tensors, const int64_t *ints, int64_t parts,
                                  size_t workspace_bytes);
/* Issue a call that a delegate runs. */
inlay_status_t inlay_issue_call(struct inlay_activation *m, struct inlay_delegate *delegate);
/* Issue a copy, or make it now where nothing is pending and it is short. */
inlay_status_t inlay_issue_copy(struct inlay_activation *m, inlay_storage_t *to, uint8_t *at,
                                inlay_storage_t *from, const uint8_t *source, size_t bytes);

/* execute.c. Run or start what only the thread of the call may and is ready, if this is that. */
void inlay_execute_own(struct inlay_activation *m);
/* Whether kernels that are callbacks are started, and end later. */
int inlay_execute_starts(const struct inlay_activation *m);

/* lookahead.c. Whether the issuer may look ahead of what it could run; and a kernel of so many ns, for
 * which it did not. */
int inlay_lookahead_pays(const struct inlay_activation *m);
void inlay_lookahead_ran(struct inlay_activation *m, int64_t ns);

/* gather.c. Whether as many calls are under way as there are threads for them, where these share a batcher.
 * Then each is left to one thread, kernels in all their parts: who helped would take another one's time. */
int inlay_gather_is_full(const struct inlay_activation *m);

/* help.c. Before the issuer is busy with something else: others are told of what it keeps. */
void inlay_help_share(struct inlay_activation *m);

/* access.c. Whether a command in flight conflicts with an access to a range. */
int inlay_access_pending(const inlay_storage_t *storage, const uint8_t *at, size_t bytes, int writes);

/* order.c. A new place behind the one of what is issued now; NULL without memory. */
inlay_place_t *inlay_order_overtake(struct inlay_activation *m);
/* One user less. */
void inlay_order_leave(struct inlay_activation *m, inlay_place_t *place);
/* Whether a place is before another one. */
int inlay_order_is_before(const inlay_place_t *a, const inlay_place_t *b);
/* The failure, where it is before what would be issued now; else INLAY_OK. */
inlay_status_t inlay_order_stop(struct inlay_activation *m);
/* Keep a failure of the instruction at hand, unless there is an earlier one. */
void inlay_order_fail(struct inlay_activation *m, inlay_status_t status);
/* A number that the seed decides, for what goes next when replaying. */
uint64_t inlay_order_random(struct inlay_activation *m);

/* items.c. A list of items of so many bytes, linked by their first field, that lives as long as the
 * activation; NULL without memory. */
void *inlay_items_slab(struct inlay_activation *m, size_t item_bytes);

/* ------------------------------------------------------------- for the scheduler: of the issuer */

/* items.c */
/* Room for m->now and for commands of this module; 0 without memory. Then all of it given back. */
int inlay_items_open(struct inlay_activation *m);
void inlay_items_close(struct inlay_activation *m);
/* A command that waits for nothing, with room for the operands of any kernel; NULL without memory. */
inlay_command_t *inlay_items_command(struct inlay_activation *m);
void inlay_items_free_command(struct inlay_activation *m, inlay_command_t *c);
inlay_edge_t *inlay_items_edge(struct inlay_activation *m);
void inlay_items_free_edges(struct inlay_activation *m, inlay_edge_t *edges);

/* order.c */
/* Keep the earliest failure, of a command or of the instruction at hand (`where` NULL: the error has
 * its place already), and drop what is in flight behind it. */
void inlay_order_note(struct inlay_activation *m, inlay_status_t status, inlay_place_t *place,
                      uint64_t number, const inlay_where_t *where, const inlay_error_t *error);
/* What is in flight behind the failure is not begun any more; with `all`, nothing is. */
void inlay_order_drop(struct inlay_activation *m, int all);

/* access.c */
/* Note an access of a command that is being made; none where nobody ever writes there. */
void inlay_access_add(inlay_command_t *c, inlay_storage_t *storage, const uint8_t *at, size_t bytes,
                      int writes);
/* Put an edge into issuer.edges for each command that c has to wait for; 0 without memory. */
int inlay_access_edges(struct inlay_activation *m, const inlay_command_t *c);
/* Pin the storages of a command and list its accesses; unlist one. */
void inlay_access_list(inlay_command_t *c);
void inlay_access_unlist(inlay_access_t *access);

/* choice.c */
/* With an activation; 0 without memory. */
int inlay_choice_open(struct inlay_activation *m);
void inlay_choice_close(struct inlay_activation *m);

/* lookahead.c */
/* With an activation. */
void inlay_lookahead_open(struct inlay_activation *m);
/* With the lock taken: a command was issued; or the issuer only looks who else works. */
void inlay_lookahead_issued(struct inlay_activation *m);
void inlay_lookahead_look(struct inlay_activation *m);
/* A command that ran is retired. */
void inlay_lookahead_retired(struct inlay_activation *m, const inlay_command_t *c);

/* retire.c */
/* Give back what the commands of a list held; their failures are noted. */
void inlay_retire(struct inlay_activation *m, inlay_command_t *done);

/* trace.c: tell the host, if it watches. */
int64_t inlay_trace_now(const struct inlay_activation *m);
void inlay_trace_run(const struct inlay_activation *m, const inlay_command_t *command,
                     int64_t begin);
void inlay_trace_wait(const struct inlay_activation *m, int64_t begin);
void inlay_trace_call(const struct inlay_activation *m, uint32_t function, int64_t begin);
void inlay_trace_needs(const struct inlay_activation *m, const inlay_command_t *later,
                       const inlay_command_t *earlier);
void inlay_trace_memory(const struct inlay_activation *m);
/* command.c: note where the tensors of a command are that may leave the host. */
void inlay_command_address(const struct inlay_activation *m, inlay_command_t *command,
                           const inlay_slot_t *tensors);

/* Run a command; its status, with `error` filled on failure. Any thread. */
inlay_status_t inlay_command_run(struct inlay_activation *m, inlay_command_t *command,
                                 inlay_error_t *error);
/* Keep how a command ended: the issuer hears of it when the command is retired. */
void inlay_command_keep(inlay_activation_t *m, inlay_command_t *c, inlay_status_t status,
                        inlay_error_t *error);

#endif
