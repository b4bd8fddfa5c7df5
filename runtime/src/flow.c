#include "machine.h"

#include <string.h>

#define SLAB_ITEMS 64

/* Edges and places come from slabs, which live as long as the activation. */
typedef struct inlay_slab {
    struct inlay_slab *next;
    size_t bytes;
} inlay_slab_t;

void inlay_flow_lock(const inlay_activation_t *m)
{
    if (m->flow.lock) m->host->threads->lock(m->host->user, m->flow.lock);
}

void inlay_flow_unlock(const inlay_activation_t *m)
{
    if (m->flow.lock) m->host->threads->unlock(m->host->user, m->flow.lock);
}

static void push(inlay_queue_t *queue, inlay_command_t *command)
{
    command->next = NULL;
    if (queue->last) queue->last->next = command;
    else queue->first = command;
    queue->last = command;
}

static void push_front(inlay_queue_t *queue, inlay_command_t *command)
{
    command->next = queue->first;
    if (!queue->first) queue->last = command;
    queue->first = command;
}

static inlay_command_t *pop(inlay_queue_t *queue)
{
    inlay_command_t *command = queue->first;
    if (!command) return NULL;
    queue->first = command->next;
    if (!queue->first) queue->last = NULL;
    return command;
}

/* ---------------------------------------------------------------------------------- memory */

/* n items of a slab in a list through their first field; NULL where there is no memory. */
void *inlay_flow_slab(inlay_activation_t *m, size_t item_bytes)
{
    inlay_flow_t *flow = &m->flow;
    size_t head = 64, bytes = head + SLAB_ITEMS * item_bytes, i;
    inlay_slab_t *slab = m->host->allocate(m->host->user, bytes, 64);
    uint8_t *items;
    if (!slab) return NULL;
    slab->next = flow->slabs;
    slab->bytes = bytes;
    flow->slabs = slab;
    items = (uint8_t *)slab + head;
    memset(items, 0, SLAB_ITEMS * item_bytes);
    for (i = 0; i + 1 < SLAB_ITEMS; i++) {
        void *next = items + (i + 1) * item_bytes;
        memcpy(items + i * item_bytes, &next, sizeof next);
    }
    return items;
}

static inlay_edge_t *new_edge(inlay_activation_t *m)
{
    inlay_edge_t *edge;
    if (!m->flow.free_edges) m->flow.free_edges = inlay_flow_slab(m, sizeof *edge);
    edge = m->flow.free_edges;
    if (edge) m->flow.free_edges = edge->next;
    return edge;
}

static void free_edges(inlay_activation_t *m, inlay_edge_t *edges)
{
    while (edges) {
        inlay_edge_t *next = edges->next;
        edges->next = m->flow.free_edges;
        m->flow.free_edges = edges;
        edges = next;
    }
}

/* Fields of a command lie behind it, aligned to 16. */
static void *part_of(uint8_t **at, size_t n, size_t item_bytes)
{
    void *found = *at;
    *at += (n * item_bytes + 15) / 16 * 16;
    return found;
}

static size_t lay_out(const inlay_activation_t *m, inlay_command_t *c)
{
    uint8_t *start = (uint8_t *)c, *at = start;
    size_t ports = m->flow.n_ports, shown = m->flow.shows_tensors ? ports : 0;
    inlay_command_t unused, *to = c ? c : &unused;
    part_of(&at, 1, sizeof *c);
    to->buffers = part_of(&at, ports + 1, sizeof *c->buffers);
    to->ints = part_of(&at, m->flow.n_ints, sizeof *c->ints);
    to->answers = part_of(&at, (size_t)m->config.parts, sizeof *c->answers);
    to->sizes = part_of(&at, ports, sizeof *c->sizes);
    to->accesses = part_of(&at, ports, sizeof *c->accesses);
    to->tensors = part_of(&at, shown, sizeof *c->tensors);
    to->regions = part_of(&at, ports + 1, sizeof *c->regions);
    to->dims = part_of(&at, shown * INLAY_MAX_RANK, sizeof *c->dims);
    return (size_t)(at - start);
}

static inlay_command_t *new_command(inlay_activation_t *m)
{
    inlay_command_t *c = m->flow.free;
    if (c) {
        m->flow.free = c->next;
    } else {
        c = m->host->allocate(m->host->user, m->flow.command_bytes, 64);
        if (!c) return NULL;
        memset(c, 0, sizeof *c);
        lay_out(m, c);
    }
    c->next = c->older = c->newer = NULL;
    c->state = COMMAND_WAITING;
    c->waits = c->is_dropped = c->on_caller = c->n_accesses = 0;
    c->successors = NULL;
    c->mates = NULL;
    c->workspace = NULL;
    c->home = NULL;
    c->is_started = 0;
    c->n_after = 0;
    c->holds = 2;
    c->status = INLAY_OK;
    c->error = NULL;
    return c;
}

static void release_command(inlay_activation_t *m, inlay_command_t *c)
{
    if (c) m->host->release(m->host->user, c, m->flow.command_bytes, 64);
}

static void work(inlay_job_t *job);

/* Whether only the thread of the call may issue: callbacks belong to it, and devices that work only
 * while somebody waits for them. */
static int is_tied(const inlay_activation_t *m)
{
    const inlay_module_t *module = m->module;
    uint32_t i;
    for (i = 0; i < module->n_kernels; i++)
        if (module->kernels[i].body == INLAY_BODY_CALLBACK && !m->config.callbacks_anywhere)
            return 1;
    for (i = 0; i < module->n_memories; i++)
        if (module->homes[i].driver && module->homes[i].driver->progress) return 1;
    return 0;
}

/* Whether there is one thread, and nothing that works beside it. */
static int is_alone(const inlay_activation_t *m)
{
    uint32_t i;
    if (m->config.mode != INLAY_PARALLEL || m->config.parts > 1 || m->module->n_devices) return 0;
    for (i = 0; i < m->module->n_kernels; i++)
        if (m->module->kernels[i].body == INLAY_BODY_CALLBACK) return 0;
    return 1;
}

/* Lists for what gathers, where any kernel has a batch; 0 without memory. */
static int open_batches(inlay_activation_t *m)
{
    inlay_flow_t *flow = &m->flow;
    size_t bytes = m->module->n_kernels * sizeof *flow->gathered;
    if (m->config.mode == INLAY_SEQUENTIAL || !m->module->has_batches) return 1;
    flow->gathered = m->host->allocate(m->host->user, bytes, 64);
    if (!flow->gathered) return 0;
    memset(flow->gathered, 0, bytes);
    return 1;
}

inlay_status_t inlay_flow_open(inlay_activation_t *m)
{
    inlay_flow_t *flow = &m->flow;
    uint32_t i;
    flow->activation = m;
    flow->job.run = work;
    flow->is_tied = (uint32_t)is_tied(m);
    flow->is_alone = (uint32_t)is_alone(m);
    /* A copy has two operands and an integer. */
    flow->n_ports = m->module->max_ports > 2 ? m->module->max_ports : 2;
    flow->n_ints = m->module->max_ints > 1 ? m->module->max_ints : 1;
    for (i = 0; i < m->module->n_kernels; i++)
        if (inlay_takes_tensors(&m->module->kernels[i])) flow->shows_tensors = 1;
    flow->command_bytes = lay_out(m, NULL);
    if (m->config.mode == INLAY_PARALLEL && m->host->threads) {
        flow->lock = m->host->threads->open(m->host->user);
        if (!flow->lock) return INLAY_OUT_OF_MEMORY;
    }
    INLAY_TRY(inlay_race_open(m));
    m->now = new_command(m);
    return m->now && open_batches(m) ? INLAY_OK : INLAY_OUT_OF_MEMORY;
}

void inlay_flow_close(inlay_activation_t *m)
{
    inlay_flow_t *flow = &m->flow;
    while (flow->free) {
        inlay_command_t *c = flow->free;
        flow->free = c->next;
        release_command(m, c);
    }
    release_command(m, m->now);
    inlay_race_close(m);
    while (flow->slabs) {
        inlay_slab_t *slab = flow->slabs;
        flow->slabs = slab->next;
        m->host->release(m->host->user, slab, slab->bytes, 64);
    }
    if (flow->room) m->host->release(m->host->user, flow->room, flow->room_bytes, 64);
    if (flow->gathered)
        m->host->release(m->host->user, flow->gathered,
                         m->module->n_kernels * sizeof *flow->gathered, 64);
    if (flow->lock) m->host->threads->close(m->host->user, flow->lock);
}

/* ------------------------------------------------------------------------- order and failure */

int inlay_flow_is_before(const inlay_place_t *a, const inlay_place_t *b)
{
    if (a == b) return 0;
    while (a && a != b) a = a->next;
    return a != NULL;
}

/* Whether (a, n) is before (b, k) in the program. Only asked after a failure, so it may walk. */
static int is_before(const inlay_place_t *a, uint64_t n, const inlay_place_t *b, uint64_t k)
{
    return a == b ? n < k : inlay_flow_is_before(a, b);
}

inlay_place_t *inlay_flow_overtake(inlay_activation_t *m)
{
    inlay_flow_t *flow = &m->flow;
    inlay_place_t *place;
    if (!flow->free_places) flow->free_places = inlay_flow_slab(m, sizeof *place);
    place = flow->free_places;
    if (!place) return NULL;
    flow->free_places = place->next;
    place->users = 1;
    place->previous = flow->place;
    place->next = flow->place->next;
    flow->place->next = place;
    if (place->next) place->next->previous = place;
    return place;
}

void inlay_flow_leave_place(inlay_activation_t *m, inlay_place_t *place)
{
    if (--place->users || place == &m->flow.first) return;
    place->previous->next = place->next;
    if (place->next) place->next->previous = place->previous;
    place->next = m->flow.free_places;
    m->flow.free_places = place;
}

uint64_t inlay_flow_random(inlay_activation_t *m)
{
    uint64_t *random = &m->flow.random;
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}

/* What is in flight behind the failure is not begun any more; with `all`, nothing is. */
static void drop_later(inlay_activation_t *m, int all)
{
    inlay_flow_t *flow = &m->flow;
    inlay_command_t *c;
    inlay_flow_lock(m);
    for (c = flow->oldest; c; c = c->newer)
        if (all || is_before(flow->failure.place, flow->failure.number, c->place, c->number))
            c->is_dropped = 1;
    inlay_flow_unlock(m);
}

/* Keep the earliest failure. */
static void note_failure(inlay_activation_t *m, inlay_status_t status, inlay_place_t *place,
                         uint64_t number, const inlay_where_t *where, const inlay_error_t *error)
{
    inlay_failure_t *failure = &m->flow.failure;
    if (failure->status && !is_before(place, number, failure->place, failure->number)) return;
    place->users++;
    if (failure->status) inlay_flow_leave_place(m, failure->place);
    failure->status = status;
    failure->place = place;
    failure->number = number;
    failure->error = *error;
    if (where) inlay_vm_explain(m, where, &failure->error);
    drop_later(m, 0);
}

/* -------------------------------------------------------------------------------- accesses */

static void list(inlay_access_t *access)
{
    inlay_storage_t *storage = access->storage;
    access->previous = NULL;
    access->next = storage->accesses;
    if (access->next) access->next->previous = access;
    storage->accesses = access;
    access->is_listed = 1;
}

static void unlist(inlay_access_t *access)
{
    if (!access->is_listed) return;
    if (access->previous) access->previous->next = access->next;
    else access->storage->accesses = access->next;
    if (access->next) access->next->previous = access->previous;
    access->is_listed = 0;
}

static void add_access(inlay_command_t *c, inlay_storage_t *storage, const uint8_t *at,
                       size_t bytes, int writes)
{
    inlay_access_t *access;
    if (!storage->owned || !bytes) return; /* what is not owned is never written */
    access = &c->accesses[c->n_accesses++];
    access->command = c;
    access->storage = storage;
    access->begin = (size_t)(at - storage->data);
    access->end = access->begin + bytes;
    access->writes = (uint32_t)writes;
    access->is_listed = 0;
}

static int conflicts(const inlay_access_t *a, size_t begin, size_t end, int writes)
{
    return (writes || a->writes) && a->begin < end && begin < a->end;
}

int inlay_flow_pending(inlay_activation_t *m, const inlay_storage_t *storage, const uint8_t *at,
                       size_t bytes, int writes)
{
    const inlay_access_t *a;
    size_t begin;
    (void)m;
    if (!storage->pins) return 0;
    begin = (size_t)(at - storage->data);
    for (a = storage->accesses; a; a = a->next)
        if (conflicts(a, begin, begin + bytes, writes)) return 1;
    return 0;
}

/* Put an edge into flow->edges for each command that c has to wait for; 0 without memory. */
static int find_predecessors(inlay_activation_t *m, const inlay_command_t *c)
{
    uint32_t i;
    m->flow.edges = NULL;
    for (i = 0; i < c->n_accesses; i++) {
        const inlay_access_t *mine = &c->accesses[i], *a;
        for (a = mine->storage->accesses; a; a = a->next) {
            inlay_edge_t *edge;
            if (!conflicts(a, mine->begin, mine->end, (int)mine->writes)) continue;
            if (inlay_race_spoils(m, mine->writes ? SABOTAGE_REUSE : SABOTAGE_READ)) continue;
            for (edge = m->flow.edges; edge && edge->to != a->command;) edge = edge->next;
            if (edge) continue;
            edge = new_edge(m);
            if (!edge) {
                free_edges(m, m->flow.edges);
                return 0;
            }
            edge->to = a->command;
            edge->next = m->flow.edges;
            m->flow.edges = edge;
        }
    }
    return 1;
}

/* Whatever conflicts with an access that a later write covers conflicts with that write. */
static void list_accesses(inlay_command_t *c)
{
    uint32_t i;
    for (i = 0; i < c->n_accesses; i++) {
        inlay_access_t *mine = &c->accesses[i], *a = mine->storage->accesses, *next;
        for (; mine->writes && a; a = next) {
            next = a->next;
            if (a->command != c && mine->begin <= a->begin && a->end <= mine->end) unlist(a);
        }
        mine->storage->pins++;
    }
    for (i = 0; i < c->n_accesses; i++) list(&c->accesses[i]);
}

/* ----------------------------------------------------------------------------- ends of commands */

/* With the lock taken: all that a command waited for has ended. */
static void make_ready(inlay_activation_t *m, inlay_command_t *c)
{
    c->state = COMMAND_READY;
    if (c->on_caller) push(&m->flow.own, c);
    else if (inlay_batch_is_for(m, c->kernel)) inlay_batch_add(m, c);
    else push(&m->flow.ready, c);
}

/* Whether a command of a device ends by itself. Devices that work only while somebody waits for them
 * are waited for, by the thread of the call. */
static int ends_itself(const inlay_activation_t *m, const inlay_command_t *c)
{
    return c->home && m->flow.lock && !c->home->driver->progress;
}

/* With the lock taken: let a command be started behind another one; 0 where it has to wait for the end
 * of that. The last ticket of a queue says all. */
static int start_behind(const inlay_activation_t *m, const inlay_command_t *before,
                        inlay_command_t *c)
{
    uint32_t i = 0;
    if (before->state != COMMAND_STARTED || before->is_dropped || !ends_itself(m, c) ||
        before->home->device != c->home->device || before->kernel->n_assertions ||
        m->flow.n_started >= INLAY_MOST_STARTED)
        return 0;
    while (i < c->n_after && c->after[i].queue != before->ticket.queue) i++;
    if (i == INLAY_MOST_AFTER) return 0;
    if (i == c->n_after) c->after[c->n_after++] = before->ticket;
    if (c->after[i].number < before->ticket.number) c->after[i] = before->ticket;
    c->holds++;
    return 1;
}

/* With the lock taken: a device has a command. What waited for its end may not have to. */
static void note_start(inlay_activation_t *m, inlay_command_t *c)
{
    inlay_edge_t *edge;
    c->state = COMMAND_STARTED;
    m->flow.n_started++;
    for (edge = c->successors; edge; edge = edge->next) {
        edge->has_ticket = (uint32_t)start_behind(m, c, edge->to);
        if (edge->has_ticket && !--edge->to->waits) make_ready(m, edge->to);
    }
}

/* What a thread keeps for itself of what became ready when its command ended: it has the data at hand.
 * That is one command, and beside it some that together take less than handing them over. */
typedef struct inlay_kept {
    inlay_queue_t shorts; /* run first */
    inlay_command_t *next;
    int64_t ns;           /* of the short ones since `next` was begun */
} inlay_kept_t;

static int keep(const inlay_activation_t *m, inlay_kept_t *kept, inlay_command_t *c)
{
    if (c->on_caller || inlay_batch_is_for(m, c->kernel)) return 0;
    if (kept->ns + c->ns < m->config.hand_off_ns) {
        kept->ns += c->ns;
        push(&kept->shorts, c);
    } else if (!kept->next) {
        kept->next = c;
    } else {
        return 0;
    }
    c->state = COMMAND_READY;
    return 1;
}

/* With the lock taken: others may have it. */
static void give_up(inlay_activation_t *m, inlay_kept_t *kept)
{
    inlay_command_t *c;
    if (kept->next) push_front(&m->flow.ready, kept->next);
    kept->next = NULL;
    while ((c = pop(&kept->shorts))) push_front(&m->flow.ready, c);
}

/* With the lock taken: a command has ended. Successors that are ready now go to what the thread keeps,
 * if that is given, or to the lists; those that nothing else held to `ended`. */
static void complete_one(inlay_activation_t *m, inlay_command_t *c, inlay_kept_t *kept,
                         inlay_queue_t *ended)
{
    inlay_edge_t *edge;
    if (c->state == COMMAND_STARTED) m->flow.n_started--;
    c->state = COMMAND_DONE;
    for (edge = c->successors; edge; edge = edge->next) {
        inlay_command_t *to = edge->to;
        /* What a kernel that failed has written is not to be read. */
        if (c->status != INLAY_OK || c->is_dropped) to->is_dropped = 1;
        if (edge->has_ticket) {
            if (!--to->holds) push(ended, to);
            continue;
        }
        if (!--to->waits && !(kept && keep(m, kept, to))) make_ready(m, to);
    }
    push(&m->flow.done, c);
    if (m->flow.issuer_waits && !--m->flow.issuer_waits) m->flow.is_due = 1;
}

/* The same for all that ran as one with it, and for those that nothing else held. */
static void complete(inlay_activation_t *m, inlay_command_t *c, inlay_kept_t *kept)
{
    inlay_queue_t ended = {NULL, NULL};
    while (c) {
        inlay_command_t *mate = c->mates;
        c->mates = NULL;
        complete_one(m, c, kept, &ended);
        c = mate ? mate : pop(&ended);
    }
}

/* With the lock taken: so many of what holds a command are over. */
static void let_go(inlay_activation_t *m, inlay_command_t *c, uint32_t holds, inlay_kept_t *kept)
{
    c->holds -= holds;
    if (!c->holds) complete(m, c, kept);
}

/* ------------------------------------------------------------------------------ other threads */

/* With the lock taken: there is something to run. Told is whoever waits for this call, else a worker
 * of the host. */
static void call_help(inlay_activation_t *m)
{
    if (!m->flow.lock) return;
    if (m->flow.caller_waits || m->flow.issuer_waits) {
        if (!m->flow.issuer_waits) m->flow.caller_waits = 0;
        m->flow.issuer_waits = 0;
        m->host->threads->wake(m->host->user, m->flow.lock);
    } else {
        m->host->threads->offer(m->host->user, &m->flow.job);
    }
}

/* With the lock taken: wake the threads that wait for what has come about. */
static void wake(inlay_activation_t *m)
{
    inlay_flow_t *flow = &m->flow;
    int for_caller = flow->own.first || flow->is_over;
    if (!flow->is_issuing && (flow->asked || (flow->is_tied && flow->done.first))) for_caller = 1;
    if (!flow->lock) return;
    if (flow->is_due || (flow->caller_waits && for_caller)) {
        flow->is_due = 0;
        if (for_caller) flow->caller_waits = 0;
        m->host->threads->wake(m->host->user, flow->lock);
    }
}

/* With the lock taken, by a thread that goes on with something else: a command has ended. */
static void leave_to_others(inlay_activation_t *m)
{
    wake(m);
    if (m->flow.ready.first || (m->flow.done.first && !m->flow.is_issuing)) call_help(m);
}

void inlay_flow_share(inlay_activation_t *m)
{
    inlay_flow_lock(m);
    if (m->flow.ready.first) call_help(m);
    inlay_flow_unlock(m);
    m->flow.keeps_one = 0;
}

int inlay_flow_ask(inlay_activation_t *m)
{
    int answer;
    if (m->flow.is_caller) return m->host->poll ? m->host->poll(m->host->user) : 0;
    inlay_flow_lock(m);
    answer = m->flow.asked;
    inlay_flow_unlock(m);
    return answer;
}

/* ---------------------------------------------------------------------------------- running */

static void keep_status(inlay_activation_t *m, inlay_command_t *c, inlay_status_t status,
                        inlay_error_t *error)
{
    c->status = status;
    if (status == INLAY_OK) return;
    error->status = status;
    c->error = m->host->allocate(m->host->user, sizeof *error, 64);
    if (c->error) *c->error = *error;
}

static void execute_one(inlay_activation_t *m, inlay_command_t *c)
{
    inlay_error_t error;
    error.depth = 0;
    error.message[0] = '\0';
    keep_status(m, c, inlay_command_run(m, c, &error), &error);
}

int inlay_flow_starts(const inlay_activation_t *m)
{
    return m->flow.lock && m->host->start && m->config.mode == INLAY_PARALLEL;
}

static void explain(const inlay_command_t *c, inlay_status_t status, const char *message,
                    inlay_error_t *error)
{
    inlay_fail(error, status, "kernel '", NULL, 0);
    inlay_say_text(error, c->kernel->name);
    inlay_say(error, "' failed: ");
    inlay_say(error, message);
}

/* Start a callback; 0 where it ends later, and may have ended: nothing of it is touched then. */
static int start(inlay_activation_t *m, inlay_command_t *c)
{
    char message[INLAY_MESSAGE_BYTES];
    inlay_status_t status;
    inlay_error_t error;
    c->activation = m;
    c->begun = inlay_trace_now(m);
    message[0] = '\0';
    status = m->host->start(m->host->user, c, c->index, c->tensors, c->kernel->n_ports, c->ints,
                            c->kernel->n_ints, message, sizeof message);
    if (status == INLAY_PENDING) return 0;
    if (status != INLAY_OK) explain(c, status, message, &error);
    inlay_trace_run(m, c, c->begun);
    keep_status(m, c, status, &error);
    return 1;
}

/* A driver tells the end of a command, on a thread of its own. Not touched after the lock is given
 * back: the issuer waits in `retire` until this has returned. */
static void told(void *argument, inlay_status_t status, int64_t answer, const char *message)
{
    inlay_command_t *c = argument;
    inlay_activation_t *m = c->activation;
    inlay_error_t error;
    if (status != INLAY_OK) inlay_device_explain(m, c, status, answer, message, &error);
    inlay_trace_run(m, c, c->begun);
    keep_status(m, c, status, &error);
    inlay_flow_lock(m);
    let_go(m, c, 1, NULL);
    leave_to_others(m);
    inlay_flow_unlock(m);
}

/* As `start`, for a command of a device, whose end may be told before the driver has returned. */
static int start_on_device(inlay_activation_t *m, inlay_command_t *c)
{
    inlay_status_t status;
    inlay_error_t error;
    error.depth = 0;
    error.message[0] = '\0';
    c->activation = m;
    c->begun = inlay_trace_now(m);
    c->is_started = 1;
    status = inlay_device_start(m, c, told, c, &error);
    if (status != INLAY_OK) {
        c->is_started = 0;
        keep_status(m, c, status, &error);
        return 1;
    }
    inlay_flow_lock(m);
    note_start(m, c);
    let_go(m, c, 1, NULL);
    inlay_flow_unlock(m);
    return 0;
}

/* Without the lock: run a command that was taken, and those that are to run as one with it. Where
 * together they fail, each is run alone, to find which. 0 where it was started and ends later. */
static int execute(inlay_activation_t *m, inlay_command_t *c, int is_dropped)
{
    if (is_dropped || (c->mates && inlay_batch_run(m, c))) return 1;
    if (c->kernel && c->kernel->body == INLAY_BODY_CALLBACK && inlay_flow_starts(m))
        return start(m, c);
    if (ends_itself(m, c)) return start_on_device(m, c);
    for (; c; c = c->mates) execute_one(m, c);
    return 1;
}

void inlay_complete(void *ticket, inlay_status_t status, const char *message)
{
    inlay_command_t *c = ticket;
    inlay_activation_t *m = c->activation;
    inlay_error_t error;
    if (status != INLAY_OK) explain(c, status, message ? message : "", &error);
    inlay_trace_run(m, c, c->begun);
    keep_status(m, c, status, &error);
    /* Once the lock is given back, the call may be over. */
    inlay_flow_lock(m);
    complete(m, c, NULL);
    leave_to_others(m);
    inlay_flow_unlock(m);
}

/* With the lock taken, and given up meanwhile: run a command. */
static void run(inlay_activation_t *m, inlay_command_t *c, inlay_kept_t *kept)
{
    int is_dropped = (int)c->is_dropped, has_ended;
    c->state = COMMAND_RUNNING;
    if (m->flow.ready.first || (m->flow.is_waiting && m->flow.n_gathered)) call_help(m);
    inlay_flow_unlock(m);
    has_ended = execute(m, c, is_dropped);
    inlay_flow_lock(m);
    if (has_ended) let_go(m, c, 2, m->config.mode == INLAY_PARALLEL ? kept : NULL);
    wake(m);
}

void inlay_flow_run_own(inlay_activation_t *m)
{
    inlay_command_t *c;
    inlay_flow_lock(m);
    while (m->flow.is_caller && (c = pop(&m->flow.own))) run(m, c, NULL);
    inlay_flow_unlock(m);
}

/* Give back what a command held. Only the issuer's own lists change. */
static void retire(inlay_activation_t *m, inlay_command_t *c)
{
    inlay_flow_t *flow = &m->flow;
    uint32_t i;
    if (c->is_started) c->home->driver->wait(c->home->device, c->ticket);
    inlay_race_retire(m, c);
    for (i = 0; i < c->n_accesses; i++) {
        unlist(&c->accesses[i]);
        inlay_heap_unpin(&m->heap, c->accesses[i].storage);
    }
    free_edges(m, c->successors);
    if (c->workspace) {
        m->heap.held_bytes -= c->workspace_bytes;
        inlay_blocks_give(&m->heap.blocks, c->workspace, c->workspace_bytes, BLOCK_ALIGN);
    }
    if (c->older) c->older->newer = c->newer;
    else flow->oldest = c->newer;
    if (c->newer) c->newer->older = c->older;
    else flow->newest = c->older;
    flow->in_flight--;
    if (c->status != INLAY_OK) {
        inlay_error_t unknown;
        if (!c->error) inlay_fail(&unknown, c->status, "a kernel failed", NULL, 0);
        note_failure(m, c->status, c->place, c->number, &c->where, c->error ? c->error : &unknown);
    }
    if (c->error) m->host->release(m->host->user, c->error, sizeof *c->error, 64);
    inlay_flow_leave_place(m, c->place);
    c->next = flow->free;
    flow->free = c;
}

static void retire_all(inlay_activation_t *m, inlay_command_t *done)
{
    while (done) {
        inlay_command_t *next = done->next;
        retire(m, done);
        done = next;
    }
}

/* ---------------------------------------------------------------------------------- waiting */

/* With the lock taken: what a thread runs now. When replaying, the seed decides. */
static inlay_command_t *take(inlay_activation_t *m, int is_caller)
{
    inlay_flow_t *flow = &m->flow;
    inlay_command_t *c = NULL, *previous = NULL;
    uint64_t n = 0, chosen;
    if (m->config.mode != INLAY_REPLAY) {
        if (is_caller) c = pop(&flow->own);
        if (!c) c = pop(&flow->ready);
        return c || !flow->is_waiting ? c : inlay_batch_take(m);
    }
    while ((c = pop(&flow->own))) push(&flow->ready, c);
    for (c = flow->ready.first; c; c = c->next) n++;
    if (!n) return inlay_batch_take(m);
    chosen = inlay_flow_random(m) % n;
    for (c = flow->ready.first; chosen; chosen--, previous = c, c = c->next) continue;
    if (previous) previous->next = c->next;
    else flow->ready.first = c->next;
    if (flow->ready.last == c) flow->ready.last = previous;
    return c;
}

/* With the lock taken: wait until woken. Who waits says so before, in flow->issuer_waits or
 * flow->caller_waits. */
static void wait(inlay_activation_t *m)
{
    int64_t begin = inlay_trace_now(m);
    if (!m->flow.lock) return;
    m->host->threads->wait(m->host->user, m->flow.lock, INLAY_WAIT_NS);
    inlay_trace_wait(m, begin);
}

inlay_status_t inlay_flow_progress(inlay_activation_t *m, uint32_t ends)
{
    inlay_flow_t *flow = &m->flow;
    inlay_command_t *done, *c = NULL;
    inlay_kept_t kept = {{NULL, NULL}, NULL, 0};
    int is_idle;
    inlay_flow_lock(m);
    flow->is_waiting = 1;
    done = flow->done.first;
    flow->done.first = flow->done.last = NULL;
    if (!done) c = take(m, (int)flow->is_caller);
    is_idle = !done;
    if (c) {
        run(m, c, &kept);
        while ((c = pop(&kept.shorts))) run(m, c, &kept);
        give_up(m, &kept);
        is_idle = 0;
    } else if (!done && flow->in_flight) {
        flow->issuer_waits = ends;
        wait(m);
        flow->issuer_waits = flow->is_due = 0;
    }
    flow->keeps_one = flow->ready.first != NULL;
    inlay_flow_unlock(m);
    retire_all(m, done);
    return is_idle ? inlay_poll(m) : INLAY_OK;
}

/* With the lock taken, and given up meanwhile: have the role until all tasks wait. */
static void issue(inlay_activation_t *m, int is_caller)
{
    inlay_flow_t *flow = &m->flow;
    inlay_turn_t turn;
    flow->is_issuing = 1;
    flow->is_waiting = 0;
    flow->is_caller = (uint32_t)is_caller;
    flow->keeps_one = flow->ready.first != NULL;
    do {
        inlay_command_t *done = flow->done.first;
        flow->done.first = flow->done.last = NULL;
        inlay_flow_unlock(m);
        retire_all(m, done);
        turn = inlay_task_issue(m);
        inlay_flow_lock(m);
    } while (turn == TURN_WAITS && flow->done.first);
    if (turn == TURN_OVER) {
        flow->is_over = 1;
    } else {
        flow->is_issuing = 0;
        flow->is_waiting = 1;
    }
    wake(m);
}

/* With the lock taken, and given up meanwhile: issue, or run a command. 0 where there was nothing to
 * do. */
static int step(inlay_activation_t *m, int is_caller, inlay_kept_t *kept)
{
    inlay_flow_t *flow = &m->flow;
    inlay_command_t *c = pop(&kept->shorts);
    if (!c && !flow->is_issuing && flow->done.first && (is_caller || !flow->is_tied)) {
        if (flow->ready.first) call_help(m);
        give_up(m, kept);
        issue(m, is_caller);
        return 1;
    }
    if (!c) {
        c = kept->next ? kept->next : take(m, is_caller);
        kept->next = NULL;
        kept->ns = 0;
    }
    if (c) run(m, c, kept);
    return c != NULL;
}

/* A worker has time. */
static void work(inlay_job_t *job)
{
    inlay_flow_t *flow =
        (inlay_flow_t *)(void *)((uint8_t *)job - offsetof(inlay_flow_t, job));
    inlay_activation_t *m = flow->activation;
    inlay_kept_t kept = {{NULL, NULL}, NULL, 0};
    inlay_flow_lock(m);
    while (step(m, 0, &kept)) continue;
    inlay_flow_unlock(m);
}

inlay_status_t inlay_flow_run(inlay_activation_t *m)
{
    inlay_flow_t *flow = &m->flow;
    inlay_kept_t kept = {{NULL, NULL}, NULL, 0};
    inlay_flow_lock(m);
    issue(m, 1);
    while (!flow->is_over) {
        int answer;
        if (flow->asked && !flow->is_issuing) {
            m->outcome = inlay_give_up(m, flow->asked);
            break;
        }
        if (!step(m, 1, &kept)) {
            flow->caller_waits = 1;
            wait(m);
            flow->caller_waits = 0;
        }
        inlay_flow_unlock(m);
        answer = m->host->poll ? m->host->poll(m->host->user) : 0;
        inlay_flow_lock(m);
        if (answer) flow->asked = answer;
    }
    give_up(m, &kept);
    flow->is_issuing = flow->is_caller = 1;
    inlay_flow_unlock(m);
    return m->outcome;
}

inlay_status_t inlay_flow_stop(inlay_activation_t *m)
{
    const inlay_failure_t *failure = &m->flow.failure;
    if (!failure->status ||
        !is_before(failure->place, failure->number, m->flow.place, m->flow.number))
        return INLAY_OK;
    m->flow.is_stopped = 1;
    return failure->status;
}

void inlay_flow_fail(inlay_activation_t *m, inlay_status_t status)
{
    if (!m->flow.is_stopped)
        note_failure(m, status, m->flow.place, m->flow.number++, NULL, m->error);
    m->flow.is_stopped = 0;
}

inlay_status_t inlay_flow_drain(inlay_activation_t *m)
{
    while (m->flow.in_flight) {
        INLAY_TRY(inlay_flow_stop(m));
        INLAY_TRY(inlay_flow_progress(m, m->flow.in_flight));
    }
    return inlay_flow_stop(m);
}

void inlay_flow_begin(inlay_activation_t *m)
{
    inlay_flow_t *flow = &m->flow;
    flow->failure.status = INLAY_OK;
    flow->is_stopped = 0;
    flow->is_issuing = flow->is_caller = 1;
    flow->is_over = 0;
    flow->asked = 0;
    m->function = NULL;
    memset(&flow->first, 0, sizeof flow->first);
    flow->first.users = 1;
    flow->place = &flow->first;
    flow->random = m->config.seed * UINT64_C(0x9e3779b97f4a7c15) + UINT64_C(0x2545f4914f6cdd1d);
    if (!flow->random) flow->random = 1;
}

inlay_status_t inlay_flow_end(inlay_activation_t *m, inlay_status_t status)
{
    inlay_flow_t *flow = &m->flow;
    inlay_error_t *error = m->error, unheard;
    int is_given_up = status == INLAY_CANCELLED || status == INLAY_DEADLINE;
    if (is_given_up) {
        note_failure(m, status, &flow->first, 0, NULL, error);
        drop_later(m, 1);
    }
    m->error = &unheard;
    while (flow->in_flight) {
        status = inlay_flow_progress(m, flow->in_flight);
        if (status == INLAY_OK || is_given_up) continue;
        is_given_up = 1;
        unheard.depth = 0;
        note_failure(m, status, &flow->first, 0, NULL, &unheard);
        drop_later(m, 1);
    }
    m->error = error;
    if (flow->lock) m->host->threads->withdraw(m->host->user, &flow->job);
    inlay_race_reset(m);
#if INLAY_RACES
    if (flow->race.is_found) {
        *error = flow->race.found;
        flow->race.is_found = 0;
        return INLAY_RACE;
    }
#endif
    if (!flow->failure.status) return INLAY_OK;
    *error = flow->failure.error;
    inlay_flow_leave_place(m, flow->failure.place);
    return flow->failure.status;
}

/* ---------------------------------------------------------------------------------- issuing */

/* Wait until there is room for one more. */
static inlay_status_t make_room(inlay_activation_t *m)
{
    while (m->flow.in_flight >= m->config.most_commands ||
           (m->flow.in_flight && m->heap.held_bytes > m->config.held_bytes)) {
        INLAY_TRY(inlay_flow_stop(m));
        /* Not for one at a time, or it would be in step with who runs them. */
        INLAY_TRY(inlay_flow_progress(m, m->flow.in_flight / 2 + 1));
    }
    if (!inlay_race_has_room(m)) {
        INLAY_TRY(inlay_flow_drain(m));
        inlay_race_reset(m);
    }
    return inlay_flow_stop(m);
}

static inlay_status_t submit(inlay_activation_t *m, inlay_command_t *c)
{
    inlay_flow_t *flow = &m->flow;
    inlay_edge_t *spare = NULL;
    inlay_command_t *done;
    const inlay_command_t *last;
    int starts;
    if (!find_predecessors(m, c)) {
        c->next = flow->free;
        flow->free = c;
        return INLAY_OUT_OF_MEMORY;
    }
    inlay_race_begin(m, c);
    c->number = flow->number++;
    c->place = flow->place;
    c->place->users++;
    inlay_vm_where(m, &c->where);
    list_accesses(c);
    c->older = flow->newest;
    if (c->older) c->older->newer = c;
    else flow->oldest = c;
    flow->newest = c;
    flow->in_flight++;
    inlay_flow_lock(m);
    while (flow->edges) {
        inlay_edge_t *edge = flow->edges;
        inlay_command_t *before = edge->to;
        inlay_edge_t **to = before->state == COMMAND_DONE ? &spare : &before->successors;
        flow->edges = edge->next;
        inlay_race_edge(m, before, c);
        inlay_trace_needs(m, c, before);
        edge->has_ticket = before->state != COMMAND_DONE && start_behind(m, before, c);
        if (before->state != COMMAND_DONE) c->waits += !edge->has_ticket;
        else if (before->status != INLAY_OK || before->is_dropped) c->is_dropped = 1;
        edge->to = c;
        edge->next = *to;
        *to = edge;
    }
    flow->is_waiting = 0;
    last = flow->ready.last;
    starts = !c->waits && ends_itself(m, c);
    if (!c->waits && !starts) make_ready(m, c);
    /* The issuer runs one itself when it has to wait, and calls others for more. */
    if (flow->ready.last != last) {
        if (flow->keeps_one) call_help(m);
        flow->keeps_one = 1;
    }
    if (flow->own.first) wake(m);
    done = flow->done.first;
    flow->done.first = flow->done.last = NULL;
    inlay_flow_unlock(m);
    inlay_race_check(m, c);
    inlay_trace_memory(m);
    free_edges(m, spare);
    retire_all(m, done);
    if (starts) { /* which takes no longer than calling for help */
        inlay_flow_lock(m);
        run(m, c, NULL);
        inlay_flow_unlock(m);
    }
    return INLAY_OK;
}

inlay_status_t inlay_flow_invoke(inlay_activation_t *m, uint32_t index, const inlay_slot_t *tensors,
                                 const int64_t *ints, int64_t parts, size_t workspace_bytes)
{
    const inlay_kernel_t *kernel = &m->module->kernels[index];
    inlay_command_t *c;
    inlay_status_t status;
    uint32_t i;
    INLAY_TRY(make_room(m));
    c = new_command(m);
    if (!c) return INLAY_OUT_OF_MEMORY;
    c->kernel = kernel;
    c->index = index;
    c->parts = parts;
    c->ns = m->now->ns;
    c->on_caller = kernel->body == INLAY_BODY_CALLBACK && !m->config.callbacks_anywhere;
    if (inlay_leaves_host(kernel)) {
        inlay_command_address(m, c, tensors);
        if (c->home && c->home->driver->progress) c->on_caller = 1;
    }
    if (kernel->n_ints) memcpy(c->ints, ints, kernel->n_ints * sizeof *ints);
    for (i = 0; i < kernel->n_ports; i++) {
        inlay_view_t *view = (inlay_view_t *)(void *)tensors[i].as.object;
        c->buffers[i] = view->data;
        c->sizes[i] = view->bytes;
        /* Memory of a device must live until the command has ended, though there are no bytes in it. */
        add_access(c, view->storage, view->data,
                   view->bytes + (view->storage->home && !view->bytes), kernel->ports[i] != 0);
        if (!inlay_takes_tensors(kernel)) continue;
        c->tensors[i].data = view->data;
        c->tensors[i].dtype = view->dtype;
        c->tensors[i].rank = view->rank;
        c->tensors[i].dims = c->dims + (size_t)i * INLAY_MAX_RANK;
        memcpy(c->dims + (size_t)i * INLAY_MAX_RANK, view->dims, view->rank * sizeof *view->dims);
    }
    if (workspace_bytes) {
        c->workspace_bytes = workspace_bytes;
        c->workspace = inlay_blocks_take(&m->heap.blocks, &c->workspace_bytes, BLOCK_ALIGN);
        if (!c->workspace) {
            c->next = m->flow.free;
            m->flow.free = c;
            return INLAY_OUT_OF_MEMORY;
        }
        m->heap.held_bytes += c->workspace_bytes;
        c->buffers[kernel->n_ports] = c->workspace;
    }
    status = submit(m, c);
    if (status != INLAY_OK && c->workspace) {
        m->heap.held_bytes -= c->workspace_bytes;
        inlay_blocks_give(&m->heap.blocks, c->workspace, c->workspace_bytes, BLOCK_ALIGN);
    }
    return status;
}

inlay_status_t inlay_flow_copy(inlay_activation_t *m, inlay_storage_t *to, uint8_t *at,
                               inlay_storage_t *from, const uint8_t *source, size_t bytes)
{
    inlay_status_t status = INLAY_OUT_OF_MEMORY;
    inlay_command_t *c;
    if (!bytes) return INLAY_OK;
    INLAY_TRY(inlay_task_may_write(m, to, at, bytes));
    if (m->config.mode == INLAY_SEQUENTIAL ||
        (m->config.mode == INLAY_PARALLEL && bytes <= INLAY_COPY_BYTES &&
         !inlay_flow_pending(m, to, at, bytes, 1) && !inlay_flow_pending(m, from, source, bytes, 0))) {
        inlay_race_direct(m, from, source, bytes, 0);
        inlay_race_direct(m, to, at, bytes, 1);
        memmove(at, source, bytes);
        return INLAY_OK;
    }
    INLAY_TRY(make_room(m));
    c = new_command(m);
    if (c) {
        c->kernel = NULL;
        c->parts = 1;
        c->buffers[0] = (void *)(uintptr_t)source;
        c->buffers[1] = at;
        c->ints[0] = (int64_t)bytes;
        c->ns = bytes <= INLAY_COPY_BYTES ? INLAY_COMMAND_NS : m->config.hand_off_ns;
        add_access(c, from, source, bytes, 0);
        add_access(c, to, at, bytes, 1);
        status = submit(m, c);
    }
    if (status != INLAY_OUT_OF_MEMORY) return status;
    INLAY_TRY(inlay_flow_drain(m));
    memmove(at, source, bytes);
    return INLAY_OK;
}
