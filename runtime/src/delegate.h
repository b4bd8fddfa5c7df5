/* Delegates: activations in which other threads run whole calls of a call; see delegate.c. */
#ifndef INLAY_DELEGATE_H
#define INLAY_DELEGATE_H

#include "machine.h"

/* Storages that a call reads and the delegate borrows; a call that reaches more is not delegated. */
#define INLAY_MOST_BORROWED 64

typedef struct inlay_delegate {
    struct inlay_delegate *next; /* all of an activation */
    inlay_activation_t *activation;
    void (*run)(struct inlay_delegate *delegate, int is_caller);
    inlay_task_t *task;          /* whose call it runs, until its results are taken; NULL for none */
    uint32_t is_running;         /* its command is in flight */
    uint32_t function;           /* that is called */
    uint32_t n_borrowed;
    struct {
        inlay_storage_t *ours, *theirs; /* of the task's activation, of the delegate's */
    } borrowed[INLAY_MOST_BORROWED];
    inlay_status_t status;       /* of the call, when its command is done */
    int64_t ns;                  /* that it took */
    /* Bytes, for the peak of the whole call: see delegate.c. */
    size_t beside; /* the most that the task's activation had since this call began */
    size_t handed; /* to the task's activation, with the results of this call */
    size_t most;   /* the most that a call had here, without what it handed over */
    inlay_error_t error;
} inlay_delegate_t;

/* Of m->task, which is about to begin: let its call be run by a delegate. 0 where it is to run here. */
int inlay_delegate_begin(inlay_activation_t *m);
/* The delegate of a task has done: its results become those of the task, or the task is to begin here. */
void inlay_delegate_end(inlay_activation_t *m, inlay_task_t *task);
/* The most that an activation and its delegates had at once, in this call. */
size_t inlay_delegate_peak(const inlay_activation_t *m);
/* A call begins to count. */
void inlay_delegate_count_anew(inlay_delegate_t *d);
/* Nobody wants the results of a task any more. */
void inlay_delegate_abandon(inlay_task_t *task);

#endif
