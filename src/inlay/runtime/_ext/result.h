/* Tensors that Python sees: results of calls, and what a callback kernel is shown. */
#ifndef INLAY_EXT_RESULT_H
#define INLAY_EXT_RESULT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "inlay_rt.h"

/* Make the type; a new reference. */
PyObject *inlay_ext_make_result_type(PyObject *module);

/* Wrap a result. `owner` is kept alive and `host` gives the memory back; both NULL for memory
 * that somebody else owns. On failure NULL, and the result is not released. */
PyObject *inlay_ext_wrap(PyObject *type, const inlay_result_t *result, PyObject *owner,
                         const inlay_host_t *host, int is_readonly);

/* How many bytes the memory of an object has whose tensor has so many: more where it is a result with room. */
size_t inlay_ext_room(PyObject *type, PyObject *object, size_t bytes);

/* Wrap a result that is state, read-only, as above; what it was given as is kept alive where the result is
 * in its memory. The result has no block behind it. */
PyObject *inlay_ext_wrap_state(PyObject *type, inlay_result_t *result, PyObject *owner,
                               const inlay_host_t *host, PyObject *given);

/* Fill a tensor from a buffer: 0, or -1 with an exception. The view must be released later. */
int inlay_ext_read(PyObject *object, Py_buffer *view, inlay_tensor_t *tensor);

#endif
