/* The Python face of what the runtime asks an operating system for (runtime/src/platform/permission.c). */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "platform/permission.h"

static PyObject *permitted(PyObject *module, PyObject *argument)
{
    Py_ssize_t bytes;
    const char *feature = PyUnicode_AsUTF8AndSize(argument, &bytes);
    (void)module;
    return feature ? PyBool_FromLong(inlay_posix_permit(NULL, feature, (size_t)bytes)) : NULL;
}

static PyMethodDef methods[] = {
    {"permitted", permitted, METH_O,
     "Whether this process may use a feature of the processor, by LLVM's name, after asking the system "
     "where that is needed."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "inlay.machine._permission", NULL, 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__permission(void) { return PyModuleDef_Init(&definition); }
