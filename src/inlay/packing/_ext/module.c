/* The Python face of the packing algorithms: numbers in, numbers out, nothing kept but instances. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdlib.h>
#include <string.h>

#include "climb.h"
#include "greedy.h"
#include "restart.h"

#define NAME "inlay.packing.instance"

/* An instance and the numbers that it reads, which are behind it in memory. */
typedef struct held {
    packing_instance_t g;
    int64_t numbers[];
} held_t;

/* ------------------------------------------------------------------ budgets */

typedef struct watched {
    packing_budget_t budget;
    PyObject *watch; /* called with the steps so far; None for nobody */
    PyThreadState *state;
} watched_t;

/* Let Python see signals and whoever watches; runs without the lock of the interpreter. */
static int poll_python(void *context, int64_t used)
{
    watched_t *w = context;
    int stop;
    PyEval_RestoreThread(w->state);
    stop = PyErr_CheckSignals() != 0;
    if (!stop && w->watch != Py_None) {
        PyObject *answer = PyObject_CallFunction(w->watch, "L", (long long)used);
        stop = !answer || PyObject_IsTrue(answer) != 0;
        Py_XDECREF(answer);
    }
    w->state = PyEval_SaveThread();
    return stop;
}

static void begin(watched_t *w, long long steps, PyObject *watch)
{
    memset(w, 0, sizeof *w);
    w->budget.left = steps;
    w->budget.next_poll = PACKING_POLL_STEPS;
    w->budget.poll = poll_python;
    w->budget.context = w;
    w->watch = watch;
    w->state = PyEval_SaveThread();
}

static void end(watched_t *w)
{
    PyEval_RestoreThread(w->state);
}

/* ------------------------------------------------------------------ instances */

static void drop(PyObject *capsule)
{
    held_t *held = PyCapsule_GetPointer(capsule, NAME);
    packing_drop(&held->g);
    free(held);
}

static const packing_instance_t *instance_of(PyObject *capsule)
{
    held_t *held = PyCapsule_GetPointer(capsule, NAME);
    return held ? &held->g : NULL;
}

static PyObject *make_instance(PyObject *module, PyObject *args)
{
    const char *parts[4];
    Py_ssize_t sizes[4], n, i;
    held_t *held;
    (void)module;
    if (!PyArg_ParseTuple(args, "y#y#y#y#", &parts[0], &sizes[0], &parts[1], &sizes[1], &parts[2],
                          &sizes[2], &parts[3], &sizes[3]))
        return NULL;
    n = sizes[0] / 8;
    for (i = 0; i < 4; i++)
        if (sizes[i] != n * 8 || n > INT32_MAX / 4) {
            PyErr_SetString(PyExc_ValueError, "the columns of an instance are of one length");
            return NULL;
        }
    held = malloc(sizeof *held + ((size_t)n * 4 + 1) * 8);
    if (!held) return PyErr_NoMemory();
    memset(held, 0, sizeof *held);
    for (i = 0; i < 4; i++)
        memcpy(held->numbers + i * n, parts[i], (size_t)n * 8);
    held->g.count = (int)n;
    held->g.lower = held->numbers;
    held->g.upper = held->numbers + n;
    held->g.size = held->numbers + 2 * n;
    held->g.align = held->numbers + 3 * n;
    for (i = 0; i < n; i++)
        if (held->g.lower[i] >= held->g.upper[i] || held->g.size[i] <= 0 || held->g.align[i] <= 0) {
            free(held);
            PyErr_SetString(PyExc_ValueError, "a buffer of an instance has a size and a lifetime");
            return NULL;
        }
    if (!packing_sections(&held->g)) {
        free(held);
        return PyErr_NoMemory();
    }
    return PyCapsule_New(held, NAME, drop);
}

static PyObject *describe(PyObject *module, PyObject *capsule)
{
    const packing_instance_t *g = instance_of(capsule);
    (void)module;
    if (!g) return NULL;
    return Py_BuildValue("(iLL)", g->sections, (long long)g->spans, (long long)g->pairs);
}

/* ------------------------------------------------------------------ algorithms */

/* The order of a caller: a permutation, copied. NULL with an exception. */
static int32_t *order_of(const packing_instance_t *g, const char *bytes, Py_ssize_t size)
{
    int32_t *order, i, n = g->count;
    char *seen;
    if (size != (Py_ssize_t)n * 4) {
        PyErr_SetString(PyExc_ValueError, "an order has each buffer once");
        return NULL;
    }
    order = malloc((size_t)size + 4);
    seen = calloc((size_t)n + 1, 1);
    if (!order || !seen) {
        PyErr_NoMemory();
    } else {
        memcpy(order, bytes, (size_t)size);
        for (i = 0; i < n && order[i] >= 0 && order[i] < n && !seen[order[i]]; i++)
            seen[order[i]] = 1;
        if (i == n) {
            free(seen);
            return order;
        }
        PyErr_SetString(PyExc_ValueError, "an order has each buffer once");
    }
    free(order);
    free(seen);
    return NULL;
}

/* Offsets, which are freed, and the steps that they took. */
static PyObject *result(int64_t *offsets, const packing_instance_t *g, int is_there, int64_t used)
{
    PyObject *found = NULL;
    if (!PyErr_Occurred() && !is_there) found = Py_BuildValue("(OL)", Py_None, (long long)used);
    if (!PyErr_Occurred() && is_there)
        found = Py_BuildValue("(y#L)", (const char *)offsets, (Py_ssize_t)g->count * 8,
                              (long long)used);
    free(offsets);
    return found;
}

static int64_t *new_offsets(const packing_instance_t *g)
{
    int64_t *offsets = malloc(((size_t)g->count + 1) * sizeof *offsets);
    if (!offsets) PyErr_NoMemory();
    return offsets;
}

static PyObject *fit(PyObject *module, PyObject *args)
{
    PyObject *capsule, *watch;
    const packing_instance_t *g;
    const char *bytes;
    Py_ssize_t size;
    int is_best, ok = 0;
    long long steps;
    int64_t *offsets;
    int32_t *order;
    packing_fit_t state;
    watched_t w;
    (void)module;
    if (!PyArg_ParseTuple(args, "Oy#pLO", &capsule, &bytes, &size, &is_best, &steps, &watch))
        return NULL;
    g = instance_of(capsule);
    order = g ? order_of(g, bytes, size) : NULL;
    offsets = order ? new_offsets(g) : NULL;
    if (!offsets || !packing_fit_init(&state, g)) {
        if (offsets) PyErr_NoMemory();
        free(order);
        free(offsets);
        return NULL;
    }
    begin(&w, steps, watch);
    ok = packing_fit_run(&state, order, is_best ? PACKING_BEST_FIT : PACKING_FIRST_FIT, &w.budget,
                         offsets);
    end(&w);
    packing_fit_drop(&state);
    free(order);
    return result(offsets, g, ok, w.budget.used);
}

static PyObject *stack(PyObject *module, PyObject *args)
{
    PyObject *capsule;
    const packing_instance_t *g;
    const char *bytes;
    Py_ssize_t size;
    int64_t *offsets;
    int32_t *order;
    int ok = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "Oy#", &capsule, &bytes, &size)) return NULL;
    g = instance_of(capsule);
    order = g ? order_of(g, bytes, size) : NULL;
    offsets = order ? new_offsets(g) : NULL;
    if (offsets) {
        Py_BEGIN_ALLOW_THREADS;
        ok = packing_stack_run(g, order, offsets);
        Py_END_ALLOW_THREADS;
        if (!ok) PyErr_NoMemory();
    }
    free(order);
    if (!offsets) return NULL;
    return result(offsets, g, ok, g->count);
}

static PyObject *scan(PyObject *module, PyObject *capsule)
{
    const packing_instance_t *g = instance_of(capsule);
    int64_t *offsets = g ? new_offsets(g) : NULL;
    int ok;
    (void)module;
    if (!offsets) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    ok = packing_scan_run(g, offsets);
    Py_END_ALLOW_THREADS;
    if (!ok) PyErr_NoMemory();
    return result(offsets, g, ok, g->count);
}

static PyObject *climb(PyObject *module, PyObject *args)
{
    PyObject *capsule, *watch;
    const packing_instance_t *g;
    const char *bytes;
    Py_ssize_t size;
    long long steps, goal;
    int64_t *offsets, peak = -1;
    int32_t *order;
    watched_t w;
    int ok = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "Oy#LLO", &capsule, &bytes, &size, &goal, &steps, &watch))
        return NULL;
    g = instance_of(capsule);
    order = g ? order_of(g, bytes, size) : NULL;
    offsets = order ? new_offsets(g) : NULL;
    if (offsets) {
        begin(&w, steps, watch);
        ok = packing_climb_run(g, order, goal, &w.budget, offsets, &peak);
        end(&w);
        if (!ok) PyErr_NoMemory();
    }
    free(order);
    if (!offsets) return NULL;
    return result(offsets, g, peak >= 0, w.budget.used);
}

static PyObject *search(PyObject *module, PyObject *args)
{
    PyObject *capsule, *watch, *found, *answer;
    const packing_instance_t *g;
    long long steps, capacity;
    int seed;
    int64_t *offsets, need = 0;
    watched_t w;
    packing_answer_t got;
    (void)module;
    if (!PyArg_ParseTuple(args, "OLiLO", &capsule, &capacity, &seed, &steps, &watch)) return NULL;
    g = instance_of(capsule);
    offsets = g ? new_offsets(g) : NULL;
    if (!offsets) return NULL;
    begin(&w, steps, watch);
    got = packing_search(g, capacity, seed, &w.budget, offsets, &need);
    end(&w);
    if (got == PACKING_NO_MEMORY && !PyErr_Occurred()) PyErr_NoMemory();
    found = result(offsets, g, got == PACKING_FOUND, w.budget.used);
    if (!found) return NULL;
    answer = Py_BuildValue("(NL)", found, (long long)(got == PACKING_NONE ? need : 0));
    return answer;
}

static PyMethodDef functions[] = {
    {"instance", make_instance, METH_VARARGS, "An instance of four columns of 64-bit integers."},
    {"describe", describe, METH_O, "Sections, sections of all buffers, pairs that conflict."},
    {"fit", fit, METH_VARARGS, "First or best fit in an order."},
    {"stack", stack, METH_VARARGS, "Each on the highest that conflicts, in an order."},
    {"scan", scan, METH_O, "Best fit in the order of beginnings."},
    {"climb", climb, METH_VARARGS, "Hill climbing over orders of first fit."},
    {"search", search, METH_VARARGS, "Exact search for a plan within a capacity."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_search", NULL, 0, functions, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__search(void)
{
    return PyModule_Create(&definition);
}
