/* Batches: several ready commands of one kernel that run as one. See gather.c for which.
 *
 * The tensors of a batch are copied one behind the other unless they happen to lie so. Threads share what is
 * copied where it is much: results were just written by all of them, and what each copies from others comes
 * through a cache that they share. */
#include "shared.h"

#include <string.h>

#define STAGING_ALIGN 64

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
static int is_in_line(const inlay_command_t *first, uint32_t port, int is_spoiled)
{
    const uint8_t *expected = first->buffers[port];
    const inlay_command_t *c;
    if (is_spoiled) return 1;
    for (c = first; c; c = c->mates) {
        if (c->buffers[port] != (const void *)expected) return 0;
        expected += c->sizes[port];
    }
    return 1;
}

/* Tensors of commands that are copied to where the batch has them, or back. */
typedef struct transfer {
    const inlay_command_t *first, *all;
    int64_t calls, parts;
    int is_in;
} transfer_t;

static int is_copied(const transfer_t *t, uint32_t port)
{
    return (t->first->kernel->ports[port] == 0) == t->is_in &&
           t->all->buffers[port] != t->first->buffers[port];
}

/* Copy the tensors of some of the calls. */
static void copy_part(void *argument, int64_t part)
{
    const transfer_t *t = argument;
    const int64_t begin = part * t->calls / t->parts, end = (part + 1) * t->calls / t->parts;
    const inlay_command_t *c = t->first;
    int64_t row;
    uint32_t i;
    for (row = 0; row < begin; row++) c = c->mates;
    for (; row < end; row++, c = c->mates)
        for (i = 0; i < c->kernel->n_ports; i++) {
            const size_t bytes = c->sizes[i];
            uint8_t *together;
            if (!is_copied(t, i)) continue;
            together = (uint8_t *)t->all->buffers[i] + (size_t)row * bytes;
            if (t->is_in) memcpy(together, c->buffers[i], bytes);
            else memcpy(c->buffers[i], together, bytes);
        }
}

static void copy(const inlay_activation_t *m, const inlay_command_t *first, const inlay_command_t *all,
                 int64_t calls, int is_in)
{
    transfer_t t = {first, all, calls, 1, is_in};
    size_t bytes = 0;
    uint32_t i;
    for (i = 0; i < first->kernel->n_ports; i++)
        if (is_copied(&t, i)) bytes += first->sizes[i] * (size_t)calls;
    if (bytes >= INLAY_SHARED_COPY && m->host->parallel && !all->is_undivided) t.parts = m->config.parts;
    if (t.parts > 1) m->host->parallel(m->host->user, copy_part, &t, t.parts);
    else copy_part(&t, 0);
}

/* Give a command for all calls its fields and its tensors; `staging` is filled or only counted. */
static void lay_out(const inlay_command_t *first, int64_t calls, size_t workspace,
                    inlay_command_t *all, staging_t *staging, int is_spoiled)
{
    const inlay_kernel_t *kernel = first->kernel;
    uint32_t i;
    all->buffers = reserve(staging, (kernel->n_ports + 1) * sizeof *all->buffers);
    all->ints = reserve(staging, (kernel->n_ints + 1) * sizeof *all->ints);
    all->answers = reserve(staging, (size_t)all->parts * sizeof *all->answers);
    all->sizes = reserve(staging, (kernel->n_ports + 1) * sizeof *all->sizes);
    for (i = 0; i < kernel->n_ports; i++) {
        void *at = first->buffers[i];
        if (staging->at) all->sizes[i] = first->sizes[i] * (is_shared(kernel, i) ? 1 : (size_t)calls);
        if (!is_shared(kernel, i) && !is_in_line(first, i, is_spoiled))
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

/* Take and leave the lock of what is shared by all that gather with a call. */
static void lock(const inlay_activation_t *m)
{
    if (inlay_batcher_is_common(m)) m->host->threads->lock(m->host->user, m->shared->batcher->lock);
    else inlay_lock(m);
}

static void unlock(const inlay_activation_t *m)
{
    if (inlay_batcher_is_common(m)) m->host->threads->unlock(m->host->user, m->shared->batcher->lock);
    else inlay_unlock(m);
}

/* Memory for a batch: what an earlier one left, if it is large enough. Fresh pages cost more than the
 * copies into them. */
static uint8_t *take_memory(inlay_activation_t *m, size_t *bytes)
{
    inlay_batcher_t *batcher = m->shared->batcher;
    inlay_staging_t found = {NULL, 0};
    uint32_t i;
    lock(m);
    for (i = 0; i < INLAY_STAGINGS && !found.at; i++) {
        found = batcher->staging[i];
        batcher->staging[i].at = NULL;
        batcher->staging[i].bytes = 0;
    }
    unlock(m);
    if (found.at && found.bytes >= *bytes) {
        *bytes = found.bytes;
        return found.at;
    }
    if (found.at) m->host->release(m->host->user, found.at, found.bytes, STAGING_ALIGN);
    return m->host->allocate(m->host->user, *bytes, STAGING_ALIGN);
}

/* Keep the memory for the next batch, unless there is enough. */
static void give_memory(inlay_activation_t *m, uint8_t *memory, size_t bytes)
{
    inlay_batcher_t *batcher = m->shared->batcher;
    uint32_t i;
    lock(m);
    for (i = 0; i < INLAY_STAGINGS && batcher->staging[i].at; i++) continue;
    if (i < INLAY_STAGINGS) {
        batcher->staging[i].at = memory;
        batcher->staging[i].bytes = bytes;
    }
    unlock(m);
    if (i == INLAY_STAGINGS) m->host->release(m->host->user, memory, bytes, STAGING_ALIGN);
}

/* Run the calls as one; 0 where that was not possible, and nothing is known of any of them. */
static int run_together(inlay_activation_t *m, inlay_command_t *first, int64_t calls, int is_alone)
{
    const inlay_kernel_t *kernel = first->kernel;
    inlay_command_t all;
    inlay_error_t error;
    inlay_status_t status;
    staging_t staging = {NULL, 0};
    uint8_t *memory;
    size_t workspace, bytes;
    int is_spoiled;
    memset(&all, 0, sizeof all);
    error.depth = 0;
    error.message[0] = '\0';
    all.kernel = kernel->batch;
    all.number = first->number;
    all.is_undivided = is_alone;
    /* Fields are made for the kernel with most integers, which takes one more than this. */
    first->ints[kernel->n_ints] = calls;
    if (!measure(m, first, first->ints, &all.parts, &workspace)) return 0;
    is_spoiled = inlay_race_spoils(first->activation, SABOTAGE_BATCH);
    lay_out(first, calls, workspace, &all, &staging, is_spoiled);
    bytes = staging.bytes;
    memory = take_memory(m, &bytes);
    if (!memory) return 0;
    staging.at = memory;
    staging.bytes = 0;
    lay_out(first, calls, workspace, &all, &staging, is_spoiled);
    copy(m, first, &all, calls, 1);
    status = INLAY_RACES_ON(first->activation) ? inlay_race_rows(first, &all, &error) : INLAY_OK;
    if (status == INLAY_OK) status = inlay_command_run(m, &all, &error);
    if (status == INLAY_OK) copy(m, first, &all, calls, 0);
    give_memory(m, memory, bytes);
    /* Run alone, each may be right. */
    if (status == INLAY_RACE) inlay_command_keep(first->activation, first, status, &error);
    return status == INLAY_OK || status == INLAY_RACE;
}

int inlay_batch_run(inlay_activation_t *m, inlay_command_t *first, int is_alone)
{
    const inlay_command_t *c;
    int64_t calls = 0;
    for (c = first; c; c = c->mates) calls++;
    return calls > 1 && run_together(m, first, calls, is_alone);
}
