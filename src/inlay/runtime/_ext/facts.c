/* What Python may ask about an executable: its devices, its events, and the memory that it takes. */
#include "facts.h"

PyObject *inlay_ext_live_objects(PyObject *object, PyObject *unused)
{
    inlay_ext_executable_t *self = (inlay_ext_executable_t *)object;
    size_t live = 0;
    int i;
    (void)unused;
    for (i = 0; i < self->n_idle; i++) live += inlay_activation_live(self->idle[i]);
    return PyLong_FromSize_t(live);
}

PyObject *inlay_ext_is_lost(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(inlay_module_is_lost(((inlay_ext_executable_t *)object)->module));
}

PyObject *inlay_ext_take_events(PyObject *object, PyObject *unused)
{
    inlay_ext_executable_t *self = (inlay_ext_executable_t *)object;
    (void)unused;
    return self->has_events ? inlay_ext_events_take(&self->events) : PyList_New(0);
}

/* Add what the last call of an activation took to a list of bytes: in the host's memory, then in each
 * memory of the module; the most of all activations. 0, or -1 with an exception. */
static int add_peaks(PyObject *peaks, const inlay_usage_t *usage)
{
    uint32_t k;
    for (k = 0; k <= usage->n_memories; k++) {
        const size_t bytes = k ? usage->memories[k - 1] : usage->peak_bytes;
        PyObject *item;
        if ((Py_ssize_t)k < PyList_Size(peaks) && PyLong_AsSize_t(PyList_GetItem(peaks, k)) >= bytes)
            continue;
        item = PyLong_FromSize_t(bytes);
        if (!item) return -1;
        if ((Py_ssize_t)k < PyList_Size(peaks)) {
            if (PyList_SetItem(peaks, k, item) != 0) return -1;
        } else {
            const int failed = PyList_Append(peaks, item);
            Py_DECREF(item);
            if (failed) return -1;
        }
    }
    return 0;
}

PyObject *inlay_ext_usage(PyObject *object, PyObject *unused)
{
    inlay_ext_executable_t *self = (inlay_ext_executable_t *)object;
    PyObject *peaks = PyList_New(0), *answer = NULL;
    unsigned long long storages = 0, copied = 0;
    int i, failed = !peaks;
    (void)unused;
    for (i = 0; !failed && i < self->n_idle; i++) {
        inlay_usage_t usage;
        inlay_activation_usage(self->idle[i], &usage);
        if (usage.storages > storages) storages = usage.storages;
        if (usage.copied_bytes > copied) copied = usage.copied_bytes;
        failed = add_peaks(peaks, &usage) != 0;
    }
    if (!failed)
        answer = Py_BuildValue("(OKnnKK)", peaks, storages, (Py_ssize_t)atomic_load(&self->taken),
                               (Py_ssize_t)atomic_load(&self->most_taken),
                               (unsigned long long)atomic_load(&self->allocations), copied);
    Py_XDECREF(peaks);
    return answer;
}
