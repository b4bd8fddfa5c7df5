/* The life of a command scheduler: opened with an activation, begun and ended with each call, closed. */
#include "shared.h"

#include <string.h>

/* Whether only the thread of the call may issue: callbacks belong to it, and devices that work only
 * while somebody waits for them. */
static int is_tied(const inlay_activation_t *m)
{
    const inlay_module_t *module = m->module;
    uint32_t i;
    for (i = 0; i < module->n_kernels; i++)
        if (module->kernels[i].body == INLAY_BODY_CALLBACK && !m->config.callbacks_anywhere)
            return 1;
    for (i = 0; i < module->n_memories; i++)
        if (module->spaces[i].driver && module->spaces[i].driver->progress) return 1;
    return 0;
}

/* Whether there is one thread, and nothing that works beside it. */
static int is_alone(const inlay_activation_t *m)
{
    uint32_t i;
    if (m->config.mode != INLAY_PARALLEL || m->config.parts > 1 || m->module->n_devices) return 0;
    for (i = 0; i < m->module->n_kernels; i++)
        if (m->module->kernels[i].body == INLAY_BODY_CALLBACK) return 0;
    return 1;
}

/* Whether commands may gather with those of other activations: any thread may issue for this one then. */
static int shares_batches(const inlay_activation_t *m)
{
    return m->config.batcher && m->lock && !m->is_tied && !m->config.races;
}

/* Lists for what gathers, where any kernel has a batch; 0 without memory. */
static int open_batches(inlay_activation_t *m)
{
    m->shared->batcher = shares_batches(m) ? m->config.batcher : &m->shared->alone;
    m->shared->alone.host = m->host;
    if (m->config.mode == INLAY_SEQUENTIAL || !m->module->has_batches || shares_batches(m)) return 1;
    return inlay_gather_open(&m->shared->alone, m->host, m->module->n_kernels);
}

inlay_status_t inlay_scheduler_open(inlay_activation_t *m)
{
    inlay_shared_t *shared = m->host->allocate(m->host->user, sizeof *shared, 64);
    if (!shared) return INLAY_OUT_OF_MEMORY;
    memset(shared, 0, sizeof *shared);
    m->shared = shared;
    shared->activation = m;
    shared->job.run = inlay_role_work;
    m->is_tied = (uint32_t)is_tied(m);
    m->is_alone = (uint32_t)is_alone(m);
    inlay_lookahead_open(m);
    if (m->config.mode == INLAY_PARALLEL && m->host->threads) {
        m->lock = m->host->threads->open(m->host->user);
        if (!m->lock) return INLAY_OUT_OF_MEMORY;
    }
    INLAY_TRY(inlay_race_open(m));
    return inlay_items_open(m) && open_batches(m) && inlay_choice_open(m) ? INLAY_OK
                                                                          : INLAY_OUT_OF_MEMORY;
}

void inlay_scheduler_close(inlay_activation_t *m)
{
    inlay_shared_t *shared = m->shared;
    if (!shared) return;
    inlay_choice_close(m);
    inlay_items_close(m);
    inlay_race_close(m);
    if (shared->alone.host) inlay_gather_close(&shared->alone);
    if (m->lock) m->host->threads->close(m->host->user, m->lock);
    m->host->release(m->host->user, shared, sizeof *shared, 64);
}

void inlay_scheduler_begin(inlay_activation_t *m)
{
    inlay_shared_t *shared = m->shared;
    inlay_issuer_t *issuer = &m->issuer;
    issuer->failure.status = INLAY_OK;
    issuer->is_stopped = 0;
    shared->is_issuing = issuer->is_caller = 1;
    shared->is_over = shared->is_ended = 0;
    shared->asked = 0;
    issuer->is_beside = 0;
    m->function = NULL;
    memset(&issuer->first, 0, sizeof issuer->first);
    issuer->first.users = 1;
    issuer->place = &issuer->first;
    issuer->random = m->config.seed * UINT64_C(0x9e3779b97f4a7c15) + UINT64_C(0x2545f4914f6cdd1d);
    if (!issuer->random) issuer->random = 1;
    if (!issuer->is_sequential) inlay_batcher_join(m);
}

inlay_status_t inlay_scheduler_end(inlay_activation_t *m, inlay_status_t status)
{
    inlay_shared_t *shared = m->shared;
    inlay_issuer_t *issuer = &m->issuer;
    inlay_error_t *error = m->error, unheard;
    int is_given_up = status == INLAY_CANCELLED || status == INLAY_DEADLINE;
    if (is_given_up) {
        inlay_order_note(m, status, &issuer->first, 0, NULL, error);
        inlay_order_drop(m, 1); /* delegates hear of it */
    }
    m->error = &unheard;
    while (issuer->in_flight) {
        status = inlay_progress(m, issuer->in_flight);
        if (status == INLAY_OK || is_given_up) continue;
        is_given_up = 1;
        unheard.depth = 0;
        inlay_order_note(m, status, &issuer->first, 0, NULL, &unheard);
        inlay_order_drop(m, 1);
    }
    m->error = error;
    inlay_batcher_leave(m);
    if (m->lock) m->host->threads->withdraw(m->host->user, &shared->job);
    inlay_race_reset(m);
#if INLAY_RACES
    if (issuer->race.is_found) {
        *error = issuer->race.found;
        issuer->race.is_found = 0;
        return INLAY_RACE;
    }
#endif
    if (!issuer->failure.status) return INLAY_OK;
    *error = issuer->failure.error;
    inlay_order_leave(m, issuer->failure.place);
    return issuer->failure.status;
}

/* -------------------------------------------------------- what several activations share */

inlay_status_t inlay_batcher_create(const inlay_module_t *module, const inlay_host_t *host,
                                    inlay_batcher_t **batcher)
{
    inlay_batcher_t *made;
    *batcher = NULL;
    if (!module->has_batches || !host->threads) return INLAY_OK;
    made = host->allocate(host->user, sizeof *made, 64);
    if (!made) return INLAY_OUT_OF_MEMORY;
    memset(made, 0, sizeof *made);
    made->job.run = inlay_role_batch;
    made->host = host;
    made->lock = host->threads->open(host->user);
    *batcher = made;
    if (made->lock && inlay_gather_open(made, host, module->n_kernels)) return INLAY_OK;
    inlay_batcher_destroy(made);
    *batcher = NULL;
    return INLAY_OUT_OF_MEMORY;
}

void inlay_batcher_destroy(inlay_batcher_t *batcher)
{
    const inlay_host_t *host;
    if (!batcher) return;
    host = batcher->host;
    inlay_gather_close(batcher);
    if (batcher->lock) host->threads->close(host->user, batcher->lock);
    host->release(host->user, batcher, sizeof *batcher, 64);
}
