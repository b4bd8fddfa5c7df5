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

static const inlay_driver_t *const DRIVERS[] = {
    &inlay_driver_null,   &inlay_driver_host,
#ifndef _WIN32
    &inlay_driver_opencl, &inlay_driver_native, &inlay_driver_remote,
#endif
};

const inlay_driver_t *inlay_ext_driver(void *user, const char *name, size_t bytes)
{
    size_t i;
    (void)user;
    for (i = 0; i < sizeof DRIVERS / sizeof DRIVERS[0]; i++)
        if (strlen(DRIVERS[i]->name) == bytes && memcmp(DRIVERS[i]->name, name, bytes) == 0)
            return DRIVERS[i];
    return NULL;
}

PyObject *inlay_ext_drivers(PyObject *module, PyObject *none)
{
    PyObject *table = PyDict_New();
    size_t i;
    (void)module, (void)none;
    for (i = 0; table && i < sizeof DRIVERS / sizeof DRIVERS[0]; i++)
        table = with_address(table, DRIVERS[i]->name, (uintptr_t)DRIVERS[i]);
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
