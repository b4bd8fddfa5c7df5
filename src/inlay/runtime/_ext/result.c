#include "result.h"

#include <string.h>

typedef struct result_object {
    PyObject_HEAD
    inlay_result_t result;
    PyObject *owner;
    const inlay_host_t *host;
    int is_readonly;
    Py_ssize_t shape[INLAY_MAX_RANK], strides[INLAY_MAX_RANK], bytes;
} result_object;

/* Formats of the buffer protocol; bfloat16 has none, and is shown as its bits, strings as handles. */
static const char *const FORMATS[INLAY_DTYPES] = {"?", "b", "h", "i", "q", "B", "H",
                                                  "I", "Q", "e", "H", "f", "d", "q"};
static const uint8_t SIZES[INLAY_DTYPES] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 8};

static int get_buffer(PyObject *object, Py_buffer *view, int flags)
{
    result_object *self = (result_object *)object;
    if ((flags & PyBUF_WRITABLE) && self->is_readonly) {
        PyErr_SetString(PyExc_BufferError, "the tensor is read-only");
        view->obj = NULL;
        return -1;
    }
    view->obj = Py_NewRef(object);
    view->buf = self->result.data;
    view->len = self->bytes;
    view->readonly = self->is_readonly;
    view->itemsize = SIZES[self->result.dtype];
    view->format = flags & PyBUF_FORMAT ? (char *)(uintptr_t)FORMATS[self->result.dtype] : NULL;
    view->ndim = (int)self->result.rank;
    view->shape = self->shape;
    view->strides = self->strides;
    view->suboffsets = NULL;
    view->internal = NULL;
    return 0;
}

static void dealloc(PyObject *object)
{
    result_object *self = (result_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    if (self->host) inlay_result_release(self->host, &self->result);
    Py_XDECREF(self->owner);
    release(object);
    Py_DECREF(type);
}

static PyObject *get_dtype(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromLong((long)((result_object *)object)->result.dtype);
}

static PyGetSetDef getters[] = {
    {"dtype", get_dtype, NULL, "Number of the element type.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "A tensor of the runtime, read through the buffer protocol."},
    {Py_tp_dealloc, dealloc},
    {Py_tp_getset, getters},
    {Py_bf_getbuffer, get_buffer},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "inlay.runtime._runtime.Result",
    .basicsize = sizeof(result_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

PyObject *inlay_ext_make_result_type(PyObject *module)
{
    return PyType_FromModuleAndSpec(module, &spec, NULL);
}

PyObject *inlay_ext_wrap(PyObject *type, const inlay_result_t *result, PyObject *owner,
                         const inlay_host_t *host, int is_readonly)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot((PyTypeObject *)type, Py_tp_alloc);
    result_object *self = (result_object *)allocate((PyTypeObject *)type, 0);
    Py_ssize_t bytes;
    uint32_t axis;
    if (!self) return NULL;
    self->result = *result;
    self->owner = Py_XNewRef(owner);
    self->host = host;
    self->is_readonly = is_readonly;
    bytes = SIZES[result->dtype];
    for (axis = result->rank; axis-- > 0;) {
        self->shape[axis] = (Py_ssize_t)result->dims[axis];
        self->strides[axis] = bytes;
        bytes *= self->shape[axis];
    }
    self->bytes = bytes;
    return (PyObject *)self;
}

size_t inlay_ext_room(PyObject *type, PyObject *object, size_t bytes)
{
    if (Py_TYPE(object) != (PyTypeObject *)type) return bytes;
    return ((result_object *)object)->result.room;
}

PyObject *inlay_ext_wrap_state(PyObject *type, inlay_result_t *result, PyObject *owner,
                               const inlay_host_t *host, PyObject *given)
{
    const result_object *was = (result_object *)given;
    PyObject *wrapped;
    if (result->block) {
        wrapped = inlay_ext_wrap(type, result, owner, host, 1);
        if (wrapped) result->block = NULL; /* the object gives it back */
        return wrapped;
    }
    if (Py_TYPE(given) == (PyTypeObject *)type && !was->result.block) given = was->owner;
    return inlay_ext_wrap(type, result, given, NULL, 1);
}

/* Element type of a format of one character and its item size; INLAY_DTYPES for others. */
static uint32_t dtype_of(const char *format, Py_ssize_t size)
{
    char c;
    if (!format) return INLAY_U8;
    if (*format == '@' || *format == '=' || *format == '<') format++;
    c = *format;
    if (!c || format[1]) return INLAY_DTYPES;
    if (c == '?') return INLAY_BOOL;
    if (strchr("bhilqn", c))
        return size == 1 ? INLAY_I8 : size == 2 ? INLAY_I16 : size == 4 ? INLAY_I32 : INLAY_I64;
    if (strchr("BHILQN", c))
        return size == 1 ? INLAY_U8 : size == 2 ? INLAY_U16 : size == 4 ? INLAY_U32 : INLAY_U64;
    return c == 'e' ? INLAY_F16 : c == 'f' ? INLAY_F32 : c == 'd' ? INLAY_F64 : INLAY_DTYPES;
}

int inlay_ext_read(PyObject *object, Py_buffer *view, inlay_tensor_t *tensor)
{
    if (PyObject_GetBuffer(object, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) return -1;
    tensor->data = view->buf;
    tensor->dtype = dtype_of(view->format, view->itemsize);
    tensor->rank = (uint32_t)view->ndim;
    /* Py_ssize_t is int64_t wherever this module is built; a check in runtime.c holds it so. */
    tensor->dims = (const int64_t *)view->shape;
    if (view->ndim <= INLAY_MAX_RANK) return 0;
    PyBuffer_Release(view);
    PyErr_SetString(PyExc_ValueError, "a tensor has too many dims");
    return -1;
}
