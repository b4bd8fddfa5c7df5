/* The life of a flow: opened with an activation, begun and ended with each call, closed. */
#include "rooms.h"

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
        if (module->homes[i].driver && module->homes[i].driver->progress) return 1;
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

/* Lists for what gathers, where any kernel has a batch; 0 without memory. */
static int open_batches(inlay_activation_t *m)
{
    inlay_flow_t *flow = &m->flow;
    size_t bytes = m->module->n_kernels * sizeof *flow->gathered;
    if (m->config.mode == INLAY_SEQUENTIAL || !m->module->has_batches) return 1;
    flow->gathered = m->host->allocate(m->host->user, bytes, 64);
    if (!flow->gathered) return 0;
    memset(flow->gathered, 0, bytes);
    return 1;
}

inlay_status_t inlay_flow_open(inlay_activation_t *m)
{
    inlay_flow_t *flow = &m->flow;
    flow->activation = m;
    flow->job.run = inlay_role_work;
    flow->is_tied = (uint32_t)is_tied(m);
    flow->is_alone = (uint32_t)is_alone(m);
    inlay_ahead_open(m);
    if (m->config.mode == INLAY_PARALLEL && m->host->threads) {
        flow->lock = m->host->threads->open(m->host->user);
        if (!flow->lock) return INLAY_OUT_OF_MEMORY;
    }
    INLAY_TRY(inlay_race_open(m));
    return inlay_items_open(m) && open_batches(m) && inlay_choice_open(m) ? INLAY_OK
                                                                          : INLAY_OUT_OF_MEMORY;
}

void inlay_flow_close(inlay_activation_t *m)
{
    inlay_flow_t *flow = &m->flow;
    inlay_choice_close(m);
    inlay_items_close(m);
    inlay_race_close(m);
    if (flow->room) m->host->release(m->host->user, flow->room, flow->room_bytes, 64);
    if (flow->gathered)
        m->host->release(m->host->user, flow->gathered,
                         m->module->n_kernels * sizeof *flow->gathered, 64);
    if (flow->lock) m->host->threads->close(m->host->user, flow->lock);
}

void inlay_flow_begin(inlay_activation_t *m)
{
    inlay_flow_t *flow = &m->flow;
    flow->failure.status = INLAY_OK;
    flow->is_stopped = 0;
    flow->is_issuing = flow->is_caller = 1;
    flow->is_over = 0;
    flow->asked = 0;
    flow->is_beside = 0;
    m->function = NULL;
    memset(&flow->first, 0, sizeof flow->first);
    flow->first.users = 1;
    flow->place = &flow->first;
    flow->random = m->config.seed * UINT64_C(0x9e3779b97f4a7c15) + UINT64_C(0x2545f4914f6cdd1d);
    if (!flow->random) flow->random = 1;
}

inlay_status_t inlay_flow_end(inlay_activation_t *m, inlay_status_t status)
{
    inlay_flow_t *flow = &m->flow;
    inlay_error_t *error = m->error, unheard;
    int is_given_up = status == INLAY_CANCELLED || status == INLAY_DEADLINE;
    if (is_given_up) {
        inlay_order_note(m, status, &flow->first, 0, NULL, error);
        inlay_order_drop(m, 1);
    }
    m->error = &unheard;
    while (flow->in_flight) {
        status = inlay_progress(m, flow->in_flight);
        if (status == INLAY_OK || is_given_up) continue;
        is_given_up = 1;
        unheard.depth = 0;
        inlay_order_note(m, status, &flow->first, 0, NULL, &unheard);
        inlay_order_drop(m, 1);
    }
    m->error = error;
    if (flow->lock) m->host->threads->withdraw(m->host->user, &flow->job);
    inlay_race_reset(m);
#if INLAY_RACES
    if (flow->race.is_found) {
        *error = flow->race.found;
        flow->race.is_found = 0;
        return INLAY_RACE;
    }
#endif
    if (!flow->failure.status) return INLAY_OK;
    *error = flow->failure.error;
    inlay_order_leave(m, flow->failure.place);
    return flow->failure.status;
}
