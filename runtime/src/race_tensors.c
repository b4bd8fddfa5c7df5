/* Whether tensors keep what was written into them while they live.
 *
 * A plan puts tensors into common bytes of a block where it knows that they do not live at one time.
 * Where it is wrong, the order of accesses may still be right, and what is read is another tensor's.
 * Therefore each storage has an interval map of who wrote its bytes last. A tensor has a number, given
 * when it is made; views of it, rows of it and what it grows to in place have the same. Two faults are
 * found, in all modes and in the order of issue:
 *
 * - something reads bytes of a tensor that another one wrote after the tensor was made;
 * - a kernel writes a tensor that lies over one that it reads or writes, and not exactly over it, as
 *   kernels do that work in place, unless it reads or writes that one in earlier phases only.
 *
 * Bytes that were written before a tensor was made are not another's: a program in explicit storage may
 * look at them through a tensor of another type. Inputs and constants are never written. */
#include "machine.h"

#if INLAY_RACES

static inlay_status_t overwritten(inlay_activation_t *m, const inlay_view_t *view,
                                  const inlay_kernel_t *kernel, const inlay_interval_t *found)
{
    inlay_error_t *error = m->error;
    inlay_fail(error, INLAY_RACE, "overwritten while live: ", NULL, 0);
    inlay_race_say(m, error, kernel, "an instruction", m->function, m->pc);
    inlay_say(error, " reads a tensor of which ");
    inlay_race_say(m, error, found->writer.kernel, "a copy", found->writer.function, found->writer.pc);
    inlay_say(error, " has written another one over bytes ");
    inlay_say_int(error, (int64_t)found->begin);
    inlay_say(error, " to ");
    inlay_say_int(error, (int64_t)found->end);
    inlay_say(error, " of storage ");
    inlay_say_int(error, (int64_t)view->storage->serial);
    return INLAY_RACE;
}

inlay_status_t inlay_race_use(inlay_activation_t *m, const inlay_view_t *view, const void *at,
                              size_t bytes, const inlay_kernel_t *kernel, int writes)
{
    inlay_storage_t *storage = view->storage;
    size_t begin = (size_t)((const uint8_t *)at - storage->data);
    const inlay_interval_t *found;
    inlay_writer_t writer;
    if (!storage->owned || !bytes) return INLAY_OK;
    if (!writes) {
        found = inlay_intervals_find(storage->written, begin, begin + bytes, view->tensor,
                                     view->tensor);
        return found ? overwritten(m, view, kernel, found) : INLAY_OK;
    }
    writer.tensor = view->tensor;
    writer.at = ++m->heap.serials;
    writer.kernel = kernel;
    writer.function = m->function;
    writer.pc = m->pc;
    if (inlay_intervals_write(&m->heap.intervals, m->host, &storage->written, begin, begin + bytes,
                              &writer, storage->newest))
        return INLAY_OK;
    return inlay_no_memory(m);
}

/* Whether two tensors of a kernel, the second of which it writes, lie over each other. Working in place
 * is writing exactly over what is read. */
static int lies_over(const inlay_view_t *a, int writes_a, const inlay_view_t *b)
{
    if (a->storage != b->storage || a->tensor == b->tensor || !a->storage->owned) return 0;
    if (a->data + a->bytes <= b->data || b->data + b->bytes <= a->data) return 0;
    return writes_a || a->data != b->data || a->bytes != b->bytes;
}

/* Whether a kernel has done with tensor a when it writes tensor b; or, where it writes both, the other
 * way round. */
static int are_apart(const inlay_kernel_t *kernel, uint32_t a, uint32_t b)
{
    const uint32_t *spans = kernel->spans;
    if (!spans) return 0;
    return spans[2 * a + 1] < spans[2 * b] || (kernel->ports[a] == 1 && spans[2 * b + 1] < spans[2 * a]);
}

/* Note what a kernel writes: of tensors in common bytes, the last one is there when it has run. */
static inlay_status_t write_all(inlay_activation_t *m, const inlay_kernel_t *kernel,
                                const inlay_slot_t *tensors)
{
    uint32_t i, step, steps = kernel->spans ? kernel->n_phases : 1;
    for (step = 0; step < steps; step++)
        for (i = 0; i < kernel->n_ports; i++) {
            const inlay_view_t *view = (const inlay_view_t *)(const void *)tensors[i].as.object;
            if (kernel->ports[i] && (!kernel->spans || kernel->spans[2 * i + 1] == step))
                INLAY_TRY(inlay_race_use(m, view, view->data, view->bytes, kernel, 1));
        }
    return INLAY_OK;
}

static inlay_status_t over_itself(inlay_activation_t *m, const inlay_kernel_t *kernel, uint32_t a,
                                  uint32_t b)
{
    inlay_fail(m->error, INLAY_RACE, "overwritten while live: ", NULL, 0);
    inlay_race_say(m, m->error, kernel, "", m->function, m->pc);
    inlay_say(m->error, " writes tensor ");
    inlay_say_int(m->error, (int64_t)b + 1);
    inlay_say(m->error, " of its operands over parts of tensor ");
    inlay_say_int(m->error, (int64_t)a + 1);
    return INLAY_RACE;
}

inlay_status_t inlay_race_invoke(inlay_activation_t *m, const inlay_kernel_t *kernel,
                                 const inlay_slot_t *tensors)
{
    uint32_t n = kernel->n_ports, i, k;
    for (i = 0; i < n; i++) {
        const inlay_view_t *view = (const inlay_view_t *)(const void *)tensors[i].as.object;
        if (kernel->ports[i] != 1) /* READ or READ_WRITE */
            INLAY_TRY(inlay_race_use(m, view, view->data, view->bytes, kernel, 0));
        if (!kernel->ports[i]) continue;
        for (k = 0; k < n; k++) {
            const inlay_view_t *other = (const inlay_view_t *)(const void *)tensors[k].as.object;
            if (k != i && lies_over(other, kernel->ports[k] != 0, view) && !are_apart(kernel, k, i))
                return over_itself(m, kernel, k, i);
        }
    }
    return write_all(m, kernel, tensors);
}

#else
typedef int inlay_race_tensors_is_off; /* a file of C has something in it */
#endif
