/* The order of the program, in which tasks may be issued out of turn, and the earliest failure in it.
 *
 * Each task has a *place* in a list; number of issue orders what is of one place. When a task
 * overtakes another, it goes on in a new place behind that one's. What is behind a failure is dropped,
 * what is before it is finished and may fail in its stead, so that a call fails alike in all modes. */
#include "shared.h"

int inlay_order_is_before(const inlay_place_t *a, const inlay_place_t *b)
{
    if (a == b) return 0;
    while (a && a != b) a = a->next;
    return a != NULL;
}

/* Whether (a, n) is before (b, k) in the program. Only asked after a failure, so it may walk. */
static int is_before(const inlay_place_t *a, uint64_t n, const inlay_place_t *b, uint64_t k)
{
    return a == b ? n < k : inlay_order_is_before(a, b);
}

inlay_place_t *inlay_order_overtake(inlay_activation_t *m)
{
    inlay_issuer_t *issuer = &m->issuer;
    inlay_place_t *place;
    if (!issuer->free_places) issuer->free_places = inlay_items_slab(m, sizeof *place);
    place = issuer->free_places;
    if (!place) return NULL;
    issuer->free_places = place->next;
    place->users = 1;
    place->previous = issuer->place;
    place->next = issuer->place->next;
    issuer->place->next = place;
    if (place->next) place->next->previous = place;
    return place;
}

void inlay_order_leave(inlay_activation_t *m, inlay_place_t *place)
{
    if (--place->users || place == &m->issuer.first) return;
    place->previous->next = place->next;
    if (place->next) place->next->previous = place->previous;
    place->next = m->issuer.free_places;
    m->issuer.free_places = place;
}

void inlay_order_drop(inlay_activation_t *m, int all)
{
    inlay_issuer_t *issuer = &m->issuer;
    inlay_command_t *c;
    inlay_lock(m);
    for (c = issuer->oldest; c; c = c->newer)
        if (all || is_before(issuer->failure.place, issuer->failure.number, c->place, c->number))
            c->is_dropped = 1;
    inlay_gather_drop(m);
    inlay_unlock(m);
}

void inlay_order_note(inlay_activation_t *m, inlay_status_t status, inlay_place_t *place,
                      uint64_t number, const inlay_where_t *where, const inlay_error_t *error)
{
    inlay_failure_t *failure = &m->issuer.failure;
    if (failure->status && !is_before(place, number, failure->place, failure->number)) return;
    place->users++;
    if (failure->status) inlay_order_leave(m, failure->place);
    failure->status = status;
    failure->place = place;
    failure->number = number;
    failure->error = *error;
    if (where) inlay_vm_explain(m, where, &failure->error);
    inlay_order_drop(m, 0);
}

inlay_status_t inlay_order_stop(inlay_activation_t *m)
{
    const inlay_failure_t *failure = &m->issuer.failure;
    if (!failure->status ||
        !is_before(failure->place, failure->number, m->issuer.place, m->issuer.number))
        return INLAY_OK;
    m->issuer.is_stopped = 1;
    return failure->status;
}

void inlay_order_fail(inlay_activation_t *m, inlay_status_t status)
{
    if (!m->issuer.is_stopped)
        inlay_order_note(m, status, m->issuer.place, m->issuer.number++, NULL, m->error);
    m->issuer.is_stopped = 0;
}

uint64_t inlay_order_random(inlay_activation_t *m)
{
    uint64_t *random = &m->issuer.random;
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}
