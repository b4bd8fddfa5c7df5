/* Instructions on values with fields: tuples, constructors of data types, closures, cells. */
#include "machine.h"

#include <string.h>

/* The effects of a value: those of what it holds, of the code of a closure; all, of a cell. */
static uint8_t effects_of(const inlay_activation_t *m, const inlay_compound_t *made)
{
    uint32_t found = made->header.kind == KIND_CELL ? EFFECT_ORDERED | EFFECT_CELLS : 0, i;
    if (made->header.kind == KIND_CLOSURE) found |= m->module->functions[made->label].effects;
    for (i = 0; i < made->n; i++) found |= inlay_slot_effects(&made->items[i]);
    return (uint8_t)found;
}

/* Pop n slots into a new object, and push it. */
inlay_status_t inlay_op_construct(inlay_activation_t *m, uint32_t kind, uint32_t label, uint32_t n)
{
    inlay_compound_t *made = inlay_heap_compound(&m->heap, kind, n);
    if (!made) return inlay_no_memory(m);
    made->label = label;
    m->sp -= n;
    if (n) memcpy(made->items, m->sp, n * sizeof *m->sp);
    made->header.effects = effects_of(m, made);
    m->sp->tag = kind;
    m->sp->as.object = &made->header;
    m->sp++;
    if (kind == KIND_CELL) inlay_race_new_cell(m, made);
    return INLAY_OK;
}

/* Replace the top, a compound, by one of its items. */
inlay_status_t inlay_op_item(inlay_activation_t *m, uint32_t kind, uint32_t index)
{
    inlay_slot_t *top = m->sp - 1;
    inlay_compound_t *compound;
    if (top->tag != kind) return inlay_wrong_kind(m, kind, top->tag);
    compound = (inlay_compound_t *)(void *)top->as.object;
    if (index >= compound->n) {
        int64_t values[2];
        values[0] = index;
        values[1] = compound->n;
        return inlay_fail(m->error, INLAY_OUT_OF_RANGE, "field {1} of a value of {2} fields",
                          values, 2);
    }
    if (kind == KIND_CELL) inlay_race_cell(m, compound, 0);
    *top = compound->items[index];
    if (top->tag > KIND_INT) inlay_retain(top->as.object);
    inlay_release(&m->heap, &compound->header);
    return INLAY_OK;
}

inlay_status_t inlay_op_unpack(inlay_activation_t *m, uint32_t n)
{
    inlay_slot_t *top = m->sp - 1;
    inlay_compound_t *compound;
    uint32_t i;
    if (top->tag != KIND_TUPLE && top->tag != KIND_ADT)
        return inlay_wrong_kind(m, KIND_TUPLE, top->tag);
    compound = (inlay_compound_t *)(void *)top->as.object;
    if (compound->n != n) {
        int64_t values[2];
        values[0] = compound->n;
        values[1] = n;
        return inlay_fail(m->error, INLAY_KIND_MISMATCH,
                          "a value of {1} fields is unpacked to {2}", values, 2);
    }
    for (i = 0; i < n; i++) {
        top[i] = compound->items[i];
        if (top[i].tag > KIND_INT) inlay_retain(top[i].as.object);
    }
    inlay_release(&m->heap, &compound->header);
    m->sp = top + n;
    return INLAY_OK;
}

inlay_status_t inlay_op_write_cell(inlay_activation_t *m)
{
    inlay_slot_t *top = m->sp - 1, *cell = m->sp - 2, old;
    inlay_compound_t *compound;
    if (cell->tag != KIND_CELL) return inlay_wrong_kind(m, KIND_CELL, cell->tag);
    compound = (inlay_compound_t *)(void *)cell->as.object;
    inlay_race_cell(m, compound, 1);
    old = compound->items[0];
    compound->items[0] = *top;
    inlay_slot_release(&m->heap, &old);
    inlay_release(&m->heap, &compound->header);
    m->sp -= 2;
    return INLAY_OK;
}

inlay_compound_t *inlay_closure_below(inlay_activation_t *m, const inlay_slot_t *sp, uint32_t n,
                                      uint32_t n_results)
{
    const inlay_slot_t *at = sp - n - 1;
    const inlay_function_t *callee;
    inlay_compound_t *closure;
    if (at->tag != KIND_CLOSURE) {
        inlay_wrong_kind(m, KIND_CLOSURE, at->tag);
        return NULL;
    }
    closure = (inlay_compound_t *)(void *)at->as.object;
    callee = &m->module->functions[closure->label];
    if (closure->n + n == callee->n_params && n_results == callee->n_results) return closure;
    inlay_fail(m->error, INLAY_KIND_MISMATCH, "a closure of '", NULL, 0);
    inlay_say_text(m->error, callee->name);
    inlay_say(m->error, "' is called with ");
    inlay_say_int(m->error, n);
    inlay_say(m->error, " arguments for ");
    inlay_say_int(m->error, n_results);
    inlay_say(m->error, " results");
    return NULL;
}
