/* Delegation of calls: a call that nobody can tell the time of runs whole on another thread.
 *
 * Commands overlap kernels of different calls, but cost as much as a kernel of half a microsecond each, and who
 * issues them is one thread. A call of many short kernels gains nothing by that. It gains where another
 * thread executes its instructions as well: in an activation of its own, the *delegate*, as in sequential
 * mode. That costs about two microseconds for a call.
 *
 *   SPAWN      the task is made, and its arguments are copied to the heap of the delegate: headers alone,
 *              bytes of tensors are borrowed. A command without accesses is submitted, whose work is the
 *              call. The task is detached, as one that waits.
 *   running    on any thread, without the lock: all that it touches is the delegate's. The task holds its
 *              arguments, so that what is borrowed lives; the guards of the task and the rule that what data and
 *              closures hold is never written in place keep others from writing there.
 *   done       the issuer copies the results back; memory of tensors changes hands. A result that is
 *              borrowed is a view of what it was borrowed from.
 *
 * What goes wrong in a delegate goes wrong again here, where failures have their place in the program: the
 * task, which still holds its arguments, begins as if it had never been delegated. That is right for any reason,
 * as nobody can tell when, or how often, such a call runs.
 *
 * There are as many delegates as threads: all but one may run, and one is ready for who ends first. While that is so, this
 * thread runs what comes next at once, and looks for nothing to put off (lookahead.c). Functions whose calls
 * were short are not delegated, but for one in 64, for that may change with sizes. Where arguments could not be
 * copied, those of the next call may: a fold of a tree is called with the whole tree, then with parts of it. So one call
 * is passed over behind the first that failed, three behind the second, at most 64, until one can be copied.
 * Both heaps are touched by the issuer alone, before the command is submitted and after it is retired.
 *
 * What a call and its delegates have at once is bounded without a counter that threads share: the most of the
 * activation, and of each delegate the most that one of its calls had. Bytes of results change hands, and would be
 * in both. So they are taken off the delegate's, and the activation is thought to have had them from the beginning
 * of that call: at the most that it had meanwhile (`beside`), which others that are under way still hear of. */
#include "delegate.h"

#include "shared.h"

#include <string.h>

#define AGAIN 64u
#define MOST_OBJECTS 128u
#define MOST_RESULTS 8u

/* -------------------------------------------------------------------- copies between two heaps */

typedef enum way { WAY_IN, WAY_BACK } way_t;

typedef struct copy {
    inlay_delegate_t *delegate;
    inlay_heap_t *from, *to;
    way_t way;
    uint32_t left;       /* objects that may still be made */
    uint32_t is_pending; /* a tensor is not there yet: another time it may be */
} copy_t;

static int copy_slot(copy_t *copy, inlay_slot_t *to, const inlay_slot_t *from);

static void note(inlay_delegate_t *d, inlay_storage_t *ours, inlay_storage_t *theirs)
{
    d->borrowed[d->n_borrowed].ours = ours;
    d->borrowed[d->n_borrowed++].theirs = theirs;
}

/* The storage there that stands for one here, with a reference to it; NULL where there is none yet. */
static inlay_storage_t *known(const copy_t *copy, const inlay_storage_t *storage)
{
    const inlay_delegate_t *d = copy->delegate;
    uint32_t i;
    for (i = 0; i < d->n_borrowed; i++) {
        const inlay_storage_t *from = copy->way == WAY_IN ? d->borrowed[i].ours : d->borrowed[i].theirs;
        inlay_storage_t *to = copy->way == WAY_IN ? d->borrowed[i].theirs : d->borrowed[i].ours;
        if (from != storage) continue;
        inlay_retain(&to->header);
        return to;
    }
    return NULL;
}

static inlay_storage_t *lend(copy_t *copy, inlay_storage_t *storage, const inlay_view_t *view)
{
    inlay_storage_t *theirs;
    if (storage->space || copy->delegate->n_borrowed == INLAY_MOST_BORROWED) return NULL;
    copy->is_pending = (uint32_t)inlay_access_pending(storage, view->data, view->bytes, 0);
    if (copy->is_pending) return NULL;
    theirs = inlay_heap_borrow(copy->to, storage->data, storage->bytes);
    if (!theirs) return NULL;
    note(copy->delegate, storage, theirs);
    inlay_retain(&theirs->header); /* so that its address is that of nothing else */
    return theirs;
}

/* A storage that the delegate made becomes one of the task's activation. */
static inlay_storage_t *adopt(copy_t *copy, inlay_storage_t *storage)
{
    inlay_storage_t *ours;
    if (storage->owned != STORAGE_OWNED || storage->space) return NULL;
    if (copy->delegate->n_borrowed == INLAY_MOST_BORROWED) return NULL;
    ours = inlay_heap_adopt(copy->to, copy->from, storage);
    if (ours) note(copy->delegate, ours, storage);
    if (ours) copy->delegate->handed += storage->bytes;
    return ours;
}

static inlay_view_t *copy_view(copy_t *copy, const inlay_view_t *from)
{
    inlay_storage_t *storage = from->storage;
    inlay_view_t *to;
    if (storage->header.count != IMMORTAL) {
        storage = known(copy, from->storage);
        /* Of a storage that was met before, this may be a range that is still to be written. */
        if (storage && copy->way == WAY_IN &&
            inlay_access_pending(from->storage, from->data, from->bytes, 0)) {
            copy->is_pending = 1;
            inlay_release(copy->to, &storage->header);
            return NULL;
        }
        if (!storage)
            storage = copy->way == WAY_IN ? lend(copy, from->storage, from) : adopt(copy, from->storage);
        if (!storage) return NULL;
    }
    to = inlay_heap_view(copy->to, from->rank);
    if (!to) {
        inlay_release(copy->to, &storage->header);
        return NULL;
    }
    to->storage = storage;
    to->data = storage->data + (from->data - from->storage->data);
    to->bytes = from->bytes;
    to->dtype = from->dtype;
    if (from->rank) memcpy(to->dims, from->dims, from->rank * sizeof *from->dims);
    return to;
}

static inlay_compound_t *copy_compound(copy_t *copy, const inlay_compound_t *from)
{
    inlay_compound_t *to = inlay_heap_compound(copy->to, from->header.kind, from->n);
    uint32_t i;
    if (!to) return NULL;
    to->label = from->label;
    to->header.effects = from->header.effects;
    for (i = 0; i < from->n; i++) to->items[i].tag = KIND_EMPTY;
    for (i = 0; i < from->n; i++)
        if (!copy_slot(copy, &to->items[i], &from->items[i])) {
            to->items[i].tag = KIND_EMPTY;
            inlay_release(copy->to, &to->header);
            return NULL;
        }
    return to;
}

/* Copy a value; 0 where it is too large or holds what has an identity, like a cell. No deeper than
 * MOST_OBJECTS. */
static int copy_slot(copy_t *copy, inlay_slot_t *to, const inlay_slot_t *from)
{
    inlay_object_t *made = NULL;
    int unused = 1;
    from = inlay_task_settled(from, &unused);
    *to = *from;
    if (from->tag <= KIND_INT) return from->tag == KIND_INT;
    if (from->as.object->count == IMMORTAL) return 1;
    if (!copy->left) return 0;
    copy->left--;
    if (from->tag == KIND_TENSOR) {
        inlay_view_t *view = copy_view(copy, (const inlay_view_t *)(const void *)from->as.object);
        made = view ? &view->header : NULL;
    } else if (from->tag == KIND_TUPLE || from->tag == KIND_ADT || from->tag == KIND_CLOSURE) {
        inlay_compound_t *compound =
            copy_compound(copy, (const inlay_compound_t *)(const void *)from->as.object);
        made = compound ? &compound->header : NULL;
    }
    to->as.object = made;
    return made != NULL;
}

/* Copy n slots; 0, and nothing is made, where one cannot be. */
static int copy_slots(copy_t *copy, inlay_slot_t *to, const inlay_slot_t *from, uint32_t n)
{
    uint32_t i = 0;
    copy->left = MOST_OBJECTS;
    copy->is_pending = 0;
    while (i < n && copy_slot(copy, &to[i], &from[i])) i++;
    if (i == n) return 1;
    while (i) inlay_slot_release(copy->to, &to[--i]);
    return 0;
}

/* ------------------------------------------------------------------------------------- calls */

static inlay_call_time_t *time_of(const inlay_activation_t *m, const inlay_task_t *task)
{
    return &m->call_times[task->callee - m->module->functions];
}

/* As the rates of modes: the least that was seen, which forgets slowly. */
static void learn(inlay_call_time_t *time, int64_t ns)
{
    time->ns = !time->ns || ns < time->ns ? ns : time->ns + (ns - time->ns) / 16;
}

/* Whether calls of a function take less than a kernel that is not worth handing over, or a delegate. */
static int is_short(const inlay_activation_t *m, const inlay_call_time_t *time)
{
    return time->ns && time->ns < INLAY_DELEGATE_NS && time->ns < m->config.hand_off_ns;
}

/* Results could not be copied, and the call runs twice: not to be delegated again soon. */
static void learn_unfit(inlay_call_time_t *time) { time->ns = 1; }

/* Arguments could not be copied. */
static void learn_unfit_once(inlay_call_time_t *time)
{
    time->pause = time->pause < AGAIN / 2 ? 2 * time->pause + 1 : AGAIN;
    time->pausing = time->pause;
}

/* Whether a call is to run here without another look. */
static int is_passed_over(const inlay_activation_t *m, inlay_call_time_t *time)
{
    if (is_short(m, time)) return ++time->passed % AGAIN != 0;
    if (!time->pausing) return 0;
    time->pausing--;
    return 1;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* Those that are under way hear of bytes that the activation had at once, lately or with what it is given. */
static void tell(inlay_activation_t *m, size_t bytes)
{
    inlay_delegate_t *d;
    for (d = m->delegates; d; d = d->next)
        if (d->task) d->beside = larger(d->beside, bytes);
    m->heap.lately = m->heap.asked;
}

static void begin_count(inlay_activation_t *m, inlay_delegate_t *d)
{
    inlay_heap_t *heap = &d->activation->heap;
    tell(m, m->heap.lately);
    d->most = larger(d->most, heap->most_asked);
    heap->most_asked = heap->asked;
    d->beside = m->heap.asked;
    d->handed = 0;
}

static void end_count(inlay_activation_t *m, inlay_delegate_t *d)
{
    inlay_heap_t *heap = &d->activation->heap;
    const size_t with = d->beside + d->handed;
    d->most = larger(d->most, heap->most_asked - d->handed);
    heap->most_asked = heap->asked;
    m->heap.most_asked = larger(m->heap.most_asked, with);
    tell(m, with);
}

size_t inlay_delegate_peak(const inlay_activation_t *m)
{
    const inlay_delegate_t *d;
    size_t bytes = m->heap.most_asked;
    for (d = m->delegates; d; d = d->next) bytes += larger(d->most, d->activation->heap.most_asked);
    return bytes;
}

void inlay_delegate_count_anew(inlay_delegate_t *d) { d->beside = d->handed = d->most = 0; }

/* The results of a task from its delegate, in place of its arguments; 0 where they cannot be copied. */
static int take_results(inlay_activation_t *m, inlay_delegate_t *d, inlay_task_t *task)
{
    inlay_slot_t results[MOST_RESULTS], *slots = task->first->slots;
    copy_t copy = {d, &d->activation->heap, &m->heap, WAY_BACK, 0, 0};
    uint32_t n_lent = d->n_borrowed, i;
    if (!copy_slots(&copy, results, d->activation->first->slots, task->n_results)) return 0;
    for (i = 0; i < task->n_results; i++) inlay_slot_release(copy.from, &d->activation->first->slots[i]);
    for (i = 0; i < n_lent; i++) inlay_release(copy.from, &d->borrowed[i].theirs->header);
    for (i = 0; i < task->callee->n_params; i++) inlay_slot_release(&m->heap, &slots[i]);
    if (task->n_results) memcpy(slots, results, task->n_results * sizeof *results);
    return 1;
}

void inlay_delegate_end(inlay_activation_t *m, inlay_task_t *task)
{
    inlay_delegate_t *d = task->delegate;
    tell(m, m->heap.lately);
    task->delegate = NULL;
    d->task = NULL;
    m->steps += d->activation->steps;
    d->activation->steps = 0;
    /* What the mode of calls is chosen by is time over predicted work: also over what was done here (choice.c). */
    if (d->activation->issuer.work < INT64_MAX - m->issuer.work) m->issuer.work += d->activation->issuer.work;
    if (d->status == INLAY_OK) {
        learn(time_of(m, task), d->ns);
        task->has_returned = (uint32_t)take_results(m, d, task);
        if (!task->has_returned) learn_unfit(time_of(m, task));
    }
    end_count(m, d);
    /* What begins again here is not to have what it left there. */
    if (!task->has_returned && d->activation->heap.live) inlay_heap_sweep(&d->activation->heap);
}

void inlay_delegate_abandon(inlay_task_t *task)
{
    if (task->delegate) task->delegate->task = NULL;
    task->delegate = NULL;
}

/* Take what is done, so that its delegates are free. */
static void settle(inlay_activation_t *m)
{
    inlay_command_t *done;
    inlay_delegate_t *d;
    inlay_lock(m);
    done = inlay_queue_empty(&m->shared->done);
    inlay_unlock(m);
    inlay_retire(m, done);
    for (d = m->delegates; d; d = d->next)
        if (d->task && !d->is_running) inlay_delegate_end(m, d->task);
}

/* One that nobody uses; NULL where all are in use, or there is no memory. */
static inlay_delegate_t *find(inlay_activation_t *m)
{
    inlay_delegate_t *d = m->delegates;
    uint32_t n = 0;
    for (; d && (d->task || d->is_running); d = d->next) n++;
    if (!d && n < (uint32_t)m->config.parts) d = m->open_delegate(m);
    return d;
}

/* Its arguments, at the start of the delegate's stack. */
static int put_arguments(inlay_activation_t *m, inlay_delegate_t *d, const inlay_task_t *task,
                         inlay_call_time_t *time)
{
    inlay_activation_t *theirs = d->activation;
    copy_t copy = {d, &m->heap, &theirs->heap, WAY_IN, 0, 0};
    if (theirs->heap.live) inlay_heap_sweep(&theirs->heap);
    d->n_borrowed = 0;
    theirs->error = &d->error;
    d->error.depth = 0;
    if (inlay_stack_root(theirs, task->callee->frame) != INLAY_OK) return 0;
    if (copy_slots(&copy, theirs->current->slots, task->base, task->callee->n_params)) {
        time->pause = 0;
        return 1;
    }
    if (!copy.is_pending) learn_unfit_once(time);
    return 0;
}

int inlay_delegate_begin(inlay_activation_t *m)
{
    inlay_task_t *task = m->task;
    inlay_delegate_t *d;
    inlay_call_time_t *time;
    if (!m->call_times || task->n_results > MOST_RESULTS || inlay_task_effects_to_come(task)) return 0;
    time = time_of(m, task);
    if (is_passed_over(m, time)) return 0;
    if (m->n_delegated) settle(m);
    d = find(m);
    if (!d || !put_arguments(m, d, task, time)) return 0;
    begin_count(m, d);
    d->activation->issuer.work = 0;
    d->task = task;
    d->function = (uint32_t)(task->callee - m->module->functions);
    d->status = INLAY_CANCELLED; /* unless it is run */
    d->is_running = 1;
    task->delegate = d;
    if (inlay_issue_call(m, d) == INLAY_OK) return 1;
    d->is_running = 0;
    inlay_delegate_abandon(task);
    return 0;
}
