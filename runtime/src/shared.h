/* What threads share in a call, all of it under the lock: see scheduler.h. Files that do not include this
 * cannot touch it. */
#ifndef INLAY_SHARED_H
#define INLAY_SHARED_H

#include "machine.h"

/* Ready commands of one kernel that gather to run as one. */
typedef struct inlay_gathered {
    inlay_command_t *first, *last;
    uint32_t count;
    uint32_t n_alike; /* with the first one */
    int64_t taken; /* when the last batch of it was; ns, 0 for never */
} inlay_gathered_t;

/* Memory that a batch left for the next; NULL for none. */
typedef struct inlay_staging {
    uint8_t *at;
    size_t bytes;
} inlay_staging_t;

/* Where commands gather: those of one activation, under its lock; or those of all activations that were
 * given it in their configuration, under a lock of its own, which may be taken with that of one of
 * them. See batcher.c. */
struct inlay_batcher {
    inlay_job_t job;                /* runs a batch; must be found from its address: see role.c */
    const inlay_host_t *host;
    void *lock;                     /* of the host; NULL: of one activation */
    inlay_gathered_t *gathered;     /* one for each kernel; NULL where no kernel has a batch */
    uint32_t n_kernels, n_gathered;
    uint32_t turns;                 /* batches that were taken */
    uint32_t n_calls, n_still;      /* calls under way; and those whose threads have nothing to do */
    uint32_t n_leaving;             /* that wait for visitors */
    uint32_t n_expected;            /* calls, as those that end are mostly followed by others */
    uint32_t is_timed;              /* a thread waits no longer than for those */
    int64_t changed;                /* when a call came or went; ns */
    int64_t call_ns;                /* what calls took of late */
    int64_t period;                 /* from one batch of a kernel to the next one of it, of the last batch; ns */
    uint32_t threads;               /* that a call may have */
    uint32_t own_batches;           /* calls for each of them, from which on they run batches of their own */
    uint32_t is_divided;            /* they do */
    uint32_t n_carriers;            /* threads that go on with calls of others, and run batches */
    inlay_shared_t *first_visit, *last_visit; /* calls to be gone on with */
    int64_t since;                  /* when the last batch was taken or the first call came; ns */
    uint32_t most_alike;            /* the most commands with the first one of a kernel */
    inlay_staging_t staging[INLAY_STAGINGS];
};

struct inlay_shared {
    inlay_job_t job;                /* must be found from its address: see role.c */
    inlay_activation_t *activation;
    inlay_queue_t starts;           /* ready, and to be started on devices */
    inlay_queue_t ready, own, done; /* ready: for any thread; own: for that of the call */
    inlay_queue_t calls;            /* ready, and run by delegates */
    inlay_batcher_t alone, *batcher; /* batcher: alone, or that of several activations */
    uint32_t is_waiting;            /* batches may be run */
    uint32_t n_started;             /* commands that devices have */
    uint32_t n_running;             /* commands that threads run */
    uint32_t is_issuing;            /* some thread has the role */
    uint32_t is_over;               /* nothing more is to be issued */
    uint32_t is_ended;              /* and nothing is in flight: only the thread of the call is to go on */
    uint32_t issuer_waits, is_due;  /* for so many ends of commands; they have come */
    uint32_t caller_waits;          /* the thread of the call does, for anything to do */
    int asked;                      /* host.poll said to end the call; asked by its thread */
    /* Under the lock of a batcher of several activations: */
    uint32_t is_member;             /* the call has joined and not left */
    uint32_t is_joined, is_still;   /* it counts there; and among those with nothing to do */
    uint32_t n_visits;              /* batches with commands of this call that threads run, or go on from */
    uint32_t is_timer;              /* its thread is that of is_timed */
    int64_t joined;                 /* when; ns */
    uint32_t is_to_visit;           /* it is in the list of those to be gone on with */
    inlay_shared_t *next_visit;
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
/* There is more to run than the thread can that goes on with this call. */
void inlay_help_more(inlay_activation_t *m);
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

/* --------------------------------------------------------------- gather.c: with the lock taken */

static inline int inlay_batcher_is_common(const inlay_activation_t *m)
{
    return m->shared->batcher->lock != NULL;
}

/* Room for what gathers, one list for each kernel; 0 without memory. Then all of it given back. */
int inlay_gather_open(inlay_batcher_t *batcher, const inlay_host_t *host, uint32_t n_kernels);
void inlay_gather_close(inlay_batcher_t *batcher);
/* Add a command of a kernel that has a batch. */
void inlay_gather_add(inlay_activation_t *m, inlay_command_t *command);
/* Take the first of those that run next as one, the others in its `mates`, at most so many; NULL for none. The
 * lock is that of the batcher. */
inlay_command_t *inlay_gather_take(inlay_batcher_t *batcher, uint32_t most);
/* Let those of a call that are dropped be ready, where others could gather with them. */
void inlay_gather_drop(inlay_activation_t *m);

/* ---------------------------------------------------------------------------------- batch.c */

/* Without the lock: run them all, on this thread alone or on all; or answer 0 where they are to be run one by
 * one. */
int inlay_batch_run(inlay_activation_t *m, inlay_command_t *first, int is_alone);

/* -------------------------------------------------------------------------------- batcher.c */

/* The activations whose commands ran as one, each once or more. */
typedef struct inlay_visits {
    inlay_activation_t *at[INLAY_MOST_BATCHED];
    uint32_t n;
    uint32_t is_alone; /* the batch is for one thread, as others have batches of their own */
} inlay_visits_t;

/* A call that shares its batcher begins, and has ended: nobody visits it any more. Without the lock. */
void inlay_batcher_join(inlay_activation_t *m);
void inlay_batcher_leave(inlay_activation_t *m);
/* With the lock taken: a thread has nothing to do for a call, and ends so many visits; whether there is
 * something to carry. The others do not wait for a call that has ended until its thread wakes. */
int inlay_batcher_settle(inlay_activation_t *m, uint32_t visits);
/* With the lock taken: whether there is something that another carrier could do. */
int inlay_batcher_lacks(const inlay_activation_t *m);
/* A thread becomes a carrier; 0 where there is nothing to carry, or there are enough. One stops: whether
 * there is something left. Without locks. */
int inlay_batcher_enter(inlay_batcher_t *batcher);
int inlay_batcher_exit(inlay_batcher_t *batcher);
/* Calls whose commands ran are to be gone on with, but `own`; how often that is one of them. */
uint32_t inlay_batcher_put(inlay_batcher_t *batcher, const inlay_visits_t *visits,
                           const inlay_activation_t *own);
/* Take one of them; NULL for none. A worker is told of those that are left. */
inlay_activation_t *inlay_batcher_next(inlay_batcher_t *batcher);
/* Take what runs next as one of several calls; NULL for none. Without locks. */
inlay_command_t *inlay_batcher_take(inlay_batcher_t *batcher, inlay_visits_t *visits);
/* Without locks: run what was taken, on this thread alone or on all. Each command is complete then, and its call
 * is to be visited. */
void inlay_batcher_run(inlay_command_t *first, int is_alone);
/* With the lock taken, around a wait of a thread of the call: how long it may last. */
int64_t inlay_batcher_patience(inlay_activation_t *m);
void inlay_batcher_waited(inlay_activation_t *m);
/* Without locks: a worker has nothing to carry, and leaves waiting to the threads of calls. */
void inlay_batcher_rest(inlay_batcher_t *batcher);

/* -------------------------------------------------------------- execute.c: with the lock taken */

/* Run a command that was taken; the lock is given up meanwhile. */
void inlay_execute(inlay_activation_t *m, inlay_command_t *c, inlay_kept_t *kept);
/* Without the lock: run a command by itself, and keep what it failed with. */
void inlay_execute_one(inlay_activation_t *m, inlay_command_t *c);

/* ------------------------------------------------------------- progress.c: with the lock taken */

/* With nothing to run, of the issuer: run a batch of several calls; 0 where none can be taken. */
int inlay_progress_batch(inlay_activation_t *m);
/* What a thread runs now; NULL for nothing. When replaying, the seed decides. */
inlay_command_t *inlay_progress_take(inlay_activation_t *m, int is_caller);
/* Wait until woken. Who waits says so before, in issuer_waits or caller_waits. */
void inlay_progress_wait(inlay_activation_t *m);

/* ------------------------------------------------------------------------------------- role.c */

/* A worker has time: it takes steps of the call until there are none. */
void inlay_role_work(inlay_job_t *job);
/* A worker has time: it runs batches of several calls, and goes on with these, until none can be taken. */
void inlay_role_batch(inlay_job_t *job);

#endif
