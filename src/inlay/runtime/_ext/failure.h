/* Errors of the runtime as exceptions of Python. */
#ifndef INLAY_EXT_FAILURE_H
#define INLAY_EXT_FAILURE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "inlay_rt.h"

/* A string of the runtime; a new reference. */
PyObject *inlay_ext_text(const char *at, size_t bytes);
/* Raise `type(id, message, [(function, span or None), ...])`; NULL. */
PyObject *inlay_ext_raise_failure(PyObject *type, const inlay_error_t *error, inlay_status_t status);
/* A failure that a callback raised says what went wrong; add where, and keep its cause. */
void inlay_ext_locate_failure(const inlay_error_t *error);

#endif
