/* What threads share in a call, all of it under the lock: see scheduler.h. Files that do not include this
 * cannot touch it. */
#ifndef INLAY_SHARED_H
#define INLAY_SHARED_H

#include "machine.h"

/* Ready commands of one kernel that gather to run as one. */
typedef struct inlay_gathered {
    inlay_command_t *first, *last;
    uint32_t count;
} inlay_gathered_t;

struct inlay_shared {
    inlay_job_t job;                /* must be found from its address: see role.c */
    inlay_activation_t *activation;
    inlay_queue_t starts;           /* ready, and to be started on devices */
    inlay_queue_t ready, own, done; /* ready: for any thread; own: for that of the call */
    inlay_gathered_t *gathered;     /* one for each kernel; NULL where no kernel has a batch */
    uint32_t n_gathered, is_waiting; /* is_waiting: batches may be run */
    uint32_t n_started;             /* commands that devices have */
    uint32_t n_running;             /* commands that threads run */
    uint32_t is_issuing;            /* some thread has the role */
    uint32_t is_over;               /* nothing more is to be issued */
    uint32_t issuer_waits, is_due;  /* for so many ends of commands; they have come */
    uint32_t caller_waits;          /* the thread of the call does, for anything to do */
    int asked;                      /* host.poll said to end the call; asked by its thread */
    uint8_t *staging;                  /* memory that a batch left for the next; NULL for none */
    size_t staging_bytes;
};

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

/* Take all of them; the first, NULL for none. */
static inline inlay_command_t *inlay_queue_empty(inlay_queue_t *queue)
{
    inlay_command_t *first = queue->first;
    queue->first = queue->last = NULL;
    return first;
}

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

/* All that a command waited for has ended. Those that are to be started on devices come first: to start
 * one takes microseconds, and then the device works while threads do what is theirs. */
void inlay_ready_add(inlay_activation_t *m, inlay_command_t *c);
/* Whether a command of a device ends by itself. Devices that work only while somebody waits for them
 * are waited for, by the thread of the call. Needs no lock. */
int inlay_ready_ends_itself(const inlay_activation_t *m, const inlay_command_t *c);
/* Whether there is something to start or to run. */
int inlay_ready_any(const inlay_activation_t *m);
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

/* ---------------------------------------------------------------------------------- batch.c */

/* With the lock taken: add a command of a kernel that has a batch; take the first of those that run
 * next as one, the others in its `mates`. */
void inlay_batch_add(inlay_activation_t *m, inlay_command_t *command);
inlay_command_t *inlay_batch_take(inlay_activation_t *m);
/* Without the lock: run them all, or answer 0 where they are to be run one by one. */
int inlay_batch_run(inlay_activation_t *m, inlay_command_t *first);

/* -------------------------------------------------------------- execute.c: with the lock taken */

/* Run a command that was taken; the lock is given up meanwhile. */
void inlay_execute(inlay_activation_t *m, inlay_command_t *c, inlay_kept_t *kept);

/* ------------------------------------------------------------- progress.c: with the lock taken */

/* What a thread runs now; NULL for nothing. When replaying, the seed decides. */
inlay_command_t *inlay_progress_take(inlay_activation_t *m, int is_caller);
/* Wait until woken. Who waits says so before, in issuer_waits or caller_waits. */
void inlay_progress_wait(inlay_activation_t *m);

/* ------------------------------------------------------------------------------------- role.c */

/* A worker has time: it takes steps of the call until there are none. */
void inlay_role_work(inlay_job_t *job);

#endif
