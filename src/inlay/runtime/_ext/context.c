#include "context.h"

#include <stdio.h>
#include <string.h>

#include "platform/posix.h"

#define LOOK_NS 2000000

typedef struct limits {
    struct limits *outer;
    const unsigned char *flag; /* not 0: cancelled */
    int64_t deadline;          /* of the monotonic clock in ns; 0 for none */
    int is_inside;             /* made inside a call, on another thread */
} limits_t;

static _Thread_local inlay_ext_call_t *current_call;
static _Thread_local limits_t *current_limits;
static _Thread_local int ignores_signals;

void inlay_ext_enter(inlay_ext_call_t *call)
{
    call->outer = current_call;
    current_call = call;
}

void inlay_ext_leave(inlay_ext_call_t *call)
{
    current_call = call->outer;
    Py_CLEAR(call->exceptions);
}

inlay_status_t inlay_ext_limit(void)
{
    const limits_t *l;
    for (l = current_limits; l; l = l->outer) {
        if (__atomic_load_n(l->flag, __ATOMIC_RELAXED)) return INLAY_CANCELLED;
        if (l->deadline && inlay_posix_now(NULL) > l->deadline) return INLAY_DEADLINE;
    }
    return INLAY_OK;
}

int inlay_ext_is_limited(void) { return current_limits != NULL; }

int inlay_ext_is_inside(void)
{
    const limits_t *l = current_limits;
    while (l && !l->is_inside) l = l->outer;
    return current_call || l;
}

PyObject *inlay_ext_inside(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyBool_FromLong(inlay_ext_is_inside());
}

PyObject *inlay_ext_ignore_signals(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    ignores_signals = 1;
    Py_RETURN_NONE;
}

PyObject *inlay_ext_heed_signals(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    ignores_signals = 0;
    Py_RETURN_NONE;
}

int inlay_ext_poll(void)
{
    inlay_ext_call_t *call = current_call;
    inlay_status_t limit = inlay_ext_limit();
    int64_t now;
    PyGILState_STATE gil;
    int is_interrupted;
    if (limit != INLAY_OK || ignores_signals) return (int)limit;
    now = inlay_posix_now(NULL);
    if (call && now < call->next_look) return 0;
    if (call) call->next_look = now + LOOK_NS;
    gil = PyGILState_Ensure();
    is_interrupted = PyErr_CheckSignals() != 0;
    PyGILState_Release(gil);
    return is_interrupted ? INLAY_CANCELLED : 0;
}

int64_t inlay_ext_poll_in(void)
{
    const limits_t *l;
    int64_t left = ignores_signals ? INT64_MAX : LOOK_NS;
    for (l = current_limits; l; l = l->outer) {
        const int64_t of_this = l->deadline ? l->deadline - inlay_posix_now(NULL) : left;
        if (of_this < left) left = of_this;
    }
    return left < 0 ? 0 : left;
}

inlay_ext_call_t *inlay_ext_current(void) { return current_call; }

void inlay_ext_put_away(inlay_ext_call_t *call, char *message, size_t message_bytes)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback) PyException_SetTraceback(value, traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    if (!call->exceptions) call->exceptions = PyList_New(0);
    if (call->exceptions && PyList_Append(call->exceptions, value) == 0)
        snprintf(message, message_bytes, "exception %zd", PyList_Size(call->exceptions) - 1);
    else
        PyErr_Clear();
    Py_XDECREF(value);
}

int inlay_ext_raise(const inlay_ext_call_t *call, const inlay_error_t *error)
{
    const char *at = call->exceptions ? strstr(error->message, "' failed: exception ") : NULL;
    PyObject *value = NULL;
    long index = 0;
    if (at && sscanf(at, "' failed: exception %ld", &index) == 1)
        value = PyList_GetItem(call->exceptions, index);
    if (value) PyErr_SetObject((PyObject *)Py_TYPE(value), value);
    return value != NULL;
}

PyObject *inlay_ext_limited(PyObject *module, PyObject *arguments)
{
    PyObject *function, *answer;
    Py_buffer flag;
    long long deadline;
    limits_t limits;
    int is_inside = 0;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*LO|p", &flag, &deadline, &function, &is_inside)) return NULL;
    if (flag.len < 1) {
        PyBuffer_Release(&flag);
        PyErr_SetString(PyExc_ValueError, "a flag is one byte");
        return NULL;
    }
    limits.outer = current_limits;
    limits.flag = flag.buf;
    limits.deadline = deadline;
    limits.is_inside = is_inside;
    current_limits = &limits;
    answer = PyObject_CallFunctionObjArgs(function, NULL);
    current_limits = limits.outer;
    PyBuffer_Release(&flag);
    return answer;
}
