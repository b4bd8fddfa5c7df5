"""Calls of C functions over tensors (`runtime/include/inlay_extern.h`) from Python.

The C runtime calls them directly; the reference interpreter and the evaluator come through here, so
that one C function gives the same results wherever a program runs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from inlay.arith import dtype as dtypes
from inlay.base.diagnostics import error
from inlay.bytecode.isa import DTYPE_CODES

_MESSAGE_BYTES = 512


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_uint32),
        ("rank", ctypes.c_uint32),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
    )


class _Call(ctypes.Structure):
    _fields_ = (
        ("inputs", ctypes.POINTER(_Tensor)),
        ("outputs", ctypes.POINTER(_Tensor)),
        ("n_inputs", ctypes.c_uint32),
        ("n_outputs", ctypes.c_uint32),
        ("message", ctypes.c_void_p),
        ("message_bytes", ctypes.c_size_t),
    )


_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(_Call))


def call_c(name: str, address: int, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
    """Call a C function.

    Args:
        name: of the operator, for messages.
        address: of the function.
        inputs: dense arrays that it reads.
        outputs: dense arrays that it writes.

    Raises:
        RunError: `run.kernel-failed` where it answers another number than 0.
    """
    message = ctypes.create_string_buffer(_MESSAGE_BYTES)
    call = _Call(
        _tensors(inputs),
        _tensors(outputs),
        len(inputs),
        len(outputs),
        ctypes.cast(message, ctypes.c_void_p),
        _MESSAGE_BYTES,
    )
    answer = _FUNCTION(address)(ctypes.byref(call))
    if answer:
        message[-1] = b"\0"
        said = message.value.decode("utf-8", "replace")
        raise error(
            "run.kernel-failed",
            f"operator '{name}' failed with status {answer}" + (f": {said}" if said else ""),
        )


def _tensors(arrays: Sequence[np.ndarray]) -> ctypes.Array[_Tensor]:
    made = (_Tensor * max(len(arrays), 1))()
    for tensor, array in zip(made, arrays, strict=False):
        assert array.flags.c_contiguous, "tensors are dense"
        tensor.data = array.ctypes.data
        tensor.dtype = DTYPE_CODES[dtypes.from_numpy(array.dtype).name]
        tensor.rank = array.ndim
        tensor.dims = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
    return made
