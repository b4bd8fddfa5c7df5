/* An activation: the state of one running call, and what is kept between calls.
 *
 * The machine's stack is a list of segments. In each, slots grow up and records of calls grow
 * down; a call whose frame does not fit moves its arguments to the next segment. A record holds
 * what the caller goes on with.
 *
 *   segment | header | slots -->            <-- records |
 */
#ifndef INLAY_MACHINE_H
#define INLAY_MACHINE_H

#include "scheduler.h"
#include "heap.h"
#include "module.h"

typedef struct inlay_segment inlay_segment_t;

typedef struct inlay_record {
    const inlay_function_t *function; /* NULL: the outside */
    const uint32_t *pc;
    inlay_slot_t *base;
    inlay_slot_t *sp; /* where results go */
    inlay_segment_t *segment;
} inlay_record_t;

struct inlay_segment {
    inlay_segment_t *next;
    size_t bytes;
    inlay_record_t *top; /* newest record, while another segment is the current one */
    size_t unused;
    inlay_slot_t slots[];
};

/* What a suspended task waits for: that a call returns, or that a range of a storage may be read or
 * written. Neither: nothing. */
typedef struct inlay_wait {
    const inlay_compound_t *future;
    const inlay_storage_t *storage;
    const uint8_t *at;
    size_t bytes;
    int writes;
    int alone; /* until all earlier tasks have returned */
} inlay_wait_t;

/* A call with a stack of its own. While it has a `caller`, it is *attached*: the caller stands at
 * its SPAWN and goes on when it returns, or when it has to wait; then it is detached, and its
 * results are items of `future`. The task that runs and its callers are a *chain*. */
typedef struct inlay_task {
    struct inlay_task *next; /* among the suspended or the free */
    struct inlay_task *caller;
    const inlay_function_t *function; /* what follows is where it goes on */
    const uint32_t *pc;
    inlay_slot_t *base, *sp;
    inlay_record_t *top;
    inlay_segment_t *current, *first;
    const inlay_function_t *callee; /* whose call it is; NULL for the root */
    uint32_t given;           /* the effects of what it was called with */
    uint32_t n_results;
    inlay_compound_t *future; /* label: whether it has returned */
    inlay_place_t *place;     /* the same in a chain */
    struct inlay_guard *guards;
    inlay_where_t where;      /* the calls around it, when it was detached */
    inlay_wait_t wait;
    struct inlay_delegate *delegate; /* what runs the call; NULL: this activation */
    uint32_t has_returned;           /* there, and its results are in the first slots */
} inlay_task_t;

/* What calls of a function took where delegates ran them; see delegate.c. */
typedef struct inlay_call_time {
    int64_t ns;      /* 0: not known */
    uint32_t passed; /* calls that were not delegated for that */
    uint32_t pause;  /* calls to pass over behind one whose arguments could not be copied; and how many are left */
    uint32_t pausing;
} inlay_call_time_t;

/* What calls of an entry took in sequential and in parallel mode; see choice.c. */
typedef struct inlay_choice {
    int64_t rates[2];
    uint32_t calls[2];
} inlay_choice_t;

/* What a kernel was predicted to take when it was launched last; see kernel.c. */
#define INLAY_PREDICTED_INTS 4
typedef struct inlay_prediction {
    int64_t ints[INLAY_PREDICTED_INTS];
    int64_t cost;
    uint32_t is_known;
    uint32_t runs; /* launches so far: every second one goes backwards */
} inlay_prediction_t;

struct inlay_activation {
    const inlay_module_t *module;
    const inlay_host_t *host;
    inlay_config_t config;
    inlay_heap_t heap;
    inlay_segment_t *first, *current;
    size_t stack_bytes;    /* of all segments */
    inlay_error_t *error;  /* of the call that runs */
    inlay_slot_t *sp;      /* handed to and back by instructions outside the loop */
    /* Where the loop was when it began an instruction that may issue or wait. */
    const inlay_function_t *function;
    const uint32_t *pc;
    const inlay_record_t *top;
    inlay_prediction_t *predictions; /* of each kernel */
    inlay_command_t *now;  /* what a kernel needs that runs at once; in no list */
    void *lock;            /* of the host; NULL where it has no threads */
    uint32_t is_tied;      /* only the thread of the call may issue */
    uint32_t is_alone;     /* nothing is gained by putting a kernel off */
    uint32_t is_paid;      /* looking ahead is; see lookahead.c */
    inlay_issuer_t issuer;
    inlay_shared_t *shared; /* see shared.h */
    inlay_choice_t *choices;  /* of each entry; NULL where there is no choice */
    inlay_task_t root, *task; /* the one that runs */
    inlay_task_t *suspended, *last_suspended, *free_tasks;
    struct inlay_guard *free_guards;
    uint32_t n_tasks, n_suspended; /* the root not among the first */
    uint32_t has_futures;     /* some call of this run was detached */
    struct inlay_delegate *delegates; /* all of them, whether in use or not */
    uint32_t n_delegated;     /* whose commands are in flight */
    inlay_call_time_t *call_times; /* of each function; NULL where no call is delegated */
    struct inlay_delegate *(*open_delegate)(struct inlay_activation *m);
    struct inlay_activation *parent;  /* of a delegate: whose calls it runs; else NULL */
    const inlay_command_t *part_of;   /* of the parent: the call that it runs */
    inlay_status_t outcome;
    uint64_t steps;
};

/* Whether all other threads have calls to run. */
static inline int inlay_all_delegated(const inlay_activation_t *m)
{
    return m->n_delegated && m->n_delegated + 1 >= (uint32_t)m->config.parts;
}

/* Take and leave the lock; nothing where there are no threads. */
static inline void inlay_lock(const inlay_activation_t *m)
{
    if (m->lock) m->host->threads->lock(m->host->user, m->lock);
}

static inline void inlay_unlock(const inlay_activation_t *m)
{
    if (m->lock) m->host->threads->unlock(m->host->user, m->lock);
}

/* What an instruction returns that waits: the task is suspended, and executes it again. */
#define INLAY_SUSPENDED ((inlay_status_t)0xff)

/* Let m->task wait for a range; or with NULL for what is noted in its `wait` then. */
static inline inlay_status_t inlay_wait_for(inlay_activation_t *m, const inlay_storage_t *storage,
                                            const uint8_t *at, size_t bytes, int writes)
{
    inlay_wait_t *wait = &m->task->wait;
    wait->future = NULL;
    wait->storage = storage;
    wait->at = at;
    wait->bytes = bytes;
    wait->writes = writes;
    wait->alone = 0;
    return INLAY_SUSPENDED;
}

/* What the issuer comes to. */
typedef enum inlay_turn { TURN_WAITS, TURN_OVER } inlay_turn_t;

/* vm.c: go on with m->task until it returns (INLAY_OK), waits or fails; tasks that it begins and that
 * return at once are part of that. m->task is then the one that did so. */
inlay_status_t inlay_vm_run(inlay_activation_t *m);

/* resume.c: let tasks run that can go on. TURN_WAITS: those that are left wait for commands. TURN_OVER:
 * all have returned, or those before the earliest failure have; the status is m->outcome. */
inlay_turn_t inlay_resume(inlay_activation_t *m);
/* Those that are left do not go on; what their slots hold is swept at the end of the call. */
void inlay_resume_none(inlay_activation_t *m);

/* task.c: let m->task be the call of a function whose arguments are at the start of the first segment's
 * slots; results are left there. */
void inlay_task_root(inlay_activation_t *m, uint32_t function);
void inlay_task_close(inlay_activation_t *m);
/* A task for the call of a function, or of a closure (else NULL) of it, with so many arguments; it has no
 * caller yet. NULL where it is to be a plain call. */
inlay_task_t *inlay_task_new(inlay_activation_t *m, const inlay_function_t *callee,
                             const inlay_compound_t *closure, const inlay_slot_t *arguments, uint32_t n);
void inlay_task_free(inlay_activation_t *m, inlay_task_t *task);
/* The effects that results of a task which are not there yet may have. */
uint8_t inlay_task_effects_to_come(const inlay_task_t *task);
/* Put a task behind the suspended ones; whether no suspended one is before it in the program. */
void inlay_task_suspend(inlay_activation_t *m, inlay_task_t *task);
int inlay_task_is_first(const inlay_activation_t *m, const inlay_task_t *task);
/* Let the caller of m->task go on. */
inlay_status_t inlay_task_detach(inlay_activation_t *m);
/* When replaying: whether to detach a call before it begins. */
int inlay_task_is_late(inlay_activation_t *m);
/* After an instruction met a wrong kind in slots of [base, sp): put the value of a future there and
 * return INLAY_OK, or suspend; INLAY_KIND_MISMATCH where there is no future. */
inlay_status_t inlay_task_resolve(inlay_activation_t *m, inlay_slot_t *base, inlay_slot_t *sp);
/* Wait until a range may be accessed, or return INLAY_SUSPENDED. */
inlay_status_t inlay_task_wait(inlay_activation_t *m, const inlay_storage_t *storage,
                               const uint8_t *at, size_t bytes, int writes);
/* guard.c: what the frames of a detached task let it read; 0 without memory. Forget it. */
int inlay_guard_frames(inlay_activation_t *m, inlay_task_t *task);
void inlay_guard_drop(inlay_activation_t *m, inlay_task_t *task);
/* Whether another chain than that of `task`, and an earlier one, may still read a range. */
int inlay_guard_covers(const inlay_task_t *task, const inlay_storage_t *storage, size_t begin,
                       size_t end);
/* Before a write is issued: a suspended task that is earlier may still have to read there. */
inlay_status_t inlay_guard_may_write(inlay_activation_t *m, const inlay_storage_t *storage,
                                     const uint8_t *at, size_t bytes);
/* Before an effect that the outside sees: earlier tasks must have returned. */
inlay_status_t inlay_task_be_first(inlay_activation_t *m);
/* The slot with the value, once all tasks have returned; `is_sole` as for inlay_export. */
const inlay_slot_t *inlay_task_settled(const inlay_slot_t *slot, int *is_sole);

/* marshal.c: a tensor from outside into a slot; a tensor out of one, without its memory where something
 * else may refer to it (`is_sole` says that nothing else refers to what holds the slot). */
inlay_status_t inlay_push_input(inlay_activation_t *m, inlay_slot_t *slot,
                                const inlay_tensor_t *input);
/* The same of state: with room behind it, or to be written over; and out again, in its place if it still is
 * where it `was`. */
inlay_status_t inlay_push_state(inlay_activation_t *m, inlay_slot_t *slot,
                                const inlay_tensor_t *input, const inlay_state_t *state);
inlay_status_t inlay_export_state(inlay_activation_t *m, const inlay_slot_t *slot, const void *was,
                                  inlay_result_t *result);
/* Whether a result is to leave a larger storage as pages of its own. */
int inlay_is_lifted(const inlay_activation_t *m, const inlay_slot_t *slot);
inlay_status_t inlay_export(inlay_activation_t *m, const inlay_slot_t *slot, int is_sole,
                            inlay_result_t *result);

/* structure.c: values with structure into the slots of parameters, and out of those of results. */
inlay_status_t inlay_build(inlay_activation_t *m, const inlay_scope_t *scope, inlay_slot_t *slots,
                           const inlay_tensor_t *tensors, const int64_t *counts);
inlay_status_t inlay_export_all(inlay_activation_t *m, const inlay_scope_t *scope,
                                const inlay_slot_t *slots, inlay_values_t *values);

/* stack.c */
inlay_status_t inlay_stack_root(inlay_activation_t *m, size_t slots);
inlay_segment_t *inlay_stack_next(inlay_activation_t *m, size_t bytes);
void inlay_stack_trim(inlay_activation_t *m);
inlay_record_t *inlay_segment_end(inlay_segment_t *segment);
/* The first segment of a task, for a frame of so many slots; NULL with the error set. */
inlay_segment_t *inlay_stack_open(inlay_activation_t *m, size_t slots);
void inlay_stack_close(inlay_activation_t *m, inlay_segment_t *segment);

/* explain.c: the frames at the instruction noted above, and what an error says of them. */
void inlay_vm_where(const inlay_activation_t *m, inlay_where_t *where);
void inlay_vm_explain(const inlay_activation_t *m, const inlay_where_t *where, inlay_error_t *error);

/* kernel.c */
inlay_status_t inlay_invoke(inlay_activation_t *m, uint32_t kernel);

/* progress.c: the status, with the error set, for what host.poll answered. */
inlay_status_t inlay_give_up(inlay_activation_t *m, int answer);

/* tensor.c: instructions on tensors. Each takes its operands from m->sp and moves m->sp. */
inlay_status_t inlay_op_storage(inlay_activation_t *m, const uint32_t *operands);
inlay_status_t inlay_op_tensor(inlay_activation_t *m, const uint32_t *operands);
inlay_status_t inlay_op_allocate(inlay_activation_t *m, const uint32_t *operands);
inlay_status_t inlay_op_reshape(inlay_activation_t *m, const uint32_t *operands);
inlay_status_t inlay_op_rows(inlay_activation_t *m, int is_single);
inlay_status_t inlay_op_append(inlay_activation_t *m);
inlay_status_t inlay_op_extend(inlay_activation_t *m, uint32_t axis);
inlay_status_t inlay_op_own(inlay_activation_t *m);
inlay_status_t inlay_op_assign(inlay_activation_t *m);
inlay_status_t inlay_op_read_ints(inlay_activation_t *m, uint32_t n);
inlay_status_t inlay_op_make_ints(inlay_activation_t *m, uint32_t dtype, uint32_t n, uint32_t rank);
inlay_status_t inlay_op_dims(inlay_activation_t *m, uint32_t rank);

/* compound.c: the same, for values with fields. Pop n slots into a new object, and push it; replace
 * the top, a compound, by one of its items or by all n; replace what a cell holds. */
inlay_status_t inlay_op_construct(inlay_activation_t *m, uint32_t kind, uint32_t label, uint32_t n);
inlay_status_t inlay_op_item(inlay_activation_t *m, uint32_t kind, uint32_t index);
inlay_status_t inlay_op_unpack(inlay_activation_t *m, uint32_t n);
inlay_status_t inlay_op_write_cell(inlay_activation_t *m);
/* The closure below n arguments on the stack, fit to be called for so many results; NULL on failure,
 * with the error set. */
inlay_compound_t *inlay_closure_below(inlay_activation_t *m, const inlay_slot_t *sp, uint32_t n,
                                      uint32_t n_results);

/* explain.c: failures that several files report. `message` is a string of the module with a place for
 * each of n integers. */
inlay_status_t inlay_fail_check(inlay_activation_t *m, uint32_t message, const inlay_slot_t *slots,
                                uint32_t n);
inlay_status_t inlay_fail_overflow(inlay_activation_t *m);
inlay_status_t inlay_fail_division(inlay_activation_t *m);
inlay_status_t inlay_fail_axis(inlay_activation_t *m, uint32_t axis, uint32_t rank);
inlay_status_t inlay_wrong_kind(inlay_activation_t *m, uint32_t wanted, uint32_t found);
inlay_status_t inlay_no_memory(inlay_activation_t *m);
inlay_status_t inlay_no_device_memory(inlay_activation_t *m, const inlay_space_t *space, size_t bytes);
inlay_status_t inlay_not_in_host(inlay_activation_t *m, const inlay_space_t *space);

/* Fail unless the n top slots are integers. */
inlay_status_t inlay_need_ints(inlay_activation_t *m, const inlay_slot_t *slots, size_t n);

#endif
