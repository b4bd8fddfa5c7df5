/* The arguments of calls: an entry, its tensors, and which of them are state. */
#ifndef INLAY_EXT_ARGUMENTS_H
#define INLAY_EXT_ARGUMENTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "inlay_rt.h"

#define INLAY_EXT_STACK_INPUTS 32
#define INLAY_EXT_MOST_STATES 512 /* as growing.py has it */

typedef struct inlay_ext_arguments {
    Py_buffer fixed_views[INLAY_EXT_STACK_INPUTS], *views;
    inlay_tensor_t fixed_inputs[INLAY_EXT_STACK_INPUTS], *inputs;
    Py_ssize_t n; /* read so far */
} inlay_ext_arguments_t;

/* State of a call, and the objects that it was given as; those are borrowed. */
typedef struct inlay_ext_states {
    uint32_t n;
    inlay_state_t states[INLAY_EXT_MOST_STATES];
    PyObject *given[INLAY_EXT_MOST_STATES];
} inlay_ext_states_t;

/* The entry that the first argument is; -1 with an exception. */
long inlay_ext_entry(PyObject *const *arguments, Py_ssize_t n);

/* Read tensors. 0, or -1 with an exception; to be released either way. */
int inlay_ext_read_arguments(inlay_ext_arguments_t *a, PyObject *const *given, Py_ssize_t n);
void inlay_ext_release_arguments(inlay_ext_arguments_t *a);

/* Read which tensors are state from bytes, or from NULL: an input, a result and whether it is spare, as uint32
 * each. 0, or -1 with an exception. */
int inlay_ext_read_states(inlay_ext_states_t *s, PyObject *pairs, const inlay_ext_arguments_t *a,
                          PyObject *const *given, PyObject *result_type);

/* What a result was given as that is state; NULL for any other. */
PyObject *inlay_ext_state_given(const inlay_ext_states_t *s, uint32_t result);

#endif
