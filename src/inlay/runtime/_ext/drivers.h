/* The drivers of devices that are built in. */
#ifndef INLAY_EXT_DRIVERS_H
#define INLAY_EXT_DRIVERS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* drivers(): a dict from names to addresses of inlay_driver_t, and the address of a plain host. */
PyObject *inlay_ext_drivers(PyObject *module, PyObject *none);
/* server(): a dict from the names of the functions of inlay_serve.h to their addresses. */
PyObject *inlay_ext_server(PyObject *module, PyObject *none);

#endif
