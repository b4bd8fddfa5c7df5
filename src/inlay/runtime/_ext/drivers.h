/* The drivers of devices: those that are built in, and those of other extensions. */
#ifndef INLAY_EXT_DRIVERS_H
#define INLAY_EXT_DRIVERS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "inlay_driver.h"

enum { INLAY_EXT_DRIVERS = 32 };

/* Copy all that there are into an array of INLAY_EXT_DRIVERS. */
inlay_drivers_t inlay_ext_copy_drivers(const inlay_driver_t **at);

/* drivers(): a dict from names to addresses of inlay_driver_t, and the address of a plain host. */
PyObject *inlay_ext_drivers(PyObject *module, PyObject *none);
/* add_driver(address): one more inlay_driver_t, for executables that are loaded from then on. */
PyObject *inlay_ext_add_driver(PyObject *module, PyObject *address);
/* server(): a dict from the names of the functions of inlay_serve.h to their addresses. */
PyObject *inlay_ext_server(PyObject *module, PyObject *none);

#endif
