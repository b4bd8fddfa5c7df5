"""Vector loops as vectors of OpenCL C.

A loop of kind `VECTOR` whose body is one store becomes a statement for each 16, 8, 4 or 2 elements:

    for j in 0..24 vector {            *(inlay_f32x16 *)&acc[i][0] = fma((float16)(x[k]),
      acc[i, j] = fma(x[k],                *(const __global inlay_f32x16 *)&w[24 * k],
          w[k, j], acc[i, j]) }    =>      *(const inlay_f32x16 *)&acc[i][0]);
                                       *(inlay_f32x8 *)&acc[i][16] = ...

The compiler of a device would find the same vectors in the loop, or in the loop written out, but it
takes much longer for sixteen statements than for one. What is not said in a few operations that
vectors have stays a loop: `vector_store` decides. Vectors in memory are of types that are aligned
like their elements; `vload16` says the same, but PoCL has sixteen loads for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from inlay.arith.dtype import F32, I8, I16, I32, U8, U16, DType
from inlay.arith.expr import Int, Sym, rebuild, symbols
from inlay.base.diagnostics import InternalError
from inlay.codegen.c_helpers import Helpers
from inlay.codegen.c_text import MINUS, OVER, PLUS, TIMES, UNARY, Text, call, infix, number
from inlay.loop.buffer import Buffer, flat_index
from inlay.loop.scalar import Binary, BinaryOp, Cast, Intrinsic, IntrinsicOp, Lit, Load, Scalar
from inlay.loop.stmt import For, LoopKind, Store
from inlay.loop.walk import operands, scalars_below

WIDTHS = (16, 8, 4, 2)
MOST_OPERATIONS = 6
_NAMES = {F32: "float", I32: "int", I8: "char", U8: "uchar", I16: "short", U16: "ushort"}
_SIGNS = {BinaryOp.ADD: PLUS, BinaryOp.SUB: MINUS, BinaryOp.MUL: TIMES, BinaryOp.DIV: OVER}
_SPECIAL = {BinaryOp.MIN, BinaryOp.MAX}
_OPERATIONS = {
    F32: frozenset(_SIGNS) | _SPECIAL,
    I32: frozenset({BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL}) | _SPECIAL,
}
WORDS = frozenset({"min", "max", "select"}) | {
    f"{stem}{n}" for stem in (*_NAMES.values(), "uint", "convert_int", "as_int", "as_uint") for n in WIDTHS
}
"""Names that emitted text has for vectors: nothing else may have them."""


def vector_store(s: For) -> Store | None:
    """Return the store that a loop is vectors of; None where it stays a loop."""
    store = s.body
    if s.kind is not LoopKind.VECTOR or (s.extent.value or 0) < WIDTHS[-1]:
        return None
    if not isinstance(store, Store) or store.buffer.dtype not in _OPERATIONS:
        return None
    if _step(store.buffer, store.indices, s.var) != 1:
        return None
    below = list(scalars_below(store.value))
    if sum(1 for x in below if operands(x)) > MOST_OPERATIONS:
        return None
    return store if all(_is_known(x, s.var) for x in below) else None


def _is_known(x: Scalar, var: Sym) -> bool:
    """Whether vectors have a node of an expression."""
    match x:
        case Lit(dtype=dtype):
            return dtype in _NAMES
        case Load(buffer=buffer, indices=indices):
            return buffer.dtype in _NAMES and _step(buffer, indices, var) in (0, 1)
        case Binary(op=op, dtype=dtype, lhs=lhs):
            return lhs.dtype == dtype and op in _OPERATIONS.get(dtype, ())
        case Intrinsic(op=op, dtype=dtype):
            return op is IntrinsicOp.FMA and dtype == F32
        case Cast(dtype=dtype, operand=operand):
            return dtype == I32 and operand.dtype in _NAMES and operand.dtype != F32
        case _:
            return False


def _step(buffer: Buffer, indices: tuple[Int, ...], var: Sym) -> int | None:
    """Return how many elements further on the next iteration is; None where that depends."""
    if not any(var in symbols(e) for e in indices):
        return 0
    here = flat_index(buffer, indices)
    step = rebuild(here, {var: _next(var)}.get) - here
    return step.value


def _next(var: Sym) -> Int:
    return Int((((var,), 1),)) + 1


def chunks(extent: int) -> Iterator[tuple[int, int]]:
    """Yield start and width of the vectors of so many elements; what is left over has width 1."""
    at = 0
    while at < extent:
        width = next((w for w in WIDTHS if w <= extent - at), 1)
        yield at, width
        at += width


class VectorText:
    """Writes the vectors of one phase.

    Args:
        helpers: of the file.
        element: gives the text of an element of a buffer.
        space: gives the qualifier of the memory that a buffer is in, with a space behind it.
    """

    def __init__(
        self,
        helpers: Helpers,
        element: Callable[[Buffer, tuple[Int, ...]], str],
        space: Callable[[Buffer], str],
    ) -> None:
        self._helpers = helpers
        self._element = element
        self._space = space

    def store(self, s: Store, var: Sym, first: Int, width: int) -> str:
        """Return the statement that stores the elements from `var` = `first` on.

        Requires:
            `vector_store` returned `s` for a loop of `var`.
        """
        writer = _Writer(self._helpers, self._element, self._space, var, first, width)
        target = writer.vector(s.buffer, s.indices, "")
        return f"{target} = {writer.value(s.value).text};"


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes one vector."""

    _helpers: Helpers
    _element: Callable[[Buffer, tuple[Int, ...]], str]
    _space: Callable[[Buffer], str]
    _var: Sym
    _first: Int
    _width: int

    def element(self, buffer: Buffer, indices: tuple[Int, ...]) -> str:
        at = {self._var: self._first}.get
        return self._element(buffer, tuple(rebuild(e, at) for e in indices))

    def vector(self, buffer: Buffer, indices: tuple[Int, ...], const: str) -> str:
        """Return the vector in memory that begins at an element."""
        dtype = buffer.dtype
        kind = self._helpers.use_vector_type(_NAMES[dtype], dtype, self._width)
        return f"*({const}{self._space(buffer)}{kind} *)&{self.element(buffer, indices)}"

    def value(self, x: Scalar) -> Text:
        match x:
            case Lit(value=value, dtype=dtype):
                return self._repeated(number(value, dtype), dtype)
            case Load(buffer=buffer, indices=indices):
                if _step(buffer, indices, self._var) == 0:
                    return self._repeated(Text(self.element(buffer, indices)), buffer.dtype)
                return Text(self.vector(buffer, indices, "const "), UNARY)
            case Cast(operand=operand, dtype=dtype):
                return call(f"convert_{_NAMES[dtype]}{self._width}", self.value(operand))
            case Intrinsic(args=args):
                return call("fma", *(self.value(a) for a in args))
            case Binary(op=op, lhs=lhs, rhs=rhs, dtype=dtype):
                return self._binary(op, self.value(lhs), self.value(rhs), dtype)
            case _:
                raise InternalError(f"{type(x).__name__} in a vector", where="codegen.c_vector")

    def _repeated(self, x: Text, dtype: DType) -> Text:
        return Text(f"({_NAMES[dtype]}{self._width})({x.text})")

    def _binary(self, op: BinaryOp, a: Text, b: Text, dtype: DType) -> Text:
        if dtype == F32:
            if op in _SIGNS:
                return infix(a, _SIGNS[op], b)
            return call(self._helpers.use_vector(op.value, self._width), a, b)
        if op in _SPECIAL:
            return call(op.value, a, b)
        # Sums and products wrap, which C has only for unsigned types.
        unsigned = f"as_uint{self._width}"
        whole = infix(call(unsigned, a), _SIGNS[op], call(unsigned, b))
        return call(f"as_int{self._width}", whole)
