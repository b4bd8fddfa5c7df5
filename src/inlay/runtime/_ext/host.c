/* What the runtime asks of Python: memory and threads, callbacks as kernels, futures that end them. */
#include "executable.h"

#include <string.h>

#include "context.h"
#include "drivers.h"
#include "failure.h"
#include "platform/permission.h"
#include "result.h"

static void count_taken(inlay_ext_executable_t *self, size_t bytes)
{
    const size_t now = atomic_fetch_add(&self->taken, bytes) + bytes;
    size_t most = atomic_load(&self->most_taken);
    while (now > most && !atomic_compare_exchange_weak(&self->most_taken, &most, now)) {}
    atomic_fetch_add(&self->allocations, 1);
}

static void *host_allocate(void *user, size_t bytes, size_t align)
{
    inlay_ext_executable_t *self = user;
    void *memory = inlay_posix_allocate(self->posix, bytes, align);
    if (memory) count_taken(self, bytes);
    return memory;
}

static void *host_lift(void *user, void *data, size_t bytes, void **block, size_t *block_bytes)
{
    inlay_ext_executable_t *self = user;
    void *moved = inlay_posix_lift(self->posix, data, bytes, block, block_bytes);
    if (moved) count_taken(self, *block_bytes);
    return moved;
}

static void host_release(void *user, void *memory, size_t bytes, size_t align)
{
    atomic_fetch_sub(&((inlay_ext_executable_t *)user)->taken, bytes);
    inlay_posix_release(((inlay_ext_executable_t *)user)->posix, memory, bytes, align);
}

static void host_parallel(void *user, inlay_part_t part, void *argument, int64_t parts)
{
    inlay_posix_parallel(((inlay_ext_executable_t *)user)->posix, part, argument, parts);
}

static void *posix_of(void *user) { return ((inlay_ext_executable_t *)user)->posix; }
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

static int64_t host_poll_in(void *user)
{
    (void)user;
    return inlay_ext_poll_in();
}

static int64_t host_now(void *user)
{
    (void)user;
    return inlay_posix_now(NULL);
}

static void host_event(void *user, const inlay_event_t *event)
{
    inlay_ext_events_add(&((inlay_ext_executable_t *)user)->events, event);
}

static inlay_phase_t find_symbol(inlay_ext_executable_t *self, const char *name, size_t name_bytes)
{
    PyObject *key = inlay_ext_text(name, name_bytes), *found;
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
static PyObject *run_callback(inlay_ext_executable_t *self, uint32_t kernel,
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

static const inlay_driver_t *host_driver(void *user, const char *name, size_t bytes)
{
    return inlay_driver_find(&((const inlay_ext_executable_t *)user)->drivers, name, bytes);
}

void inlay_ext_host(inlay_ext_executable_t *self)
{
    self->host.user = self;
    self->host.allocate = host_allocate;
    self->host.release = host_release;
    self->host.parallel = host_parallel;
    self->host.kernel = host_kernel;
    self->host.symbol = host_symbol;
    self->host.poll = host_poll;
    self->host.poll_in = host_poll_in;
    self->host.driver = host_driver;
    self->host.permit = inlay_posix_permit;
    self->drivers = inlay_ext_copy_drivers(self->driver);
    self->host.threads = &host_threads;
    self->host.start = host_start;
    self->host.now = host_now;
    if (inlay_posix_lifts()) self->host.lift = host_lift;
    if (self->has_events) self->host.event = host_event;
}

PyObject *inlay_ext_lifts(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyBool_FromLong(inlay_posix_lifts());
}

int inlay_ext_share_batches(inlay_ext_executable_t *self)
{
    if (inlay_batcher_create(self->module, &self->host, &self->batcher) != INLAY_OK) {
        PyErr_NoMemory();
        return -1;
    }
    self->config.batcher = self->batcher;
    return 0;
}
