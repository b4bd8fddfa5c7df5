/* What belongs to the call that runs on a thread: limits, and exceptions of callbacks. */
#ifndef INLAY_EXT_CONTEXT_H
#define INLAY_EXT_CONTEXT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "inlay_rt.h"

/* Callbacks run on the thread of the call; several may fail, and the machine says which failure
 * counts. Make it zero. */
typedef struct inlay_ext_call {
    struct inlay_ext_call *outer;
    int64_t next_look;    /* when signals are looked for again */
    PyObject *exceptions; /* list, or NULL */
} inlay_ext_call_t;

void inlay_ext_enter(inlay_ext_call_t *call);
void inlay_ext_leave(inlay_ext_call_t *call);

/* Whether calls on this thread look for signals, for which they wait for the GIL: Python gives them to the main
 * thread alone. */
PyObject *inlay_ext_ignore_signals(PyObject *module, PyObject *unused);
PyObject *inlay_ext_heed_signals(PyObject *module, PyObject *unused);

/* Without the GIL: a status where the limits of this thread, or a signal, end the call; else 0. */
int inlay_ext_poll(void);
/* ns until this thread is to ask again: until its deadline, or for a look at signals. */
int64_t inlay_ext_poll_in(void);
/* Whether the limits of this thread allow a call. */
inlay_status_t inlay_ext_limit(void);
int inlay_ext_is_limited(void);
/* Whether this thread is in a callback of a call, or does what one asked for. */
int inlay_ext_is_inside(void);
PyObject *inlay_ext_inside(PyObject *module, PyObject *unused);

/* The call that runs on this thread. */
inlay_ext_call_t *inlay_ext_current(void);

/* Keep the exception of a callback for the end of the call; the message says which one it is. */
void inlay_ext_put_away(inlay_ext_call_t *call, char *message, size_t message_bytes);
/* Raise the exception that a failure is about; 0 where it is about none. */
int inlay_ext_raise(const inlay_ext_call_t *call, const inlay_error_t *error);

/* limited(flag, deadline, function, is_inside): call function() with limits on the runs that it makes. */
PyObject *inlay_ext_limited(PyObject *module, PyObject *arguments);

#endif
