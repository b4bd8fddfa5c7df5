#include "events.h"

#include <stdatomic.h>
#include <stdlib.h>

#define MOST_EVENTS ((size_t)1 << 22)

static atomic_int rows;
static _Thread_local int own_row = -1;

void inlay_ext_events_open(inlay_ext_events_t *events)
{
    pthread_mutex_init(&events->lock, NULL);
    events->events = NULL;
    events->n = events->room = events->lost = 0;
}

void inlay_ext_events_close(inlay_ext_events_t *events)
{
    free(events->events);
    pthread_mutex_destroy(&events->lock);
}

void inlay_ext_events_add(inlay_ext_events_t *events, const inlay_event_t *event)
{
    if (own_row < 0) own_row = atomic_fetch_add(&rows, 1);
    pthread_mutex_lock(&events->lock);
    if (events->n == events->room && events->n < MOST_EVENTS) {
        size_t room = events->room ? 2 * events->room : 1024;
        inlay_ext_event_t *grown = realloc(events->events, room * sizeof *grown);
        if (grown) {
            events->events = grown;
            events->room = room;
        }
    }
    if (events->n < events->room) {
        events->events[events->n].event = *event;
        events->events[events->n++].row = own_row;
    } else {
        events->lost++;
    }
    pthread_mutex_unlock(&events->lock);
}

PyObject *inlay_ext_events_take(inlay_ext_events_t *events)
{
    inlay_ext_event_t *taken;
    PyObject *list;
    size_t n, i;
    pthread_mutex_lock(&events->lock);
    taken = events->events;
    n = events->n;
    events->events = NULL;
    events->n = events->room = 0;
    pthread_mutex_unlock(&events->lock);
    list = PyList_New((Py_ssize_t)n);
    for (i = 0; list && i < n; i++) {
        const inlay_event_t *e = &taken[i].event;
        PyObject *item = Py_BuildValue(
            "(Is#iKKKLLLs#I)", e->kind, e->name, (Py_ssize_t)e->name_bytes, taken[i].row,
            (unsigned long long)(uintptr_t)e->call, (unsigned long long)e->number,
            (unsigned long long)e->other, (long long)e->begin, (long long)e->end,
            (long long)e->value, e->device ? e->device : "", (Py_ssize_t)e->device_bytes, e->queue);
        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) != 0) Py_CLEAR(list);
    }
    free(taken);
    return list;
}
