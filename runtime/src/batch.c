/* Batches: several ready commands of one kernel that run as one.
 *
 * A kernel may name another that does the work of many of its calls (inlay_kernel_t.batch). Commands
 * of such kernels are not run when they become ready; they gather, by kernel, until the issuer has to
 * wait and nothing else is ready. Then the kernel with most of them is run, once for all that have
 * equal integers and were given the same bytes at the shared ports. Commands that are ready at the same
 * time do not depend on each other, and each gets the bits that it would get alone.
 *
 * The tensors of a batch are copied one behind the other unless they happen to lie so. */
#include "shared.h"

#include <string.h>

#define STAGING_ALIGN 64

void inlay_batch_add(inlay_activation_t *m, inlay_command_t *c)
{
    inlay_gathered_t *gathered = &m->shared->gathered[c->index];
    c->next = NULL;
    if (gathered->last) gathered->last->next = c;
    else gathered->first = c;
    gathered->last = c;
    gathered->count++;
    m->shared->n_gathered++;
}

/* Whether two calls of a kernel may be in one batch. */
static int is_alike(const inlay_command_t *a, const inlay_command_t *b)
{
    const inlay_kernel_t *kernel = a->kernel;
    uint32_t i;
    if (b->is_dropped) return 0;
    for (i = 0; i < kernel->n_ints; i++)
        if (a->ints[i] != b->ints[i]) return 0;
    for (i = 0; i < kernel->n_shared; i++)
        if (a->buffers[kernel->shared[i]] != b->buffers[kernel->shared[i]]) return 0;
    return 1;
}

/* How many of those gathered with the first may run with it, at most INLAY_MOST_BATCHED; of many, a
 * multiple of the step. */
static uint32_t count_alike(const inlay_command_t *first)
{
    const inlay_command_t *c;
    uint32_t n = 1;
    if (first->is_dropped) return 1;
    for (c = first->next; c && n < INLAY_MOST_BATCHED; c = c->next) n += (uint32_t)is_alike(first, c);
    return n > INLAY_BATCH_STEP ? n - n % INLAY_BATCH_STEP : n;
}

inlay_command_t *inlay_batch_take(inlay_activation_t *m)
{
    inlay_shared_t *shared = m->shared;
    inlay_gathered_t *best = NULL;
    inlay_command_t *first, *last, *c, *left = NULL, *end = NULL;
    uint32_t i, n = 1, most;
    if (!shared->n_gathered) return NULL;
    for (i = 0; i < m->module->n_kernels; i++)
        if (!best || shared->gathered[i].count > best->count) best = &shared->gathered[i];
    first = last = best->first;
    most = count_alike(first);
    c = first->next;
    first->mates = NULL;
    while (c) {
        inlay_command_t *next = c->next;
        if (n < most && is_alike(first, c)) {
            c->state = COMMAND_RUNNING;
            c->mates = NULL;
            last->mates = c;
            last = c;
            n++;
        } else {
            c->next = NULL;
            if (end) end->next = c;
            else left = c;
            end = c;
        }
        c = next;
    }
    best->first = left;
    best->last = end;
    best->count -= n;
    shared->n_gathered -= n;
    return first;
}

/* ---------------------------------------------------------------------------------- running */

typedef struct staging {
    uint8_t *at; /* NULL while only counting */
    size_t bytes;
} staging_t;

static void *reserve(staging_t *staging, size_t bytes)
{
    void *found = staging->at ? staging->at + staging->bytes : NULL;
    staging->bytes += (bytes + STAGING_ALIGN - 1) / STAGING_ALIGN * STAGING_ALIGN;
    return found;
}

static int is_shared(const inlay_kernel_t *kernel, uint32_t port)
{
    uint32_t i;
    for (i = 0; i < kernel->n_shared; i++)
        if (kernel->shared[i] == port) return 1;
    return 0;
}

/* Whether the tensors at a port lie one behind the other. */
static int is_in_line(const inlay_command_t *first, uint32_t port)
{
    const uint8_t *expected = first->buffers[port];
    const inlay_command_t *c;
    for (c = first; c; c = c->mates) {
        if (c->buffers[port] != (const void *)expected) return 0;
        expected += c->sizes[port];
    }
    return 1;
}

static void copy(const inlay_command_t *first, uint32_t port, uint8_t *together, int is_in)
{
    const inlay_command_t *c;
    for (c = first; c; c = c->mates) {
        size_t bytes = c->sizes[port];
        if (is_in) memcpy(together, c->buffers[port], bytes);
        else memcpy(c->buffers[port], together, bytes);
        together += bytes;
    }
}

/* Give a command for all calls its fields and its tensors; `staging` is filled or only counted. */
static void lay_out(const inlay_command_t *first, int64_t calls, size_t workspace,
                    inlay_command_t *all, staging_t *staging)
{
    const inlay_kernel_t *kernel = first->kernel;
    uint32_t i;
    all->buffers = reserve(staging, (kernel->n_ports + 1) * sizeof *all->buffers);
    all->ints = reserve(staging, (kernel->n_ints + 1) * sizeof *all->ints);
    all->answers = reserve(staging, (size_t)all->parts * sizeof *all->answers);
    for (i = 0; i < kernel->n_ports; i++) {
        void *at = first->buffers[i];
        if (!is_shared(kernel, i) && !is_in_line(first, i))
            at = reserve(staging, first->sizes[i] * (size_t)calls);
        if (staging->at) all->buffers[i] = at;
    }
    if (workspace) {
        void *at = reserve(staging, workspace);
        if (staging->at) all->buffers[kernel->n_ports] = at;
    }
    if (!staging->at) return;
    if (kernel->n_ints) memcpy(all->ints, first->ints, kernel->n_ints * sizeof *all->ints);
    all->ints[kernel->n_ints] = calls;
}

/* Parts and workspace of the kernel for all calls; 0 where its formulas have no value. */
static int measure(const inlay_activation_t *m, const inlay_command_t *first, int64_t *ints,
                   int64_t *parts, size_t *workspace)
{
    const inlay_kernel_t *many = first->kernel->batch;
    int64_t cost = 0, bytes = 0;
    int is_short = inlay_formula_value(many->cost, ints, &cost) && cost < m->config.hand_off_ns;
    *parts = is_short ? 1 : m->config.parts;
    *workspace = 0;
    if (!many->workspace_kind) return 1;
    if (!inlay_formula_value(many->workspace, ints, &bytes) || bytes < 0 ||
        bytes > INLAY_MAX_STORAGE / *parts - 64)
        return 0;
    *workspace = (size_t)bytes;
    if (many->workspace_kind == 2) *workspace = (*workspace + 63) / 64 * 64 * (size_t)*parts;
    return 1;
}

/* Memory for a batch: what an earlier one left, if it is large enough. Fresh pages cost more than the
 * copies into them. */
static uint8_t *take_memory(inlay_activation_t *m, size_t *bytes)
{
    uint8_t *memory = NULL, *small = NULL;
    size_t found = 0;
    inlay_lock(m);
    if (m->shared->staging_bytes >= *bytes) memory = m->shared->staging;
    else small = m->shared->staging;
    found = m->shared->staging_bytes;
    m->shared->staging = NULL;
    m->shared->staging_bytes = 0;
    inlay_unlock(m);
    if (memory) {
        *bytes = found;
        return memory;
    }
    if (small) m->host->release(m->host->user, small, found, STAGING_ALIGN);
    return m->host->allocate(m->host->user, *bytes, STAGING_ALIGN);
}

/* Keep the memory for the next batch, unless a larger one is there. */
static void give_memory(inlay_activation_t *m, uint8_t *memory, size_t bytes)
{
    uint8_t *other;
    size_t other_bytes;
    inlay_lock(m);
    other = m->shared->staging;
    other_bytes = m->shared->staging_bytes;
    if (bytes > other_bytes) {
        m->shared->staging = memory;
        m->shared->staging_bytes = bytes;
    } else {
        other = memory;
        other_bytes = bytes;
    }
    inlay_unlock(m);
    if (other) m->host->release(m->host->user, other, other_bytes, STAGING_ALIGN);
}

/* Run the calls as one; 0 where that was not possible, and nothing is known of any of them. */
static int run_together(inlay_activation_t *m, inlay_command_t *first, int64_t calls)
{
    const inlay_kernel_t *kernel = first->kernel;
    inlay_command_t all;
    inlay_error_t unheard;
    inlay_status_t status;
    staging_t staging = {NULL, 0};
    uint8_t *memory;
    size_t workspace, bytes;
    uint32_t i;
    memset(&all, 0, sizeof all);
    all.kernel = kernel->batch;
    all.number = first->number;
    /* Fields are made for the kernel with most integers, which takes one more than this. */
    first->ints[kernel->n_ints] = calls;
    if (!measure(m, first, first->ints, &all.parts, &workspace)) return 0;
    lay_out(first, calls, workspace, &all, &staging);
    bytes = staging.bytes;
    memory = take_memory(m, &bytes);
    if (!memory) return 0;
    staging.at = memory;
    staging.bytes = 0;
    lay_out(first, calls, workspace, &all, &staging);
    for (i = 0; i < kernel->n_ports; i++)
        if (kernel->ports[i] == 0 && all.buffers[i] != first->buffers[i])
            copy(first, i, all.buffers[i], 1);
    status = inlay_command_run(m, &all, &unheard);
    for (i = 0; status == INLAY_OK && i < kernel->n_ports; i++)
        if (kernel->ports[i] != 0 && all.buffers[i] != first->buffers[i])
            copy(first, i, all.buffers[i], 0);
    give_memory(m, memory, bytes);
    return status == INLAY_OK;
}

int inlay_batch_run(inlay_activation_t *m, inlay_command_t *first)
{
    const inlay_command_t *c;
    int64_t calls = 0;
    for (c = first; c; c = c->mates) calls++;
    return calls > 1 && run_together(m, first, calls);
}
