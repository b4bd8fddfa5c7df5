#include "failure.h"

#include <string.h>

PyObject *inlay_ext_text(const char *at, size_t bytes)
{
    return PyUnicode_DecodeUTF8(at, (Py_ssize_t)bytes, "replace");
}

/* Add where an error happened to a list: 0, or -1 with an exception. */
static int append_frames(PyObject *frames, const inlay_error_t *error)
{
    uint32_t i;
    for (i = 0; i < error->depth; i++) {
        PyObject *name = inlay_ext_text(error->functions[i], error->function_bytes[i]);
        PyObject *span = error->spans[i] ? inlay_ext_text(error->spans[i], error->span_bytes[i])
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

PyObject *inlay_ext_raise_failure(PyObject *type, const inlay_error_t *error, inlay_status_t status)
{
    PyObject *frames = PyList_New(0), *message, *arguments;
    if (!frames) return NULL;
    if (append_frames(frames, error) != 0) {
        Py_DECREF(frames);
        return NULL;
    }
    message = inlay_ext_text(error->message, strlen(error->message));
    arguments = message ? Py_BuildValue("(sNN)", inlay_status_id(status), message, frames) : NULL;
    if (!message) Py_DECREF(frames);
    if (arguments) PyErr_SetObject(type, arguments);
    Py_XDECREF(arguments);
    return NULL;
}

void inlay_ext_locate_failure(const inlay_error_t *error)
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
