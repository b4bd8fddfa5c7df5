#define _POSIX_C_SOURCE 200809L
#include "drivers.h"

#include <stdlib.h>
#include <string.h>

#include "inlay_driver.h"
#include "inlay_serve.h"
#include "platform/posix.h"

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

static int64_t now(void *user)
{
    (void)user;
    return inlay_posix_now(NULL);
}

static const inlay_host_t host = {.allocate = take, .release = give, .now = now};

/* Put an address into a dict and return it, or NULL. */
static PyObject *with_address(PyObject *table, const char *name, uintptr_t at)
{
    PyObject *address = table ? PyLong_FromVoidPtr((void *)at) : NULL;
    if (!address || PyDict_SetItemString(table, name, address) != 0) Py_CLEAR(table);
    Py_XDECREF(address);
    return table;
}

/* Guarded by the GIL. */
static const inlay_driver_t *known[INLAY_EXT_DRIVERS] = {
    &inlay_driver_null,   &inlay_driver_host,
#ifndef _WIN32
    &inlay_driver_opencl, &inlay_driver_native, &inlay_driver_remote,
#endif
};

static inlay_drivers_t drivers = {known, 0, INLAY_EXT_DRIVERS};

static inlay_drivers_t *all(void)
{
    while (drivers.count < drivers.most && known[drivers.count]) drivers.count++;
    return &drivers;
}

inlay_drivers_t inlay_ext_copy_drivers(const inlay_driver_t **at)
{
    inlay_drivers_t copy = *all();
    memcpy(at, known, sizeof known);
    copy.at = at;
    return copy;
}

PyObject *inlay_ext_add_driver(PyObject *module, PyObject *address)
{
    const inlay_driver_t *driver = PyLong_AsVoidPtr(address);
    (void)module;
    if (!driver) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "needed the address of a driver");
        return NULL;
    }
    switch (inlay_driver_add(all(), driver)) {
    case INLAY_OK: Py_RETURN_NONE;
    case INLAY_OUT_OF_MEMORY: PyErr_SetString(PyExc_ValueError, "there are too many drivers"); break;
    default: PyErr_Format(PyExc_ValueError, "there is a driver '%s' already", driver->name);
    }
    return NULL;
}

PyObject *inlay_ext_drivers(PyObject *module, PyObject *none)
{
    PyObject *table = PyDict_New();
    size_t i;
    (void)module, (void)none;
    for (i = 0; table && i < all()->count; i++)
        table = with_address(table, known[i]->name, (uintptr_t)known[i]);
    if (!table) return NULL;
    return Py_BuildValue("NN", table, PyLong_FromVoidPtr((void *)(uintptr_t)&host));
}

PyObject *inlay_ext_server(PyObject *module, PyObject *none)
{
    PyObject *table = PyDict_New();
    (void)module, (void)none;
#ifndef _WIN32
    table = with_address(table, "key", (uintptr_t)inlay_server_key);
    table = with_address(table, "open", (uintptr_t)inlay_server_open);
    table = with_address(table, "endpoint", (uintptr_t)inlay_server_endpoint);
    table = with_address(table, "run", (uintptr_t)inlay_server_run);
    table = with_address(table, "stop", (uintptr_t)inlay_server_stop);
    table = with_address(table, "close", (uintptr_t)inlay_server_close);
#endif
    return table;
}
