/* Conflicts of commands in flight: two accesses to common bytes of a storage, one of them a write.
 *
 * Each storage has a list of the accesses of commands in flight, those without a later write that
 * covers them. Commands pin storages, so that a list does not outlive its storage. Inputs and
 * constants are never written and not listed. */
#include "machine.h"

static void list(inlay_access_t *access)
{
    inlay_storage_t *storage = access->storage;
    access->previous = NULL;
    access->next = storage->accesses;
    if (access->next) access->next->previous = access;
    storage->accesses = access;
    access->is_listed = 1;
}

void inlay_access_unlist(inlay_access_t *access)
{
    if (!access->is_listed) return;
    if (access->previous) access->previous->next = access->next;
    else access->storage->accesses = access->next;
    if (access->next) access->next->previous = access->previous;
    access->is_listed = 0;
}

void inlay_access_add(inlay_command_t *c, inlay_storage_t *storage, const uint8_t *at,
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

int inlay_access_pending(const inlay_storage_t *storage, const uint8_t *at, size_t bytes, int writes)
{
    const inlay_access_t *a;
    size_t begin;
    if (!storage->pins) return 0;
    begin = (size_t)(at - storage->data);
    for (a = storage->accesses; a; a = a->next)
        if (conflicts(a, begin, begin + bytes, writes)) return 1;
    return 0;
}

int inlay_access_edges(inlay_activation_t *m, const inlay_command_t *c)
{
    uint32_t i;
    m->issuer.edges = NULL;
    for (i = 0; i < c->n_accesses; i++) {
        const inlay_access_t *mine = &c->accesses[i], *a;
        for (a = mine->storage->accesses; a; a = a->next) {
            inlay_edge_t *edge;
            if (!conflicts(a, mine->begin, mine->end, (int)mine->writes)) continue;
            if (inlay_race_spoils(m, mine->writes ? SABOTAGE_REUSE : SABOTAGE_READ)) continue;
            for (edge = m->issuer.edges; edge && edge->to != a->command;) edge = edge->next;
            if (edge) continue;
            edge = inlay_items_edge(m);
            if (!edge) {
                inlay_items_free_edges(m, m->issuer.edges);
                return 0;
            }
            edge->to = a->command;
            edge->next = m->issuer.edges;
            m->issuer.edges = edge;
        }
    }
    return 1;
}

/* Whatever conflicts with an access that a later write covers conflicts with that write. */
void inlay_access_list(inlay_command_t *c)
{
    uint32_t i;
    for (i = 0; i < c->n_accesses; i++) {
        inlay_access_t *mine = &c->accesses[i], *a = mine->storage->accesses, *next;
        for (; mine->writes && a; a = next) {
            next = a->next;
            if (a->command != c && mine->begin <= a->begin && a->end <= mine->end) inlay_access_unlist(a);
        }
        mine->storage->pins++;
    }
    for (i = 0; i < c->n_accesses; i++) list(&c->accesses[i]);
}
