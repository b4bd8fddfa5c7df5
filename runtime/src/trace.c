/* What the host is told of a call that it watches. */
#include "machine.h"

#include <string.h>

int64_t inlay_trace_now(const inlay_activation_t *m)
{
    return m->host->event && m->host->now ? m->host->now(m->host->user) : 0;
}

static void tell(const inlay_activation_t *m, uint32_t kind, uint64_t number, uint64_t other,
                 int64_t begin, int64_t value, inlay_text_t name)
{
    inlay_event_t event;
    event.kind = kind;
    event.call = m;
    event.number = number;
    event.other = other;
    event.begin = begin;
    event.end = inlay_trace_now(m);
    event.value = value;
    event.name = name.at;
    event.name_bytes = name.bytes;
    m->host->event(m->host->user, &event);
}

static const inlay_text_t NO_NAME = {"", 0};

void inlay_trace_run(const inlay_activation_t *m, const inlay_command_t *command, int64_t begin)
{
    static const inlay_text_t copy = {"copy", 4};
    int64_t cost = -1;
    if (!m->host->event) return;
    if (command->kernel && !inlay_formula_value(command->kernel->cost, command->ints, &cost)) cost = -1;
    tell(m, INLAY_EVENT_RUN, command->number, 0, begin, cost,
         command->kernel ? command->kernel->name : copy);
}

void inlay_trace_wait(const inlay_activation_t *m, int64_t begin)
{
    if (m->host->event) tell(m, INLAY_EVENT_WAIT, 0, 0, begin, 0, NO_NAME);
}

void inlay_trace_call(const inlay_activation_t *m, uint32_t function, int64_t begin)
{
    if (m->host->event)
        tell(m, INLAY_EVENT_CALL, 0, 0, begin, 0, m->module->functions[function].name);
}

void inlay_trace_needs(const inlay_activation_t *m, const inlay_command_t *later,
                       const inlay_command_t *earlier)
{
    if (m->host->event)
        tell(m, INLAY_EVENT_NEEDS, later->number, earlier->number, inlay_trace_now(m), 0, NO_NAME);
}

void inlay_trace_memory(const inlay_activation_t *m)
{
    if (m->host->event)
        tell(m, INLAY_EVENT_MEMORY, 0, 0, inlay_trace_now(m), (int64_t)m->heap.used_bytes, NO_NAME);
}
