/* Running kernels: buffers, workspace, parts. */
#include "machine.h"

#include <string.h>

#include "inlay_extern.h"

typedef struct job {
    inlay_phase_t run;
    void *const *buffers;
    const int64_t *ints;
    int64_t *answers; /* one for each part */
    int64_t parts;
} job_t;

static void run_part(void *argument, int64_t part)
{
    const job_t *job = argument;
    job->answers[part] = job->run(job->buffers, job->ints, part, job->parts);
}

/* The assertion that the first part complains of, so that it does not depend on timing. */
static inlay_status_t check_answers(inlay_activation_t *m, const inlay_kernel_t *kernel,
                                    int64_t parts)
{
    int64_t part = 0, answer;
    while (part < parts && m->answers[part] == 0) part++;
    if (part == parts) return INLAY_OK;
    answer = m->answers[part];
    if (answer >= 1 && answer <= (int64_t)kernel->n_assertions)
        return inlay_fail_text(
            m->error, INLAY_CHECK_FAILED,
            inlay_module_string(m->module, kernel->assertions[answer - 1]), NULL, 0);
    inlay_fail(m->error, INLAY_CHECK_FAILED, "kernel '", NULL, 0);
    inlay_say_text(m->error, kernel->name);
    inlay_say(m->error, "' answers ");
    inlay_say_int(m->error, answer);
    return INLAY_CHECK_FAILED;
}

static inlay_status_t run_phases(inlay_activation_t *m, const inlay_kernel_t *kernel, int64_t parts)
{
    uint32_t i;
    for (i = 0; i < kernel->n_phases; i++) {
        const inlay_step_t *phase = &kernel->phases[i];
        job_t job;
        int64_t part;
        if (!phase->run)
            return inlay_fail(m->error, INLAY_KERNEL_FAILED,
                              "the executable was loaded without its native code", NULL, 0);
        job.run = phase->run;
        job.buffers = m->buffers;
        job.ints = m->ints;
        job.answers = m->answers;
        job.parts = phase->parallel ? parts : 1;
        if (job.parts > 1 && m->host->parallel)
            m->host->parallel(m->host->user, run_part, &job, job.parts);
        else
            for (part = 0; part < job.parts; part++) run_part(&job, part);
        INLAY_TRY(check_answers(m, kernel, job.parts));
    }
    return INLAY_OK;
}

static inlay_status_t run_native(inlay_activation_t *m, const inlay_kernel_t *kernel)
{
    int64_t cost = 0, parts = m->config.parts, bytes = 0;
    size_t taken = 0;
    void *workspace = NULL;
    inlay_status_t status;
    if (inlay_formula_value(kernel->cost, m->ints, &cost) && cost < m->config.hand_off_ns)
        parts = 1;
    if (kernel->workspace_kind) {
        if (!inlay_formula_value(kernel->workspace, m->ints, &bytes) || bytes < 0 ||
            bytes > INLAY_MAX_STORAGE / parts - 64) {
            inlay_fail(m->error, INLAY_BAD_DIMS, "the workspace of kernel '", NULL, 0);
            inlay_say_text(m->error, kernel->name);
            inlay_say(m->error, "' has no possible size");
            return INLAY_BAD_DIMS;
        }
        taken = (size_t)bytes;
        if (kernel->workspace_kind == 2) taken = (taken + 63) / 64 * 64 * (size_t)parts;
        workspace = inlay_heap_take(&m->heap, &taken, BLOCK_ALIGN);
        if (!workspace) return inlay_no_memory(m);
        m->buffers[kernel->n_ports] = workspace;
    }
    status = run_phases(m, kernel, parts);
    if (workspace) inlay_heap_give(&m->heap, workspace, taken, BLOCK_ALIGN);
    return status;
}

/* What a kernel that is given tensors is given. */
static void show_tensors(inlay_activation_t *m, const inlay_kernel_t *kernel,
                         const inlay_slot_t *slots)
{
    uint32_t i;
    for (i = 0; i < kernel->n_ports; i++) {
        const inlay_view_t *view = (const inlay_view_t *)(const void *)slots[i].as.object;
        m->tensors[i].data = view->data;
        m->tensors[i].dtype = view->dtype;
        m->tensors[i].rank = view->rank;
        m->tensors[i].dims = view->dims;
    }
}

static inlay_status_t run_function(inlay_activation_t *m, const inlay_kernel_t *kernel,
                                   const inlay_slot_t *slots)
{
    char message[INLAY_MESSAGE_BYTES];
    inlay_call_t call;
    inlay_extern_t function = (inlay_extern_t)(void (*)(void))kernel->phases[0].run;
    int32_t answer;
    show_tensors(m, kernel, slots);
    message[0] = '\0';
    call.inputs = m->tensors;
    call.outputs = m->tensors + kernel->n_reads;
    call.n_inputs = kernel->n_reads;
    call.n_outputs = kernel->n_ports - kernel->n_reads;
    call.message = message;
    call.message_bytes = sizeof message;
    answer = function(&call);
    if (answer == 0) return INLAY_OK;
    message[sizeof message - 1] = '\0';
    inlay_fail(m->error, INLAY_KERNEL_FAILED, "operator '", NULL, 0);
    inlay_say_text(m->error, kernel->symbol);
    inlay_say(m->error, "' failed with status ");
    inlay_say_int(m->error, answer);
    if (message[0]) inlay_say(m->error, ": ");
    inlay_say(m->error, message);
    return INLAY_KERNEL_FAILED;
}

static inlay_status_t run_callback(inlay_activation_t *m, const inlay_kernel_t *kernel,
                                   uint32_t index, const inlay_slot_t *slots)
{
    char message[INLAY_MESSAGE_BYTES];
    inlay_status_t status;
    if (!m->host->kernel)
        return inlay_fail(m->error, INLAY_KERNEL_FAILED, "the host runs no callbacks", NULL, 0);
    show_tensors(m, kernel, slots);
    message[0] = '\0';
    status = m->host->kernel(m->host->user, index, m->tensors, kernel->n_ports, m->ints,
                             kernel->n_ints, message, sizeof message);
    if (status == INLAY_OK) return INLAY_OK;
    inlay_fail(m->error, status, "kernel '", NULL, 0);
    inlay_say_text(m->error, kernel->name);
    inlay_say(m->error, "' failed: ");
    inlay_say(m->error, message);
    return status;
}

inlay_status_t inlay_invoke(inlay_activation_t *m, uint32_t index)
{
    const inlay_kernel_t *kernel = &m->module->kernels[index];
    inlay_slot_t *ints = m->sp - kernel->n_ints, *tensors = ints - kernel->n_ports;
    uint32_t i;
    INLAY_TRY(inlay_need_ints(m, ints, kernel->n_ints));
    for (i = 0; i < kernel->n_ints; i++) m->ints[i] = ints[i].as.integer;
    for (i = 0; i < kernel->n_ports; i++)
        if (tensors[i].tag != KIND_TENSOR) return inlay_wrong_kind(m, KIND_TENSOR, tensors[i].tag);
    for (i = 0; i < kernel->n_ports; i++) {
        const inlay_view_t *view = (const inlay_view_t *)(const void *)tensors[i].as.object;
        if (kernel->ports[i] != 0 && !view->storage->owned)
            return inlay_fail(m->error, INLAY_READ_ONLY, "an input or constant would be written",
                              NULL, 0);
        m->buffers[i] = view->data;
    }
    if (kernel->body == INLAY_BODY_CALLBACK) INLAY_TRY(run_callback(m, kernel, index, tensors));
    else if (kernel->body == INLAY_BODY_FUNCTION) INLAY_TRY(run_function(m, kernel, tensors));
    else INLAY_TRY(run_native(m, kernel));
    for (i = 0; i < kernel->n_ports; i++) inlay_release(&m->heap, tensors[i].as.object);
    m->sp = tensors;
    return INLAY_OK;
}
