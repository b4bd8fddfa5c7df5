/* inlay.runtime._runtime: executables for Python, over the portable runtime.
 *
 *     executable = load(path, buffer, threads, stack_bytes, cache_bytes, hand_off_ns,
 *                       check_constants, activations, callbacks, symbols, mode, chooses, seed, has_events)
 *     results = executable.call(entry, x, y, ...)
 *     results, counts = executable.call_structured(entry, counts, codes, x, y, ...)
 *
 * `runtime/native.py` is the only caller and documents the arguments. Failures raise
 * `Failure(id, message, [(function, span or None), ...])`. The GIL is released while a call runs,
 * and taken again for callback kernels and to look for signals. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <semaphore.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "context.h"
#include "events.h"
#include "drivers.h"
#include "inlay_rt.h"
#include "platform/posix.h"
#include "result.h"

typedef char dims_are_64_bits[sizeof(Py_ssize_t) == sizeof(int64_t) ? 1 : -1];

#define STACK_INPUTS 32
#define DEFAULT_ACTIVATIONS 16

typedef struct module_state {
    PyObject *failure, *result_type, *executable_type;
} module_state;

typedef struct executable_object {
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
    inlay_config_t config;
    inlay_module_t *module;
    PyObject *callbacks;      /* dict: kernel index -> callable */
    PyObject *symbols;        /* dict: name -> address; used while loading */
    PyObject *failure, *result_type;
    inlay_activation_t **idle; /* guarded by the GIL */
    int n_idle, n_activations;
    sem_t free;
    int has_free;
    inlay_ext_events_t events;
    int has_events;
} executable_object;

/* ---------------------------------------------------------------------------------- errors */

static PyObject *text(const char *at, size_t bytes)
{
    return PyUnicode_DecodeUTF8(at, (Py_ssize_t)bytes, "replace");
}

/* Add where an error happened to a list: 0, or -1 with an exception. */
static int append_frames(PyObject *frames, const inlay_error_t *error)
{
    uint32_t i;
    for (i = 0; i < error->depth; i++) {
        PyObject *name = text(error->functions[i], error->function_bytes[i]);
        PyObject *span = error->spans[i] ? text(error->spans[i], error->span_bytes[i])
                                         : Py_NewRef(Py_None);
        PyObject *frame = name && span ? PyTuple_Pack(2, name, span) : NULL;
        Py_XDECREF(name);
        Py_XDECREF(span);
        if (!frame || PyList_Append(frames, frame) != 0) {
            Py_XDECREF(frame);
            return -1;
        }
        Py_DECREF(frame);
    }
    return 0;
}

static PyObject *raise_failure(PyObject *type, const inlay_error_t *error, inlay_status_t status)
{
    PyObject *frames = PyList_New(0), *message, *arguments;
    if (!frames) return NULL;
    if (append_frames(frames, error) != 0) {
        Py_DECREF(frames);
        return NULL;
    }
    message = text(error->message, strlen(error->message));
    arguments = message ? Py_BuildValue("(sNN)", inlay_status_id(status), message, frames) : NULL;
    if (!message) Py_DECREF(frames);
    if (arguments) PyErr_SetObject(type, arguments);
    Py_XDECREF(arguments);
    return NULL;
}

/* A failure that a callback raised says what went wrong; add where, and keep its cause. */
static void locate_failure(const inlay_error_t *error)
{
    PyObject *type, *value, *trace, *arguments, *frames;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    arguments = value ? PyObject_GetAttrString(value, "args") : NULL;
    frames = arguments && PyTuple_Check(arguments) ? PyTuple_GetItem(arguments, 2) : NULL;
    if (frames && PyList_Check(frames)) append_frames(frames, error);
    Py_XDECREF(arguments);
    PyErr_Clear();
    PyErr_Restore(type, value, trace);
}

/* ------------------------------------------------------------------------------------ host */

static void *host_allocate(void *user, size_t bytes, size_t align)
{
    return inlay_posix_allocate(((executable_object *)user)->posix, bytes, align);
}

static void host_release(void *user, void *memory, size_t bytes, size_t align)
{
    inlay_posix_release(((executable_object *)user)->posix, memory, bytes, align);
}

static void host_parallel(void *user, inlay_part_t part, void *argument, int64_t parts)
{
    inlay_posix_parallel(((executable_object *)user)->posix, part, argument, parts);
}

static void *posix_of(void *user) { return ((executable_object *)user)->posix; }
static void *threads_open(void *user) { return inlay_posix_threads.open(posix_of(user)); }
static void threads_close(void *user, void *lock) { inlay_posix_threads.close(posix_of(user), lock); }
static void threads_lock(void *user, void *lock) { inlay_posix_threads.lock(posix_of(user), lock); }
static void threads_unlock(void *user, void *lock)
{
    inlay_posix_threads.unlock(posix_of(user), lock);
}
static void threads_wait(void *user, void *lock, int64_t ns)
{
    inlay_posix_threads.wait(posix_of(user), lock, ns);
}
static void threads_wake(void *user, void *lock) { inlay_posix_threads.wake(posix_of(user), lock); }
static void threads_offer(void *user, inlay_job_t *job)
{
    inlay_posix_threads.offer(posix_of(user), job);
}
static void threads_withdraw(void *user, inlay_job_t *job)
{
    inlay_posix_threads.withdraw(posix_of(user), job);
}

static const inlay_threads_t host_threads = {
    threads_open, threads_close, threads_lock,     threads_unlock, threads_wait,
    threads_wake, threads_offer, threads_withdraw};

static int host_poll(void *user)
{
    (void)user;
    return inlay_ext_poll();
}

static int64_t host_now(void *user)
{
    (void)user;
    return inlay_posix_now(NULL);
}

static void host_event(void *user, const inlay_event_t *event)
{
    inlay_ext_events_add(&((executable_object *)user)->events, event);
}

static inlay_phase_t find_symbol(executable_object *self, const char *name, size_t name_bytes)
{
    PyObject *key = text(name, name_bytes), *found;
    inlay_phase_t phase = NULL;
    void *address;
    if (!key) return NULL;
    found = PyDict_GetItemWithError(self->symbols, key);
    Py_DECREF(key);
    if (!found) return NULL;
    address = PyLong_AsVoidPtr(found);
    memcpy(&phase, &address, sizeof phase);
    return phase;
}

static inlay_phase_t host_symbol(void *user, const char *name, size_t name_bytes)
{
    const PyGILState_STATE gil = PyGILState_Ensure();
    const inlay_phase_t phase = find_symbol(user, name, name_bytes);
    PyGILState_Release(gil);
    return phase;
}

/* Return callback(arrays, integers), or NULL with its exception. The GIL is held. */
static PyObject *run_callback(executable_object *self, uint32_t kernel,
                              const inlay_tensor_t *tensors, uint32_t n_tensors,
                              const int64_t *ints, uint32_t n_ints)
{
    PyObject *key = PyLong_FromUnsignedLong(kernel), *callback, *arrays, *integers, *answer = NULL;
    uint32_t i;
    callback = key && self->callbacks ? PyDict_GetItemWithError(self->callbacks, key) : NULL;
    Py_XDECREF(key);
    arrays = PyList_New(n_tensors);
    integers = PyList_New(n_ints);
    if (!callback || !arrays || !integers) goto done;
    for (i = 0; i < n_ints; i++) {
        PyObject *value = PyLong_FromLongLong(ints[i]);
        if (!value || PyList_SetItem(integers, i, value) != 0) goto done;
    }
    for (i = 0; i < n_tensors; i++) {
        inlay_result_t shown;
        PyObject *view;
        memset(&shown, 0, sizeof shown);
        shown.data = tensors[i].data;
        shown.dtype = tensors[i].dtype;
        shown.rank = tensors[i].rank;
        memcpy(shown.dims, tensors[i].dims, shown.rank * sizeof *shown.dims);
        view = inlay_ext_wrap(self->result_type, &shown, NULL, NULL, 0);
        if (!view || PyList_SetItem(arrays, i, view) != 0) goto done;
    }
    answer = PyObject_CallFunctionObjArgs(callback, arrays, integers, NULL);
done:
    Py_XDECREF(arrays);
    Py_XDECREF(integers);
    if (!answer && !PyErr_Occurred())
        PyErr_SetString(PyExc_LookupError, "no callback was given");
    return answer;
}

/* Whether a callback answered with a future: then the kernel ends when that is done. */
static int is_future(PyObject *answer)
{
    return answer != Py_None && PyObject_HasAttrString(answer, "add_done_callback");
}

static inlay_status_t host_kernel(void *user, uint32_t kernel, const inlay_tensor_t *tensors,
                                  uint32_t n_tensors, const int64_t *ints, uint32_t n_ints,
                                  char *message, size_t message_bytes)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *answer = run_callback(user, kernel, tensors, n_tensors, ints, n_ints), *done = answer;
    if (answer && is_future(answer)) {
        done = PyObject_CallMethod(answer, "result", NULL);
        Py_DECREF(answer);
    }
    if (!done) inlay_ext_put_away(inlay_ext_current(), message, message_bytes);
    Py_XDECREF(done);
    PyGILState_Release(gil);
    return done ? INLAY_OK : INLAY_KERNEL_FAILED;
}

/* What a future has to know that a kernel waits for. The call does not end before it is done. */
typedef struct pending_kernel {
    void *ticket;
    inlay_ext_call_t *call;
} pending_kernel;

static void free_pending(PyObject *capsule) { PyMem_Free(PyCapsule_GetPointer(capsule, NULL)); }

/* The callback of a future. */
static PyObject *kernel_done(PyObject *capsule, PyObject *future)
{
    pending_kernel *pending = PyCapsule_GetPointer(capsule, NULL);
    char message[64] = "";
    PyObject *result;
    if (!pending) return NULL;
    result = PyObject_CallMethod(future, "result", NULL);
    if (!result) inlay_ext_put_away(pending->call, message, sizeof message);
    inlay_complete(pending->ticket, result ? INLAY_OK : INLAY_KERNEL_FAILED, message);
    Py_XDECREF(result);
    Py_RETURN_NONE;
}

static PyMethodDef kernel_done_method = {"kernel_done", kernel_done, METH_O, NULL};

/* Let a future complete a kernel; 0, or -1 with an exception and nothing promised. */
static int complete_with(PyObject *future, void *ticket)
{
    pending_kernel *pending = PyMem_Malloc(sizeof *pending);
    PyObject *capsule, *function, *answer;
    if (!pending) {
        PyErr_NoMemory();
        return -1;
    }
    pending->ticket = ticket;
    pending->call = inlay_ext_current();
    capsule = PyCapsule_New(pending, NULL, free_pending);
    if (!capsule) {
        PyMem_Free(pending);
        return -1;
    }
    function = PyCFunction_NewEx(&kernel_done_method, capsule, NULL);
    Py_DECREF(capsule);
    answer = function ? PyObject_CallMethod(future, "add_done_callback", "O", function) : NULL;
    Py_XDECREF(function);
    Py_XDECREF(answer);
    return answer ? 0 : -1;
}

static inlay_status_t host_start(void *user, void *ticket, uint32_t kernel,
                                 const inlay_tensor_t *tensors, uint32_t n_tensors,
                                 const int64_t *ints, uint32_t n_ints, char *message,
                                 size_t message_bytes)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *answer = run_callback(user, kernel, tensors, n_tensors, ints, n_ints);
    inlay_status_t status = answer ? INLAY_OK : INLAY_KERNEL_FAILED;
    if (answer && is_future(answer))
        status = complete_with(answer, ticket) == 0 ? INLAY_PENDING : INLAY_KERNEL_FAILED;
    if (status == INLAY_KERNEL_FAILED)
        inlay_ext_put_away(inlay_ext_current(), message, message_bytes);
    Py_XDECREF(answer);
    PyGILState_Release(gil);
    return status;
}

/* ----------------------------------------------------------------------------------- calls */

/* Wait for a free activation; -1 with errno. With a limit on the call, only a while. */
static int wait_for_room(executable_object *self)
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

/* Wait for the right to run, and take or make an activation; NULL with an exception. */
static inlay_activation_t *acquire(executable_object *self)
{
    inlay_activation_t *activation = NULL;
    inlay_error_t error;
    inlay_status_t status;
    while (sem_trywait(&self->free) != 0) {
        int waited;
        if (errno == EINTR) continue;
        status = inlay_ext_limit();
        if (status != INLAY_OK) {
            error.depth = 0;
            strcpy(error.message, "the run was given up before it began");
            raise_failure(self->failure, &error, status);
            return NULL;
        }
        Py_BEGIN_ALLOW_THREADS
        waited = wait_for_room(self);
        Py_END_ALLOW_THREADS
        if (waited == 0) break;
        if (PyErr_CheckSignals() != 0) return NULL;
    }
    if (self->n_idle) return self->idle[--self->n_idle];
    if (inlay_activation_create(self->module, &self->host, &self->config, &activation) == INLAY_OK)
        return activation;
    sem_post(&self->free);
    PyErr_NoMemory();
    return NULL;
}

static void give_back(executable_object *self, inlay_activation_t *activation)
{
    self->idle[self->n_idle++] = activation;
    sem_post(&self->free);
}

/* The results as a list of objects that own them; NULL with an exception. */
static PyObject *wrap_results(executable_object *self, inlay_result_t *results, uint32_t n)
{
    PyObject *list = PyList_New(n);
    uint32_t i;
    for (i = 0; i < n; i++) {
        PyObject *wrapped = list ? inlay_ext_wrap(self->result_type, &results[i], (PyObject *)self,
                                                  &self->host, 0)
                                 : NULL;
        if (wrapped) {
            results[i].block = NULL; /* the object gives it back */
            PyList_SetItem(list, i, wrapped);
            continue;
        }
        for (; i < n; i++) inlay_result_release(&self->host, &results[i]);
        Py_CLEAR(list);
    }
    return list;
}

/* Raise what a call failed with. An exception of a callback or signal handler says more than the
 * status. */
static void raise_status(executable_object *self, const inlay_ext_call_t *call,
                         const inlay_error_t *error, inlay_status_t status)
{
    if (!PyErr_Occurred() && !inlay_ext_raise(call, error))
        raise_failure(self->failure, error, status);
    else if (PyErr_ExceptionMatches(self->failure))
        locate_failure(error);
}

/* Run with inputs read; a list of results, or NULL with an exception. */
static PyObject *run(executable_object *self, uint32_t entry, inlay_tensor_t *inputs,
                     uint32_t n_inputs)
{
    inlay_result_t fixed[STACK_INPUTS], *results = fixed;
    inlay_activation_t *activation = NULL;
    inlay_status_t status;
    inlay_error_t error;
    inlay_ext_call_t call = {NULL, 0, NULL};
    PyObject *list = NULL;
    uint32_t n_results, unused;
    inlay_module_arity(self->module, entry, &unused, &n_results);
    if (n_results > STACK_INPUTS) results = PyMem_Malloc(n_results * sizeof *results);
    if (!results) return PyErr_NoMemory();
    activation = acquire(self);
    if (!activation) goto done;
    inlay_ext_enter(&call);
    Py_BEGIN_ALLOW_THREADS
    status = inlay_call(activation, entry, inputs, n_inputs, results, n_results, &error);
    Py_END_ALLOW_THREADS
    give_back(self, activation);
    if (status == INLAY_OK) list = wrap_results(self, results, n_results);
    else raise_status(self, &call, &error, status);
    inlay_ext_leave(&call);
done:
    if (results != fixed) PyMem_Free(results);
    return list;
}

/* The same with counts; a pair of results and their counts. */
static PyObject *run_structured(executable_object *self, uint32_t entry, inlay_tensor_t *inputs,
                                uint32_t n_inputs, const int64_t *counts, uint32_t n_counts)
{
    inlay_activation_t *activation = acquire(self);
    inlay_values_t values;
    inlay_status_t status;
    inlay_error_t error;
    inlay_ext_call_t call = {NULL, 0, NULL};
    PyObject *list, *answer = NULL;
    if (!activation) return NULL;
    inlay_ext_enter(&call);
    Py_BEGIN_ALLOW_THREADS
    status = inlay_call_structured(activation, entry, inputs, n_inputs, counts, n_counts, &values,
                                   &error);
    Py_END_ALLOW_THREADS
    give_back(self, activation);
    if (status != INLAY_OK) raise_status(self, &call, &error, status);
    inlay_ext_leave(&call);
    if (status != INLAY_OK) return NULL;
    list = wrap_results(self, values.tensors, values.n_tensors);
    if (list)
        answer = Py_BuildValue("(Ny#)", list, (const char *)values.counts,
                               (Py_ssize_t)(values.n_counts * sizeof *values.counts));
    inlay_values_release(&self->host, &values);
    return answer;
}

/* An entry and its tensors, read from arguments. */
typedef struct arguments {
    Py_buffer fixed_views[STACK_INPUTS], *views;
    inlay_tensor_t fixed_inputs[STACK_INPUTS], *inputs;
    Py_ssize_t n; /* read so far */
} arguments_t;

static void release_arguments(arguments_t *a)
{
    Py_ssize_t i;
    for (i = 0; i < a->n; i++) PyBuffer_Release(&a->views[i]);
    if (a->views != a->fixed_views) PyMem_Free(a->views);
    if (a->inputs != a->fixed_inputs) PyMem_Free(a->inputs);
}

/* 0, or -1 with an exception; to be released either way. */
static int read_arguments(arguments_t *a, PyObject *const *given, Py_ssize_t n)
{
    a->views = a->fixed_views;
    a->inputs = a->fixed_inputs;
    a->n = 0;
    if (n > STACK_INPUTS) {
        a->views = PyMem_Malloc((size_t)n * sizeof *a->views);
        a->inputs = PyMem_Malloc((size_t)n * sizeof *a->inputs);
        if (!a->views || !a->inputs) {
            PyErr_NoMemory();
            return -1;
        }
    }
    for (; a->n < n; a->n++)
        if (inlay_ext_read(given[a->n], &a->views[a->n], &a->inputs[a->n]) != 0) return -1;
    return 0;
}

static long entry_of(PyObject *const *arguments, Py_ssize_t n)
{
    long entry = n > 0 ? PyLong_AsLong(arguments[0]) : -1;
    if (entry < 0 && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "the first argument is an entry");
    return entry;
}

static PyObject *call(PyObject *object, PyObject *const *arguments, Py_ssize_t n)
{
    executable_object *self = (executable_object *)object;
    arguments_t a;
    PyObject *answer = NULL;
    Py_ssize_t i;
    long entry = entry_of(arguments, n);
    if (entry < 0) return NULL;
    if (read_arguments(&a, arguments + 1, n - 1) == 0) {
        /* bfloat16 comes as its bits; the Python side has looked at the real type. */
        for (i = 0; i < a.n; i++)
            if (a.inputs[i].dtype == INLAY_U16 &&
                inlay_module_input_dtype(self->module, (uint32_t)entry, (uint32_t)i) == INLAY_BF16)
                a.inputs[i].dtype = INLAY_BF16;
        answer = run(self, (uint32_t)entry, a.inputs, (uint32_t)a.n);
    }
    release_arguments(&a);
    return answer;
}

/* After the entry: counts as the bytes of int64, and a byte for each tensor: what its elements are
 * where the buffer protocol cannot say so, bfloat16 (shown as u16) or strings (shown as i64). */
static PyObject *call_structured(PyObject *object, PyObject *const *arguments, Py_ssize_t n)
{
    executable_object *self = (executable_object *)object;
    arguments_t a;
    PyObject *answer = NULL;
    char *counts, *codes;
    Py_ssize_t count_bytes, flag_bytes, i;
    long entry = entry_of(arguments, n);
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
    if (read_arguments(&a, arguments + 3, n - 3) == 0) {
        for (i = 0; i < a.n; i++)
            if ((codes[i] == INLAY_BF16 && a.inputs[i].dtype == INLAY_U16) ||
                (codes[i] == INLAY_STRING && a.inputs[i].dtype == INLAY_I64))
                a.inputs[i].dtype = (uint32_t)codes[i];
        /* The contents of a bytes object are aligned to 8: they follow its header of words. */
        answer = run_structured(self, (uint32_t)entry, a.inputs, (uint32_t)a.n,
                                (const int64_t *)(void *)counts, (uint32_t)(count_bytes / 8));
    }
    release_arguments(&a);
    return answer;
}

/* --------------------------------------------------------------------------------- loading */

/* A forked child has a copy of the executable, and none of its threads and devices. */
static void close_executable(executable_object *self)
{
    if (self->process != getpid()) return;
    while (self->n_idle) inlay_activation_destroy(self->idle[--self->n_idle]);
    PyMem_Free(self->idle);
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
}

/* A callback may hold the executable: as what it closes over, or in the traceback of an exception. */
static int traverse(PyObject *object, visitproc visit, void *arg)
{
    executable_object *self = (executable_object *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->callbacks);
    return 0;
}

/* Callbacks that are asked for later are not found: see run_callback. */
static int clear(PyObject *object)
{
    Py_CLEAR(((executable_object *)object)->callbacks);
    return 0;
}

static void dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    PyObject_GC_UnTrack(object);
    close_executable((executable_object *)object);
    release(object);
    Py_DECREF(type);
}

/* Map the file or take the buffer, and map the native code in it. 0, or -1 with an exception. */
static int open_data(executable_object *self, const char *path, PyObject *source)
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
        raise_failure(self->failure, &error, status);
        return -1;
    }
    if (!self->image_bytes) return 0;
    self->image = path ? inlay_posix_map_code(path, offset, self->image_bytes)
                       : inlay_posix_copy_code(self->data + offset, self->image_bytes);
    if (self->image) return 0;
    PyErr_SetFromErrno(PyExc_OSError);
    return -1;
}

static int open_module(executable_object *self, int threads, int check_constants, int activations)
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
    self->host.user = self;
    self->host.allocate = host_allocate;
    self->host.release = host_release;
    self->host.parallel = host_parallel;
    self->host.kernel = host_kernel;
    self->host.symbol = host_symbol;
    self->host.poll = host_poll;
    self->host.driver = inlay_ext_driver;
    self->host.threads = &host_threads;
    self->host.start = host_start;
    self->host.now = host_now;
    if (self->has_events) self->host.event = host_event;
    /* Devices take their time: their compilers, and servers that are far or absent. */
    Py_BEGIN_ALLOW_THREADS
    status = inlay_module_open(self->data, self->bytes, self->image, check_constants, &self->host,
                               &self->module, &error);
    Py_END_ALLOW_THREADS
    if (status == INLAY_OK) return 0;
    if (!PyErr_Occurred()) raise_failure(self->failure, &error, status);
    return -1;
}

static PyObject *load(PyObject *module, PyObject *arguments)
{
    module_state *state = PyModule_GetState(module);
    const char *path;
    PyObject *source, *callbacks, *symbols;
    int threads, check_constants, activations;
    Py_ssize_t stack_bytes, cache_bytes;
    long long hand_off_ns;
    int mode = 0, chooses = 0, has_events = 0;
    unsigned long long seed = 0;
    executable_object *self;
    allocfunc allocate;
    if (!PyArg_ParseTuple(arguments, "zOinnLpiO!O!|ipKp", &path, &source, &threads, &stack_bytes,
                          &cache_bytes, &hand_off_ns, &check_constants, &activations, &PyDict_Type,
                          &callbacks, &PyDict_Type, &symbols, &mode, &chooses, &seed, &has_events))
        return NULL;
    if (threads < 1 || stack_bytes < 0 || cache_bytes < 0 || activations < 1 || mode < 0 ||
        mode > INLAY_REPLAY) {
        PyErr_SetString(PyExc_ValueError, "threads and activations are at least 1");
        return NULL;
    }
    allocate = (allocfunc)PyType_GetSlot((PyTypeObject *)state->executable_type, Py_tp_alloc);
    self = (executable_object *)allocate((PyTypeObject *)state->executable_type, 0);
    if (!self) return NULL;
    self->process = getpid();
    self->failure = Py_NewRef(state->failure);
    self->result_type = Py_NewRef(state->result_type);
    self->callbacks = Py_NewRef(callbacks);
    self->symbols = Py_NewRef(symbols);
    self->config.stack_bytes = (size_t)stack_bytes;
    self->config.cache_bytes = (size_t)cache_bytes;
    self->config.hand_off_ns = hand_off_ns;
    self->config.mode = (uint32_t)mode;
    self->config.chooses = (uint32_t)chooses;
    self->config.seed = seed;
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

static PyObject *live_objects(PyObject *object, PyObject *unused)
{
    executable_object *self = (executable_object *)object;
    size_t live = 0;
    int i;
    (void)unused;
    for (i = 0; i < self->n_idle; i++) live += inlay_activation_live(self->idle[i]);
    return PyLong_FromSize_t(live);
}

static PyObject *take_events(PyObject *object, PyObject *unused)
{
    executable_object *self = (executable_object *)object;
    (void)unused;
    return self->has_events ? inlay_ext_events_take(&self->events) : PyList_New(0);
}

static PyMethodDef executable_methods[] = {
    {"call", (PyCFunction)(void (*)(void))call, METH_FASTCALL,
     "call(entry, *inputs) -> list of Result"},
    {"call_structured", (PyCFunction)(void (*)(void))call_structured, METH_FASTCALL,
     "call_structured(entry, counts, is_bf16, *tensors) -> (list of Result, counts)"},
    {"events", take_events, METH_NOARGS, "Take what happened: see inlay.runtime.trace."},
    {"live_objects", live_objects, METH_NOARGS, "Objects alive in idle activations; 0 always."},
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
    .basicsize = sizeof(executable_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = executable_slots,
};

static PyMethodDef functions[] = {
    {"load", load, METH_VARARGS, "Load an executable; see inlay.runtime.native."},
    {"limited", inlay_ext_limited, METH_VARARGS,
     "limited(flag, deadline, function) -> function(); a byte that is not 0 ends its runs."},
    {"drivers", inlay_ext_drivers, METH_NOARGS, "drivers() -> addresses; see inlay.runtime.device."},
    {"server", inlay_ext_server, METH_NOARGS, "server() -> addresses; see inlay.runtime.serve."},
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
