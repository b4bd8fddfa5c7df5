/* What the rooms of a flow call of each other, from the lowest up; see flow.h. */
#ifndef INLAY_ROOMS_H
#define INLAY_ROOMS_H

#include "machine.h"

/* Take and leave the lock; nothing where there are no threads. */
static inline void inlay_flow_lock(const inlay_activation_t *m)
{
    if (m->flow.lock) m->host->threads->lock(m->host->user, m->flow.lock);
}

static inline void inlay_flow_unlock(const inlay_activation_t *m)
{
    if (m->flow.lock) m->host->threads->unlock(m->host->user, m->flow.lock);
}

/* --------------------------------------------------------------------------------- queues */

static inline void inlay_queue_push(inlay_queue_t *queue, inlay_command_t *command)
{
    command->next = NULL;
    if (queue->last) queue->last->next = command;
    else queue->first = command;
    queue->last = command;
}

static inline void inlay_queue_push_front(inlay_queue_t *queue, inlay_command_t *command)
{
    command->next = queue->first;
    if (!queue->first) queue->last = command;
    queue->first = command;
}

static inline inlay_command_t *inlay_queue_pop(inlay_queue_t *queue)
{
    inlay_command_t *command = queue->first;
    if (!command) return NULL;
    queue->first = command->next;
    if (!queue->first) queue->last = NULL;
    return command;
}

/* -------------------------------------------------------------- items.c: of the issuer alone */

/* Room for m->now and for commands of this module; 0 without memory. Then all of it given back. */
int inlay_items_open(inlay_activation_t *m);
void inlay_items_close(inlay_activation_t *m);
/* A command that waits for nothing, with room for the operands of any kernel; NULL without memory. */
inlay_command_t *inlay_items_command(inlay_activation_t *m);
void inlay_items_free_command(inlay_activation_t *m, inlay_command_t *c);
inlay_edge_t *inlay_items_edge(inlay_activation_t *m);
void inlay_items_free_edges(inlay_activation_t *m, inlay_edge_t *edges);

/* -------------------------------------------------------------- order.c: of the issuer alone */

/* Keep the earliest failure, of a command or of the instruction at hand (`where` NULL: the error has
 * its place already), and drop what is in flight behind it. */
void inlay_order_note(inlay_activation_t *m, inlay_status_t status, inlay_place_t *place,
                      uint64_t number, const inlay_where_t *where, const inlay_error_t *error);
/* What is in flight behind the failure is not begun any more; with `all`, nothing is. */
void inlay_order_drop(inlay_activation_t *m, int all);

/* ------------------------------------------------------------- access.c: of the issuer alone */

/* Note an access of a command that is being made; none where nobody ever writes there. */
void inlay_access_add(inlay_command_t *c, inlay_storage_t *storage, const uint8_t *at, size_t bytes,
                      int writes);
/* Put an edge into flow->edges for each command that c has to wait for; 0 without memory. */
int inlay_access_edges(inlay_activation_t *m, const inlay_command_t *c);
/* Pin the storages of a command and list its accesses; unlist one. */
void inlay_access_list(inlay_command_t *c);
void inlay_access_unlist(inlay_access_t *access);

/* ------------------------------------------------------------------------------------ choice.c */

/* With an activation; 0 without memory. */
int inlay_choice_open(inlay_activation_t *m);
void inlay_choice_close(inlay_activation_t *m);

/* -------------------------------------------------------------- ahead.c: of the issuer alone */

/* With an activation. */
void inlay_ahead_open(inlay_activation_t *m);
/* With the lock taken: a command was issued; or the issuer only looks who else works. */
void inlay_ahead_issued(inlay_activation_t *m);
void inlay_ahead_look(inlay_activation_t *m);
/* A command that ran is retired. */
void inlay_ahead_retired(inlay_activation_t *m, const inlay_command_t *c);

/* ----------------------------------------------------------------- help.c: with the lock taken */

/* There is something to run. Told is whoever waits for this call, else a worker of the host. */
void inlay_help_call(inlay_activation_t *m);
/* Wake the threads that wait for what has come about. */
void inlay_help_wake(inlay_activation_t *m);
/* By a thread that goes on with something else: a command has ended. */
void inlay_help_leave(inlay_activation_t *m);

/* ---------------------------------------------------------------- ready.c: with the lock taken */

/* What a thread keeps for itself of what became ready when its command ended: it has the data at hand.
 * That is one command, and beside it some that together take less than handing them over. */
typedef struct inlay_kept {
    inlay_queue_t shorts; /* run first */
    inlay_command_t *next;
    int64_t ns;           /* of the short ones since `next` was begun */
} inlay_kept_t;

/* All that a command waited for has ended. Those that are to be started on devices stand in front: to
 * start one takes microseconds, and then the device works while threads do what is theirs. */
void inlay_ready_add(inlay_activation_t *m, inlay_command_t *c);
/* Whether a command of a device ends by itself. Devices that work only while somebody waits for them
 * are waited for, by the thread of the call. Needs no lock. */
int inlay_ready_ends_itself(const inlay_activation_t *m, const inlay_command_t *c);
/* Whether the next ready command is to be started on a device. */
int inlay_ready_starts(const inlay_activation_t *m);
/* Let a command be started behind another one; 0 where it has to wait for the end of that. */
int inlay_ready_start_behind(const inlay_activation_t *m, const inlay_command_t *before,
                             inlay_command_t *c);
/* A device has a command. What waited for its end may not have to. */
void inlay_ready_started(inlay_activation_t *m, inlay_command_t *c);
/* A command has ended, and with it all that ran as one with it or that nothing else held. What is
 * ready now goes to what the thread keeps, if that is given, else to the lists. */
void inlay_ready_complete(inlay_activation_t *m, inlay_command_t *c, inlay_kept_t *kept);
/* So many of what holds a command are over; it is complete with the last. */
void inlay_ready_let_go(inlay_activation_t *m, inlay_command_t *c, uint32_t holds,
                        inlay_kept_t *kept);
/* Others may have what a thread kept. */
void inlay_ready_give_up(inlay_activation_t *m, inlay_kept_t *kept);

/* -------------------------------------------------------------- execute.c: with the lock taken */

/* Run a command that was taken; the lock is given up meanwhile. */
void inlay_execute(inlay_activation_t *m, inlay_command_t *c, inlay_kept_t *kept);

/* ------------------------------------------------------------- retire.c: of the issuer alone */

/* Give back what the commands of a list held; their failures are noted. */
void inlay_retire(inlay_activation_t *m, inlay_command_t *done);

/* ------------------------------------------------------------- progress.c: with the lock taken */

/* What a thread runs now; NULL for nothing. When replaying, the seed decides. */
inlay_command_t *inlay_progress_take(inlay_activation_t *m, int is_caller);
/* Wait until woken. Who waits says so before, in flow->issuer_waits or flow->caller_waits. */
void inlay_progress_wait(inlay_activation_t *m);

/* ------------------------------------------------------------------------------------- role.c */

/* A worker has time: it takes steps of the call until there are none. */
void inlay_role_work(inlay_job_t *job);

#endif
