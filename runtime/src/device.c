#include "machine.h"

#include <string.h>

static void say_bytes(inlay_error_t *error, const char *at, uint32_t bytes)
{
    inlay_text_t text;
    text.at = at;
    text.bytes = bytes;
    inlay_say_text(error, text);
}

/* "device 'cl0': message" */
static inlay_status_t device_fails(inlay_error_t *error, const inlay_unopened_t *record,
                                   inlay_status_t status, const char *message)
{
    inlay_fail(error, status, "device '", NULL, 0);
    say_bytes(error, record->name, record->name_bytes);
    inlay_say(error, "': ");
    inlay_say(error, message[0] ? message : inlay_status_id(status));
    return status;
}

inlay_status_t inlay_no_device_memory(inlay_activation_t *m, const inlay_space_t *space, size_t bytes)
{
    /* Asked again, to be told why: there is no memory, or the device is not there any more. */
    char message[INLAY_MESSAGE_BYTES];
    inlay_memory_t *memory = NULL;
    inlay_status_t status;
    message[0] = '\0';
    status = space->driver->allocate(space->device, space->unit, bytes, &memory, message, sizeof message);
    if (status == INLAY_OK) {
        space->driver->release(space->device, memory);
        status = INLAY_OUT_OF_MEMORY;
    }
    if (status == INLAY_OUT_OF_MEMORY && !message[0])
        return device_fails(m->error, space->record, status, "it has no more memory");
    device_fails(m->error, space->record, status, message);
    inlay_say(m->error, " (where memory was asked for)");
    return status;
}

inlay_status_t inlay_not_in_host(inlay_activation_t *m, const inlay_space_t *space)
{
    return device_fails(m->error, space->record, INLAY_KIND_MISMATCH,
                        "the host needs a tensor that is in its memory");
}

/* ------------------------------------------------------------------------------------- opening */

/* A terminated copy of a text, in the arena. */
static const char *terminated(inlay_module_t *module, const char *at, uint32_t bytes)
{
    char *made = inlay_arena_take(&module->arena, 1, (size_t)bytes + 1);
    if (!made) return NULL;
    memcpy(made, at, bytes);
    made[bytes] = '\0';
    return made;
}

static int is_of(const inlay_unopened_t *record, uint32_t memory)
{
    uint32_t i;
    for (i = 0; i < record->n_memories; i++)
        if (record->memories[i] == memory) return 1;
    return 0;
}

/* The kernels of a device that runs native code, as its driver takes them: a table. */
static inlay_status_t make_table(inlay_module_t *module, inlay_unopened_t *record)
{
    uint32_t i, p, n = 0;
    for (i = 0; i < module->n_kernels; i++)
        n += module->kernels[i].body == INLAY_BODY_DEVICE &&
             is_of(record, module->kernels[i].memory);
    record->table = inlay_arena_take(&module->arena, n + 1, sizeof *record->table);
    if (!record->table) return INLAY_OUT_OF_MEMORY;
    memset(record->table, 0, (n + 1) * sizeof *record->table);
    record->table_bytes = (n + 1) * sizeof *record->table;
    for (i = 0, n = 0; i < module->n_kernels; i++) {
        const inlay_kernel_t *kernel = &module->kernels[i];
        inlay_phase_t *phases;
        if (kernel->body != INLAY_BODY_DEVICE || !is_of(record, kernel->memory)) continue;
        phases = inlay_arena_take(&module->arena, kernel->n_phases, sizeof *phases);
        record->table[n].name = terminated(module, kernel->symbol.at, kernel->symbol.bytes);
        if (!phases || !record->table[n].name) return INLAY_OUT_OF_MEMORY;
        for (p = 0; p < kernel->n_phases; p++) phases[p] = kernel->phases[p].run;
        record->table[n].n_phases = kernel->n_phases;
        record->table[n++].phases = phases;
    }
    return INLAY_OK;
}

static inlay_status_t load(inlay_module_t *module, inlay_unopened_t *record, inlay_space_t *first,
                           char *message, size_t bytes)
{
    const void *image = record->image;
    size_t size = record->image_bytes;
    if (!size) {
        INLAY_TRY(make_table(module, record));
        image = record->table;
        size = record->table_bytes;
    }
    return first->driver->load(first->device, image, size, &first->program, message, bytes);
}

static inlay_status_t open_device(inlay_module_t *module, inlay_unopened_t *record,
                                  inlay_error_t *error)
{
    inlay_space_t *first = &module->spaces[record->memories[0]];
    const inlay_driver_t *driver = NULL;
    inlay_device_facts_t facts;
    char message[INLAY_MESSAGE_BYTES];
    const char *options = terminated(module, record->options, record->options_bytes);
    inlay_status_t status;
    uint32_t i;
    message[0] = '\0';
    if (!options) return device_fails(error, record, INLAY_OUT_OF_MEMORY, "");
    if (module->host->driver)
        driver = module->host->driver(module->host->user, record->driver, record->driver_bytes);
    if (!driver) {
        device_fails(error, record, INLAY_ABSENT, "there is no driver '");
        say_bytes(error, record->driver, record->driver_bytes);
        inlay_say(error, "'");
        return INLAY_ABSENT;
    }
    status = driver->open(module->host, options, &first->device, message, sizeof message);
    if (status != INLAY_OK) return device_fails(error, record, status, message);
    first->driver = driver;
    first->record = record;
    driver->facts(first->device, &facts);
    if (facts.units < record->n_memories)
        return device_fails(error, record, INLAY_ABSENT, "it has fewer units than memories");
    status = load(module, record, first, message, sizeof message);
    if (status != INLAY_OK) return device_fails(error, record, status, message);
    for (i = 0; i < record->n_memories; i++) {
        module->spaces[record->memories[i]] = *first;
        module->spaces[record->memories[i]].memory = record->memories[i];
        module->spaces[record->memories[i]].unit = i;
        module->spaces[record->memories[i]].queues = facts.queues_per_unit;
    }
    return INLAY_OK;
}

static inlay_status_t find_kernels(inlay_module_t *module, inlay_error_t *error)
{
    uint32_t i;
    for (i = 0; i < module->n_kernels; i++) {
        inlay_kernel_t *kernel = &module->kernels[i];
        const inlay_space_t *space;
        const char *name;
        if (kernel->body != INLAY_BODY_DEVICE) continue;
        space = &module->spaces[kernel->memory];
        name = terminated(module, kernel->symbol.at, kernel->symbol.bytes);
        if (!name) return device_fails(error, space->record, INLAY_OUT_OF_MEMORY, "");
        kernel->number =
            space->driver->find(space->device, space->program, name, kernel->n_phases);
        if (kernel->number >= 0) continue;
        device_fails(error, space->record, INLAY_SYMBOL, "its image has no kernel '");
        inlay_say_text(error, kernel->symbol);
        inlay_say(error, "'");
        return INLAY_SYMBOL;
    }
    return INLAY_OK;
}

/* ---------------------------------------------------------------------------------- constants */

typedef struct outcome {
    inlay_status_t status;
    int64_t answer;
    char message[INLAY_MESSAGE_BYTES];
} outcome_t;

static void note(void *argument, inlay_status_t status, int64_t answer, const char *message)
{
    outcome_t *outcome = argument;
    size_t bytes = strlen(message);
    if (bytes >= sizeof outcome->message) bytes = sizeof outcome->message - 1;
    outcome->status = status;
    outcome->answer = answer;
    memcpy(outcome->message, message, bytes);
    outcome->message[bytes] = '\0';
}

static inlay_status_t start_and_wait(const inlay_space_t *space, inlay_request_t *request,
                                     outcome_t *outcome)
{
    inlay_ticket_t ticket;
    outcome->message[0] = '\0';
    outcome->answer = 0;
    request->done = note;
    request->argument = outcome;
    outcome->status = space->driver->start(space->device, request, &ticket, outcome->message,
                                          sizeof outcome->message);
    if (outcome->status != INLAY_OK) return outcome->status;
    space->driver->wait(space->device, ticket);
    return outcome->status;
}

static inlay_status_t move_constant(const inlay_space_t *space, inlay_view_t *view,
                                    inlay_error_t *error)
{
    inlay_storage_t *storage = view->storage;
    inlay_request_t request;
    outcome_t outcome;
    outcome.message[0] = '\0';
    outcome.status =
        space->driver->allocate(space->device, space->unit, storage->bytes, &storage->memory,
                               outcome.message, sizeof outcome.message);
    if (outcome.status != INLAY_OK)
        return device_fails(error, space->record, outcome.status, outcome.message);
    memset(&request, 0, sizeof request);
    request.action = INLAY_COPY;
    request.queue = space->unit * space->queues + INLAY_QUEUE_COPY;
    request.from.host = storage->data;
    request.to.memory = storage->memory;
    request.bytes = storage->bytes;
    storage->space = space;
    storage->data = view->data = DEVICE_BASE;
    if (start_and_wait(space, &request, &outcome) != INLAY_OK)
        return device_fails(error, space->record, outcome.status, outcome.message);
    return INLAY_OK;
}

inlay_status_t inlay_devices_open(inlay_module_t *module, inlay_error_t *error)
{
    uint32_t i;
    for (i = 0; i < module->n_devices; i++)
        INLAY_TRY(open_device(module, &module->devices[i], error));
    if (inlay_gates_open(module) != INLAY_OK)
        return inlay_fail(error, INLAY_OUT_OF_MEMORY, "no memory for devices", NULL, 0);
    INLAY_TRY(find_kernels(module, error));
    for (i = 0; i < module->n_constants; i++) {
        const inlay_space_t *space = &module->spaces[module->constant_memories[i]];
        if (space->driver) INLAY_TRY(move_constant(space, module->constants[i], error));
    }
    return INLAY_OK;
}

void inlay_devices_close(inlay_module_t *module)
{
    uint32_t i;
    for (i = 0; module->constants && i < module->n_constants; i++) {
        inlay_storage_t *storage = module->constants[i] ? module->constants[i]->storage : NULL;
        if (storage && storage->memory)
            storage->space->driver->release(storage->space->device, storage->memory);
    }
    for (i = 0; module->spaces && i < module->n_devices; i++) {
        const inlay_space_t *first = &module->spaces[module->devices[i].memories[0]];
        if (!first->driver) continue;
        if (first->program) first->driver->unload(first->device, first->program);
        first->driver->close(first->device);
    }
    inlay_gates_close(module);
}

int inlay_module_is_lost(const inlay_module_t *module)
{
    uint32_t i;
    for (i = 0; i < module->n_devices; i++) {
        const inlay_space_t *first = &module->spaces[module->devices[i].memories[0]];
        if (first->driver && first->driver->is_lost && first->driver->is_lost(first->device)) return 1;
    }
    return 0;
}

/* ----------------------------------------------------------------------------------- commands */

/* "device 'cl0': message (kernel 'conv')" */
static inlay_status_t kernel_fails(inlay_error_t *error, const inlay_command_t *c,
                                   inlay_status_t status, const char *message)
{
    device_fails(error, c->space->record, status, message);
    inlay_say(error, " (kernel '");
    inlay_say_text(error, c->kernel->name);
    inlay_say(error, "')");
    return status;
}

void inlay_device_explain(const inlay_activation_t *m, const inlay_command_t *c,
                          inlay_status_t status, int64_t answer, const char *message,
                          inlay_error_t *error)
{
    const inlay_kernel_t *kernel = c->kernel;
    error->depth = 0;
    if (status == INLAY_CHECK_FAILED && answer >= 1 && answer <= (int64_t)kernel->n_assertions) {
        inlay_fail_text(error, status,
                        inlay_module_string(m->module, kernel->assertions[answer - 1]), NULL, 0);
        return;
    }
    kernel_fails(error, c, status, message);
}

static inlay_status_t prepare_launch(const inlay_activation_t *m, inlay_command_t *c,
                                     inlay_request_t *request, int64_t *items,
                                     inlay_error_t *error)
{
    const inlay_kernel_t *kernel = c->kernel;
    uint32_t i;
    request->action = INLAY_LAUNCH;
    request->program = c->space->program;
    request->kernel = (uint32_t)kernel->number;
    request->buffers = c->regions;
    request->n_buffers = kernel->n_ports;
    request->ints = c->ints;
    request->n_ints = kernel->n_ints;
    request->items = items;
    request->n_phases = kernel->n_phases;
    for (i = 0; i < kernel->n_phases; i++) {
        if (inlay_formula_value(kernel->phases[i].items, c->ints, &items[i]) && items[i] >= 0)
            continue;
        inlay_fail(error, INLAY_BAD_DIMS, "kernel '", NULL, 0);
        inlay_say_text(error, kernel->name);
        inlay_say(error, "' has no possible number of items");
        return INLAY_BAD_DIMS;
    }
    (void)m;
    return INLAY_OK;
}

/* Scratch memory lives as long as the launch: it is given back at once, and the driver keeps it. */
static inlay_status_t take_workspace(const inlay_command_t *c, inlay_memory_t **workspace,
                                     inlay_error_t *error)
{
    const inlay_kernel_t *kernel = c->kernel;
    char message[INLAY_MESSAGE_BYTES];
    inlay_status_t status;
    int64_t bytes = 0;
    message[0] = '\0';
    if (!inlay_formula_value(kernel->workspace, c->ints, &bytes) || bytes < 0 ||
        bytes > INLAY_MAX_STORAGE)
        return inlay_fail(error, INLAY_BAD_DIMS, "a workspace has no possible size", NULL, 0);
    status = c->space->driver->allocate(c->space->device, c->space->unit, (size_t)bytes, workspace,
                                       message, sizeof message);
    return status == INLAY_OK ? status : kernel_fails(error, c, status, message);
}

static inlay_status_t prepare(const inlay_activation_t *m, inlay_command_t *c,
                              inlay_request_t *request, int64_t *items, inlay_memory_t **workspace,
                              inlay_error_t *error)
{
    memset(request, 0, sizeof *request);
    request->queue = c->space->unit * c->space->queues;
    request->after = c->after;
    request->n_after = c->n_after;
    if (c->kernel->body == INLAY_BODY_COPY) {
        request->action = INLAY_COPY;
        request->queue += INLAY_QUEUE_COPY;
        request->from = c->regions[0];
        request->to = c->regions[1];
        request->bytes = c->sizes[0];
        return INLAY_OK;
    }
    request->queue += INLAY_QUEUE_RUN;
    INLAY_TRY(prepare_launch(m, c, request, items, error));
    if (!c->kernel->workspace_kind) return INLAY_OK;
    INLAY_TRY(take_workspace(c, workspace, error));
    memset(&c->regions[c->kernel->n_ports], 0, sizeof *c->regions);
    c->regions[c->kernel->n_ports].memory = *workspace;
    request->n_buffers++;
    return INLAY_OK;
}

inlay_status_t inlay_device_start(const inlay_activation_t *m, inlay_command_t *c, inlay_done_t done,
                                  void *argument, inlay_error_t *error)
{
    const inlay_space_t *space = c->space;
    inlay_gate_t *gate = c->kernel->body == INLAY_BODY_DEVICE ? space->gate : NULL;
    inlay_memory_t *workspace = NULL;
    char message[INLAY_MESSAGE_BYTES];
    int64_t items[MOST_PHASES];
    inlay_request_t request;
    inlay_status_t status;
    message[0] = '\0';
    INLAY_TRY(prepare(m, c, &request, items, &workspace, error));
    request.done = done;
    request.argument = argument;
    c->times[0] = c->times[1] = 0;
    if (m->host->event) request.times = c->times;
    inlay_gate_take(m->module, gate, space);
    status = space->driver->start(space->device, &request, &c->ticket, message, sizeof message);
    inlay_gate_give(m->module, gate, space, status == INLAY_OK ? &c->ticket : NULL);
    if (workspace) space->driver->release(space->device, workspace);
    return status == INLAY_OK ? status : kernel_fails(error, c, status, message);
}

inlay_status_t inlay_device_run(const inlay_activation_t *m, inlay_command_t *c, inlay_error_t *error)
{
    const inlay_space_t *space = c->space;
    const int64_t begin = inlay_trace_now(m);
    outcome_t outcome;
    inlay_status_t status;
    if (!space) {
        memmove(c->buffers[1], c->buffers[0], c->sizes[0]);
        return INLAY_OK;
    }
    outcome.status = INLAY_OK;
    status = inlay_device_start(m, c, note, &outcome, error);
    if (status != INLAY_OK) return status;
    space->driver->wait(space->device, c->ticket);
    inlay_trace_wait(m, begin);
    if (outcome.status != INLAY_OK)
        inlay_device_explain(m, c, outcome.status, outcome.answer, outcome.message, error);
    return outcome.status;
}
