"""Types against values, while a program is evaluated: dims get their numbers, all else is checked."""

from __future__ import annotations

from inlay.arith import expr as arith
from inlay.arith.dtype import STRING
from inlay.arith.expr import Int, Sym, from_atom
from inlay.base.diagnostics import InternalError
from inlay.interp.values import Cell, Frame, Value, is_array, is_tuple
from inlay.ir.expr import Expr
from inlay.ir.type_printer import type_text
from inlay.ir.types import ExistsType, FuncType, IntType, RefType, ShapeType, TensorType, TupleType, Type


def check_result(type_: Type, value: Value, frame: Frame, what: str, node: Expr) -> None:
    """Check a result against its type; what is not determined by the inputs is left open.

    So is a dim of a function that stands in elements of data alone, as in `f<n>(xs: List[Tensor[n]])`:
    its value is known once an element was looked at.
    """
    if isinstance(type_, TensorType):
        _check_tensor(type_, value, node)
        for d, n in zip(type_.shape, value.shape, strict=True):
            if all(frame.dim(s) is not None for s in arith.symbols(d)) and frame.int(d) != n:
                raise _wrong(type_, value, what, node)
    elif isinstance(type_, ExistsType) and isinstance(type_.body, TensorType):
        _check_tensor(type_.body, value, node)


def _check_tensor(t: TensorType, value: Value, node: object) -> None:
    if not is_array(value) or value.ndim != len(t.shape):
        raise _wrong(t, value, "value", node)
    if t.dtype != STRING and value.dtype != t.dtype.numpy:
        raise _wrong(t, value, "value", node)


def _wrong(t: Type, value: Value, what: str, node: object) -> InternalError:
    if is_array(value):
        found = f"an array of shape {value.shape} and dtype {value.dtype}"
    else:
        found = repr(value)
    return InternalError(
        f"the {what} is {found}, and its type is {type_text(t)}",
        where=f"{getattr(node, 'name', '')} {getattr(node, 'span', '')}".strip(),
    )


class Binding:
    """Matches types of binders against values: gives dims their values, and checks the others."""

    def __init__(self, frame: Frame, own: set[Sym] | frozenset[Sym]) -> None:
        self._frame = frame
        self._own = own
        self._later: list[tuple[Int, int, Type, Value, object]] = []

    def match(self, t: Type, value: Value, binder: object) -> None:
        """Match a type against a value; what cannot be told yet waits for `finish`."""
        match t:
            case TensorType(shape=shape):
                _check_tensor(t, value, binder)
                for d, n in zip(shape, value.shape, strict=True):
                    self._int(d, n, t, value, binder)
            case IntType(value=Int() as e):
                self._int(e, value, t, value, binder)
            case ShapeType(values=values):
                if not is_tuple(value) or len(value) != len(values):
                    raise _wrong(t, value, "value", binder)
                for e, n in zip(values, value, strict=True):
                    if e is not None:
                        self._int(e, n, t, value, binder)
            case TupleType(fields=fields):
                if not is_tuple(value) or len(value) != len(fields):
                    raise _wrong(t, value, "value", binder)
                for f, x in zip(fields, value, strict=True):
                    self.match(f, x, binder)
            case RefType(content=content) if isinstance(value, Cell):
                if not isinstance(content, (ExistsType, FuncType)):
                    self.match(content, value.content, binder)
            case _:
                pass

    def _int(self, e: Int, n: int, t: Type, value: Value, binder: object) -> None:
        atom = e.atom
        if isinstance(atom, Sym) and self._known(atom) is None:
            self._frame.dims[atom] = n
        else:
            self._later.append((e, n, t, value, binder))

    def _known(self, s: Sym) -> int | None:
        """A function's own dims hide those of the same symbol further out."""
        return self._frame.dims.get(s) if s in self._own else self._frame.dim(s)

    def finish(self) -> None:
        """Solve what stands in an integer with one unknown; check what is known."""
        waiting = self._later
        while waiting:
            again = [item for item in waiting if not self._resolve(*item)]
            if len(again) == len(waiting):
                break
            waiting = again

    def _resolve(self, e: Int, n: int, t: Type, value: Value, binder: object) -> bool:
        known = {s: self._known(s) for s in arith.symbols(e)}
        unknown = [s for s, v in known.items() if v is None]
        if len(unknown) > 1:
            return False
        numbers = {s: arith.lit(v) for s, v in known.items() if v is not None}
        rest = arith.substitute(e, numbers)
        if unknown:
            c = arith.coefficient(rest, unknown[0])
            if c is None or not c.value:
                return False
            offset = (rest - c * from_atom(unknown[0])).value
            assert offset is not None
            quotient, remainder = divmod(n - offset, c.value)
            if remainder:
                raise _wrong(t, value, "value", binder)
            self._frame.dims[unknown[0]] = quotient
        elif rest.value != n:
            raise _wrong(t, value, "value", binder)
        return True
