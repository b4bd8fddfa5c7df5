/* The dispatch loop. Code was verified: depths, slots, indices and targets are right, and empty
 * slots are never read. Kinds are tested where the verifier could not know them.
 *
 * In the loop: f is the function, pc the instruction, base its first slot, sp the first free
 * slot, top the newest call record. The current segment is m->current. */
#include "delegate.h"
#include "opcodes.h"

#include <string.h>

/* Run native shape code and push its results; 0 where the instructions that it stands for are to run:
 * something is not there yet, or one of them fails, and says why. */
static int evaluate(const inlay_shape_t *shape, const inlay_slot_t *base, inlay_slot_t *sp)
{
    int64_t in[INLAY_MAX_SHAPE_INPUTS];
    uint32_t i;
    if (!shape->run || sizeof *sp != 2 * sizeof *in) return 0;
    for (i = 0; i < shape->n_inputs; i++) {
        const inlay_slot_t *slot = &base[shape->inputs[2 * i]];
        uint32_t axis = shape->inputs[2 * i + 1];
        const inlay_view_t *view;
        if (slot->tag != (axis ? KIND_TENSOR : KIND_INT)) return 0;
        if (!axis) {
            in[i] = slot->as.integer;
            continue;
        }
        view = (const inlay_view_t *)(const void *)slot->as.object;
        if (axis > view->rank) return 0;
        in[i] = view->dims[axis - 1];
    }
    if (shape->run(in, &sp->as.integer)) return 0;
    for (i = 0; i < shape->n_results; i++) sp[i].tag = KIND_INT;
    return 1;
}

/* Make the first slots of a frame: captures of the closure, if there is one, then arguments. */
static void place_arguments(inlay_activation_t *m, inlay_slot_t *to, inlay_compound_t *closure,
                            const inlay_slot_t *arguments, uint32_t n)
{
    uint32_t captures = closure ? closure->n : 0, i;
    if (to + captures != arguments && n) memmove(to + captures, arguments, n * sizeof *to);
    if (!closure) return;
    for (i = 0; i < captures; i++) {
        to[i] = closure->items[i];
        if (to[i].tag > KIND_INT) inlay_retain(to[i].as.object);
    }
    inlay_release(&m->heap, &closure->header);
}

/* Some compilers keep variables of the loop in vector registers when the loop stores several of them
 * side by side. What notes them is therefore a function, and stays one. */
#if defined(__GNUC__)
#define OUT_OF_LINE __attribute__((noinline))
#else
#define OUT_OF_LINE
#endif

/* Where an instruction is. */
OUT_OF_LINE static void note(inlay_activation_t *m, const inlay_function_t *f, const uint32_t *pc,
                             const inlay_record_t *top)
{
    m->function = f;
    m->pc = pc;
    m->top = top;
}

/* Leave the task where the loop is, to go on from there. */
OUT_OF_LINE static void save(inlay_activation_t *m, const inlay_function_t *f, const uint32_t *pc,
                             inlay_slot_t *base, inlay_slot_t *sp, inlay_record_t *top)
{
    inlay_task_t *task = m->task;
    task->function = f;
    task->pc = pc;
    task->base = base;
    task->sp = sp;
    task->top = top;
    task->current = m->current;
}

/* An instruction that may issue or wait; it is not begun after a failure. */
OUT_OF_LINE static inlay_status_t issue(inlay_activation_t *m, const inlay_function_t *f,
                                        const uint32_t *pc, const inlay_record_t *top,
                                        inlay_slot_t *sp)
{
    m->function = f;
    m->pc = pc;
    m->top = top;
    m->sp = sp;
    if (m->issuer.failure.status) INLAY_TRY(inlay_order_stop(m));
    switch (*pc) {
    case OP_STORAGE: return inlay_op_storage(m, pc + 1);
    case OP_ALLOCATE: return inlay_op_allocate(m, pc + 1);
    case OP_APPEND: return inlay_op_append(m);
    case OP_EXTEND: return inlay_op_extend(m, pc[1]);
    case OP_OWN: return inlay_op_own(m);
    case OP_ASSIGN: return inlay_op_assign(m);
    case OP_INVOKE: return inlay_invoke(m, pc[1]);
    case OP_TO_INT: return inlay_op_read_ints(m, 1);
    case OP_READ_INTS: return inlay_op_read_ints(m, pc[1]);
    case OP_TO_TENSOR: return inlay_op_make_ints(m, pc[1], 1, 0);
    case OP_MAKE_INTS: return inlay_op_make_ints(m, pc[1], pc[2], 1);
    default: return INLAY_OK;
    }
}

/* -------------------------------------------------------------------------------------- loop */

#define PUSH_INT(value)               \
    do {                              \
        int64_t pushed_ = (value);    \
        sp->tag = KIND_INT;           \
        sp->as.integer = pushed_;     \
        sp++;                         \
    } while (0)

#define NEED(slot, wanted)                                       \
    do {                                                         \
        if ((slot)->tag != (wanted)) {                           \
            status = inlay_wrong_kind(m, (wanted), (slot)->tag); \
            goto failed;                                         \
        }                                                        \
    } while (0)

/* a b -> expression of them */
#define BINARY(expression)                   \
    do {                                     \
        int64_t a, b;                        \
        NEED(sp - 2, KIND_INT);              \
        NEED(sp - 1, KIND_INT);              \
        a = sp[-2].as.integer;               \
        b = sp[-1].as.integer;               \
        sp--;                                \
        sp[-1].as.integer = (expression);    \
    } while (0)

/* a b -> result of a function that says whether it fits */
#define CHECKED(function)                                                  \
    do {                                                                   \
        NEED(sp - 2, KIND_INT);                                            \
        NEED(sp - 1, KIND_INT);                                            \
        sp--;                                                              \
        if (!function(sp[-1].as.integer, sp[0].as.integer, &sp[-1].as.integer)) { \
            status = inlay_fail_overflow(m);                                          \
            goto failed;                                                   \
        }                                                                  \
    } while (0)

/* An instruction outside the loop. */
#define OUTSIDE(call)                       \
    do {                                    \
        m->sp = sp;                         \
        status = (call);                    \
        if (status != INLAY_OK) goto failed; \
        sp = m->sp;                         \
    } while (0)

#define POLL()                                        \
    do {                                              \
        if (--fuel == 0) {                            \
            fuel = INLAY_POLL_INTERVAL;               \
            status = inlay_poll(m);                   \
            if (status != INLAY_OK) goto failed;      \
        }                                             \
    } while (0)

/* Go to an instruction of the function; what goes back may do so forever. */
#define GO(target) \
    do { const uint32_t *next = f->code + (target); if (next <= pc) POLL(); pc = next; } while (0)

static int fits(const inlay_slot_t *base, uint32_t slots, const inlay_record_t *top)
{
    size_t room = (size_t)((const uint8_t *)top - (const uint8_t *)base);
    return (size_t)slots * sizeof *base + sizeof *top <= room;
}

/* Where the task goes on, to the variables of the loop. */
#define LOAD()                    \
    do {                          \
        task = m->task;           \
        f = task->function;       \
        pc = task->pc;            \
        base = task->base;        \
        sp = task->sp;            \
        top = task->top;          \
        m->current = task->current; \
    } while (0)

/* Begin a call as a task, which is m->task then. Its n arguments, and before them its closure if there
 * is one, are moved out of the caller's frame. */
static void begin_task(inlay_activation_t *m, inlay_task_t *task, inlay_compound_t *closure,
                       uint32_t n)
{
    const inlay_function_t *callee = task->callee;
    inlay_task_t *caller = m->task;
    inlay_record_t outside;
    memset(&outside, 0, sizeof outside);
    outside.sp = task->first->slots;
    outside.segment = task->first;
    place_arguments(m, task->first->slots, closure, caller->sp - n, n);
    caller->sp -= n + (closure != NULL);
    task->function = callee;
    task->pc = callee->code;
    task->base = task->first->slots;
    task->sp = task->base + callee->n_params;
    task->top = inlay_segment_end(task->first) - 1;
    *task->top = outside;
    task->caller = caller;
    task->place = caller->place;
    m->task = task;
}

/* A task with a caller has returned n results, up to sp: they are the caller's. */
static void end_task(inlay_activation_t *m, const inlay_slot_t *sp, uint32_t n)
{
    inlay_task_t *task = m->task, *caller = task->caller;
    if (n) memcpy(caller->sp, sp - n, n * sizeof *sp);
    caller->sp += n;
    m->task = caller;
    inlay_task_free(m, task);
}

inlay_status_t inlay_vm_run(inlay_activation_t *m)
{
    const inlay_module_t *module = m->module;
    const inlay_function_t *f, *callee;
    const uint32_t *pc;
    inlay_slot_t *base, *sp, *arguments, *to;
    inlay_compound_t *closure;
    inlay_record_t *top, record;
    inlay_task_t *task;
    inlay_status_t status = INLAY_OK;
    uint32_t fuel = INLAY_POLL_INTERVAL, n;

    LOAD();
again:
    for (;;) {
#if INLAY_COUNT_INSTRUCTIONS
        m->steps++;
#endif
        switch (*pc) {
        case OP_INT: PUSH_INT((int32_t)pc[1]); pc += 2; break;
        case OP_INT_WIDE: PUSH_INT(inlay_module_integer(module, pc[1])); pc += 2; break;
        case OP_CONST:
            sp->tag = KIND_TENSOR;
            sp->as.object = &module->constants[pc[1]]->header;
            sp++;
            pc += 2;
            break;
        case OP_COPY:
            *sp = base[pc[1]];
            if (sp->tag > KIND_INT) inlay_retain(sp->as.object);
            sp++;
            pc += 2;
            break;
        case OP_MOVE:
            *sp++ = base[pc[1]];
            base[pc[1]].tag = KIND_EMPTY;
            pc += 2;
            break;
        case OP_DROP:
            inlay_slot_release(&m->heap, &base[pc[1]]);
            base[pc[1]].tag = KIND_EMPTY;
            pc += 2;
            break;
        case OP_POP:
            for (n = pc[1]; n; n--) inlay_slot_release(&m->heap, --sp);
            pc += 2;
            break;
        case OP_SLIDE: {
            uint32_t keep = pc[1], i;
            inlay_slot_t *kept = sp - keep;
            to = kept - pc[2];
            for (n = 0; n < pc[2]; n++) inlay_slot_release(&m->heap, to + n);
            for (i = 0; i < keep; i++) to[i] = kept[i];
            sp = to + keep;
            pc += 3;
            break;
        }

        case OP_ADD: CHECKED(inlay_add); pc++; break;
        case OP_SUB: CHECKED(inlay_subtract); pc++; break;
        case OP_MUL: CHECKED(inlay_multiply); pc++; break;
        case OP_FLOORDIV:
            NEED(sp - 2, KIND_INT);
            NEED(sp - 1, KIND_INT);
            if (sp[-1].as.integer == 0) {
                status = inlay_fail_division(m);
                goto failed;
            }
            CHECKED(inlay_floor_divide);
            pc++;
            break;
        case OP_MOD:
            NEED(sp - 2, KIND_INT);
            NEED(sp - 1, KIND_INT);
            if (sp[-1].as.integer == 0) {
                status = inlay_fail_division(m);
                goto failed;
            }
            BINARY(inlay_modulo(a, b));
            pc++;
            break;
        case OP_MIN: BINARY(a < b ? a : b); pc++; break;
        case OP_MAX: BINARY(a > b ? a : b); pc++; break;
        case OP_NEG:
            NEED(sp - 1, KIND_INT);
            if (!inlay_subtract(0, sp[-1].as.integer, &sp[-1].as.integer)) {
                status = inlay_fail_overflow(m);
                goto failed;
            }
            pc++;
            break;
        case OP_EQ: BINARY(a == b); pc++; break;
        case OP_NE: BINARY(a != b); pc++; break;
        case OP_LT: BINARY(a < b); pc++; break;
        case OP_LE: BINARY(a <= b); pc++; break;
        case OP_AND: BINARY(a != 0 && b != 0); pc++; break;
        case OP_OR: BINARY(a != 0 || b != 0); pc++; break;
        case OP_NOT:
            NEED(sp - 1, KIND_INT);
            sp[-1].as.integer = sp[-1].as.integer == 0;
            pc++;
            break;
        case OP_SELECT:
            NEED(sp - 3, KIND_INT);
            NEED(sp - 2, KIND_INT);
            NEED(sp - 1, KIND_INT);
            sp -= 2;
            sp[-1].as.integer = sp[-1].as.integer ? sp[0].as.integer : sp[1].as.integer;
            pc++;
            break;

        case OP_CHECK:
            NEED(sp - 1, KIND_INT);
            to = sp - 1 - pc[1];
            status = inlay_need_ints(m, to, pc[1]);
            if (status == INLAY_OK && sp[-1].as.integer == 0)
                status = inlay_fail_check(m, pc[2], to, pc[1]);
            if (status != INLAY_OK) goto failed;
            sp = to;
            pc += 3;
            break;
        case OP_FAIL:
            to = sp - pc[1];
            status = inlay_need_ints(m, to, pc[1]);
            if (status == INLAY_OK) status = inlay_fail_check(m, pc[2], to, pc[1]);
            goto failed;
        case OP_JUMP: GO(pc[1]); break;
        case OP_JUMP_IF_FALSE:
            NEED(sp - 1, KIND_INT);
            sp--;
            if (sp->as.integer) pc += 2;
            else GO(pc[1]);
            break;
        case OP_SWITCH:
            NEED(sp - 1, KIND_INT);
            sp--;
            n = pc[1] - 1;
            if (sp->as.integer >= 0 && sp->as.integer < (int64_t)n) n = (uint32_t)sp->as.integer;
            GO(pc[2 + n]);
            break;

        case OP_EVAL: {
            const inlay_shape_t *shape = &module->shapes[pc[2]];
            if (evaluate(shape, base, sp)) {
                sp += shape->n_results;
                pc = f->code + pc[1];
            } else {
                pc += 3;
            }
            break;
        }

        case OP_SPAWN:
            callee = &module->functions[pc[1]];
            closure = NULL;
            n = callee->n_params;
            record.sp = sp - n;
            record.pc = pc + 2;
            goto spawn;
        case OP_SPAWN_CLOSURE:
            n = pc[1];
            closure = inlay_closure_below(m, sp, n, pc[2]);
            if (!closure) goto mismatch;
            callee = &module->functions[closure->label];
            record.sp = sp - n - 1;
            record.pc = pc + 3;
        spawn:
            POLL();
            arguments = sp - n;
            task = NULL;
            if (!m->issuer.is_sequential)
                task = inlay_task_new(m, callee, closure, arguments, n);
            if (!task) goto call;
            save(m, f, record.pc, base, sp, top);
            begin_task(m, task, closure, n);
            if (inlay_task_is_late(m) || inlay_delegate_begin(m)) {
                status = inlay_task_detach(m);
                if (status != INLAY_OK) return status;
            }
            LOAD();
            break;
        case OP_CALL:
            callee = &module->functions[pc[1]];
            n = callee->n_params;
            arguments = record.sp = sp - n;
            closure = NULL;
            record.pc = pc + 2;
            goto call;
        case OP_CALL_CLOSURE:
            n = pc[1];
            closure = inlay_closure_below(m, sp, n, pc[2]);
            if (!closure) goto mismatch;
            callee = &module->functions[closure->label];
            arguments = sp - n;
            record.sp = arguments - 1;
            record.pc = pc + 3;
        call:
            POLL();
            record.function = f;
            record.base = base;
            record.segment = m->current;
            to = record.sp;
            if (!fits(to, callee->frame, top)) {
                inlay_segment_t *next = inlay_stack_next(m, callee->frame * sizeof *to);
                if (!next) goto no_stack;
                m->current->top = top;
                m->current = next;
                top = inlay_segment_end(next);
                to = next->slots;
            }
            goto enter;
        case OP_TAIL_CALL:
            callee = &module->functions[pc[1]];
            n = callee->n_params;
            arguments = sp - n;
            closure = NULL;
            for (to = base; to < arguments; to++) inlay_slot_release(&m->heap, to);
            goto tail_call;
        case OP_TAIL_CALL_CLOSURE:
            n = pc[1];
            closure = inlay_closure_below(m, sp, n, f->n_results);
            if (!closure) goto mismatch;
            callee = &module->functions[closure->label];
            arguments = sp - n;
            for (to = base; to < arguments - 1; to++) inlay_slot_release(&m->heap, to);
        tail_call:
            POLL();
            record = *top++;
            to = base;
            if (!fits(to, callee->frame, top)) {
                inlay_segment_t *next = inlay_stack_next(m, callee->frame * sizeof *to);
                if (!next) {
                    top--;
                    goto no_stack;
                }
                m->current->top = top;
                m->current = next;
                top = inlay_segment_end(next);
                to = next->slots;
            }
        enter:
            *--top = record;
            place_arguments(m, to, closure, arguments, n);
            f = callee;
            base = to;
            sp = base + f->n_params;
            pc = f->code;
            break;
        case OP_RETURN:
            n = f->n_results;
            arguments = sp - n;
            for (to = base; to < arguments; to++) inlay_slot_release(&m->heap, to);
            record = *top++;
            if (record.segment != m->current) {
                m->current = record.segment;
                top = m->current->top;
            }
            if (n) memmove(record.sp, arguments, n * sizeof *sp);
            sp = record.sp + n;
            f = record.function;
            if (!f) {
                m->sp = sp;
                if (!m->task->caller) return INLAY_OK;
                end_task(m, sp, n);
                LOAD();
                break;
            }
            base = record.base;
            pc = record.pc;
            break;

        case OP_CLOSURE: OUTSIDE(inlay_op_construct(m, KIND_CLOSURE, pc[1], pc[2])); pc += 3; break;
        case OP_TUPLE: OUTSIDE(inlay_op_construct(m, KIND_TUPLE, 0, pc[1])); pc += 2; break;
        case OP_CONSTRUCT: OUTSIDE(inlay_op_construct(m, KIND_ADT, pc[1], pc[2])); pc += 3; break;
        case OP_PROJECT: OUTSIDE(inlay_op_item(m, KIND_TUPLE, pc[1])); pc += 2; break;
        case OP_FIELD: OUTSIDE(inlay_op_item(m, KIND_ADT, pc[1])); pc += 2; break;
        case OP_TAG: {
            inlay_object_t *object = sp[-1].as.object;
            NEED(sp - 1, KIND_ADT);
            sp[-1].tag = KIND_INT;
            sp[-1].as.integer = ((inlay_compound_t *)(void *)object)->label;
            inlay_release(&m->heap, object);
            pc++;
            break;
        }
        case OP_UNPACK: OUTSIDE(inlay_op_unpack(m, pc[1])); pc += 2; break;
        case OP_CELL_NEW: OUTSIDE(inlay_op_construct(m, KIND_CELL, 0, 1)); pc++; break;
        case OP_CELL_READ: OUTSIDE(inlay_op_item(m, KIND_CELL, 0)); pc++; break;
        case OP_CELL_WRITE: OUTSIDE(inlay_op_write_cell(m)); pc++; break;

        case OP_STORAGE: n = 3; goto issue;
        case OP_TENSOR: OUTSIDE(inlay_op_tensor(m, pc + 1)); pc += 3; break;
        case OP_ALLOCATE: n = 4; goto issue;
        case OP_CHECK_TENSOR: {
            const inlay_view_t *view = (const inlay_view_t *)(void *)sp[-1].as.object;
            NEED(sp - 1, KIND_TENSOR);
            if (view->dtype != pc[1] || view->rank != pc[2]) {
                status = inlay_fail_check(m, pc[3], sp, 0);
                goto failed;
            }
            pc += 4;
            break;
        }
        case OP_DIM: {
            inlay_view_t *view = (inlay_view_t *)(void *)sp[-1].as.object;
            NEED(sp - 1, KIND_TENSOR);
            if (pc[1] >= view->rank) {
                status = inlay_fail_axis(m, pc[1], view->rank);
                goto failed;
            }
            sp[-1].tag = KIND_INT;
            sp[-1].as.integer = view->dims[pc[1]];
            inlay_release(&m->heap, &view->header);
            pc += 2;
            break;
        }
        case OP_DIMS: OUTSIDE(inlay_op_dims(m, pc[1])); pc += 2; break;
        case OP_ELEMENTS: {
            inlay_view_t *view = (inlay_view_t *)(void *)sp[-1].as.object;
            NEED(sp - 1, KIND_TENSOR);
            sp[-1].tag = KIND_INT;
            sp[-1].as.integer = (int64_t)(view->bytes / inlay_dtype_bytes[view->dtype]);
            inlay_release(&m->heap, &view->header);
            pc++;
            break;
        }
        case OP_RESHAPE: OUTSIDE(inlay_op_reshape(m, pc + 1)); pc += 2; break;
        case OP_ROW: OUTSIDE(inlay_op_rows(m, 1)); pc++; break;
        case OP_ROWS: OUTSIDE(inlay_op_rows(m, 0)); pc++; break;
        case OP_APPEND: n = 1; goto issue;
        case OP_EXTEND: n = 2; goto issue;
        case OP_OWN: n = 1; goto issue;
        case OP_ASSIGN: n = 1; goto issue;
        case OP_INVOKE: n = 2; goto issue;
        case OP_TO_INT: n = 1; goto issue;
        case OP_READ_INTS: n = 2; goto issue;
        case OP_TO_TENSOR: n = 2; goto issue;
        case OP_MAKE_INTS: n = 3; goto issue;
        issue: /* n words long */
            status = issue(m, f, pc, top, sp);
            if (status != INLAY_OK) goto failed;
            sp = m->sp;
            pc += n;
            break;
        default: /* the verifier refuses other numbers */ break;
        }
    }
mismatch:
    status = INLAY_KIND_MISMATCH;
    goto failed;
no_stack:
    status = m->error->status;
failed:
    if (status == INLAY_KIND_MISMATCH && m->has_futures) status = inlay_task_resolve(m, base, sp);
    if (status == INLAY_OK) goto again;
    if (status == INLAY_SUSPENDED) {
        save(m, f, pc, base, sp, top);
        return status;
    }
    note(m, f, pc, top);
    if (!m->issuer.is_stopped) {
        inlay_where_t where;
        inlay_vm_where(m, &where);
        inlay_vm_explain(m, &where, m->error);
    }
    return status;
}
