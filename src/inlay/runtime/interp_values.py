"""What the reference interpreter does with operands, integers and aggregates; see `interp`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeAlias

from inlay.bytecode.formula import INT_MAX, INT_MIN
from inlay.runtime.value import Adt, Cell, Closure, Tensor, Tuple, Value, kind_of

Stack: TypeAlias = list["Value | None"]
Words: TypeAlias = tuple[int, ...]


class Failure(Exception):
    """An instruction fails; the interpreter adds where."""

    def __init__(self, id: str, message: str) -> None:
        super().__init__(id, message)
        self.id = id
        self.message = message


def take(stack: Stack, count: int) -> list[Value]:
    """Pop the topmost values, in the order in which they were pushed."""
    taken = stack[len(stack) - count :]
    del stack[len(stack) - count :]
    values = [value for value in taken if value is not None]
    assert len(values) == count, "the verifier refuses to read empty slots"
    return values


def mismatch(wanted: str, value: Value | None) -> NoReturn:
    """Fail: an operand has another kind."""
    found = "nothing" if value is None else kind_of(value).name.lower()
    raise Failure("run.kind-mismatch", f"an instruction needs a value of kind {wanted}, found {found}")


def integer(value: Value | None) -> int:
    """Return an operand that has to be an integer."""
    if not isinstance(value, int):
        mismatch("int", value)
    return value


def integers(stack: Stack, count: int) -> list[int]:
    """Pop the topmost integers; see `take`."""
    return [integer(value) for value in take(stack, count)]


def tensor_of(value: Value | None) -> Tensor:
    """Return an operand that has to be a tensor."""
    if not isinstance(value, Tensor):
        mismatch("tensor", value)
    return value


def require_writable(tensor: Tensor) -> None:
    """Fail where a tensor must not be written."""
    if not tensor.storage.data.flags.writeable:
        raise Failure("run.read-only", "an input or constant would be written")


def fit(value: int) -> int:
    """Return a result of integer arithmetic, or fail where it leaves 64 bits."""
    if not INT_MIN <= value <= INT_MAX:
        raise Failure("run.int-overflow", "integer arithmetic leaves 64 bits")
    return value


def _floordiv(a: int, b: int) -> int:
    if b == 0:
        raise Failure("run.divide-by-zero", "integer division by zero")
    return a // b


def _mod(a: int, b: int) -> int:
    if b == 0:
        raise Failure("run.divide-by-zero", "integer division by zero")
    return a % b


INT_BINARY: dict[str, Callable[[int, int], int]] = {
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


def _closure(stack: Stack, words: Words) -> None:
    stack.append(Closure(words[0], tuple(take(stack, words[1]))))


def _tuple(stack: Stack, words: Words) -> None:
    stack.append(Tuple(tuple(take(stack, words[0]))))


def _construct(stack: Stack, words: Words) -> None:
    stack.append(Adt(words[0], tuple(take(stack, words[1]))))


def _project(stack: Stack, words: Words) -> None:
    value = stack.pop()
    if not isinstance(value, Tuple):
        mismatch("tuple", value)
    stack.append(_item(value.items, words[0]))


def _field(stack: Stack, words: Words) -> None:
    stack.append(_item(_adt(stack.pop()).items, words[0]))


def _tag(stack: Stack, _: Words) -> None:
    stack.append(_adt(stack.pop()).tag)


def _unpack(stack: Stack, words: Words) -> None:
    value = stack.pop()
    if not isinstance(value, Tuple | Adt):
        mismatch("tuple", value)
    if len(value.items) != words[0]:
        raise Failure("run.kind-mismatch", f"a value of {len(value.items)} fields is unpacked to {words[0]}")
    stack += value.items


def _cell_new(stack: Stack, _: Words) -> None:
    stack.append(Cell(take(stack, 1)[0]))


def _cell_read(stack: Stack, _: Words) -> None:
    stack.append(_cell(stack.pop()).contents)


def _cell_write(stack: Stack, _: Words) -> None:
    (value,) = take(stack, 1)
    _cell(stack.pop()).contents = value


def _adt(value: Value | None) -> Adt:
    if not isinstance(value, Adt):
        mismatch("adt", value)
    return value


def _cell(value: Value | None) -> Cell:
    if not isinstance(value, Cell):
        mismatch("cell", value)
    return value


def _item(items: tuple[Value, ...], index: int) -> Value:
    if index >= len(items):
        raise Failure("run.out-of-range", f"field {index} of a value of {len(items)} fields")
    return items[index]


AGGREGATES: dict[str, Callable[[Stack, Words], None]] = {
    "CLOSURE": _closure,
    "TUPLE": _tuple,
    "PROJECT": _project,
    "CONSTRUCT": _construct,
    "TAG": _tag,
    "FIELD": _field,
    "UNPACK": _unpack,
    "CELL_NEW": _cell_new,
    "CELL_READ": _cell_read,
    "CELL_WRITE": _cell_write,
}
