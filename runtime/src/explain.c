/* What is said of an instruction that fails: why, and where in the program. */
#include "machine.h"

inlay_status_t inlay_wrong_kind(inlay_activation_t *m, uint32_t wanted, uint32_t found)
{
    inlay_fail(m->error, INLAY_KIND_MISMATCH, "an instruction needs a value of kind ", NULL, 0);
    inlay_say(m->error, inlay_kind_name(wanted));
    inlay_say(m->error, ", found ");
    inlay_say(m->error, inlay_kind_name(found));
    return INLAY_KIND_MISMATCH;
}

inlay_status_t inlay_no_memory(inlay_activation_t *m)
{
    return inlay_fail(m->error, INLAY_OUT_OF_MEMORY, "the host has no more memory", NULL, 0);
}

inlay_status_t inlay_need_ints(inlay_activation_t *m, const inlay_slot_t *slots, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++)
        if (slots[i].tag != KIND_INT) return inlay_wrong_kind(m, KIND_INT, slots[i].tag);
    return INLAY_OK;
}

inlay_status_t inlay_fail_check(inlay_activation_t *m, uint32_t message, const inlay_slot_t *slots,
                                uint32_t n)
{
    int64_t values[16];
    uint32_t i;
    for (i = 0; i < n && i < 16; i++) values[i] = slots[i].as.integer;
    return inlay_fail_text(m->error, INLAY_CHECK_FAILED, inlay_module_string(m->module, message),
                           values, n < 16 ? n : 16);
}

inlay_status_t inlay_fail_overflow(inlay_activation_t *m)
{
    return inlay_fail(m->error, INLAY_INT_OVERFLOW, "integer arithmetic leaves 64 bits", NULL, 0);
}

inlay_status_t inlay_fail_division(inlay_activation_t *m)
{
    return inlay_fail(m->error, INLAY_DIVIDE_BY_ZERO, "integer division by zero", NULL, 0);
}

inlay_status_t inlay_fail_axis(inlay_activation_t *m, uint32_t axis, uint32_t rank)
{
    int64_t values[2];
    values[0] = axis;
    values[1] = rank;
    return inlay_fail(m->error, INLAY_OUT_OF_RANGE, "axis {1} of a tensor of rank {2}", values, 2);
}

/* A caller's pc is already behind its call. */
void inlay_vm_where(const inlay_activation_t *m, inlay_where_t *where)
{
    const inlay_function_t *f = m->function;
    const uint32_t *pc = m->pc;
    const inlay_record_t *top = m->top;
    const inlay_segment_t *segment = m->current;
    const inlay_task_t *task = m->task;
    uint32_t i;
    where->depth = 0;
    for (;;) {
        if (where->depth == INLAY_TRACE_DEPTH) return;
        where->frames[where->depth].function = f;
        where->frames[where->depth].pc = pc;
        where->depth++;
        f = top->function;
        if (f) {
            pc = top->pc - 1;
            if (top->segment != segment) {
                segment = top->segment;
                top = segment->top;
            } else {
                top++;
            }
        } else if (task->caller) {
            task = task->caller;
            f = task->function;
            pc = task->pc - 1;
            top = task->top;
            segment = task->current;
        } else {
            break;
        }
    }
    for (i = 0; i < task->where.depth && where->depth < INLAY_TRACE_DEPTH; i++)
        where->frames[where->depth++] = task->where.frames[i];
}

void inlay_vm_explain(const inlay_activation_t *m, const inlay_where_t *where, inlay_error_t *error)
{
    uint32_t i;
    error->depth = where->depth;
    for (i = 0; i < where->depth; i++) {
        const inlay_function_t *f = where->frames[i].function;
        inlay_text_t span =
            inlay_module_span(m->module, f, (uint32_t)(where->frames[i].pc - f->code));
        error->functions[i] = f->name.at;
        error->function_bytes[i] = f->name.bytes;
        error->spans[i] = span.bytes ? span.at : NULL;
        error->span_bytes[i] = span.bytes;
    }
}
