/* What gathers: ready commands of kernels that have a batch, until they run as one.
 *
 * A kernel may name another that does the work of many of its calls (inlay_kernel_t.batch). Commands
 * of such kernels are not run when they become ready; they gather, by kernel, until whoever issues has
 * to wait and nothing else is ready. Then the kernel with most of them is run, once for all that have
 * equal integers and were given the same bytes at the shared ports; what has been passed over too often
 * goes first. Commands that are ready at the same time do not depend on each other, and each gets the
 * bits that it would get alone.
 *
 * Commands of one activation gather under its lock. Where several share a batcher, theirs gather under its
 * lock: whoever takes one touches nothing that is under the lock of its activation. */
#include "shared.h"

#include <string.h>

/* How many batches may go before what gathered earlier. */
#define PASSED_OVER 512

/* So many groups of commands that are alike are looked at, of each kernel. */
#define MOST_KINDS 16

int inlay_gather_open(inlay_batcher_t *batcher, const inlay_host_t *host, uint32_t n_kernels)
{
    size_t bytes = n_kernels * sizeof *batcher->gathered;
    batcher->host = host;
    batcher->n_kernels = n_kernels;
    batcher->gathered = host->allocate(host->user, bytes, 64);
    if (batcher->gathered) memset(batcher->gathered, 0, bytes);
    return batcher->gathered != NULL;
}

void inlay_gather_close(inlay_batcher_t *batcher)
{
    const inlay_host_t *host = batcher->host;
    uint32_t i;
    for (i = 0; i < INLAY_STAGINGS; i++)
        if (batcher->staging[i].at)
            host->release(host->user, batcher->staging[i].at, batcher->staging[i].bytes, 64);
    if (batcher->gathered)
        host->release(host->user, batcher->gathered,
                      batcher->n_kernels * sizeof *batcher->gathered, 64);
}

static void lock(const inlay_batcher_t *batcher)
{
    if (batcher->lock) batcher->host->threads->lock(batcher->host->user, batcher->lock);
}

static void unlock(const inlay_batcher_t *batcher)
{
    if (batcher->lock) batcher->host->threads->unlock(batcher->host->user, batcher->lock);
}

int inlay_gather_is_full(const inlay_activation_t *m)
{
    const inlay_batcher_t *batcher = m->shared->batcher;
    int is_full;
    if (!batcher->lock) return 0;
    lock(batcher);
    is_full = batcher->n_calls - batcher->n_still >= batcher->threads;
    unlock(batcher);
    return is_full;
}

/* Whether two calls of a kernel may be in one batch. */
static int is_alike(const inlay_command_t *a, const inlay_command_t *b)
{
    const inlay_kernel_t *kernel = a->kernel;
    uint32_t i;
    for (i = 0; i < kernel->n_ints; i++)
        if (a->ints[i] != b->ints[i]) return 0;
    for (i = 0; i < kernel->n_shared; i++)
        if (a->buffers[kernel->shared[i]] != b->buffers[kernel->shared[i]]) return 0;
    return 1;
}

void inlay_gather_add(inlay_activation_t *m, inlay_command_t *c)
{
    inlay_batcher_t *batcher = m->shared->batcher;
    inlay_gathered_t *gathered = &batcher->gathered[c->index];
    c->next = NULL;
    c->activation = m;
    lock(batcher);
    c->turn = batcher->turns;
    if (gathered->last) gathered->last->next = c;
    else gathered->first = c;
    gathered->last = c;
    gathered->count++;
    gathered->n_alike += (uint32_t)is_alike(gathered->first, c);
    if (batcher->most_alike < gathered->n_alike) batcher->most_alike = gathered->n_alike;
    batcher->n_gathered++;
    unlock(batcher);
}

/* What runs next: its kernel, its first command, and how many are alike. */
typedef struct choice {
    inlay_gathered_t *of;
    inlay_command_t *first;
    uint32_t count;
} choice_t;

/* How many from `first` on are alike, at most INLAY_MOST_BATCHED. */
static uint32_t count_alike(const inlay_command_t *first)
{
    const inlay_command_t *c;
    uint32_t n = 1;
    for (c = first->next; c && n < INLAY_MOST_BATCHED; c = c->next) n += (uint32_t)is_alike(first, c);
    return n;
}

/* Look at the commands of a kernel, for more of them alike than there are in `best`. */
static void look(inlay_gathered_t *gathered, choice_t *best)
{
    inlay_command_t *seen[MOST_KINDS], *c;
    uint32_t n_seen = 0, left = gathered->count, n, i;
    for (c = gathered->first; c && n_seen < MOST_KINDS && left > best->count; c = c->next) {
        for (i = 0; i < n_seen && !is_alike(seen[i], c); i++) continue;
        if (i < n_seen) continue;
        seen[n_seen++] = c;
        n = count_alike(c);
        left -= n;
        if (n <= best->count) continue;
        best->of = gathered;
        best->first = c;
        best->count = n;
    }
}

/* The most commands that are alike, unless others have been passed over too often. */
static choice_t choose(const inlay_batcher_t *batcher)
{
    choice_t best = {NULL, NULL, 0};
    inlay_gathered_t *oldest = NULL;
    uint32_t i;
    for (i = 0; i < batcher->n_kernels; i++) {
        inlay_gathered_t *found = &batcher->gathered[i];
        if (!found->count) continue;
        look(found, &best);
        if (!oldest || batcher->turns - found->first->turn > batcher->turns - oldest->first->turn)
            oldest = found;
    }
    if (oldest && batcher->n_calls > 1 && batcher->turns - oldest->first->turn > PASSED_OVER) {
        best.of = oldest;
        best.first = oldest->first;
        best.count = count_alike(best.first);
    }
    if (!batcher->lock && best.count > INLAY_BATCH_STEP) best.count -= best.count % INLAY_BATCH_STEP;
    return best;
}

/* After some have been taken from a list: how many are alike with the first one there now. */
static void recount(inlay_batcher_t *batcher, inlay_gathered_t *changed)
{
    const inlay_command_t *c;
    uint32_t i;
    changed->n_alike = 0;
    for (c = changed->first; c; c = c->next) changed->n_alike += (uint32_t)is_alike(changed->first, c);
    batcher->most_alike = 0;
    for (i = 0; i < batcher->n_kernels; i++)
        if (batcher->most_alike < batcher->gathered[i].n_alike)
            batcher->most_alike = batcher->gathered[i].n_alike;
}

inlay_command_t *inlay_gather_take(inlay_batcher_t *batcher, uint32_t most)
{
    inlay_command_t *last = NULL, *c, *left = NULL, *end = NULL;
    choice_t best;
    uint32_t n = 0;
    if (!batcher->n_gathered) return NULL;
    best = choose(batcher);
    if (best.count > most) best.count = most;
    batcher->turns++;
    c = best.of->first;
    while (c) {
        inlay_command_t *next = c->next;
        if (n < best.count && (c == best.first || (n && is_alike(best.first, c)))) {
            c->mates = NULL;
            if (last) last->mates = c;
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
    best.of->first = left;
    best.of->last = end;
    best.of->count -= n;
    batcher->n_gathered -= n;
    recount(batcher, best.of);
    return best.first;
}

void inlay_gather_drop(inlay_activation_t *m)
{
    inlay_batcher_t *batcher = m->shared->batcher;
    uint32_t i;
    if (!batcher->gathered) return;
    lock(batcher);
    for (i = 0; i < batcher->n_kernels && batcher->n_gathered; i++) {
        inlay_gathered_t *gathered = &batcher->gathered[i];
        inlay_command_t **at = &gathered->first, *last = NULL;
        const uint32_t count = gathered->count;
        while (*at) {
            inlay_command_t *c = *at;
            if (c->activation != m || !c->is_dropped) {
                last = c;
                at = &c->next;
                continue;
            }
            *at = c->next;
            gathered->count--;
            batcher->n_gathered--;
            inlay_queue_push(&m->shared->ready, c);
        }
        gathered->last = last;
        if (gathered->count != count) recount(batcher, gathered);
    }
    unlock(batcher);
}
