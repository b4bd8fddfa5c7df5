/* Activations, and calls of entries from outside. */
#include "delegate.h"
#include "shared.h"

#include <string.h>

/* Bytes of the counters of memories: what is in each, and the most that was. */
static size_t counter_bytes(const inlay_activation_t *m)
{
    return 2 * m->module->n_memories * sizeof *m->heap.lodged;
}

/* Counters for each memory, where devices have any; 0 without memory for them. */
static int open_counters(inlay_activation_t *m)
{
    if (!m->module->n_devices) return 1;
    m->heap.lodged = m->host->allocate(m->host->user, counter_bytes(m), 64);
    if (!m->heap.lodged) return 0;
    memset(m->heap.lodged, 0, counter_bytes(m));
    m->heap.most_lodged = m->heap.lodged + m->module->n_memories;
    return 1;
}

static void close_counters(inlay_activation_t *m)
{
    if (m->heap.lodged) m->host->release(m->host->user, m->heap.lodged, counter_bytes(m), 64);
}

static size_t prediction_bytes(const inlay_activation_t *m)
{
    return m->module->n_kernels * sizeof *m->predictions;
}

/* 0 without memory. */
static int open_predictions(inlay_activation_t *m)
{
    if (!m->module->n_kernels) return 1;
    m->predictions = m->host->allocate(m->host->user, prediction_bytes(m), 64);
    if (m->predictions) memset(m->predictions, 0, prediction_bytes(m));
    return m->predictions != NULL;
}

static void close_predictions(inlay_activation_t *m)
{
    if (m->predictions) m->host->release(m->host->user, m->predictions, prediction_bytes(m), 64);
}

/* ---------------------------------------------------------------------------------- delegates */

/* Run the call whose arguments are on the delegate's stack. */
static void run_delegated(inlay_delegate_t *d, int is_caller)
{
    inlay_activation_t *m = d->activation;
    int64_t begin = m->host->now(m->host->user);
    inlay_scheduler_begin(m);
    m->issuer.is_caller = (uint32_t)is_caller;
    inlay_task_root(m, d->function);
    d->status = inlay_vm_run(m);
    d->ns = m->host->now(m->host->user) - begin;
}

static inlay_delegate_t *open_delegate(inlay_activation_t *m)
{
    inlay_delegate_t *d = m->host->allocate(m->host->user, sizeof *d, 64);
    inlay_config_t config = m->config;
    const inlay_delegate_t *each;
    uint64_t n = 0;
    if (!d) return NULL;
    memset(d, 0, sizeof *d);
    config.mode = INLAY_SEQUENTIAL;
    config.parts = 1;
    config.chooses = 0;
    config.batcher = NULL;
    if (inlay_activation_create(m->module, m->host, &config, &d->activation) != INLAY_OK) {
        m->host->release(m->host->user, d, sizeof *d, 64);
        return NULL;
    }
    d->activation->parent = m;
    d->activation->issuer.is_sequential = 1;
    d->run = run_delegated;
    d->next = m->delegates;
    m->delegates = d;
    for (each = d; each; each = each->next) n++;
    d->activation->issuer.number = n << 48; /* commands in traces have numbers of their own */
    return d;
}

static size_t call_time_bytes(const inlay_activation_t *m)
{
    return m->module->n_functions * sizeof *m->call_times;
}

/* Whether calls may run on other threads: all kernels may, and none gains by being put off. */
static int may_delegate(const inlay_activation_t *m)
{
    const inlay_module_t *module = m->module;
    uint32_t i;
    if (!m->lock || m->config.parts < 2 || m->config.races || !m->host->now) return 0;
    if (m->is_tied || module->n_devices || module->has_batches) return 0;
    for (i = 0; i < module->n_kernels; i++)
        if (module->kernels[i].body == INLAY_BODY_CALLBACK && inlay_execute_starts(m)) return 0;
    return 1;
}

/* Room for what calls take, where calls may be delegated; 0 without memory. */
static int open_delegation(inlay_activation_t *m)
{
    m->open_delegate = open_delegate;
    if (!may_delegate(m)) return 1;
    m->call_times = m->host->allocate(m->host->user, call_time_bytes(m), 64);
    if (m->call_times) memset(m->call_times, 0, call_time_bytes(m));
    return m->call_times != NULL;
}

static void close_delegation(inlay_activation_t *m)
{
    while (m->delegates) {
        inlay_delegate_t *d = m->delegates;
        m->delegates = d->next;
        inlay_activation_destroy(d->activation);
        m->host->release(m->host->user, d, sizeof *d, 64);
    }
    if (m->call_times) m->host->release(m->host->user, m->call_times, call_time_bytes(m), 64);
}

/* -------------------------------------------------------------------------------- activations */

/* What tensors take is counted from call to call. */
static void count_anew(inlay_activation_t *m)
{
    inlay_delegate_t *d;
    for (d = m->delegates; d; d = d->next) {
        count_anew(d->activation);
        inlay_delegate_count_anew(d);
    }
    m->heap.asked = m->heap.most_asked = m->heap.lately = 0;
    m->heap.made = m->heap.copied = 0;
    if (m->heap.lodged) memcpy(m->heap.most_lodged, m->heap.lodged, counter_bytes(m) / 2);
}

inlay_status_t inlay_activation_create(const inlay_module_t *module, const inlay_host_t *host,
                                       const inlay_config_t *config,
                                       inlay_activation_t **activation)
{
    inlay_activation_t *m = host->allocate(host->user, sizeof *m, 64);
    *activation = NULL;
    if (!m) return INLAY_OUT_OF_MEMORY;
    memset(m, 0, sizeof *m);
    m->module = module;
    m->host = host;
    m->config = *config;
    if (!m->config.stack_bytes) m->config.stack_bytes = INLAY_STACK_BYTES;
    if (!m->config.cache_bytes) m->config.cache_bytes = INLAY_CACHE_BYTES;
    if (m->config.parts < 1) m->config.parts = 1;
    if (!m->config.most_commands)
        m->config.most_commands =
            module->has_batches ? INLAY_MOST_GATHERED : INLAY_MOST_COMMANDS;
    if (!m->config.most_tasks) m->config.most_tasks = INLAY_MOST_TASKS;
    if (!m->config.held_bytes) m->config.held_bytes = INLAY_HELD_BYTES;
    inlay_heap_open(&m->heap, host, m->config.cache_bytes);
    if (!open_counters(m) || !open_predictions(m) || inlay_scheduler_open(m) != INLAY_OK ||
        !open_delegation(m)) {
        inlay_activation_destroy(m);
        return INLAY_OUT_OF_MEMORY;
    }
    *activation = m;
    return INLAY_OK;
}

void inlay_activation_destroy(inlay_activation_t *m)
{
    if (!m) return;
    close_delegation(m);
    inlay_stack_trim(m);
    if (m->first) m->host->release(m->host->user, m->first, m->first->bytes, 64);
    inlay_task_close(m);
    inlay_heap_close(&m->heap);
    close_counters(m);
    close_predictions(m);
    inlay_scheduler_close(m);
    m->host->release(m->host->user, m, sizeof *m, 64);
}

/* Run a function to its end, and until nothing is pending. */
static inlay_status_t run_function(inlay_activation_t *m, const inlay_entry_t *entry)
{
    uint32_t index = (uint32_t)(entry - m->module->entries);
    int64_t begin = inlay_trace_now(m), chosen = inlay_choice_begin(m, index);
    inlay_status_t status;
    inlay_scheduler_begin(m);
    inlay_task_root(m, entry->function);
    status = m->issuer.is_sequential ? inlay_vm_run(m) : inlay_scheduler_end(m, inlay_role_run(m));
    if (status == INLAY_OK) inlay_choice_end(m, index, chosen);
    inlay_trace_call(m, entry->function, begin);
    return status;
}

/* The inputs of a call, and which of them are state. */
typedef struct given {
    const inlay_tensor_t *inputs;
    const inlay_state_t *states;
    uint32_t n_states;
} given_t;

static const inlay_state_t *state_of_input(const given_t *given, uint32_t input)
{
    uint32_t i;
    for (i = 0; i < given->n_states; i++)
        if (given->states[i].input == input) return &given->states[i];
    return NULL;
}

static const inlay_state_t *state_of_result(const given_t *given, uint32_t result)
{
    uint32_t i;
    for (i = 0; i < given->n_states; i++)
        if (given->states[i].result == result) return &given->states[i];
    return NULL;
}

/* When a result leaves. What leaves a block as pages is first: then that is free where others are copied.
 * State is last: then nobody else looks at it. */
static int turn_of(const inlay_activation_t *m, const given_t *given, uint32_t result)
{
    if (given->n_states && state_of_result(given, result)) return 2;
    return inlay_is_lifted(m, m->first->slots + result) ? 0 : 1;
}

static inlay_status_t leave_with(inlay_activation_t *m, const given_t *given, uint32_t i,
                                 inlay_result_t *result)
{
    inlay_slot_t *slot = m->first->slots + i;
    const inlay_state_t *state = given->n_states ? state_of_result(given, i) : NULL;
    const inlay_status_t status =
        state ? inlay_export_state(m, slot, given->inputs[state->input].data, result)
              : inlay_export(m, slot, 1, result);
    if (status != INLAY_OK) return status;
    inlay_slot_release(&m->heap, slot);
    slot->tag = KIND_EMPTY;
    return INLAY_OK;
}

static inlay_status_t run(inlay_activation_t *m, const inlay_entry_t *entry, const given_t *given,
                          inlay_result_t *results)
{
    const inlay_function_t *f = &m->module->functions[entry->function];
    inlay_status_t status = INLAY_OK;
    uint32_t i;
    int turn, turns = given->n_states ? 3 : 2;
    count_anew(m);
    INLAY_TRY(inlay_stack_root(m, f->frame));
    for (i = 0; i < entry->inputs.n; i++) {
        const inlay_state_t *state = given->n_states ? state_of_input(given, i) : NULL;
        inlay_slot_t *slot = m->current->slots + i;
        INLAY_TRY(state ? inlay_push_state(m, slot, &given->inputs[i], state)
                        : inlay_push_input(m, slot, &given->inputs[i]));
    }
    INLAY_TRY(run_function(m, entry));
    for (i = 0; i < entry->outputs.n; i++) results[i].block = NULL;
    for (turn = 0; turn < turns; turn++)
        for (i = 0; i < entry->outputs.n && status == INLAY_OK; i++)
            if (m->first->slots[i].tag != KIND_EMPTY && turn_of(m, given, i) == turn)
                status = leave_with(m, given, i, &results[i]);
    for (i = 0; i < entry->outputs.n && status != INLAY_OK; i++)
        inlay_result_release(m->host, &results[i]);
    return status;
}

static inlay_status_t run_structured(inlay_activation_t *m, const inlay_entry_t *entry,
                                     const inlay_tensor_t *tensors, const int64_t *counts,
                                     inlay_values_t *results)
{
    const inlay_function_t *f = &m->module->functions[entry->function];
    uint32_t i;
    count_anew(m);
    INLAY_TRY(inlay_stack_root(m, f->frame));
    INLAY_TRY(inlay_build(m, &entry->inputs, m->current->slots, tensors, counts));
    INLAY_TRY(run_function(m, entry));
    INLAY_TRY(inlay_export_all(m, &entry->outputs, m->first->slots, results));
    for (i = 0; i < entry->outputs.n; i++) inlay_slot_release(&m->heap, m->first->slots + i);
    return INLAY_OK;
}

/* What follows every call, whatever came of it. A delegate that failed, or that nobody wanted, still has what
 * it made: the next call counts from nothing. */
static inlay_status_t leave(inlay_activation_t *m, inlay_status_t status)
{
    const inlay_delegate_t *d;
    for (d = m->delegates; d; d = d->next) leave(d->activation, status);
    if (m->heap.live) inlay_heap_sweep(&m->heap);
    inlay_stack_trim(m);
    m->error = NULL;
    return status;
}

inlay_status_t inlay_call(inlay_activation_t *m, uint32_t index, const inlay_tensor_t *inputs,
                          uint32_t n_inputs, inlay_result_t *results, uint32_t n_results,
                          inlay_error_t *error)
{
    return inlay_call_state(m, index, inputs, n_inputs, NULL, 0, results, n_results, error);
}

inlay_status_t inlay_call_state(inlay_activation_t *m, uint32_t index, const inlay_tensor_t *inputs,
                                uint32_t n_inputs, const inlay_state_t *states, uint32_t n_states,
                                inlay_result_t *results, uint32_t n_results, inlay_error_t *error)
{
    given_t given = {inputs, states, n_states};
    inlay_error_t unheard;
    uint32_t i;
    const inlay_entry_t *entry;
    m->error = error ? error : &unheard;
    m->error->depth = 0;
    entry = index < m->module->n_entries ? &m->module->entries[index] : NULL;
    if (entry && (!entry->inputs.is_flat || !entry->outputs.is_flat))
        return inlay_fail(m->error, INLAY_BAD_ARGUMENT,
                          "the entry has structure: use inlay_call_structured", NULL, 0);
    INLAY_TRY(inlay_bind(m->module, index, inputs, n_inputs, m->error));
    if (n_results != entry->outputs.n)
        return inlay_fail(m->error, INLAY_BAD_ARGUMENT, "room for another number of results", NULL,
                          0);
    for (i = 0; i < n_states; i++)
        if (states[i].input >= n_inputs || states[i].result >= n_results)
            return inlay_fail(m->error, INLAY_BAD_ARGUMENT, "a state is no input or no result", NULL, 0);
    return leave(m, run(m, entry, &given, results));
}

inlay_status_t inlay_call_structured(inlay_activation_t *m, uint32_t index,
                                     const inlay_tensor_t *tensors, uint32_t n_tensors,
                                     const int64_t *counts, uint32_t n_counts,
                                     inlay_values_t *results, inlay_error_t *error)
{
    inlay_error_t unheard;
    memset(results, 0, sizeof *results);
    m->error = error ? error : &unheard;
    m->error->depth = 0;
    INLAY_TRY(inlay_bind_all(m->module, index, tensors, n_tensors, counts, n_counts, m->error));
    return leave(m, run_structured(m, &m->module->entries[index], tensors, counts, results));
}

size_t inlay_activation_kept(const inlay_activation_t *m)
{
    size_t bytes = m->heap.blocks.kept_bytes;
    const inlay_delegate_t *d;
    for (d = m->delegates; d; d = d->next) bytes += d->activation->heap.blocks.kept_bytes;
    return bytes;
}

void inlay_activation_drop(inlay_activation_t *m)
{
    const inlay_delegate_t *d;
    inlay_blocks_drop(&m->heap.blocks);
    for (d = m->delegates; d; d = d->next) inlay_blocks_drop(&d->activation->heap.blocks);
}

void inlay_activation_usage(const inlay_activation_t *m, inlay_usage_t *usage)
{
    const inlay_delegate_t *d;
    usage->peak_bytes = inlay_delegate_peak(m);
    usage->storages = m->heap.made;
    usage->copied_bytes = m->heap.copied;
    for (d = m->delegates; d; d = d->next) {
        usage->storages += d->activation->heap.made;
        usage->copied_bytes += d->activation->heap.copied;
    }
    usage->memories = m->heap.most_lodged;
    usage->n_memories = m->heap.most_lodged ? m->module->n_memories : 0;
}

size_t inlay_activation_live(const inlay_activation_t *m) { return m->heap.live; }

uint64_t inlay_activation_steps(const inlay_activation_t *m) { return m->steps; }
