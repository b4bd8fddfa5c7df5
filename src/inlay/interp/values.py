"""Values that the evaluator of tensor IR computes with, and how they look from outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

import numpy as np

from inlay.arith import expr as arith
from inlay.arith.expr import Int, Sym
from inlay.arith.text import text_array
from inlay.base.diagnostics import InternalError, error
from inlay.ir.expr import Function, Var
from inlay.ir.types import AdtType, ExistsType, TensorType, TupleType, Type

Value = Any
"""What `interp.tensor` says a value is."""


def is_array(value: Value) -> TypeGuard[np.ndarray]:
    """Whether a value is a tensor."""
    return isinstance(value, np.ndarray)


def is_tuple(value: Value) -> TypeGuard[tuple[Value, ...]]:
    """Whether a value is a tuple, of values or of the numbers of a shape."""
    return isinstance(value, tuple)


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """A value of a data type."""

    adt: str
    name: str
    tag: int
    fields: tuple[Value, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Closure:
    """A function value: a literal and the frame it was made in (None for a global function)."""

    function: Function
    frame: Frame | None


@dataclass(slots=True, eq=False)
class Cell:
    """A mutable cell; empty between a `take` and the `put` behind it."""

    content: Value
    is_empty: bool = False

    def empty(self) -> Value:
        """Return the content, and be empty."""
        content, self.content, self.is_empty = self.content, None, True
        return content

    def fill(self, content: Value) -> None:
        """Hold a content again."""
        self.content, self.is_empty = content, False


class Frame:
    """One activation of a function; names it does not have are those of `parent`."""

    __slots__ = ("dims", "parent", "shared", "values", "vars")

    def __init__(self, parent: Frame | None, shared: frozenset[int]) -> None:
        self.parent = parent
        self.vars: dict[Var, Value] = {}
        self.dims: dict[Sym, int] = {}
        self.shared = shared
        self.values: dict[int, Value] = {}

    def value(self, v: Var) -> Value:
        """Return the value of a variable."""
        frame: Frame | None = self
        while frame is not None:
            if v in frame.vars:
                return frame.vars[v]
            frame = frame.parent
        raise InternalError(f"variable {v.name} has no value", where=str(v.span))

    def dim(self, s: Sym) -> int | None:
        """Return the value of a dim, None when it has none yet."""
        frame: Frame | None = self
        while frame is not None:
            if s in frame.dims:
                return frame.dims[s]
            frame = frame.parent
        return None

    def int(self, e: Int) -> int:
        """Return the number an integer stands for."""
        if e.value is not None:
            return e.value
        known: dict[Sym, int] = {}
        for s in arith.symbols(e):
            value = self.dim(s)
            if value is None:
                raise InternalError(f"dim {s} has no value")
            known[s] = value
        try:
            found = arith.evaluate(e, known)
        except ZeroDivisionError:
            raise error("run.divide-by-zero", f"integer division by zero in {e}") from None
        if not -(1 << 63) <= found < 1 << 63:
            raise error("run.int-overflow", f"{e} is {found}, which leaves 64 bits")
        return found


def as_arrays(value: Value) -> Value:
    """Make arrays of the scalars that NumPy uses for rank 0."""
    if isinstance(value, np.generic):
        return np.asarray(cast("Any", value))
    if is_tuple(value):
        return tuple(map(as_arrays, value))
    return value


def from_outside(value: Value, t: Type) -> Value:
    """Return a Python value as one of the type: lists and None become values of data types."""
    match t:
        case ExistsType(body=body):
            return from_outside(value, body)
        case TensorType(dtype=dtype) if dtype.is_host_only:
            return text_array(np.asarray(value))
        case TupleType(fields=fields) if isinstance(value, tuple):
            pairs = zip(cast("tuple[Value, ...]", value), fields, strict=True)
            return tuple(from_outside(v, f) for v, f in pairs)
        case AdtType(name="Option", args=(content,)) if not isinstance(value, Data):
            if value is None:
                return Data("Option", "None", 0, ())
            return Data("Option", "Some", 1, (from_outside(value, content),))
        case AdtType(name="List", args=(element,)) if isinstance(value, (list, tuple)):
            made = Data("List", "Nil", 0, ())
            for v in reversed(cast("Sequence[Value]", value)):
                made = Data("List", "Cons", 1, (from_outside(v, element), made))
            return made
        case _:
            return value


def to_outside(value: Value) -> Value:
    """Return lists and options as Python has them; the inverse of `from_outside`."""
    match value:
        case tuple():
            return tuple(map(to_outside, cast("tuple[Value, ...]", value)))
        case Data(adt="Option", fields=fields):
            return to_outside(fields[0]) if fields else None
        case Data(adt="List"):
            made: list[Value] = []
            while value.fields:
                made.append(to_outside(value.fields[0]))
                value = value.fields[1]
            return made
        case _:
            return value
