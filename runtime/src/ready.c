/* States of commands between submission and retirement: what begins and ends make ready, and which
 * thread keeps it. Everything here happens with the lock taken; see command.h for the states. */
#include "shared.h"

void inlay_ready_add(inlay_activation_t *m, inlay_command_t *c)
{
    c->state = COMMAND_READY;
    if (inlay_ready_ends_itself(m, c)) inlay_queue_push(&m->shared->starts, c);
    else if (c->on_caller) inlay_queue_push(&m->shared->own, c);
    else if (c->delegate) inlay_queue_push(&m->shared->calls, c);
    else if (inlay_gathers(c->kernel) && !c->is_dropped) inlay_gather_add(m, c);
    else inlay_queue_push(&m->shared->ready, c);
}

int inlay_ready_ends_itself(const inlay_activation_t *m, const inlay_command_t *c)
{
    return c->space && m->lock && !c->space->driver->progress;
}

int inlay_ready_any(const inlay_activation_t *m)
{
    return m->shared->starts.first || m->shared->ready.first || m->shared->calls.first;
}

int inlay_ready_start_behind(const inlay_activation_t *m, const inlay_command_t *before,
                             inlay_command_t *c)
{
    uint32_t i = 0;
    if (before->state != COMMAND_STARTED || before->is_dropped || !inlay_ready_ends_itself(m, c) ||
        before->space->device != c->space->device || before->kernel->n_assertions ||
        m->shared->n_started >= INLAY_MOST_STARTED)
        return 0;
    /* The last ticket of a queue says all. */
    while (i < c->n_after && c->after[i].queue != before->ticket.queue) i++;
    if (i == INLAY_MOST_AFTER) return 0;
    if (i == c->n_after) c->after[c->n_after++] = before->ticket;
    if (c->after[i].number < before->ticket.number) c->after[i] = before->ticket;
    c->holds++;
    return 1;
}

void inlay_ready_started(inlay_activation_t *m, inlay_command_t *c)
{
    inlay_edge_t *edge;
    c->state = COMMAND_STARTED;
    m->shared->n_started++;
    for (edge = c->successors; edge; edge = edge->next) {
        edge->has_ticket = (uint32_t)inlay_ready_start_behind(m, c, edge->to);
        if (edge->has_ticket && !--edge->to->waits) inlay_ready_add(m, edge->to);
    }
}

static int keep(const inlay_activation_t *m, inlay_kept_t *kept, inlay_command_t *c)
{
    if (c->on_caller || inlay_gathers(c->kernel) || inlay_ready_ends_itself(m, c)) return 0;
    if (kept->ns + c->ns < m->config.hand_off_ns) {
        kept->ns += c->ns;
        inlay_queue_push(&kept->shorts, c);
    } else if (!kept->next) {
        kept->next = c;
    } else {
        return 0;
    }
    c->state = COMMAND_READY;
    return 1;
}

void inlay_ready_give_up(inlay_activation_t *m, inlay_kept_t *kept)
{
    inlay_command_t *c;
    if (kept->next) inlay_queue_push_front(&m->shared->ready, kept->next);
    kept->next = NULL;
    while ((c = inlay_queue_pop(&kept->shorts))) inlay_queue_push_front(&m->shared->ready, c);
}

/* One command has ended; successors that nothing else held go to `ended`. */
static void complete_one(inlay_activation_t *m, inlay_command_t *c, inlay_kept_t *kept,
                         inlay_queue_t *ended)
{
    inlay_edge_t *edge;
    if (c->state == COMMAND_STARTED) m->shared->n_started--;
    c->state = COMMAND_DONE;
    for (edge = c->successors; edge; edge = edge->next) {
        inlay_command_t *to = edge->to;
        /* What a kernel that failed has written is not to be read. */
        if (c->status != INLAY_OK || c->is_dropped) to->is_dropped = 1;
        if (edge->has_ticket) {
            if (!--to->holds) inlay_queue_push(ended, to);
            continue;
        }
        if (!--to->waits && !(kept && keep(m, kept, to))) inlay_ready_add(m, to);
    }
    inlay_queue_push(&m->shared->done, c);
    if (m->shared->issuer_waits && !--m->shared->issuer_waits) m->shared->is_due = 1;
}

void inlay_ready_complete(inlay_activation_t *m, inlay_command_t *c, inlay_kept_t *kept)
{
    inlay_queue_t ended = {NULL, NULL};
    while (c) {
        inlay_command_t *mate = c->mates;
        c->mates = NULL;
        complete_one(m, c, kept, &ended);
        c = mate ? mate : inlay_queue_pop(&ended);
    }
}

void inlay_ready_let_go(inlay_activation_t *m, inlay_command_t *c, uint32_t holds, inlay_kept_t *kept)
{
    c->holds -= holds;
    if (!c->holds) inlay_ready_complete(m, c, kept);
}
