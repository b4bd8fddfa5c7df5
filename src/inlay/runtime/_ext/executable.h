/* An executable as Python has it, and the host that it is to the runtime. */
#ifndef INLAY_EXT_EXECUTABLE_H
#define INLAY_EXT_EXECUTABLE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <semaphore.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "drivers.h"
#include "events.h"
#include "inlay_rt.h"
#include "platform/posix.h"

typedef struct inlay_ext_executable {
    PyObject_HEAD
    pid_t process;            /* that loaded it */
    Py_buffer buffer;         /* the file in memory; obj is NULL for a mapped file */
    const uint8_t *mapped;    /* the file, mapped */
    const uint8_t *data;
    size_t bytes;
    const void *image;
    size_t image_bytes;
    inlay_posix_t *posix;
    inlay_host_t host;
    const inlay_driver_t *driver[INLAY_EXT_DRIVERS];
    inlay_drivers_t drivers;  /* those that there were when it was loaded */
    inlay_config_t config;
    inlay_module_t *module;
    inlay_batcher_t *batcher; /* of all activations; NULL where no kernel has a batch */
    PyObject *callbacks;      /* dict: kernel index -> callable */
    PyObject *symbols;        /* dict: name -> address; used while loading */
    PyObject *failure, *result_type;
    PyObject *as_array, *as_other; /* make arrays of results: of all types but bfloat16 and strings; of these */
    inlay_activation_t **idle; /* guarded by the GIL */
    int n_idle, n_activations;
    sem_t free;
    int has_free;
    inlay_ext_events_t events;
    int has_events;
    /* Memory that the runtime has from this process: now, the most at once, and how often it asked. */
    _Atomic size_t taken, most_taken;
    _Atomic uint64_t allocations;
} inlay_ext_executable_t;

/* host.c: fill `host`, whose user is the executable. With the GIL; callbacks take it. */
void inlay_ext_host(inlay_ext_executable_t *self);
/* host.c: let activations made from now on run kernels together; 0, or -1 with an exception. */
int inlay_ext_share_batches(inlay_ext_executable_t *self);

/* lifts() of the module: whether results leave blocks as pages. */
PyObject *inlay_ext_lifts(PyObject *module, PyObject *unused);

#endif
