#include "arguments.h"

#include <string.h>

#include "result.h"

void inlay_ext_release_arguments(inlay_ext_arguments_t *a)
{
    Py_ssize_t i;
    for (i = 0; i < a->n; i++) PyBuffer_Release(&a->views[i]);
    if (a->views != a->fixed_views) PyMem_Free(a->views);
    if (a->inputs != a->fixed_inputs) PyMem_Free(a->inputs);
}

int inlay_ext_read_arguments(inlay_ext_arguments_t *a, PyObject *const *given, Py_ssize_t n)
{
    a->views = a->fixed_views;
    a->inputs = a->fixed_inputs;
    a->n = 0;
    if (n > INLAY_EXT_STACK_INPUTS) {
        a->views = PyMem_Malloc((size_t)n * sizeof *a->views);
        a->inputs = PyMem_Malloc((size_t)n * sizeof *a->inputs);
        if (!a->views || !a->inputs) {
            PyErr_NoMemory();
            return -1;
        }
    }
    for (; a->n < n; a->n++)
        if (inlay_ext_read(given[a->n], &a->views[a->n], &a->inputs[a->n]) != 0) return -1;
    return 0;
}

long inlay_ext_entry(PyObject *const *arguments, Py_ssize_t n)
{
    long entry = n > 0 ? PyLong_AsLong(arguments[0]) : -1;
    if (entry < 0 && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "the first argument is an entry");
    return entry;
}

int inlay_ext_read_states(inlay_ext_states_t *s, PyObject *pairs, const inlay_ext_arguments_t *a,
                          PyObject *const *given, PyObject *result_type)
{
    char *bytes;
    Py_ssize_t n_bytes;
    uint32_t i;
    s->n = 0;
    if (!pairs) return 0;
    if (PyBytes_AsStringAndSize(pairs, &bytes, &n_bytes) != 0) return -1;
    if (n_bytes % 12 || n_bytes / 12 > INLAY_EXT_MOST_STATES) {
        PyErr_SetString(PyExc_ValueError, "twelve bytes for each state, and not so many");
        return -1;
    }
    s->n = (uint32_t)(n_bytes / 12);
    for (i = 0; i < s->n; i++) {
        uint32_t pair[3];
        memcpy(pair, bytes + 12 * i, 12);
        if (pair[0] >= a->n) {
            PyErr_SetString(PyExc_ValueError, "a state is no input");
            return -1;
        }
        s->given[i] = given[pair[0]];
        s->states[i].input = pair[0];
        s->states[i].result = pair[1];
        s->states[i].is_spare = pair[2];
        s->states[i].room =
            inlay_ext_room(result_type, given[pair[0]], (size_t)a->views[pair[0]].len);
    }
    return 0;
}

PyObject *inlay_ext_state_given(const inlay_ext_states_t *s, uint32_t result)
{
    uint32_t i;
    for (i = 0; i < s->n; i++)
        if (s->states[i].result == result) return s->given[i];
    return NULL;
}
