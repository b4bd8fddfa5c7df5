"""What the reference interpreter does with tensors and their storage; see `interp`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from inlay.arith import dtype as dtypes
from inlay.bytecode.isa import DTYPES
from inlay.bytecode.program import Program
from inlay.runtime.interp_values import (
    Failure,
    Stack,
    Words,
    fit,
    integers,
    mismatch,
    require_writable,
    tensor_of,
)
from inlay.runtime.value import Storage, Tensor, from_array, new_storage, new_tensor

MAX_BYTES = 1 << 46
"""No storage may be larger; a request beyond it is a wrong size, not a lack of memory."""


def _bytes(dtype: str, dims: Sequence[int]) -> int:
    size = dtypes.BY_NAME[dtype].itemsize
    for dim in dims:
        if dim < 0:
            raise Failure("run.bad-dims", f"a tensor cannot have the dim {dim}")
    for dim in dims:
        size *= dim
        if size > MAX_BYTES:
            raise Failure("run.bad-dims", "a tensor is larger than any memory")
    return size


def _storage(stack: Stack, _: Words, __: Program) -> None:
    (size,) = integers(stack, 1)
    if not 0 <= size <= MAX_BYTES:
        raise Failure("run.bad-dims", f"a storage cannot have {size} bytes")
    stack.append(new_storage(size))


def _make_tensor(stack: Stack, words: Words, _: Program) -> None:
    dtype = DTYPES[words[0]][0]
    offset, *dims = integers(stack, words[1] + 1)
    storage = stack.pop()
    if not isinstance(storage, Storage):
        mismatch("storage", storage)
    size = _bytes(dtype, dims)
    if offset < 0 or offset % DTYPES[words[0]][1] or offset + size > storage.data.size:
        raise Failure("run.bad-dims", f"{size} bytes at {offset} do not fit a storage of {storage.data.size}")
    stack.append(Tensor(storage, offset, dtype, tuple(dims)))


def _allocate(stack: Stack, words: Words, _: Program) -> None:
    dtype = DTYPES[words[1]][0]
    dims = integers(stack, words[2])
    _bytes(dtype, dims)
    stack.append(new_tensor(dtype, tuple(dims)))


def _check_tensor(stack: Stack, words: Words, program: Program) -> None:
    tensor = tensor_of(stack[-1])
    if tensor.dtype != DTYPES[words[0]][0] or len(tensor.dims) != words[1]:
        raise Failure("run.check-failed", program.strings[words[2]])


def _dim(stack: Stack, words: Words, _: Program) -> None:
    tensor = tensor_of(stack.pop())
    if words[0] >= len(tensor.dims):
        raise Failure("run.out-of-range", f"axis {words[0]} of a tensor of rank {len(tensor.dims)}")
    stack.append(tensor.dims[words[0]])


def _dims(stack: Stack, words: Words, _: Program) -> None:
    tensor = tensor_of(stack.pop())
    if len(tensor.dims) != words[0]:
        raise Failure("run.kind-mismatch", f"a tensor of rank {len(tensor.dims)} where {words[0]} is needed")
    stack += tensor.dims


def _elements(stack: Stack, _: Words, __: Program) -> None:
    stack.append(tensor_of(stack.pop()).elements)


def _reshape(stack: Stack, words: Words, _: Program) -> None:
    dims = integers(stack, words[0])
    tensor = tensor_of(stack.pop())
    if _bytes(tensor.dtype, dims) != _bytes(tensor.dtype, tensor.dims):
        raise Failure("run.bad-dims", f"{list(tensor.dims)} cannot be reshaped to {dims}")
    stack.append(Tensor(tensor.storage, tensor.offset, tensor.dtype, tuple(dims)))


def _rows_of(tensor: Tensor, start: int, count: int) -> int:
    """Return the byte at which rows [start, start + count) begin."""
    if not tensor.dims:
        raise Failure("run.out-of-range", "a tensor of rank 0 has no rows")
    if start < 0 or count < 0 or start + count > tensor.dims[0]:
        raise Failure("run.out-of-range", f"rows {start} to {start + count} of a tensor of {tensor.dims[0]}")
    return tensor.offset + start * _bytes(tensor.dtype, tensor.dims[1:])


def _row(stack: Stack, _: Words, __: Program) -> None:
    (index,) = integers(stack, 1)
    tensor = tensor_of(stack.pop())
    offset = _rows_of(tensor, index, 1)
    stack.append(Tensor(tensor.storage, offset, tensor.dtype, tensor.dims[1:]))


def _rows(stack: Stack, _: Words, __: Program) -> None:
    start, count = integers(stack, 2)
    tensor = tensor_of(stack.pop())
    offset = _rows_of(tensor, start, count)
    stack.append(Tensor(tensor.storage, offset, tensor.dtype, (count, *tensor.dims[1:])))


def _append(stack: Stack, _: Words, __: Program) -> None:
    row = tensor_of(stack.pop())
    tensor = tensor_of(stack.pop())
    if row.dtype != tensor.dtype or not tensor.dims or row.dims != tensor.dims[1:]:
        raise Failure("run.bad-dims", f"{list(row.dims)} cannot be added as a row to {list(tensor.dims)}")
    stack.append(from_array(np.concatenate([tensor.array(), row.array()[None]]), tensor.dtype))


def _extend(stack: Stack, words: Words, _: Program) -> None:
    rows = tensor_of(stack.pop())
    tensor = tensor_of(stack.pop())
    axis = words[0]
    fits = rows.dtype == tensor.dtype and len(rows.dims) == len(tensor.dims) > axis
    if not fits or any(
        a != b or (i < axis and a != 1)
        for i, (a, b) in enumerate(zip(rows.dims, tensor.dims, strict=True))
        if i != axis
    ):
        raise Failure("run.bad-dims", f"{list(rows.dims)} cannot be joined to the end of {list(tensor.dims)}")
    stack.append(from_array(np.concatenate([tensor.array(), rows.array()], axis=axis), tensor.dtype))


def _own(stack: Stack, _: Words, __: Program) -> None:
    tensor = tensor_of(stack.pop())
    stack.append(from_array(tensor.array().copy(), tensor.dtype))


def _assign(stack: Stack, _: Words, __: Program) -> None:
    source = tensor_of(stack.pop())
    target = tensor_of(stack.pop())
    if source.dtype != target.dtype or source.dims != target.dims:
        raise Failure("run.bad-dims", f"{list(source.dims)} cannot be assigned to {list(target.dims)}")
    require_writable(target)
    target.array()[...] = source.array().copy()


def _read(tensor: Tensor, count: int | None) -> list[int]:
    if dtypes.BY_NAME[tensor.dtype].is_float or dtypes.BY_NAME[tensor.dtype].is_host_only:
        raise Failure("run.kind-mismatch", f"a tensor of {tensor.dtype} holds no integers")
    wanted = 1 if count is None else count
    if tensor.elements != wanted:
        raise Failure("run.bad-dims", f"{wanted} integers are read from a tensor of {tensor.elements}")
    return [fit(int(value)) for value in tensor.array().reshape(-1).tolist()]


def _to_int(stack: Stack, _: Words, __: Program) -> None:
    stack += _read(tensor_of(stack.pop()), None)


def _read_ints(stack: Stack, words: Words, _: Program) -> None:
    stack += _read(tensor_of(stack.pop()), words[0])


def _to_tensor(stack: Stack, words: Words, _: Program) -> None:
    (value,) = integers(stack, 1)
    stack.append(_filled(DTYPES[words[0]][0], [value], ()))


def _make_ints(stack: Stack, words: Words, _: Program) -> None:
    values = integers(stack, words[1])
    stack.append(_filled(DTYPES[words[0]][0], values, (len(values),)))


def _filled(dtype: str, values: list[int], dims: tuple[int, ...]) -> Tensor:
    limits = _exact_range(dtype)
    for value in values:
        if not limits[0] <= value <= limits[1]:
            raise Failure("run.int-overflow", f"{value} has no exact value of type {dtype}")
    array = np.array(values, np.int64).astype(dtypes.BY_NAME[dtype].stored)
    return from_array(array.reshape(dims), dtype)


def _exact_range(dtype: str) -> tuple[int, int]:
    """Return an interval of integers that the type holds exactly (all of them, for integers)."""
    match dtype:
        case "bool":
            return 0, 1
        case "f16" | "bf16" | "f32" | "f64":
            bound = {"f16": 1 << 11, "bf16": 1 << 8, "f32": 1 << 24, "f64": 1 << 53}[dtype]
            return -bound, bound
        case _:
            info = np.iinfo(dtypes.BY_NAME[dtype].stored)
            return int(info.min), int(info.max)


TENSORS: dict[str, Callable[[Stack, Words, Program], None]] = {
    "STORAGE": _storage,
    "TENSOR": _make_tensor,
    "ALLOCATE": _allocate,
    "CHECK_TENSOR": _check_tensor,
    "DIM": _dim,
    "DIMS": _dims,
    "ELEMENTS": _elements,
    "RESHAPE": _reshape,
    "ROW": _row,
    "ROWS": _rows,
    "APPEND": _append,
    "OWN": _own,
    "EXTEND": _extend,
    "ASSIGN": _assign,
    "TO_INT": _to_int,
    "TO_TENSOR": _to_tensor,
    "READ_INTS": _read_ints,
    "MAKE_INTS": _make_ints,
}
