/* inlay.runtime._runtime: executables for Python, over the portable runtime.
 *
 *     executable = load(path, buffer, threads, stack_bytes, cache_bytes, hand_off_ns,
 *                       check_constants, activations, callbacks, symbols, mode, chooses, seed,
 *                       has_events, checks, races, as_array, as_other, own_batches)
 *     results = executable.call(entry, x, y, ...)
 *     results = executable.call_state(entry, pairs, x, y, ...)
 *     results, counts = executable.call_structured(entry, counts, codes, x, y, ...)
 *
 * `runtime/native.py` is the only caller and documents the arguments. Failures raise
 * `Failure(id, message, [(function, span or None), ...])`. The GIL is released while a call runs,
 * and taken again for callback kernels and to look for signals. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "arguments.h"
#include "context.h"
#include "drivers.h"
#include "executable.h"
#include "facts.h"
#include "failure.h"
#include "platform/team.h"
#include "result.h"

typedef char dims_are_64_bits[sizeof(Py_ssize_t) == sizeof(int64_t) ? 1 : -1];

#define DEFAULT_ACTIVATIONS 16

typedef struct module_state {
    PyObject *failure, *result_type, *executable_type;
} module_state;

/* ----------------------------------------------------------------------------------- calls */

/* Wait for a free activation; -1 with errno. With a limit on the call, only a while. */
static int wait_for_room(inlay_ext_executable_t *self)
{
    struct timespec until;
    if (!inlay_ext_is_limited()) return sem_wait(&self->free);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 5000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    return sem_timedwait(&self->free, &until);
}

/* An activation of those that are idle. */
static inlay_activation_t *take_idle(inlay_ext_executable_t *self)
{
    inlay_activation_t *activation = self->idle[--self->n_idle];
    inlay_team_keeps(inlay_activation_kept(activation), 0);
    return activation;
}

static inlay_activation_t *new_activation(inlay_ext_executable_t *self)
{
    inlay_activation_t *activation = NULL;
    if (inlay_activation_create(self->module, &self->host, &self->config, &activation) != INLAY_OK)
        PyErr_NoMemory();
    return activation;
}

/* Wait for the right to run, and take or make an activation; NULL with an exception. What is inside a
 * call does not wait, but gets one on top: that call, and others that wait, cannot end before it. */
static inlay_activation_t *acquire(inlay_ext_executable_t *self, int *is_extra)
{
    inlay_activation_t *activation;
    inlay_error_t error;
    inlay_status_t status;
    *is_extra = 0;
    while (sem_trywait(&self->free) != 0) {
        int waited;
        if (errno == EINTR) continue;
        if (inlay_ext_is_inside()) {
            *is_extra = 1;
            return new_activation(self);
        }
        status = inlay_ext_limit();
        if (status != INLAY_OK) {
            error.depth = 0;
            strcpy(error.message, "the run was given up before it began");
            inlay_ext_raise_failure(self->failure, &error, status);
            return NULL;
        }
        Py_BEGIN_ALLOW_THREADS
        waited = wait_for_room(self);
        Py_END_ALLOW_THREADS
        if (waited == 0) break;
        if (PyErr_CheckSignals() != 0) return NULL;
    }
    if (self->n_idle) return take_idle(self);
    activation = new_activation(self);
    if (!activation) sem_post(&self->free);
    return activation;
}

/* What activations keep counts for the process while they are idle. */
static void give_back(inlay_ext_executable_t *self, inlay_activation_t *activation, int is_extra)
{
    size_t kept = is_extra ? 0 : inlay_activation_kept(activation);
    if (is_extra) {
        inlay_activation_destroy(activation);
        return;
    }
    if (inlay_team_keeps(0, kept)) {
        inlay_activation_drop(activation);
        inlay_team_keeps(kept, inlay_activation_kept(activation));
    }
    self->idle[self->n_idle++] = activation;
    sem_post(&self->free);
}

/* Before a call, and after it; 0 with an exception. */
static int enter(inlay_ext_executable_t *self, inlay_ext_call_t *call)
{
    if (!inlay_posix_enter(self->posix)) {
        PyErr_NoMemory();
        return 0;
    }
    inlay_ext_enter(call);
    return 1;
}

/* A result as an array, or as it is where nothing makes arrays; that owns it from here on. NULL with an
 * exception. */
static PyObject *array_of(inlay_ext_executable_t *self, inlay_result_t *result)
{
    PyObject *make = result->dtype == INLAY_BF16 || result->dtype == INLAY_STRING ? self->as_other
                                                                                  : self->as_array;
    PyObject *wrapped, *array;
    wrapped = inlay_ext_wrap(self->result_type, result, (PyObject *)self, &self->host, 0);
    if (!wrapped) return NULL;
    result->block = NULL; /* the object gives it back */
    if (!make) return wrapped;
    array = PyObject_CallFunctionObjArgs(make, wrapped, NULL);
    Py_DECREF(wrapped);
    return array;
}

static const inlay_ext_states_t no_states;

/* The results as a list of arrays that own them, state as it is; NULL with an exception. */
static PyObject *wrap_results(inlay_ext_executable_t *self, inlay_result_t *results, uint32_t n,
                              const inlay_ext_states_t *states)
{
    PyObject *list = PyList_New(n);
    uint32_t i;
    for (i = 0; i < n; i++) {
        PyObject *given = inlay_ext_state_given(states, i), *array = NULL;
        if (list)
            array = given ? inlay_ext_wrap_state(self->result_type, &results[i], (PyObject *)self,
                                                 &self->host, given)
                          : array_of(self, &results[i]);
        if (array) {
            PyList_SetItem(list, i, array);
            continue;
        }
        for (; i < n; i++) inlay_result_release(&self->host, &results[i]);
        Py_CLEAR(list);
    }
    return list;
}

/* Raise what a call failed with. An exception of a callback or signal handler says more than the
 * status. */
static void raise_status(inlay_ext_executable_t *self, const inlay_ext_call_t *call,
                         const inlay_error_t *error, inlay_status_t status)
{
    if (!PyErr_Occurred() && !inlay_ext_raise(call, error))
        inlay_ext_raise_failure(self->failure, error, status);
    else if (PyErr_ExceptionMatches(self->failure))
        inlay_ext_locate_failure(error);
}

/* Run with inputs read; a list of results, or NULL with an exception. */
static PyObject *run(inlay_ext_executable_t *self, uint32_t entry, inlay_tensor_t *inputs,
                     uint32_t n_inputs, const inlay_ext_states_t *states)
{
    inlay_result_t fixed[INLAY_EXT_STACK_INPUTS], *results = fixed;
    inlay_activation_t *activation = NULL;
    inlay_status_t status;
    inlay_error_t error;
    inlay_ext_call_t call = {NULL, 0, NULL};
    PyObject *list = NULL;
    uint32_t n_results, unused;
    int is_extra;
    inlay_module_arity(self->module, entry, &unused, &n_results);
    if (n_results > INLAY_EXT_STACK_INPUTS) results = PyMem_Malloc(n_results * sizeof *results);
    if (!results) return PyErr_NoMemory();
    activation = acquire(self, &is_extra);
    if (!activation) goto done;
    if (!enter(self, &call)) {
        give_back(self, activation, is_extra);
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    status = inlay_call_state(activation, entry, inputs, n_inputs, states->states, states->n, results,
                              n_results, &error);
    Py_END_ALLOW_THREADS
    inlay_posix_leave(self->posix);
    give_back(self, activation, is_extra);
    if (status == INLAY_OK) list = wrap_results(self, results, n_results, states);
    else raise_status(self, &call, &error, status);
    inlay_ext_leave(&call);
done:
    if (results != fixed) PyMem_Free(results);
    return list;
}

/* The same with counts; a pair of results and their counts. */
static PyObject *run_structured(inlay_ext_executable_t *self, uint32_t entry, inlay_tensor_t *inputs,
                                uint32_t n_inputs, const int64_t *counts, uint32_t n_counts)
{
    int is_extra;
    inlay_activation_t *activation = acquire(self, &is_extra);
    inlay_values_t values;
    inlay_status_t status;
    inlay_error_t error;
    inlay_ext_call_t call = {NULL, 0, NULL};
    PyObject *list, *answer = NULL;
    if (!activation) return NULL;
    if (!enter(self, &call)) {
        give_back(self, activation, is_extra);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = inlay_call_structured(activation, entry, inputs, n_inputs, counts, n_counts, &values,
                                   &error);
    Py_END_ALLOW_THREADS
    inlay_posix_leave(self->posix);
    give_back(self, activation, is_extra);
    if (status != INLAY_OK) raise_status(self, &call, &error, status);
    inlay_ext_leave(&call);
    if (status != INLAY_OK) return NULL;
    list = wrap_results(self, values.tensors, values.n_tensors, &no_states);
    if (list)
        answer = Py_BuildValue("(Ny#)", list, (const char *)values.counts,
                               (Py_ssize_t)(values.n_counts * sizeof *values.counts));
    inlay_values_release(&self->host, &values);
    return answer;
}

/* Call an entry with arguments, of which some are state. */
static PyObject *call_with(inlay_ext_executable_t *self, uint32_t entry, PyObject *const *given,
                           Py_ssize_t n, PyObject *pairs)
{
    inlay_ext_arguments_t a;
    inlay_ext_states_t states;
    PyObject *answer = NULL;
    Py_ssize_t i;
    if (inlay_ext_read_arguments(&a, given, n) == 0 &&
        inlay_ext_read_states(&states, pairs, &a, given, self->result_type) == 0) {
        /* bfloat16 comes as its bits; the Python side has looked at the real type. */
        for (i = 0; i < a.n; i++)
            if (a.inputs[i].dtype == INLAY_U16 &&
                inlay_module_input_dtype(self->module, entry, (uint32_t)i) == INLAY_BF16)
                a.inputs[i].dtype = INLAY_BF16;
        answer = run(self, entry, a.inputs, (uint32_t)a.n, &states);
    }
    inlay_ext_release_arguments(&a);
    return answer;
}

static PyObject *call(PyObject *object, PyObject *const *arguments, Py_ssize_t n)
{
    const long entry = inlay_ext_entry(arguments, n);
    if (entry < 0) return NULL;
    return call_with((inlay_ext_executable_t *)object, (uint32_t)entry, arguments + 1, n - 1, NULL);
}

/* After the entry: for each state the input, the result and whether it is spare, as the bytes of uint32. */
static PyObject *call_state(PyObject *object, PyObject *const *arguments, Py_ssize_t n)
{
    const long entry = inlay_ext_entry(arguments, n);
    if (entry < 0) return NULL;
    if (n < 2) {
        PyErr_SetString(PyExc_ValueError, "pairs follow the entry");
        return NULL;
    }
    return call_with((inlay_ext_executable_t *)object, (uint32_t)entry, arguments + 2, n - 2,
                     arguments[1]);
}

/* After the entry: counts as the bytes of int64, and a byte for each tensor: what its elements are
 * where the buffer protocol cannot say so, bfloat16 (shown as u16) or strings (shown as i64). */
static PyObject *call_structured(PyObject *object, PyObject *const *arguments, Py_ssize_t n)
{
    inlay_ext_executable_t *self = (inlay_ext_executable_t *)object;
    inlay_ext_arguments_t a;
    PyObject *answer = NULL;
    char *counts, *codes;
    Py_ssize_t count_bytes, flag_bytes, i;
    long entry = inlay_ext_entry(arguments, n);
    if (entry < 0) return NULL;
    if (n < 3) {
        PyErr_SetString(PyExc_ValueError, "counts and flags follow the entry");
        return NULL;
    }
    if (PyBytes_AsStringAndSize(arguments[1], &counts, &count_bytes) != 0 ||
        PyBytes_AsStringAndSize(arguments[2], &codes, &flag_bytes) != 0)
        return NULL;
    if (flag_bytes != n - 3 || count_bytes % 8) {
        PyErr_SetString(PyExc_ValueError, "a flag for each tensor, eight bytes for each count");
        return NULL;
    }
    if (inlay_ext_read_arguments(&a, arguments + 3, n - 3) == 0) {
        for (i = 0; i < a.n; i++)
            if ((codes[i] == INLAY_BF16 && a.inputs[i].dtype == INLAY_U16) ||
                (codes[i] == INLAY_STRING && a.inputs[i].dtype == INLAY_I64))
                a.inputs[i].dtype = (uint32_t)codes[i];
        /* The contents of a bytes object are aligned to 8: they follow its header of words. */
        answer = run_structured(self, (uint32_t)entry, a.inputs, (uint32_t)a.n,
                                (const int64_t *)(void *)counts, (uint32_t)(count_bytes / 8));
    }
    inlay_ext_release_arguments(&a);
    return answer;
}

/* --------------------------------------------------------------------------------- loading */

/* A forked child has a copy of the executable, and none of its threads and devices. */
static void close_executable(inlay_ext_executable_t *self)
{
    if (self->process != getpid()) return;
    while (self->n_idle) inlay_activation_destroy(take_idle(self));
    PyMem_Free(self->idle);
    inlay_batcher_destroy(self->batcher);
    Py_BEGIN_ALLOW_THREADS /* devices end what is in flight */
    inlay_module_close(self->module);
    Py_END_ALLOW_THREADS
    inlay_posix_close(self->posix);
    if (self->has_events) inlay_ext_events_close(&self->events);
    inlay_posix_unmap(self->image, self->image_bytes);
    inlay_posix_unmap(self->mapped, self->bytes);
    if (self->buffer.obj) PyBuffer_Release(&self->buffer);
    if (self->has_free) sem_destroy(&self->free);
    Py_CLEAR(self->callbacks);
    Py_CLEAR(self->symbols);
    Py_CLEAR(self->failure);
    Py_CLEAR(self->result_type);
    Py_CLEAR(self->as_array);
    Py_CLEAR(self->as_other);
}

/* A callback may hold the executable: as what it closes over, or in the traceback of an exception. */
static int traverse(PyObject *object, visitproc visit, void *arg)
{
    inlay_ext_executable_t *self = (inlay_ext_executable_t *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->callbacks);
    return 0;
}

/* Callbacks that are asked for later are not found: see run_callback. */
static int clear(PyObject *object)
{
    Py_CLEAR(((inlay_ext_executable_t *)object)->callbacks);
    return 0;
}

static void dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    PyObject_GC_UnTrack(object);
    close_executable((inlay_ext_executable_t *)object);
    release(object);
    Py_DECREF(type);
}

/* Map the file or take the buffer, and map the native code in it. 0, or -1 with an exception. */
static int open_data(inlay_ext_executable_t *self, const char *path, PyObject *source)
{
    inlay_error_t error;
    inlay_status_t status;
    size_t offset;
    if (path) {
        self->data = self->mapped = inlay_posix_map_file(path, &self->bytes);
        if (!self->data) {
            PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
            return -1;
        }
    } else {
        if (PyObject_GetBuffer(source, &self->buffer, PyBUF_SIMPLE) != 0) return -1;
        self->data = self->buffer.buf;
        self->bytes = (size_t)self->buffer.len;
    }
    status = inlay_container_section(self->data, self->bytes, "IMAG", &offset, &self->image_bytes,
                                     &error);
    if (status != INLAY_OK) {
        inlay_ext_raise_failure(self->failure, &error, status);
        return -1;
    }
    if (!self->image_bytes) return 0;
    self->image = path ? inlay_posix_map_code(path, offset, self->image_bytes)
                       : inlay_posix_copy_code(self->data + offset, self->image_bytes);
    if (self->image) return 0;
    PyErr_SetFromErrno(PyExc_OSError);
    return -1;
}

static int open_module(inlay_ext_executable_t *self, int threads, int check_constants, int activations)
{
    inlay_error_t error;
    inlay_status_t status;
    self->posix = inlay_posix_open(threads);
    self->idle = PyMem_Malloc((size_t)activations * sizeof *self->idle);
    if (!self->posix || !self->idle || sem_init(&self->free, 0, (unsigned)activations) != 0) {
        PyErr_NoMemory();
        return -1;
    }
    self->has_free = 1;
    self->config.parts = threads;
    inlay_ext_host(self);
    /* Devices take their time: their compilers, and servers that are far or absent. */
    Py_BEGIN_ALLOW_THREADS
    status = inlay_module_open(self->data, self->bytes, self->image, check_constants, &self->host,
                               &self->module, &error);
    Py_END_ALLOW_THREADS
    if (status == INLAY_OK) return inlay_ext_share_batches(self);
    if (!PyErr_Occurred()) inlay_ext_raise_failure(self->failure, &error, status);
    return -1;
}

static PyObject *load(PyObject *module, PyObject *arguments)
{
    module_state *state = PyModule_GetState(module);
    const char *path;
    PyObject *source, *callbacks, *symbols, *as_array = NULL, *as_other = NULL;
    int threads, check_constants, activations, own_batches = 0;
    Py_ssize_t path_bytes, stack_bytes, cache_bytes;
    long long hand_off_ns;
    int mode = 0, chooses = 0, has_events = 0, checks = 0, races = 0;
    unsigned long long seed = 0;
    inlay_ext_executable_t *self;
    allocfunc allocate;
    /* The path is bytes as the system has them, which need not be text. */
    if (!PyArg_ParseTuple(arguments, "z#OinnLpiO!O!|ipKpppOOi", &path, &path_bytes, &source, &threads,
                          &stack_bytes, &cache_bytes, &hand_off_ns, &check_constants, &activations,
                          &PyDict_Type, &callbacks, &PyDict_Type, &symbols, &mode, &chooses, &seed,
                          &has_events, &checks, &races, &as_array, &as_other, &own_batches))
        return NULL;
    if (threads < 1 || stack_bytes < 0 || cache_bytes < 0 || activations < 1 || mode < 0 ||
        mode > INLAY_REPLAY || own_batches < 0) {
        PyErr_SetString(PyExc_ValueError, "threads and activations are at least 1");
        return NULL;
    }
    allocate = (allocfunc)PyType_GetSlot((PyTypeObject *)state->executable_type, Py_tp_alloc);
    self = (inlay_ext_executable_t *)allocate((PyTypeObject *)state->executable_type, 0);
    if (!self) return NULL;
    self->process = getpid();
    self->failure = Py_NewRef(state->failure);
    self->result_type = Py_NewRef(state->result_type);
    self->callbacks = Py_NewRef(callbacks);
    self->symbols = Py_NewRef(symbols);
    self->as_array = Py_XNewRef(as_array);
    self->as_other = Py_XNewRef(as_other);
    self->config.stack_bytes = (size_t)stack_bytes;
    self->config.cache_bytes = (size_t)cache_bytes;
    self->config.hand_off_ns = hand_off_ns;
    self->config.own_batches = (uint32_t)own_batches;
    self->config.mode = (uint32_t)mode;
    self->config.chooses = (uint32_t)chooses;
    self->config.seed = seed;
    self->config.checks = (uint32_t)checks;
    self->config.races = (uint32_t)races;
    self->has_events = has_events;
    if (has_events) inlay_ext_events_open(&self->events);
    if (open_data(self, path, source) != 0 ||
        open_module(self, threads, check_constants, activations) != 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

/* ---------------------------------------------------------------------------------- module */

static PyMethodDef executable_methods[] = {
    {"call", (PyCFunction)(void (*)(void))call, METH_FASTCALL,
     "call(entry, *inputs) -> list of arrays"},
    {"call_state", (PyCFunction)(void (*)(void))call_state, METH_FASTCALL,
     "call_state(entry, pairs, *inputs) -> list of arrays, state as it is"},
    {"call_structured", (PyCFunction)(void (*)(void))call_structured, METH_FASTCALL,
     "call_structured(entry, counts, is_bf16, *tensors) -> (list of arrays, counts)"},
    {"events", inlay_ext_take_events, METH_NOARGS, "Take what happened: see inlay.runtime.trace."},
    {"is_lost", inlay_ext_is_lost, METH_NOARGS, "Whether a device does not answer any more."},
    {"live_objects", inlay_ext_live_objects, METH_NOARGS,
     "Objects alive in idle activations; 0 always."},
    {"usage", inlay_ext_usage, METH_NOARGS, "What calls took: see inlay.runtime.usage."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot executable_slots[] = {
    {Py_tp_doc, "A loaded executable."},
    {Py_tp_dealloc, dealloc},
    {Py_tp_traverse, traverse},
    {Py_tp_clear, clear},
    {Py_tp_methods, executable_methods},
    {0, NULL},
};

static PyType_Spec executable_spec = {
    .name = "inlay.runtime._runtime.Executable",
    .basicsize = sizeof(inlay_ext_executable_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = executable_slots,
};

/* kept_memory(limit=-1): bytes that the process keeps between calls; sets how many at most. */
static PyObject *kept_memory(PyObject *module, PyObject *arguments)
{
    Py_ssize_t limit = -1;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "|n", &limit)) return NULL;
    return PyLong_FromSize_t(inlay_team_kept(limit < 0 ? SIZE_MAX : (size_t)limit));
}

static PyObject *workers(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyLong_FromLong(inlay_team_workers());
}

static PyMethodDef functions[] = {
    {"load", load, METH_VARARGS, "Load an executable; see inlay.runtime.native."},
    {"limited", inlay_ext_limited, METH_VARARGS, "limited(flag, deadline, function) -> function()."},
    {"is_inside", inlay_ext_inside, METH_NOARGS, "is_inside() -> whether a call waits for this thread"},
    {"ignore_signals", inlay_ext_ignore_signals, METH_NOARGS, "ignore_signals(): of calls on this thread"},
    {"heed_signals", inlay_ext_heed_signals, METH_NOARGS, "heed_signals(): of calls on this thread"},
    {"kept_memory", kept_memory, METH_VARARGS, "kept_memory(limit=-1) -> bytes kept between calls"},
    {"workers", workers, METH_NOARGS, "workers() -> how many the process has"},
    {"drivers", inlay_ext_drivers, METH_NOARGS, "drivers() -> addresses; see inlay.runtime.device."},
    {"add_driver", inlay_ext_add_driver, METH_O, "add_driver(address); see inlay.runtime.drivers."},
    {"server", inlay_ext_server, METH_NOARGS, "server() -> addresses; see inlay.runtime.serve."},
    {"lifts", inlay_ext_lifts, METH_NOARGS, "lifts() -> whether results leave blocks as pages"},
    {NULL, NULL, 0, NULL},
};

static int fill(PyObject *module)
{
    module_state *state = PyModule_GetState(module);
    state->failure =
        PyErr_NewException("inlay.runtime._runtime.Failure", PyExc_RuntimeError, NULL);
    state->result_type = inlay_ext_make_result_type(module);
    state->executable_type = PyType_FromModuleAndSpec(module, &executable_spec, NULL);
    if (!state->failure || !state->result_type || !state->executable_type) return -1;
    if (PyModule_AddObjectRef(module, "Failure", state->failure) != 0) return -1;
    if (PyModule_AddObjectRef(module, "Result", state->result_type) != 0) return -1;
    return PyModule_AddObjectRef(module, "Executable", state->executable_type);
}

static int visit_state(PyObject *module, visitproc visit, void *arg)
{
    module_state *state = PyModule_GetState(module);
    Py_VISIT(state->failure);
    Py_VISIT(state->result_type);
    Py_VISIT(state->executable_type);
    return 0;
}

static int clear_state(PyObject *module)
{
    module_state *state = PyModule_GetState(module);
    Py_CLEAR(state->failure);
    Py_CLEAR(state->result_type);
    Py_CLEAR(state->executable_type);
    return 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill}, {0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_runtime",
    .m_doc = "The C runtime of executables.",
    .m_size = sizeof(module_state),
    .m_methods = functions,
    .m_slots = module_slots,
    .m_traverse = visit_state,
    .m_clear = clear_state,
};

PyMODINIT_FUNC PyInit__runtime(void);
PyMODINIT_FUNC PyInit__runtime(void) { return PyModuleDef_Init(&definition); }
