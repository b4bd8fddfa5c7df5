/* Issue of commands: made from the operands of an instruction, and submitted with an edge from each one
 * in flight that conflicts. The issuer waits while there are too many, or they hold too much. */
#include "delegate.h"
#include "shared.h"

#include <string.h>

/* Wait until there is room for one more. */
static inlay_status_t make_room(inlay_activation_t *m)
{
    while (m->issuer.in_flight >= m->config.most_commands ||
           (m->issuer.in_flight && m->heap.held_bytes > m->config.held_bytes)) {
        INLAY_TRY(inlay_order_stop(m));
        /* Not for one at a time, or it would be in step with who runs them. */
        INLAY_TRY(inlay_progress(m, m->issuer.in_flight / 2 + 1));
    }
    if (!inlay_race_has_room(m)) {
        INLAY_TRY(inlay_progress_drain(m));
        inlay_race_reset(m);
    }
    return inlay_order_stop(m);
}

static inlay_status_t submit(inlay_activation_t *m, inlay_command_t *c)
{
    inlay_shared_t *shared = m->shared;
    inlay_issuer_t *issuer = &m->issuer;
    inlay_edge_t *spare = NULL;
    inlay_command_t *done;
    const inlay_command_t *last;
    int starts;
    if (!inlay_access_edges(m, c)) {
        inlay_items_free_command(m, c);
        return INLAY_OUT_OF_MEMORY;
    }
    inlay_race_begin(m, c);
    c->number = issuer->number++;
    c->place = issuer->place;
    c->place->users++;
    if (c->delegate) c->where.depth = 0; /* it does not fail */
    else inlay_vm_where(m, &c->where);
    inlay_access_list(c);
    c->older = issuer->newest;
    if (c->older) c->older->newer = c;
    else issuer->oldest = c;
    issuer->newest = c;
    issuer->in_flight++;
    inlay_lock(m);
    while (issuer->edges) {
        inlay_edge_t *edge = issuer->edges;
        inlay_command_t *before = edge->to;
        inlay_edge_t **to = before->state == COMMAND_DONE ? &spare : &before->successors;
        issuer->edges = edge->next;
        inlay_race_edge(m, before, c);
        inlay_trace_needs(m, c, before);
        edge->has_ticket = before->state != COMMAND_DONE && inlay_ready_start_behind(m, before, c);
        if (before->state != COMMAND_DONE) c->waits += !edge->has_ticket;
        else if (before->status != INLAY_OK || before->is_dropped) c->is_dropped = 1;
        edge->to = c;
        edge->next = *to;
        *to = edge;
    }
    shared->is_waiting = 0;
    inlay_lookahead_issued(m);
    last = shared->ready.last;
    starts = !c->waits && inlay_ready_ends_itself(m, c);
    if (!c->waits && !starts) inlay_ready_add(m, c);
    if (c->delegate) inlay_help_call(m);
    /* The issuer runs one itself when it has to wait, and calls others for more. */
    if (shared->ready.last != last) {
        if (issuer->keeps_one) inlay_help_more(m);
        issuer->keeps_one = 1;
    }
    if (shared->own.first) inlay_help_wake(m);
    done = inlay_queue_empty(&shared->done);
    inlay_unlock(m);
    inlay_race_check(m, c);
    inlay_trace_memory(m);
    inlay_items_free_edges(m, spare);
    inlay_retire(m, done);
    if (starts) { /* which takes no longer than calling for help */
        inlay_lock(m);
        inlay_execute(m, c, NULL);
        inlay_unlock(m);
    }
    return INLAY_OK;
}

inlay_status_t inlay_issue_kernel(inlay_activation_t *m, uint32_t index, const inlay_slot_t *tensors,
                                  const int64_t *ints, int64_t parts, size_t workspace_bytes)
{
    const inlay_kernel_t *kernel = &m->module->kernels[index];
    inlay_command_t *c;
    inlay_status_t status;
    uint32_t i;
    INLAY_TRY(make_room(m));
    c = inlay_items_command(m);
    if (!c) return INLAY_OUT_OF_MEMORY;
    c->kernel = kernel;
    c->index = index;
    c->parts = parts;
    c->ns = m->now->ns;
    c->is_backwards = m->now->is_backwards;
    c->on_caller = kernel->body == INLAY_BODY_CALLBACK && !m->config.callbacks_anywhere;
    if (inlay_leaves_host(kernel)) {
        inlay_command_address(m, c, tensors);
        if (c->space && c->space->driver->progress) c->on_caller = 1;
    }
    if (kernel->n_ints) memcpy(c->ints, ints, kernel->n_ints * sizeof *ints);
    for (i = 0; i < kernel->n_ports; i++) {
        inlay_view_t *view = (inlay_view_t *)(void *)tensors[i].as.object;
        c->buffers[i] = view->data;
        c->sizes[i] = view->bytes;
        /* Memory of a device must live until the command has ended, though there are no bytes in it. */
        inlay_access_add(c, view->storage, view->data,
                         view->bytes + (view->storage->space && !view->bytes), kernel->ports[i] != 0);
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
            inlay_items_free_command(m, c);
            return INLAY_OUT_OF_MEMORY;
        }
        c->workspace_asked = workspace_bytes;
        inlay_heap_asked(&m->heap, workspace_bytes);
        m->heap.held_bytes += c->workspace_bytes;
        c->buffers[inlay_workspace_at(kernel)] = c->workspace;
    }
    status = submit(m, c);
    if (status != INLAY_OK && c->workspace) {
        m->heap.asked -= c->workspace_asked;
        m->heap.held_bytes -= c->workspace_bytes;
        inlay_blocks_give(&m->heap.blocks, c->workspace, c->workspace_bytes, BLOCK_ALIGN);
    }
    return status;
}

inlay_status_t inlay_issue_call(inlay_activation_t *m, struct inlay_delegate *delegate)
{
    inlay_command_t *c = inlay_items_command(m);
    inlay_status_t status;
    if (!c) return INLAY_OUT_OF_MEMORY;
    c->kernel = NULL;
    c->delegate = delegate;
    c->parts = 1;
    c->ns = 0;
    delegate->activation->part_of = c;
    m->n_delegated++;
    status = submit(m, c);
    if (status != INLAY_OK) m->n_delegated--;
    return status;
}

inlay_status_t inlay_issue_copy(inlay_activation_t *m, inlay_storage_t *to, uint8_t *at,
                                inlay_storage_t *from, const uint8_t *source, size_t bytes)
{
    inlay_status_t status = INLAY_OUT_OF_MEMORY;
    inlay_command_t *c;
    if (!bytes) return INLAY_OK;
    INLAY_TRY(inlay_guard_may_write(m, to, at, bytes));
    if (!inlay_lookahead_pays(m)) INLAY_TRY(inlay_progress_settle(m));
    if (m->issuer.is_sequential ||
        (m->config.mode == INLAY_PARALLEL && bytes <= INLAY_COPY_BYTES &&
         !inlay_access_pending(to, at, bytes, 1) && !inlay_access_pending(from, source, bytes, 0))) {
        inlay_race_direct(m, from, source, bytes, 0);
        inlay_race_direct(m, to, at, bytes, 1);
        memmove(at, source, bytes);
        return INLAY_OK;
    }
    INLAY_TRY(make_room(m));
    c = inlay_items_command(m);
    if (c) {
        c->kernel = NULL;
        c->parts = 1;
        c->buffers[0] = (void *)(uintptr_t)source;
        c->buffers[1] = at;
        c->ints[0] = (int64_t)bytes;
        c->ns = bytes <= INLAY_COPY_BYTES ? INLAY_COMMAND_NS : m->config.hand_off_ns;
        inlay_access_add(c, from, source, bytes, 0);
        inlay_access_add(c, to, at, bytes, 1);
        status = submit(m, c);
    }
    if (status != INLAY_OUT_OF_MEMORY) return status;
    INLAY_TRY(inlay_progress_drain(m));
    memmove(at, source, bytes);
    return INLAY_OK;
}
