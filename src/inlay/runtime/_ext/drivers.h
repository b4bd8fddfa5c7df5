/* The drivers of devices that are built in. */
#ifndef INLAY_EXT_DRIVERS_H
#define INLAY_EXT_DRIVERS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "inlay_driver.h"

/* For inlay_host_t: one of them by name, or NULL. */
const inlay_driver_t *inlay_ext_driver(void *user, const char *name, size_t bytes);

/* drivers(): a dict from names to addresses of inlay_driver_t, and the address of a plain host. */
PyObject *inlay_ext_drivers(PyObject *module, PyObject *none);
/* server(): a dict from the names of the functions of inlay_serve.h to their addresses. */
PyObject *inlay_ext_server(PyObject *module, PyObject *none);

#endif
