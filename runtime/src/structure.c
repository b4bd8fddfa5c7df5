/* Lists, options and tuples at the border of the machine.
 *
 * Outside, a value is tensors and counts (see `inlay_call_structured`); inside it is tuples and values
 * of the prelude's data types: Nil = 0, Cons(first, rest) = 1; None = 0, Some(content) = 1. */
#include "machine.h"

#include <string.h>

/* ----------------------------------------------------------------------------------- going in */

typedef struct source {
    const inlay_tensor_t *tensors;
    const int64_t *counts;
} source_t;

/* Put an object of n empty items into a slot; NULL without memory. */
static inlay_slot_t *open_compound(inlay_activation_t *m, inlay_slot_t *slot, uint32_t kind,
                                   uint32_t label, uint32_t n)
{
    inlay_compound_t *made = inlay_heap_compound(&m->heap, kind, n);
    if (!made) return NULL;
    made->label = label;
    if (n) memset(made->items, 0, n * sizeof *made->items);
    slot->tag = kind;
    slot->as.object = &made->header;
    return made->items;
}

static inlay_status_t build_scope(inlay_activation_t *m, const inlay_scope_t *scope,
                                  inlay_slot_t *slots, source_t *from);

/* `leaves` is the next tensor in a fixed place of the scope that the spec is in. */
static inlay_status_t build(inlay_activation_t *m, const inlay_spec_t *spec, inlay_slot_t *slot,
                            const inlay_tensor_t **leaves, source_t *from)
{
    inlay_slot_t *items;
    int64_t n;
    uint32_t i;
    switch (spec->form) {
    case FORM_TENSOR:
        return inlay_push_input(m, slot, (*leaves)++);
    case FORM_TUPLE:
        items = open_compound(m, slot, KIND_TUPLE, 0, spec->n_fields);
        if (!items) return inlay_no_memory(m);
        for (i = 0; i < spec->n_fields; i++)
            INLAY_TRY(build(m, &spec->fields[i], &items[i], leaves, from));
        return INLAY_OK;
    case FORM_OPTION:
        n = *from->counts++;
        items = open_compound(m, slot, KIND_ADT, (uint32_t)n, (uint32_t)n);
        if (!items) return inlay_no_memory(m);
        return n ? build_scope(m, spec->element, items, from) : INLAY_OK;
    default:
        for (n = *from->counts++; n > 0; n--) {
            items = open_compound(m, slot, KIND_ADT, 1, 2);
            if (!items) return inlay_no_memory(m);
            INLAY_TRY(build_scope(m, spec->element, items, from));
            slot = &items[1];
        }
        return open_compound(m, slot, KIND_ADT, 0, 0) ? INLAY_OK : inlay_no_memory(m);
    }
}

static inlay_status_t build_scope(inlay_activation_t *m, const inlay_scope_t *scope,
                                  inlay_slot_t *slots, source_t *from)
{
    const inlay_tensor_t *leaves = from->tensors;
    uint32_t i;
    from->tensors += scope->n_leaves;
    for (i = 0; i < scope->n; i++)
        INLAY_TRY(build(m, &scope->specs[i], &slots[i], &leaves, from));
    return INLAY_OK;
}

inlay_status_t inlay_build(inlay_activation_t *m, const inlay_scope_t *scope, inlay_slot_t *slots,
                           const inlay_tensor_t *tensors, const int64_t *counts)
{
    source_t from;
    from.tensors = tensors;
    from.counts = counts;
    return build_scope(m, scope, slots, &from);
}

/* ---------------------------------------------------------------------------------- going out */

/* Everything is walked twice: to count while there is no room, then to fill it. */
typedef struct sink {
    inlay_result_t *tensors;
    int64_t *counts;
    size_t n_tensors, n_counts;
} sink_t;

static inlay_status_t out_scope(inlay_activation_t *m, const inlay_scope_t *scope,
                                const inlay_slot_t *slots, int is_sole, sink_t *to);

static inlay_compound_t *compound_of(const inlay_slot_t *slot)
{
    return (inlay_compound_t *)(void *)slot->as.object;
}

/* The object in a slot must have this kind, and n items where it is a tuple. */
static inlay_status_t need(inlay_activation_t *m, const inlay_slot_t *slot, uint32_t kind)
{
    return slot->tag == kind ? INLAY_OK : inlay_wrong_kind(m, kind, slot->tag);
}

static inlay_status_t out_leaves(inlay_activation_t *m, const inlay_spec_t *spec,
                                 const inlay_slot_t *slot, int is_sole, sink_t *to)
{
    inlay_compound_t *tuple;
    uint32_t i;
    slot = inlay_task_settled(slot, &is_sole);
    if (spec->form == FORM_TENSOR) {
        INLAY_TRY(need(m, slot, KIND_TENSOR));
        if (to->tensors) INLAY_TRY(inlay_export(m, slot, is_sole, &to->tensors[to->n_tensors]));
        to->n_tensors++;
    } else if (spec->form == FORM_TUPLE) {
        INLAY_TRY(need(m, slot, KIND_TUPLE));
        tuple = compound_of(slot);
        if (tuple->n != spec->n_fields) return inlay_wrong_kind(m, KIND_TUPLE, KIND_TUPLE);
        for (i = 0; i < spec->n_fields; i++)
            INLAY_TRY(out_leaves(m, &spec->fields[i], &tuple->items[i],
                                 is_sole && tuple->header.count == 1, to));
    }
    return INLAY_OK;
}

/* An element of a list or option, if there is one; the slot of what follows it in a list. */
static inlay_status_t out_element(inlay_activation_t *m, const inlay_spec_t *spec,
                                  const inlay_slot_t **slot, int *is_sole, int *found, sink_t *to)
{
    inlay_compound_t *value;
    *slot = inlay_task_settled(*slot, is_sole);
    INLAY_TRY(need(m, *slot, KIND_ADT));
    value = compound_of(*slot);
    *found = value->label == 1;
    if (value->label > 1 || value->n != (!*found ? 0u : spec->form == FORM_LIST ? 2u : 1u))
        return inlay_wrong_kind(m, KIND_ADT, KIND_ADT);
    if (!*found) return INLAY_OK;
    *is_sole = *is_sole && value->header.count == 1;
    INLAY_TRY(out_scope(m, spec->element, value->items, *is_sole, to));
    *slot = &value->items[1];
    return INLAY_OK;
}

static inlay_status_t out_parts(inlay_activation_t *m, const inlay_spec_t *spec,
                                const inlay_slot_t *slot, int is_sole, sink_t *to)
{
    size_t place;
    int64_t n = 0;
    int found = 1;
    uint32_t i;
    if (spec->form == FORM_TENSOR) return INLAY_OK;
    slot = inlay_task_settled(slot, &is_sole);
    if (spec->form == FORM_TUPLE) {
        inlay_compound_t *tuple = compound_of(slot);
        for (i = 0; i < spec->n_fields; i++)
            INLAY_TRY(out_parts(m, &spec->fields[i], &tuple->items[i],
                                is_sole && tuple->header.count == 1, to));
        return INLAY_OK;
    }
    place = to->n_counts++;
    while (found && (spec->form == FORM_LIST || n == 0)) {
        INLAY_TRY(out_element(m, spec, &slot, &is_sole, &found, to));
        n += found;
    }
    if (to->counts) to->counts[place] = n;
    return INLAY_OK;
}

static inlay_status_t out_scope(inlay_activation_t *m, const inlay_scope_t *scope,
                                const inlay_slot_t *slots, int is_sole, sink_t *to)
{
    uint32_t i;
    for (i = 0; i < scope->n; i++)
        INLAY_TRY(out_leaves(m, &scope->specs[i], &slots[i], is_sole, to));
    for (i = 0; i < scope->n; i++)
        INLAY_TRY(out_parts(m, &scope->specs[i], &slots[i], is_sole, to));
    return INLAY_OK;
}

static void release_memory(const inlay_host_t *host, void *memory, size_t n, size_t item)
{
    if (memory) host->release(host->user, memory, (n + 1) * item, 64);
}

void inlay_values_release(const inlay_host_t *host, inlay_values_t *values)
{
    uint32_t i;
    for (i = 0; i < values->n_tensors; i++) inlay_result_release(host, &values->tensors[i]);
    release_memory(host, values->tensors, values->n_tensors, sizeof *values->tensors);
    release_memory(host, values->counts, values->n_counts, sizeof *values->counts);
    memset(values, 0, sizeof *values);
}

inlay_status_t inlay_export_all(inlay_activation_t *m, const inlay_scope_t *scope,
                                const inlay_slot_t *slots, inlay_values_t *values)
{
    sink_t to;
    inlay_status_t status;
    memset(&to, 0, sizeof to);
    INLAY_TRY(out_scope(m, scope, slots, 1, &to));
    if (to.n_tensors >= UINT32_MAX || to.n_counts >= UINT32_MAX) return inlay_no_memory(m);
    values->n_tensors = (uint32_t)to.n_tensors;
    values->n_counts = (uint32_t)to.n_counts;
    values->tensors =
        m->host->allocate(m->host->user, (to.n_tensors + 1) * sizeof *values->tensors, 64);
    values->counts =
        m->host->allocate(m->host->user, (to.n_counts + 1) * sizeof *values->counts, 64);
    status = values->tensors && values->counts ? INLAY_OK : inlay_no_memory(m);
    if (values->tensors) memset(values->tensors, 0, to.n_tensors * sizeof *values->tensors);
    else values->n_tensors = 0;
    if (status == INLAY_OK) {
        to.tensors = values->tensors;
        to.counts = values->counts;
        to.n_tensors = to.n_counts = 0;
        status = out_scope(m, scope, slots, 1, &to);
    }
    if (status != INLAY_OK) inlay_values_release(m->host, values);
    return status;
}
