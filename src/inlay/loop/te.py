"""Tensor expressions: what an operator computes, one element at a time.

A tensor is a placeholder (an input) or a compute: a shape and a scalar for each index. Compute rules
of operators build them; `lower.ops_to_loops` turns a group of them into schedulable blocks.

    def matmul(a: Tensor, b: Tensor) -> Tensor:
        k = reduce_axis("k", a.shape[1])
        return compute((a.shape[0], b.shape[1]),
                       lambda i, j: sum_over(k, a[i, k] * b[k, j]), name="matmul")

Indices are `Int`s: axes of the compute and reduction axes come as `Int`s, so `a[i, 2*j + k]` is
integer arithmetic and nothing else. Elements are `ScalarValue`s, a thin wrapper around `loop.scalar`
with the Python operators, used only while building; the stored form is the scalar. An index may itself
be a `ScalarValue` of i64 (gather): it is bound to a symbol by a `Bind` around the load that uses it.

Numbers written in Python take the dtype of the other operand. Comparison for equality is the method
`equals`, since `==` on a builder would be too easy to use by mistake. `/` is the division of floats;
integers divide by `trunc_div`, `//` (both operands rounded toward minus infinity) and `%`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from inlay.arith.dtype import BOOL, I64, DType
from inlay.arith.expr import Int, Sym, fresh, to_int
from inlay.loop.buffer import Buffer
from inlay.loop.scalar import (
    COMPARISONS,
    Binary,
    BinaryOp,
    Bind,
    Cast,
    Dot,
    Index,
    Intrinsic,
    IntrinsicOp,
    Lit,
    Load,
    Reduce,
    ReduceAxis,
    ReduceOp,
    Scalar,
    Select,
    Unary,
    UnaryOp,
)


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A tensor of a tensor expression. Identity is the object.

    Attributes:
        buffer: names it, and gives shape and dtype; loads in bodies refer to it.
        axes: index symbols of a compute, one per dimension; empty for placeholders and rank 0.
        body: the element at `axes`; None for a placeholder.
        inputs: tensors whose buffers the body loads, in order of first use.
        tag: what kind of computation it is, for schedule rules (`"matmul"`); may be empty.
        stored: whether a nest of its own computes it, also where it would be inlined for being cheap.
    """

    buffer: Buffer
    axes: tuple[Sym, ...] = ()
    body: Scalar | None = None
    inputs: tuple[Tensor, ...] = ()
    tag: str = ""
    stored: bool = False

    @property
    def shape(self) -> tuple[Int, ...]:
        """The extents."""
        return self.buffer.shape

    @property
    def dtype(self) -> DType:
        """The element format."""
        return self.buffer.dtype

    @property
    def ndim(self) -> int:
        """The rank."""
        return len(self.buffer.shape)

    def __getitem__(self, indices: IndexLike | tuple[IndexLike, ...]) -> ScalarValue:
        """Return one element; `t[()]` for rank 0."""
        given = indices if isinstance(indices, tuple) else (indices,)
        assert len(given) == self.ndim, f"{len(given)} indices into rank {self.ndim}"
        plain: list[Int] = []
        bound: list[tuple[Sym, ScalarValue]] = []
        for index in given:
            if isinstance(index, ScalarValue):
                assert index.dtype is I64, f"an index has dtype i64, not {index.dtype}"
                sym = fresh("at")
                bound.append((sym, index))
                plain.append(to_int(sym))
            else:
                plain.append(to_int(index))
        scalar: Scalar = Load(self.buffer, tuple(plain))
        tensors: tuple[Tensor, ...] = (self,)
        for sym, index in reversed(bound):
            scalar = Bind(sym, index.scalar, scalar)
            tensors = _union(index.tensors, tensors)
        return ScalarValue(scalar, tensors)


class ScalarValue:
    """A scalar under construction: the stored form, and the tensors it loads from.

    Operators build new values; a Python number as the other operand takes this value's dtype.
    """

    __slots__ = ("scalar", "tensors")

    def __init__(self, scalar: Scalar, tensors: tuple[Tensor, ...] = ()) -> None:
        self.scalar = scalar
        self.tensors = tensors

    @property
    def dtype(self) -> DType:
        """The dtype of the scalar."""
        return self.scalar.dtype

    def __add__(self, other: ValueLike) -> ScalarValue:
        return _binary(BinaryOp.ADD, self, other)

    def __radd__(self, other: ValueLike) -> ScalarValue:
        return _binary(BinaryOp.ADD, other, self)

    def __sub__(self, other: ValueLike) -> ScalarValue:
        return _binary(BinaryOp.SUB, self, other)

    def __rsub__(self, other: ValueLike) -> ScalarValue:
        return _binary(BinaryOp.SUB, other, self)

    def __mul__(self, other: ValueLike) -> ScalarValue:
        return _binary(BinaryOp.MUL, self, other)

    def __rmul__(self, other: ValueLike) -> ScalarValue:
        return _binary(BinaryOp.MUL, other, self)

    def __truediv__(self, other: ValueLike) -> ScalarValue:
        assert self.dtype.is_float, "`/` divides floats; integers have trunc_div and `//`"
        return _binary(BinaryOp.DIV, self, other)

    def __rtruediv__(self, other: ValueLike) -> ScalarValue:
        assert self.dtype.is_float, "`/` divides floats; integers have trunc_div and `//`"
        return _binary(BinaryOp.DIV, other, self)

    def __floordiv__(self, other: ValueLike) -> ScalarValue:
        return _binary(BinaryOp.FLOORDIV, self, other)

    def __mod__(self, other: ValueLike) -> ScalarValue:
        return _binary(BinaryOp.FLOORMOD, self, other)

    def __and__(self, other: ValueLike) -> ScalarValue:
        return _binary(BinaryOp.AND, self, other)

    def __or__(self, other: ValueLike) -> ScalarValue:
        return _binary(BinaryOp.OR, self, other)

    def __xor__(self, other: ValueLike) -> ScalarValue:
        return _binary(BinaryOp.XOR, self, other)

    def __lshift__(self, other: ValueLike) -> ScalarValue:
        return _binary(BinaryOp.SHL, self, other)

    def __rshift__(self, other: ValueLike) -> ScalarValue:
        return _binary(BinaryOp.SHR, self, other)

    def __neg__(self) -> ScalarValue:
        return unary(UnaryOp.NEG, self)

    def __invert__(self) -> ScalarValue:
        return unary(UnaryOp.NOT if self.dtype is BOOL else UnaryOp.BITNOT, self)

    def __lt__(self, other: ValueLike) -> ScalarValue:
        return _binary(BinaryOp.LT, self, other)

    def __le__(self, other: ValueLike) -> ScalarValue:
        return _binary(BinaryOp.LE, self, other)

    def __gt__(self, other: ValueLike) -> ScalarValue:
        return _binary(BinaryOp.LT, other, self)

    def __ge__(self, other: ValueLike) -> ScalarValue:
        return _binary(BinaryOp.LE, other, self)

    def equals(self, other: ValueLike) -> ScalarValue:
        """Compare for equality."""
        return _binary(BinaryOp.EQ, self, other)

    def differs(self, other: ValueLike) -> ScalarValue:
        """Compare for inequality; true when an operand is NaN."""
        return _binary(BinaryOp.NE, self, other)

    def cast(self, dtype: DType) -> ScalarValue:
        """Convert the value; returns itself where there is nothing to convert."""
        if dtype is self.dtype:
            return self
        return ScalarValue(Cast(self.scalar, dtype), self.tensors)

    def __bool__(self) -> bool:
        raise TypeError("a scalar under construction has no truth value; use select")


ValueLike = ScalarValue | Int | int | float | bool
IndexLike = Int | int | Sym | ScalarValue


class Axis(Int):
    """A reduction variable: the integer that runs over the axis."""

    __slots__ = ("axis",)

    def __init__(self, axis: ReduceAxis) -> None:
        super().__init__(to_int(axis.sym).terms)
        self.axis = axis


def placeholder(shape: Iterable[Int | int], dtype: DType, name: str = "x") -> Tensor:
    """Return an input of an expression."""
    return Tensor(Buffer(name, tuple(map(to_int, shape)), dtype))


def compute(
    shape: Iterable[Int | int],
    body: Callable[..., ScalarValue],
    *,
    name: str = "y",
    tag: str = "",
    stored: bool = False,
) -> Tensor:
    """Return the tensor whose element at `i, j, ...` is `body(i, j, ...)`.

    Args:
        shape: extents.
        body: called once, with one `Int` per dimension.
        name: names the buffer.
        tag, stored: see `Tensor`.
    """
    extents = tuple(map(to_int, shape))
    axes = tuple(fresh(f"i{d}") for d in range(len(extents)))
    value = body(*map(to_int, axes))
    return Tensor(Buffer(name, extents, value.dtype), axes, value.scalar, value.tensors, tag, stored)


def reduce_axis(name: str, extent: Int | int) -> Axis:
    """Return a fresh reduction variable over `0 .. extent`."""
    return Axis(ReduceAxis(fresh(name), to_int(extent)))


def const(value: float, dtype: DType) -> ScalarValue:
    """Return a number; floats may be infinite or NaN."""
    if dtype is BOOL:
        return ScalarValue(Lit(bool(value), dtype))
    return ScalarValue(Lit(float(value) if dtype.is_float else int(value), dtype))


def index(value: Int | int | Sym, dtype: DType = I64) -> ScalarValue:
    """Return an integer expression over axes and dims as a scalar."""
    return ScalarValue(Index(to_int(value))).cast(dtype)


def unary(op: UnaryOp, operand: ScalarValue) -> ScalarValue:
    """Apply an operation of one operand."""
    return ScalarValue(Unary(op, operand.scalar, operand.dtype), operand.tensors)


def binary(op: BinaryOp, lhs: ValueLike, rhs: ValueLike) -> ScalarValue:
    """Apply an operation of two operands of one dtype; at least one is a `ScalarValue`."""
    return _binary(op, lhs, rhs)


def intrinsic(op: IntrinsicOp, *args: ScalarValue, dtype: DType | None = None) -> ScalarValue:
    """Apply a named function; the result has the dtype of the first argument unless it is given."""
    tensors: tuple[Tensor, ...] = ()
    for a in args:
        tensors = _union(tensors, a.tensors)
    return ScalarValue(Intrinsic(op, tuple(a.scalar for a in args), dtype or args[0].dtype), tensors)


def minimum(lhs: ValueLike, rhs: ValueLike) -> ScalarValue:
    """Return the lesser value; NaN if either is."""
    return _binary(BinaryOp.MIN, lhs, rhs)


def maximum(lhs: ValueLike, rhs: ValueLike) -> ScalarValue:
    """Return the greater value; NaN if either is."""
    return _binary(BinaryOp.MAX, lhs, rhs)


def trunc_div(lhs: ValueLike, rhs: ValueLike) -> ScalarValue:
    """Divide integers, rounding toward zero; the divisor must not be 0."""
    return _binary(BinaryOp.DIV, lhs, rhs)


def trunc_rem(lhs: ValueLike, rhs: ValueLike) -> ScalarValue:
    """Return the remainder of `trunc_div`, with the sign of the dividend."""
    return _binary(BinaryOp.REM, lhs, rhs)


def select(condition: ScalarValue, then: ValueLike, otherwise: ValueLike) -> ScalarValue:
    """Return one of two values; loads are made only on the side that is chosen."""
    a, b = _pair(then, otherwise)
    tensors = _union(_union(condition.tensors, a.tensors), b.tensors)
    return ScalarValue(Select(condition.scalar, a.scalar, b.scalar, a.dtype), tensors)


def all_of(*conditions: ScalarValue | None) -> ScalarValue | None:
    """Return the conjunction, skipping absent conditions; None when all are absent."""
    result: ScalarValue | None = None
    for c in conditions:
        if c is not None:
            result = c if result is None else result & c
    return result


def guarded(condition: ScalarValue | None, then: ScalarValue, otherwise: ValueLike) -> ScalarValue:
    """Return `select(condition, then, otherwise)`, or `then` when there is no condition."""
    return then if condition is None else select(condition, then, otherwise)


def dot(
    acc: ScalarValue, width: int, factors: Callable[[Int], tuple[ScalarValue, ScalarValue]]
) -> ScalarValue:
    """Add a few products of narrow numbers to a sum: see `Dot`.

    Args:
        acc: the sum.
        width: how many products.
        factors: gives those of a number of a product.
    """
    sym = fresh("j")
    a, b = factors(to_int(sym))
    tensors = _union(acc.tensors, _union(a.tensors, b.tensors))
    return ScalarValue(Dot(sym, width, acc.scalar, a.scalar, b.scalar), tensors)


def sum_over(axes: Axis | Sequence[Axis], body: ScalarValue) -> ScalarValue:
    """Add up `body` over the axes, outermost first. Only as the whole body of a compute."""
    return reduce_over(ReduceOp.SUM, axes, body)


def min_over(axes: Axis | Sequence[Axis], body: ScalarValue) -> ScalarValue:
    """Return the least `body` over the axes. Only as the whole body of a compute."""
    return reduce_over(ReduceOp.MIN, axes, body)


def max_over(axes: Axis | Sequence[Axis], body: ScalarValue) -> ScalarValue:
    """Return the greatest `body` over the axes. Only as the whole body of a compute."""
    return reduce_over(ReduceOp.MAX, axes, body)


def reduce_over(
    op: ReduceOp, axes: Axis | Sequence[Axis], body: ScalarValue, init: ScalarValue | None = None
) -> ScalarValue:
    """Combine `body` over the axes; `init` replaces the identity of `op` as the first value."""
    given = (axes,) if isinstance(axes, Axis) else tuple(axes)
    assert given, "a reduction has at least one axis"
    tensors = body.tensors if init is None else _union(init.tensors, body.tensors)
    start = None if init is None else init.scalar
    node = Reduce(op, tuple(a.axis for a in given), body.scalar, body.dtype, start)
    return ScalarValue(node, tensors)


def _binary(op: BinaryOp, lhs: ValueLike, rhs: ValueLike) -> ScalarValue:
    a, b = _pair(lhs, rhs)
    dtype = BOOL if op in COMPARISONS else a.dtype
    return ScalarValue(Binary(op, a.scalar, b.scalar, dtype), _union(a.tensors, b.tensors))


def _pair(lhs: ValueLike, rhs: ValueLike) -> tuple[ScalarValue, ScalarValue]:
    """Wrap numbers in the dtype of the other operand and check that both agree."""
    if isinstance(lhs, ScalarValue):
        a, b = lhs, _wrap(rhs, lhs.dtype)
    else:
        assert isinstance(rhs, ScalarValue), "one operand is a Value"
        a, b = _wrap(lhs, rhs.dtype), rhs
    assert a.dtype is b.dtype, f"operands have dtypes {a.dtype} and {b.dtype}"
    return a, b


def _wrap(value: ValueLike, dtype: DType) -> ScalarValue:
    if isinstance(value, ScalarValue):
        return value
    if isinstance(value, Int):
        return const(value.value, dtype) if value.value is not None else index(value, dtype)
    return const(value, dtype)


def _union(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    if not b or a is b:
        return a
    if not a:
        return b
    return tuple(dict.fromkeys(a + b))
