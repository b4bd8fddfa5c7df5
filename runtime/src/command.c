/* Running a command: phases and their parts, a callback, or a copy. Nothing here touches the state
 * of the call, so that any thread may do it. */
#include "machine.h"

#include <string.h>

#include "inlay_extern.h"

typedef struct job {
    inlay_phase_t run;
    void *const *buffers;
    const int64_t *ints;
    int64_t *answers; /* one for each part */
    int64_t parts, pieces;
    int is_backwards;
} job_t;

/* A part of a phase, or the pieces that it consists of. A kernel that reads more weights than a cache holds,
 * once, and runs again finds none of them there if it always begins at the same end: each replaces the one
 * that is needed next. So it goes forwards and backwards in turn. What pieces compute does not depend on it;
 * of several that fail, the first one counts. */
static void run_part(void *argument, int64_t part)
{
    const job_t *job = argument;
    int64_t begin = part * job->pieces / job->parts, end = (part + 1) * job->pieces / job->parts, at;
    job->answers[part] = 0;
    for (at = begin; at < end; at++) {
        int64_t piece = job->is_backwards ? end - 1 - (at - begin) : at;
        int64_t answer = job->run(job->buffers, job->ints, piece, job->pieces);
        if (answer && (job->is_backwards || !job->answers[part])) job->answers[part] = answer;
    }
}

/* The assertion that the first part complains of, so that it does not depend on timing. */
static inlay_status_t check_answers(const inlay_activation_t *m, const inlay_kernel_t *kernel,
                                    const int64_t *answers, int64_t parts, inlay_error_t *error)
{
    int64_t part = 0, answer;
    while (part < parts && answers[part] == 0) part++;
    if (part == parts) return INLAY_OK;
    answer = answers[part];
    if (answer >= 1 && answer <= (int64_t)kernel->n_assertions)
        return inlay_fail_text(error, INLAY_CHECK_FAILED,
                               inlay_module_string(m->module, kernel->assertions[answer - 1]), NULL,
                               0);
    inlay_fail(error, INLAY_CHECK_FAILED, "kernel '", NULL, 0);
    inlay_say_text(error, kernel->name);
    inlay_say(error, "' answers ");
    inlay_say_int(error, answer);
    return INLAY_CHECK_FAILED;
}

static inlay_status_t run_phases(const inlay_activation_t *m, const inlay_command_t *command,
                                 inlay_error_t *error)
{
    const inlay_kernel_t *kernel = command->kernel;
    uint32_t i;
    for (i = 0; i < kernel->n_phases; i++) {
        const inlay_step_t *phase = &kernel->phases[i];
        job_t job;
        int64_t part;
        if (!phase->run)
            return inlay_fail(error, INLAY_KERNEL_FAILED,
                              "the executable was loaded without its native code", NULL, 0);
        job.run = phase->run;
        job.buffers = command->buffers;
        job.ints = command->ints;
        job.answers = command->answers;
        job.parts = phase->parallel ? command->parts : 1;
        job.pieces = phase->parallel > job.parts ? phase->parallel : job.parts;
        job.is_backwards = (int)command->is_backwards;
        if (job.parts > 1 && !command->is_undivided && m->host->parallel)
            m->host->parallel(m->host->user, run_part, &job, job.parts);
        else
            for (part = 0; part < job.parts; part++) run_part(&job, part);
        INLAY_TRY(check_answers(m, kernel, job.answers, job.parts, error));
    }
    return INLAY_OK;
}

static inlay_status_t run_callback(const inlay_activation_t *m, const inlay_command_t *command,
                                   inlay_error_t *error)
{
    const inlay_kernel_t *kernel = command->kernel;
    char message[INLAY_MESSAGE_BYTES];
    inlay_status_t status;
    if (!m->host->kernel)
        return inlay_fail(error, INLAY_KERNEL_FAILED, "the host runs no callbacks", NULL, 0);
    message[0] = '\0';
    status = m->host->kernel(m->host->user, command->index, command->tensors, kernel->n_ports,
                             command->ints, kernel->n_ints, message, sizeof message);
    if (status == INLAY_OK) return INLAY_OK;
    inlay_fail(error, status, "kernel '", NULL, 0);
    inlay_say_text(error, kernel->name);
    inlay_say(error, "' failed: ");
    inlay_say(error, message);
    return status;
}

static inlay_status_t run_function(const inlay_command_t *command, inlay_error_t *error)
{
    const inlay_kernel_t *kernel = command->kernel;
    char message[INLAY_MESSAGE_BYTES];
    inlay_call_t call;
    inlay_extern_t function = (inlay_extern_t)(void (*)(void))kernel->phases[0].run;
    int32_t answer;
    message[0] = '\0';
    call.inputs = command->tensors;
    call.outputs = command->tensors + kernel->n_reads;
    call.n_inputs = kernel->n_reads;
    call.n_outputs = kernel->n_ports - kernel->n_reads;
    call.message = message;
    call.message_bytes = sizeof message;
    answer = function(&call);
    if (answer == 0) return INLAY_OK;
    message[sizeof message - 1] = '\0';
    inlay_fail(error, INLAY_KERNEL_FAILED, "operator '", NULL, 0);
    inlay_say_text(error, kernel->symbol);
    inlay_say(error, "' failed with status ");
    inlay_say_int(error, answer);
    if (message[0]) inlay_say(error, ": ");
    inlay_say(error, message);
    return INLAY_KERNEL_FAILED;
}

static inlay_status_t run(const inlay_activation_t *m, inlay_command_t *command,
                          inlay_error_t *error)
{
    if (!command->kernel) {
        memmove(command->buffers[1], command->buffers[0], (size_t)command->ints[0]);
        return INLAY_OK;
    }
    if (inlay_leaves_host(command->kernel)) return inlay_device_run(m, command, error);
    if (command->kernel->body == INLAY_BODY_CALLBACK) return run_callback(m, command, error);
    if (command->kernel->body == INLAY_BODY_FUNCTION) return run_function(command, error);
    return run_phases(m, command, error);
}

/* The same, where the race detector watches: what is read must be what it was. */
static inlay_status_t run_watched(const inlay_activation_t *m, inlay_command_t *command,
                                  inlay_error_t *error)
{
    if (!INLAY_RACES_ON(m)) return run(m, command, error);
    inlay_race_remember(command);
    INLAY_TRY(run(m, command, error));
    return inlay_race_kept(command, error);
}

inlay_status_t inlay_command_run(inlay_activation_t *m, inlay_command_t *command,
                                 inlay_error_t *error)
{
    int64_t begin;
    inlay_status_t status;
    if (!m->host->event) return run_watched(m, command, error);
    begin = inlay_trace_now(m);
    status = run_watched(m, command, error);
    inlay_trace_run(m, command, begin);
    return status;
}

void inlay_command_keep(inlay_activation_t *m, inlay_command_t *c, inlay_status_t status,
                        inlay_error_t *error)
{
    c->status = status;
    if (status == INLAY_OK) return;
    error->status = status;
    c->error = m->host->allocate(m->host->user, sizeof *error, 64);
    if (c->error) *c->error = *error;
}

void inlay_command_address(const inlay_activation_t *m, inlay_command_t *c,
                           const inlay_slot_t *tensors)
{
    const inlay_kernel_t *kernel = c->kernel;
    uint32_t i;
    c->space = NULL;
    for (i = 0; i < kernel->n_ports; i++) {
        const inlay_view_t *view = (const inlay_view_t *)(const void *)tensors[i].as.object;
        c->sizes[i] = view->bytes;
        c->regions[i].memory = view->storage->memory;
        c->regions[i].offset = (size_t)(view->data - view->storage->data);
        c->regions[i].host = view->data;
        /* Of a copy, the queue of the device that gets it, else of the one that gives it. */
        if (view->storage->space) c->space = view->storage->space;
    }
    if (kernel->body == INLAY_BODY_DEVICE) c->space = &m->module->spaces[kernel->memory];
}
