/* Memory of what the scheduler makes many of. Commands are kept in a list of the free, each with room for
 * the operands of any kernel of the module. Edges and places, and what others link by its first field,
 * come from slabs, which live as long as the activation. All of it is of the issuer. */
#include "machine.h"

#include <string.h>

#define SLAB_ITEMS 64

typedef struct inlay_slab {
    struct inlay_slab *next;
    size_t bytes;
} inlay_slab_t;

void *inlay_items_slab(inlay_activation_t *m, size_t item_bytes)
{
    inlay_issuer_t *issuer = &m->issuer;
    size_t head = 64, bytes = head + SLAB_ITEMS * item_bytes, i;
    inlay_slab_t *slab = m->host->allocate(m->host->user, bytes, 64);
    uint8_t *items;
    if (!slab) return NULL;
    slab->next = issuer->slabs;
    slab->bytes = bytes;
    issuer->slabs = slab;
    items = (uint8_t *)slab + head;
    memset(items, 0, SLAB_ITEMS * item_bytes);
    for (i = 0; i + 1 < SLAB_ITEMS; i++) {
        void *next = items + (i + 1) * item_bytes;
        memcpy(items + i * item_bytes, &next, sizeof next);
    }
    return items;
}

inlay_edge_t *inlay_items_edge(inlay_activation_t *m)
{
    inlay_edge_t *edge;
    if (!m->issuer.free_edges) m->issuer.free_edges = inlay_items_slab(m, sizeof *edge);
    edge = m->issuer.free_edges;
    if (edge) m->issuer.free_edges = edge->next;
    return edge;
}

void inlay_items_free_edges(inlay_activation_t *m, inlay_edge_t *edges)
{
    while (edges) {
        inlay_edge_t *next = edges->next;
        edges->next = m->issuer.free_edges;
        m->issuer.free_edges = edges;
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
    size_t ports = m->issuer.n_ports, shown = m->issuer.shows_tensors ? ports : 0;
    inlay_command_t unused, *to = c ? c : &unused;
    part_of(&at, 1, sizeof *c);
    to->buffers = part_of(&at, ports + 1, sizeof *c->buffers);
    to->ints = part_of(&at, m->issuer.n_ints, sizeof *c->ints);
    to->answers = part_of(&at, (size_t)m->config.parts, sizeof *c->answers);
    to->sizes = part_of(&at, ports, sizeof *c->sizes);
    to->accesses = part_of(&at, ports, sizeof *c->accesses);
    to->tensors = part_of(&at, shown, sizeof *c->tensors);
    to->regions = part_of(&at, ports + 1, sizeof *c->regions);
    to->dims = part_of(&at, shown * INLAY_MAX_RANK, sizeof *c->dims);
    return (size_t)(at - start);
}

inlay_command_t *inlay_items_command(inlay_activation_t *m)
{
    inlay_command_t *c = m->issuer.free;
    if (c) {
        m->issuer.free = c->next;
    } else {
        c = m->host->allocate(m->host->user, m->issuer.command_bytes, 64);
        if (!c) return NULL;
        memset(c, 0, sizeof *c);
        lay_out(m, c);
    }
    c->next = c->older = c->newer = NULL;
    c->state = COMMAND_WAITING;
    c->waits = c->is_dropped = c->on_caller = c->n_accesses = 0;
    c->successors = NULL;
    c->mates = NULL;
    c->delegate = NULL;
    c->workspace = NULL;
    c->space = NULL;
    c->is_started = 0;
    c->n_after = 0;
    c->holds = 2;
    c->is_beside = 0;
    c->is_undivided = 0;
    c->status = INLAY_OK;
    c->error = NULL;
    return c;
}

void inlay_items_free_command(inlay_activation_t *m, inlay_command_t *c)
{
    c->next = m->issuer.free;
    m->issuer.free = c;
}

int inlay_items_open(inlay_activation_t *m)
{
    inlay_issuer_t *issuer = &m->issuer;
    uint32_t i;
    /* A copy has two operands and an integer. */
    issuer->n_ports = m->module->max_ports > 2 ? m->module->max_ports : 2;
    issuer->n_ints = m->module->max_ints > 1 ? m->module->max_ints : 1;
    for (i = 0; i < m->module->n_kernels; i++)
        if (inlay_takes_tensors(&m->module->kernels[i])) issuer->shows_tensors = 1;
    issuer->command_bytes = lay_out(m, NULL);
    m->now = inlay_items_command(m);
    return m->now != NULL;
}

static void release_command(inlay_activation_t *m, inlay_command_t *c)
{
    if (c) m->host->release(m->host->user, c, m->issuer.command_bytes, 64);
}

void inlay_items_close(inlay_activation_t *m)
{
    inlay_issuer_t *issuer = &m->issuer;
    while (issuer->free) {
        inlay_command_t *c = issuer->free;
        issuer->free = c->next;
        release_command(m, c);
    }
    release_command(m, m->now);
    while (issuer->slabs) {
        inlay_slab_t *slab = issuer->slabs;
        issuer->slabs = slab->next;
        m->host->release(m->host->user, slab, slab->bytes, 64);
    }
}
