/* What Python may ask about an executable, beside calling it. */
#ifndef INLAY_EXT_FACTS_H
#define INLAY_EXT_FACTS_H

#include "executable.h"

PyObject *inlay_ext_live_objects(PyObject *object, PyObject *unused);
PyObject *inlay_ext_is_lost(PyObject *object, PyObject *unused);
PyObject *inlay_ext_take_events(PyObject *object, PyObject *unused);

/* (peaks, storages, taken, most_taken, allocations): see inlay.runtime.usage. */
PyObject *inlay_ext_usage(PyObject *object, PyObject *unused);

#endif
