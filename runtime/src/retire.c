/* Retirement of commands that are done: what they held is given back, and failures are noted. */
#include "delegate.h"

static void retire(inlay_activation_t *m, inlay_command_t *c)
{
    inlay_issuer_t *issuer = &m->issuer;
    uint32_t i;
    if (c->is_started) c->space->driver->wait(c->space->device, c->ticket);
    inlay_race_retire(m, c);
    inlay_lookahead_retired(m, c);
    for (i = 0; i < c->n_accesses; i++) {
        inlay_access_unlist(&c->accesses[i]);
        inlay_heap_unpin(&m->heap, c->accesses[i].storage);
    }
    inlay_items_free_edges(m, c->successors);
    if (c->workspace) {
        m->heap.asked -= c->workspace_asked;
        m->heap.held_bytes -= c->workspace_bytes;
        inlay_blocks_give(&m->heap.blocks, c->workspace, c->workspace_bytes, BLOCK_ALIGN);
    }
    if (c->older) c->older->newer = c->newer;
    else issuer->oldest = c->newer;
    if (c->newer) c->newer->older = c->older;
    else issuer->newest = c->older;
    issuer->in_flight--;
    if (c->status != INLAY_OK) {
        inlay_error_t unknown;
        if (!c->error) inlay_fail(&unknown, c->status, "a kernel failed", NULL, 0);
        inlay_order_note(m, c->status, c->place, c->number, &c->where, c->error ? c->error : &unknown);
    }
    if (c->error) m->host->release(m->host->user, c->error, sizeof *c->error, 64);
    if (c->delegate) {
        c->delegate->is_running = 0;
        m->n_delegated--;
    }
    inlay_order_leave(m, c->place);
    inlay_items_free_command(m, c);
}

void inlay_retire(inlay_activation_t *m, inlay_command_t *done)
{
    while (done) {
        inlay_command_t *next = done->next;
        retire(m, done);
        done = next;
    }
}
