#define _POSIX_C_SOURCE 200809L
#include "drivers.h"

#include <stdlib.h>

#include "inlay_driver.h"

static void *take(void *user, size_t bytes, size_t align)
{
    void *memory = NULL;
    (void)user;
    if (align < sizeof(void *)) align = sizeof(void *);
#ifdef _WIN32
    memory = _aligned_malloc(bytes ? bytes : 1, align);
#else
    if (posix_memalign(&memory, align, bytes ? bytes : 1) != 0) memory = NULL;
#endif
    return memory;
}

static void give(void *user, void *memory, size_t bytes, size_t align)
{
    (void)user, (void)bytes, (void)align;
#ifdef _WIN32
    _aligned_free(memory);
#else
    free(memory);
#endif
}

PyObject *inlay_ext_drivers(PyObject *module, PyObject *none)
{
    static const inlay_driver_t *const drivers[] = {
        &inlay_driver_null, &inlay_driver_host,
#ifndef _WIN32
        &inlay_driver_opencl,
#endif
    };
    static const inlay_host_t host = {.allocate = take, .release = give};
    PyObject *table = PyDict_New();
    size_t i;
    (void)module, (void)none;
    for (i = 0; table && i < sizeof drivers / sizeof drivers[0]; i++) {
        PyObject *address = PyLong_FromVoidPtr((void *)(uintptr_t)drivers[i]);
        if (!address || PyDict_SetItemString(table, drivers[i]->name, address) != 0)
            Py_CLEAR(table);
        Py_XDECREF(address);
    }
    if (!table) return NULL;
    return Py_BuildValue("NN", table, PyLong_FromVoidPtr((void *)(uintptr_t)&host));
}
