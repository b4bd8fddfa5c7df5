/* Events of the runtime, kept until somebody asks for them. */
#ifndef INLAY_EXT_EVENTS_H
#define INLAY_EXT_EVENTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <pthread.h>

#include "inlay_rt.h"

typedef struct inlay_ext_event {
    inlay_event_t event;
    int row; /* which thread, in order of appearance */
} inlay_ext_event_t;

typedef struct inlay_ext_events {
    pthread_mutex_t lock;
    inlay_ext_event_t *events;
    size_t n, room, lost;
} inlay_ext_events_t;

void inlay_ext_events_open(inlay_ext_events_t *events);
void inlay_ext_events_close(inlay_ext_events_t *events);
/* Any thread, without the GIL. */
void inlay_ext_events_add(inlay_ext_events_t *events, const inlay_event_t *event);
/* Return a list of (kind, name, row, call, number, other, begin, end, value, device, queue), and
 * forget them. */
PyObject *inlay_ext_events_take(inlay_ext_events_t *events);

#endif
