/* What the host is told of a call that it watches. */
#include "machine.h"

#include <string.h>

int64_t inlay_trace_now(const inlay_activation_t *m)
{
    return m->host->event && m->host->now ? m->host->now(m->host->user) : 0;
}

/* An event of this thread that ends now. */
static inlay_event_t event_of(const inlay_activation_t *m, uint32_t kind, int64_t begin,
                              inlay_text_t name)
{
    inlay_event_t event;
    memset(&event, 0, sizeof event);
    event.kind = kind;
    event.call = m->parent ? m->parent : m;
    event.begin = begin;
    event.end = inlay_trace_now(m);
    event.name = name.at;
    event.name_bytes = name.bytes;
    return event;
}

static const inlay_text_t NO_NAME = {"", 0};

void inlay_trace_run(const inlay_activation_t *m, const inlay_command_t *command, int64_t begin)
{
    static const inlay_text_t copy = {"copy", 4};
    const inlay_space_t *space = command->space;
    inlay_event_t event;
    if (!m->host->event) return;
    event = event_of(m, INLAY_EVENT_RUN, begin, command->kernel ? command->kernel->name : copy);
    event.number = command->number;
    if (!command->kernel || space ||
        !inlay_formula_value(command->kernel->cost, command->ints, &event.value))
        event.value = -1;
    if (space) {
        event.device = space->record->name;
        event.device_bytes = space->record->name_bytes;
        event.queue = command->ticket.queue;
        if (command->times[1]) {
            event.begin = command->times[0];
            event.end = command->times[1];
        }
    }
    m->host->event(m->host->user, &event);
}

void inlay_trace_wait(const inlay_activation_t *m, int64_t begin)
{
    inlay_event_t event;
    if (!m->host->event) return;
    event = event_of(m, INLAY_EVENT_WAIT, begin, NO_NAME);
    m->host->event(m->host->user, &event);
}

void inlay_trace_call(const inlay_activation_t *m, uint32_t function, int64_t begin)
{
    inlay_event_t event;
    if (!m->host->event) return;
    event = event_of(m, INLAY_EVENT_CALL, begin, m->module->functions[function].name);
    m->host->event(m->host->user, &event);
}

void inlay_trace_needs(const inlay_activation_t *m, const inlay_command_t *later,
                       const inlay_command_t *earlier)
{
    inlay_event_t event;
    if (!m->host->event) return;
    event = event_of(m, INLAY_EVENT_NEEDS, inlay_trace_now(m), NO_NAME);
    event.number = later->number;
    event.other = earlier->number;
    m->host->event(m->host->user, &event);
}

void inlay_trace_memory(const inlay_activation_t *m)
{
    inlay_event_t event;
    uint32_t i;
    if (!m->host->event || m->parent) return;
    event = event_of(m, INLAY_EVENT_MEMORY, inlay_trace_now(m), NO_NAME);
    event.value = (int64_t)m->heap.used_bytes;
    m->host->event(m->host->user, &event);
    for (i = 0; m->heap.lodged && i < m->module->n_memories; i++) {
        const inlay_space_t *space = &m->module->spaces[i];
        if (!space->driver) continue;
        event.value = (int64_t)m->heap.lodged[i];
        event.device = space->record->name;
        event.device_bytes = space->record->name_bytes;
        event.queue = space->unit;
        m->host->event(m->host->user, &event);
    }
}
