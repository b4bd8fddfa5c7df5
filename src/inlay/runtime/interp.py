"""The reference interpreter: what each instruction means, as plainly as Python can say it.

Slow on purpose. The C runtime must agree with it on every program: same results, and where an
instruction fails, the same diagnostic id and message. Two freedoms are the runtime's own: what
bytes a new storage holds, and whether `OWN`, `APPEND` and `EXTEND` copy (they never need to
when nothing else refers to the tensor; here they always do).

Kernels are not executed here: the caller gives a function that gets the kernel, the tensors as
arrays that share the bytes of the machine, and the integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

import numpy as np

from inlay.arith import dtype as dtypes
from inlay.base.diagnostics import CompileError, error
from inlay.bytecode.builder import span_of
from inlay.bytecode.formula import INT_MAX, INT_MIN
from inlay.bytecode.isa import DTYPES, Instruction
from inlay.bytecode.program import Access, Function, Kernel, Program
from inlay.bytecode.verify import instructions
from inlay.runtime.value import (
    Adt,
    Cell,
    Closure,
    Storage,
    Tensor,
    Tuple,
    Value,
    from_array,
    kind_of,
    new_storage,
    new_tensor,
)

KernelFunction: TypeAlias = Callable[[Kernel, list[np.ndarray], list[int]], None]
MAX_BYTES = 1 << 46
"""No storage may be larger; a request beyond it is a wrong size, not a lack of memory."""


class _Failure(Exception):
    """An instruction fails; the interpreter adds where."""

    def __init__(self, id: str, message: str) -> None:
        super().__init__(id, message)
        self.id = id
        self.message = message


@dataclass(slots=True)
class _Frame:
    """An activation of a function: its slots (None is empty) and where it is."""

    index: int
    slots: list[Value | None]
    pc: int = 0


Decoded: TypeAlias = dict[int, tuple[Instruction, tuple[int, ...], int]]


class Interpreter:
    """Executes functions of one verified program.

    Attributes:
        program: the program.
        kernel: executes `INVOKE`.
        stack_limit: frames, beyond which a call fails with `run.stack-limit`.
    """

    def __init__(
        self, program: Program, kernel: KernelFunction, *, stack_limit: int = 2_000_000
    ) -> None:
        self.program = program
        self.kernel = kernel
        self.stack_limit = stack_limit
        self._decoded: dict[int, Decoded] = {}
        self._constants: dict[int, Tensor] = {}
        self._frames: list[_Frame] = []

    def call(self, function: int, arguments: Sequence[Value]) -> list[Value]:
        """Return the results of a function.

        Raises:
            CompileError: `run.*`, with the function and the source of the failing instruction.
        """
        outer, self._frames = self._frames, []
        try:
            return self._run(function, arguments)
        except _Failure as failure:
            raise self._located(failure) from failure.__cause__
        finally:
            self._frames = outer

    def _run(self, function: int, arguments: Sequence[Value]) -> list[Value]:
        self._enter(function, list(arguments))
        while True:
            frame = self._frames[-1]
            row, words, following = self._code(frame.index)[frame.pc]
            match row.name:
                case "RETURN":
                    count = len(self.program.functions[frame.index].results)
                    results = _take(frame.slots, count)
                    self._frames.pop()
                    if not self._frames:
                        return results
                    self._frames[-1].slots += results
                case "CALL" | "SPAWN":
                    frame.pc = following
                    arguments = _take(frame.slots, len(self.program.functions[words[0]].params))
                    self._enter(words[0], arguments)
                case "TAIL_CALL":
                    arguments = _take(frame.slots, len(self.program.functions[words[0]].params))
                    self._frames.pop()
                    self._enter(words[0], arguments)
                case "CALL_CLOSURE":
                    arguments = _take(frame.slots, words[0])
                    closure = self._callee(frame.slots.pop(), words[0], words[1])
                    frame.pc = following
                    self._enter(closure.function, [*closure.items, *arguments])
                case "TAIL_CALL_CLOSURE":
                    arguments = _take(frame.slots, words[0])
                    results = len(self.program.functions[frame.index].results)
                    closure = self._callee(frame.slots.pop(), words[0], results)
                    self._frames.pop()
                    self._enter(closure.function, [*closure.items, *arguments])
                case "JUMP":
                    frame.pc = words[0]
                case "JUMP_IF_FALSE":
                    frame.pc = words[0] if _int(frame.slots.pop()) == 0 else following
                case "SWITCH":
                    index = _int(frame.slots.pop())
                    frame.pc = words[index] if 0 <= index < len(words) else words[-1]
                case _:
                    self._step(row.name, words, frame.slots)
                    frame.pc = following

    def _enter(self, function: int, arguments: list[Value]) -> None:
        if len(self._frames) >= self.stack_limit:
            raise _Failure("run.stack-limit", f"calls nest deeper than {self.stack_limit}")
        self._frames.append(_Frame(function, list(arguments)))

    def _callee(self, value: Value | None, arguments: int, results: int) -> Closure:
        if not isinstance(value, Closure):
            _mismatch("closure", value)
        callee = self.program.functions[value.function]
        if len(value.items) + arguments != len(callee.params) or results != len(callee.results):
            raise _Failure(
                "run.kind-mismatch",
                f"a closure of '{callee.name}' is called with {arguments} arguments "
                f"for {results} results",
            )
        return value

    def _code(self, index: int) -> Decoded:
        found = self._decoded.get(index)
        if found is None:
            rows = list(instructions(self.program.functions[index].code))
            ends = [pc for pc, _, _ in rows[1:]] + [len(self.program.functions[index].code)]
            found = {pc: (row, words, end) for (pc, row, words), end in zip(rows, ends)}
            self._decoded[index] = found
        return found

    def _located(self, failure: _Failure) -> CompileError:
        notes: list[str] = []
        for depth, frame in enumerate(reversed(self._frames[-8:])):
            function: Function = self.program.functions[frame.index]
            # A caller's position is already behind its call.
            pc = frame.pc if depth == 0 else frame.pc - 1
            span = span_of(function, self.program.strings, pc)
            notes.append(f"in '{function.name}'" + (f" at {span}" if span else ""))
        return error(failure.id, failure.message, notes=notes)

    def _step(self, name: str, words: tuple[int, ...], stack: list[Value | None]) -> None:
        """Execute an instruction that neither calls nor jumps."""
        match name:
            case "INT":
                stack.append(words[0] - (words[0] >> 31 << 32))
            case "INT_WIDE":
                stack.append(self.program.pool[words[0]])
            case "CONST":
                stack.append(self._constant(words[0]))
            case "COPY":
                stack.append(stack[words[0]])
            case "MOVE":
                stack.append(stack[words[0]])
                stack[words[0]] = None
            case "DROP":
                stack[words[0]] = None
            case "POP":  # what is popped may be empty
                del stack[len(stack) - words[0] :]
            case "SLIDE":
                kept = stack[len(stack) - words[0] :]
                del stack[len(stack) - words[0] - words[1] :]
                stack += kept
            case "EVAL":
                pass  # native code is not run here: the instructions that follow say the same
            case "NEG":
                stack.append(_fit(-_int(stack.pop())))
            case "NOT":
                stack.append(int(_int(stack.pop()) == 0))
            case "SELECT":
                c, a, b = _ints(stack, 3)
                stack.append(a if c != 0 else b)
            case "CHECK":
                condition = _int(stack.pop())
                values = _ints(stack, words[0])
                if condition == 0:
                    self._fail(words[1], values)
            case "FAIL":
                self._fail(words[1], _ints(stack, words[0]))
            case "INVOKE":
                kernel = self.program.kernels[words[0]]
                integers = _ints(stack, kernel.ints)
                tensors = [_tensor(value) for value in _take(stack, len(kernel.ports))]
                for port, tensor in zip(kernel.ports, tensors, strict=True):
                    if port is not Access.READ:
                        _writable(tensor)
                try:
                    self.kernel(kernel, [tensor.array() for tensor in tensors], integers)
                except CompileError as problem:
                    (first, *_) = problem.diagnostics
                    raise _Failure(first.id, first.message) from problem.__cause__
            case _ if name in _INT_BINARY:
                a, b = _ints(stack, 2)
                stack.append(_fit(_INT_BINARY[name](a, b)))
            case _ if name in _AGGREGATES:
                _AGGREGATES[name](stack, words)
            case _:
                _TENSORS[name](stack, words, self.program)

    def _fail(self, message: int, values: list[int]) -> NoReturn:
        raise _Failure("run.check-failed", fill(self.program.strings[message], values[:16]))

    def _constant(self, index: int) -> Tensor:
        found = self._constants.get(index)
        if found is None:
            constant = self.program.constants[index]
            data = np.frombuffer(constant.bytes(), np.uint8)
            data.flags.writeable = False
            found = Tensor(Storage(data), 0, constant.dtype, constant.dims)
            self._constants[index] = found
        return found


def fill(template: str, values: Sequence[int]) -> str:
    """Return a message with `{1}`, `{2}`, ... replaced by the values; other braces stay."""
    for position, value in enumerate(values, 1):
        template = template.replace(f"{{{position}}}", str(value))
    return template


# ---------------------------------------------------------------------------- operands


def _take(stack: list[Value | None], count: int) -> list[Value]:
    taken = stack[len(stack) - count :]
    del stack[len(stack) - count :]
    values = [value for value in taken if value is not None]
    assert len(values) == count, "the verifier refuses to read empty slots"
    return values


def _mismatch(wanted: str, value: Value | None) -> NoReturn:
    found = "nothing" if value is None else kind_of(value).name.lower()
    raise _Failure("run.kind-mismatch", f"an instruction needs a value of kind {wanted}, "
                   f"found {found}")  # fmt: skip


def _int(value: Value | None) -> int:
    if not isinstance(value, int):
        _mismatch("int", value)
    return value


def _ints(stack: list[Value | None], count: int) -> list[int]:
    return [_int(value) for value in _take(stack, count)]


def _tensor(value: Value | None) -> Tensor:
    if not isinstance(value, Tensor):
        _mismatch("tensor", value)
    return value


def _writable(tensor: Tensor) -> None:
    if not tensor.storage.data.flags.writeable:
        raise _Failure("run.read-only", "an input or constant would be written")


def _fit(value: int) -> int:
    if not INT_MIN <= value <= INT_MAX:
        raise _Failure("run.int-overflow", "integer arithmetic leaves 64 bits")
    return value


# ---------------------------------------------------------------------------- integers


def _floordiv(a: int, b: int) -> int:
    if b == 0:
        raise _Failure("run.divide-by-zero", "integer division by zero")
    return a // b


def _mod(a: int, b: int) -> int:
    if b == 0:
        raise _Failure("run.divide-by-zero", "integer division by zero")
    return a % b


_INT_BINARY: dict[str, Callable[[int, int], int]] = {
    "ADD": lambda a, b: a + b,
    "SUB": lambda a, b: a - b,
    "MUL": lambda a, b: a * b,
    "FLOORDIV": _floordiv,
    "MOD": _mod,
    "MIN": min,
    "MAX": max,
    "EQ": lambda a, b: int(a == b),
    "NE": lambda a, b: int(a != b),
    "LT": lambda a, b: int(a < b),
    "LE": lambda a, b: int(a <= b),
    "AND": lambda a, b: int(a != 0 and b != 0),
    "OR": lambda a, b: int(a != 0 or b != 0),
}


# ---------------------------------------------------------------------------- aggregates

Stack: TypeAlias = list["Value | None"]
Words: TypeAlias = tuple[int, ...]


def _closure(stack: Stack, words: Words) -> None:
    stack.append(Closure(words[0], tuple(_take(stack, words[1]))))


def _tuple(stack: Stack, words: Words) -> None:
    stack.append(Tuple(tuple(_take(stack, words[0]))))


def _construct(stack: Stack, words: Words) -> None:
    stack.append(Adt(words[0], tuple(_take(stack, words[1]))))


def _project(stack: Stack, words: Words) -> None:
    value = stack.pop()
    if not isinstance(value, Tuple):
        _mismatch("tuple", value)
    stack.append(_item(value.items, words[0]))


def _field(stack: Stack, words: Words) -> None:
    stack.append(_item(_adt(stack.pop()).items, words[0]))


def _tag(stack: Stack, _: Words) -> None:
    stack.append(_adt(stack.pop()).tag)


def _unpack(stack: Stack, words: Words) -> None:
    value = stack.pop()
    if not isinstance(value, Tuple | Adt):
        _mismatch("tuple", value)
    if len(value.items) != words[0]:
        raise _Failure(
            "run.kind-mismatch", f"a value of {len(value.items)} fields is unpacked to {words[0]}"
        )
    stack += value.items


def _cell_new(stack: Stack, _: Words) -> None:
    stack.append(Cell(_take(stack, 1)[0]))


def _cell_read(stack: Stack, _: Words) -> None:
    stack.append(_cell(stack.pop()).contents)


def _cell_write(stack: Stack, _: Words) -> None:
    (value,) = _take(stack, 1)
    _cell(stack.pop()).contents = value


def _adt(value: Value | None) -> Adt:
    if not isinstance(value, Adt):
        _mismatch("adt", value)
    return value


def _cell(value: Value | None) -> Cell:
    if not isinstance(value, Cell):
        _mismatch("cell", value)
    return value


def _item(items: tuple[Value, ...], index: int) -> Value:
    if index >= len(items):
        raise _Failure("run.out-of-range", f"field {index} of a value of {len(items)} fields")
    return items[index]


_AGGREGATES: dict[str, Callable[[Stack, Words], None]] = {
    "CLOSURE": _closure, "TUPLE": _tuple, "PROJECT": _project, "CONSTRUCT": _construct,
    "TAG": _tag, "FIELD": _field, "UNPACK": _unpack, "CELL_NEW": _cell_new,
    "CELL_READ": _cell_read, "CELL_WRITE": _cell_write,
}  # fmt: skip


# ---------------------------------------------------------------------------- tensors


def _bytes(dtype: str, dims: Sequence[int]) -> int:
    size = dtypes.BY_NAME[dtype].itemsize
    for dim in dims:
        if dim < 0:
            raise _Failure("run.bad-dims", f"a tensor cannot have the dim {dim}")
    for dim in dims:
        size *= dim
        if size > MAX_BYTES:
            raise _Failure("run.bad-dims", "a tensor is larger than any memory")
    return size


def _storage(stack: Stack, _: Words, __: Program) -> None:
    (size,) = _ints(stack, 1)
    if not 0 <= size <= MAX_BYTES:
        raise _Failure("run.bad-dims", f"a storage cannot have {size} bytes")
    stack.append(new_storage(size))


def _make_tensor(stack: Stack, words: Words, _: Program) -> None:
    dtype = DTYPES[words[0]][0]
    offset, *dims = _ints(stack, words[1] + 1)
    storage = stack.pop()
    if not isinstance(storage, Storage):
        _mismatch("storage", storage)
    size = _bytes(dtype, dims)
    if offset < 0 or offset % DTYPES[words[0]][1] or offset + size > storage.data.size:
        raise _Failure(
            "run.bad-dims",
            f"{size} bytes at {offset} do not fit a storage of {storage.data.size}",
        )
    stack.append(Tensor(storage, offset, dtype, tuple(dims)))


def _allocate(stack: Stack, words: Words, _: Program) -> None:
    dtype = DTYPES[words[1]][0]
    dims = _ints(stack, words[2])
    _bytes(dtype, dims)
    stack.append(new_tensor(dtype, tuple(dims)))


def _check_tensor(stack: Stack, words: Words, program: Program) -> None:
    tensor = _tensor(stack[-1])
    if tensor.dtype != DTYPES[words[0]][0] or len(tensor.dims) != words[1]:
        raise _Failure("run.check-failed", program.strings[words[2]])


def _dim(stack: Stack, words: Words, _: Program) -> None:
    tensor = _tensor(stack.pop())
    if words[0] >= len(tensor.dims):
        raise _Failure(
            "run.out-of-range", f"axis {words[0]} of a tensor of rank {len(tensor.dims)}"
        )
    stack.append(tensor.dims[words[0]])


def _dims(stack: Stack, words: Words, _: Program) -> None:
    tensor = _tensor(stack.pop())
    if len(tensor.dims) != words[0]:
        raise _Failure(
            "run.kind-mismatch", f"a tensor of rank {len(tensor.dims)} where {words[0]} is needed"
        )
    stack += tensor.dims


def _elements(stack: Stack, _: Words, __: Program) -> None:
    stack.append(_tensor(stack.pop()).elements)


def _reshape(stack: Stack, words: Words, _: Program) -> None:
    dims = _ints(stack, words[0])
    tensor = _tensor(stack.pop())
    if _bytes(tensor.dtype, dims) != _bytes(tensor.dtype, tensor.dims):
        raise _Failure("run.bad-dims", f"{list(tensor.dims)} cannot be reshaped to {dims}")
    stack.append(Tensor(tensor.storage, tensor.offset, tensor.dtype, tuple(dims)))


def _rows_of(tensor: Tensor, start: int, count: int) -> int:
    """Return the byte at which rows [start, start + count) begin."""
    if not tensor.dims:
        raise _Failure("run.out-of-range", "a tensor of rank 0 has no rows")
    if start < 0 or count < 0 or start + count > tensor.dims[0]:
        raise _Failure(
            "run.out-of-range", f"rows {start} to {start + count} of a tensor of {tensor.dims[0]}"
        )
    return tensor.offset + start * _bytes(tensor.dtype, tensor.dims[1:])


def _row(stack: Stack, _: Words, __: Program) -> None:
    (index,) = _ints(stack, 1)
    tensor = _tensor(stack.pop())
    offset = _rows_of(tensor, index, 1)
    stack.append(Tensor(tensor.storage, offset, tensor.dtype, tensor.dims[1:]))


def _rows(stack: Stack, _: Words, __: Program) -> None:
    start, count = _ints(stack, 2)
    tensor = _tensor(stack.pop())
    offset = _rows_of(tensor, start, count)
    stack.append(Tensor(tensor.storage, offset, tensor.dtype, (count, *tensor.dims[1:])))


def _append(stack: Stack, _: Words, __: Program) -> None:
    row = _tensor(stack.pop())
    tensor = _tensor(stack.pop())
    if row.dtype != tensor.dtype or not tensor.dims or row.dims != tensor.dims[1:]:
        raise _Failure(
            "run.bad-dims", f"{list(row.dims)} cannot be added as a row to {list(tensor.dims)}"
        )
    stack.append(from_array(np.concatenate([tensor.array(), row.array()[None]]), tensor.dtype))


def _extend(stack: Stack, words: Words, _: Program) -> None:
    rows = _tensor(stack.pop())
    tensor = _tensor(stack.pop())
    axis = words[0]
    fits = rows.dtype == tensor.dtype and len(rows.dims) == len(tensor.dims) > axis
    if not fits or any(
        a != b or (i < axis and a != 1)
        for i, (a, b) in enumerate(zip(rows.dims, tensor.dims, strict=True))
        if i != axis
    ):
        raise _Failure(
            "run.bad-dims",
            f"{list(rows.dims)} cannot be joined to the end of {list(tensor.dims)}",
        )
    stack.append(from_array(np.concatenate([tensor.array(), rows.array()], axis=axis), tensor.dtype))


def _own(stack: Stack, _: Words, __: Program) -> None:
    tensor = _tensor(stack.pop())
    stack.append(from_array(tensor.array().copy(), tensor.dtype))


def _assign(stack: Stack, _: Words, __: Program) -> None:
    source = _tensor(stack.pop())
    target = _tensor(stack.pop())
    if source.dtype != target.dtype or source.dims != target.dims:
        raise _Failure(
            "run.bad-dims", f"{list(source.dims)} cannot be assigned to {list(target.dims)}"
        )
    _writable(target)
    target.array()[...] = source.array().copy()


def _read(tensor: Tensor, count: int | None) -> list[int]:
    if dtypes.BY_NAME[tensor.dtype].is_float or dtypes.BY_NAME[tensor.dtype].is_host_only:
        raise _Failure("run.kind-mismatch", f"a tensor of {tensor.dtype} holds no integers")
    wanted = 1 if count is None else count
    if tensor.elements != wanted:
        raise _Failure(
            "run.bad-dims", f"{wanted} integers are read from a tensor of {tensor.elements}"
        )
    return [_fit(int(value)) for value in tensor.array().reshape(-1).tolist()]


def _to_int(stack: Stack, _: Words, __: Program) -> None:
    stack += _read(_tensor(stack.pop()), None)


def _read_ints(stack: Stack, words: Words, _: Program) -> None:
    stack += _read(_tensor(stack.pop()), words[0])


def _to_tensor(stack: Stack, words: Words, _: Program) -> None:
    (value,) = _ints(stack, 1)
    stack.append(_filled(DTYPES[words[0]][0], [value], ()))


def _make_ints(stack: Stack, words: Words, _: Program) -> None:
    values = _ints(stack, words[1])
    stack.append(_filled(DTYPES[words[0]][0], values, (len(values),)))


def _filled(dtype: str, values: list[int], dims: tuple[int, ...]) -> Tensor:
    limits = _exact_range(dtype)
    for value in values:
        if not limits[0] <= value <= limits[1]:
            raise _Failure("run.int-overflow", f"{value} has no exact value of type {dtype}")
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


_TENSORS: dict[str, Callable[[Stack, Words, Program], None]] = {
    "STORAGE": _storage, "TENSOR": _make_tensor, "ALLOCATE": _allocate,
    "CHECK_TENSOR": _check_tensor, "DIM": _dim, "DIMS": _dims, "ELEMENTS": _elements,
    "RESHAPE": _reshape, "ROW": _row, "ROWS": _rows, "APPEND": _append, "OWN": _own,
    "EXTEND": _extend,
    "ASSIGN": _assign, "TO_INT": _to_int, "TO_TENSOR": _to_tensor, "READ_INTS": _read_ints,
    "MAKE_INTS": _make_ints,
}  # fmt: skip
