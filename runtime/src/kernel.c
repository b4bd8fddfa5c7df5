/* INVOKE: operands are checked, then the kernel runs at once or is issued. */
#include "machine.h"

static const inlay_view_t *view_of(const inlay_slot_t *slot)
{
    return (const inlay_view_t *)(const void *)slot->as.object;
}

/* Bytes of the workspace for so many parts; 0 where a port has them. */
static inlay_status_t workspace_bytes(inlay_activation_t *m, const inlay_kernel_t *kernel,
                                      const inlay_slot_t *tensors, int64_t parts, size_t *taken)
{
    int64_t bytes = 0;
    *taken = 0;
    if (!kernel->workspace_kind) return INLAY_OK;
    if (!inlay_formula_value(kernel->workspace, m->now->ints, &bytes) || bytes < 0 ||
        bytes > INLAY_MAX_STORAGE / parts - 64) {
        inlay_fail(m->error, INLAY_BAD_DIMS, "the workspace of kernel '", NULL, 0);
        inlay_say_text(m->error, kernel->name);
        inlay_say(m->error, "' has no possible size");
        return INLAY_BAD_DIMS;
    }
    *taken = (size_t)bytes;
    if (kernel->workspace_kind >= 2) *taken = (*taken + 63) / 64 * 64 * (size_t)parts;
    if (kernel->workspace_kind == 3 && *taken <= view_of(&tensors[kernel->n_ports - 1])->bytes)
        *taken = 0;
    else if (!*taken)
        *taken = 1;
    return INLAY_OK;
}

static inlay_status_t run_now(inlay_activation_t *m, const inlay_kernel_t *kernel,
                              const inlay_slot_t *slots, size_t bytes)
{
    inlay_command_t *now = m->now;
    inlay_status_t status;
    const size_t asked = bytes;
    const uint32_t at = inlay_workspace_at(kernel);
    uint32_t i;
    for (i = 0; inlay_takes_tensors(kernel) && i < kernel->n_ports; i++) {
        const inlay_view_t *view = view_of(&slots[i]);
        now->tensors[i].data = view->data;
        now->tensors[i].dtype = view->dtype;
        now->tensors[i].rank = view->rank;
        now->tensors[i].dims = view->dims;
    }
    if (bytes) {
        now->buffers[at] = inlay_blocks_take(&m->heap.blocks, &bytes, BLOCK_ALIGN);
        if (!now->buffers[at]) return inlay_no_memory(m);
        inlay_heap_asked(&m->heap, asked);
    }
    for (i = 0; INLAY_RACES_ON(m) && i < kernel->n_ports; i++) {
        const inlay_view_t *view = view_of(&slots[i]);
        now->sizes[i] = view->bytes;
        inlay_race_direct(m, view->storage, view->data, view->bytes, kernel->ports[i] != 0);
    }
    now->number = m->issuer.number++;
    now->is_undivided = now->parts > 1 && inlay_gather_is_full(m);
    if (m->host->event) inlay_trace_memory(m);
    if (m->issuer.keeps_one) inlay_help_share(m);
    status = inlay_command_run(m, now, m->error);
    m->heap.asked -= asked;
    if (bytes) inlay_blocks_give(&m->heap.blocks, now->buffers[at], bytes, BLOCK_ALIGN);
    return status;
}

static int is_pending(const inlay_kernel_t *kernel, const inlay_slot_t *slots)
{
    uint32_t i;
    for (i = 0; i < kernel->n_ports; i++) {
        const inlay_view_t *view = view_of(&slots[i]);
        if (inlay_access_pending(view->storage, view->data, view->bytes, kernel->ports[i] != 0))
            return 1;
    }
    return 0;
}

/* Put the kernel among the commands. It runs at once, after all others, where there is no memory
 * to note it. */
static inlay_status_t issue(inlay_activation_t *m, uint32_t index, const inlay_kernel_t *kernel,
                            const inlay_slot_t *slots, size_t bytes)
{
    inlay_status_t status = inlay_issue_kernel(m, index, slots, m->now->ints, m->now->parts, bytes);
    if (status == INLAY_OK && inlay_execute_starts(m)) inlay_execute_own(m);
    if (status != INLAY_OUT_OF_MEMORY) return status;
    INLAY_TRY(inlay_progress_drain(m));
    return run_now(m, kernel, slots, bytes);
}

/* Whether the tensors are where the kernel works: in the host, on its device, or for a copy anywhere
 * but of one size. */
static inlay_status_t check_spaces(inlay_activation_t *m, const inlay_kernel_t *kernel,
                                  const inlay_slot_t *tensors)
{
    const inlay_space_t *mine = &m->module->spaces[kernel->memory];
    uint32_t i;
    if (kernel->body == INLAY_BODY_COPY) {
        int64_t sizes[2];
        sizes[0] = (int64_t)view_of(&tensors[0])->bytes;
        sizes[1] = (int64_t)view_of(&tensors[1])->bytes;
        if (sizes[0] == sizes[1]) return INLAY_OK;
        return inlay_fail(m->error, INLAY_BAD_DIMS,
                          "{1} bytes are copied to a tensor of {2}", sizes, 2);
    }
    for (i = 0; i < kernel->n_ports; i++) {
        const inlay_space_t *space = view_of(&tensors[i])->storage->space;
        if (kernel->body == INLAY_BODY_DEVICE ? space && space->device == mine->device : !space)
            continue;
        if (space) return inlay_not_in_host(m, space);
        inlay_fail(m->error, INLAY_KIND_MISMATCH, "kernel '", NULL, 0);
        inlay_say_text(m->error, kernel->name);
        inlay_say(m->error, "' runs on a device and takes a tensor of the host");
        return INLAY_KIND_MISMATCH;
    }
    return INLAY_OK;
}

/* The longest time that a kernel is taken to take. */
#define MOST_NS ((int64_t)1 << 40)
#define UNKNOWN_NS 1000000000 /* what a program says of a kernel whose time nobody knows; see UNKNOWN_COST */

/* Whether the tensors have the bytes that the code may touch. The verifier does not see sizes: without
 * this, a wrong program in a file could let right code write anywhere. */
static inlay_status_t check_sizes(inlay_activation_t *m, const inlay_kernel_t *kernel,
                                  const inlay_slot_t *tensors)
{
    uint32_t i;
    for (i = 0; i < kernel->n_ports; i++) {
        int64_t values[3];
        values[0] = (int64_t)view_of(&tensors[i])->bytes;
        values[1] = (int64_t)i + 1;
        values[2] = -1;
        if (inlay_formula_value(kernel->sizes[i], m->now->ints, &values[2]) && values[2] >= 0 &&
            values[2] <= values[0])
            continue;
        inlay_fail(m->error, INLAY_BAD_DIMS, "kernel '", NULL, 0);
        inlay_say_text(m->error, kernel->name);
        inlay_say(m->error, "' is given ");
        inlay_say_int(m->error, values[0]);
        inlay_say(m->error, " bytes as tensor ");
        inlay_say_int(m->error, values[1]);
        inlay_say(m->error, ", and its code needs ");
        if (values[2] >= 0) inlay_say_int(m->error, values[2]);
        else inlay_say(m->error, "an impossible number of them");
        return INLAY_BAD_DIMS;
    }
    return INLAY_OK;
}

/* How long the kernel is predicted to take, with the integers that were noted. Mostly they are those of the
 * launch before, and small kernels take no longer than their formula. */
static int64_t predicted(inlay_activation_t *m, uint32_t index, const inlay_kernel_t *kernel)
{
    inlay_prediction_t *last = &m->predictions[index];
    const int64_t *ints = m->now->ints;
    int64_t cost = 0;
    uint32_t i, n = kernel->n_ints;
    if (last->is_known) {
        for (i = 0; i < n && last->ints[i] == ints[i]; i++) {}
        if (i == n) return last->cost;
    }
    if (!inlay_formula_value(kernel->cost, ints, &cost)) cost = m->config.hand_off_ns;
    if (cost < 0) cost = 0;
    if (cost > MOST_NS) cost = MOST_NS; /* a file may say anything */
    if (n <= INLAY_PREDICTED_INTS) {
        for (i = 0; i < n; i++) last->ints[i] = ints[i];
        last->cost = cost;
        last->is_known = 1;
    }
    return cost;
}

inlay_status_t inlay_invoke(inlay_activation_t *m, uint32_t index)
{
    const inlay_kernel_t *kernel = &m->module->kernels[index];
    inlay_slot_t *ints = m->sp - kernel->n_ints, *tensors = ints - kernel->n_ports;
    inlay_command_t *now = m->now;
    int64_t cost;
    size_t bytes = 0;
    int is_short, runs_now = 0;
    uint32_t i;
    INLAY_TRY(inlay_need_ints(m, ints, kernel->n_ints));
    now->space = NULL;
    for (i = 0; i < kernel->n_ints; i++) now->ints[i] = ints[i].as.integer;
    for (i = 0; i < kernel->n_ports; i++)
        if (tensors[i].tag != KIND_TENSOR) return inlay_wrong_kind(m, KIND_TENSOR, tensors[i].tag);
    for (i = 0; i < kernel->n_ports; i++) {
        const inlay_view_t *view = view_of(&tensors[i]);
        if (kernel->ports[i] != 0 && !inlay_may_write(view->storage))
            return inlay_fail(m->error, INLAY_READ_ONLY, "an input or constant would be written",
                              NULL, 0);
        if (kernel->ports[i] != 0 && view->storage->guards)
            INLAY_TRY(inlay_guard_may_write(m, view->storage, view->data, view->bytes));
        now->buffers[i] = view->data;
    }
    now->kernel = kernel;
    now->index = index;
    if (m->config.checks && kernel->sizes) INLAY_TRY(check_sizes(m, kernel, tensors));
    if (m->module->n_devices || inlay_leaves_host(kernel)) {
        INLAY_TRY(check_spaces(m, kernel, tensors));
        if (inlay_leaves_host(kernel)) inlay_command_address(m, now, tensors);
    }
    cost = predicted(m, index, kernel);
    is_short = cost < m->config.hand_off_ns;
    now->ns = cost + INLAY_COMMAND_NS;
    now->is_backwards = m->predictions[index].runs++ & 1;
    now->parts = is_short || inlay_all_delegated(m) || inlay_leaves_host(kernel) ? 1 : m->config.parts;
    if (now->space) is_short = 0; /* waiting for a device is never short */
    m->issuer.unasked += now->ns;
    if (now->space || m->issuer.unasked >= INLAY_POLL_NS) {
        m->issuer.unasked = 0;
        INLAY_TRY(inlay_poll(m));
    }
    /* What the outside can see happens in order, and not at all behind a failure. */
    if (kernel->is_ordered) {
        INLAY_TRY(inlay_task_be_first(m));
        INLAY_TRY(inlay_progress_drain(m));
    }
    if (kernel->body == INLAY_BODY_CALLBACK)
        is_short = !m->config.callbacks_anywhere && !inlay_execute_starts(m);
    if (m->is_alone) is_short = 1;
    if (cost < UNKNOWN_NS && m->issuer.work < INT64_MAX - UNKNOWN_NS) m->issuer.work += cost;
    if (!inlay_takes_tensors(kernel) && !inlay_leaves_host(kernel))
        INLAY_TRY(workspace_bytes(m, kernel, tensors, now->parts, &bytes));
    if (m->issuer.is_sequential || kernel->is_ordered) {
        runs_now = 1;
    } else if (m->config.mode == INLAY_PARALLEL && !inlay_gathers(kernel)) {
        if (!inlay_lookahead_pays(m)) INLAY_TRY(inlay_progress_settle(m));
        runs_now = (is_short || !inlay_lookahead_pays(m)) && !is_pending(kernel, tensors);
        if (runs_now && !is_short) inlay_lookahead_ran(m, now->ns);
    }
    INLAY_TRY(inlay_race_tensors(m, kernel, tensors));
    if (runs_now)
        INLAY_TRY(run_now(m, kernel, tensors, bytes));
    else
        INLAY_TRY(issue(m, index, kernel, tensors, bytes));
    for (i = 0; i < kernel->n_ports; i++) inlay_release(&m->heap, tensors[i].as.object);
    m->sp = tensors;
    return INLAY_OK;
}
