"""What type rules have in common: kinds of arguments, axes, broadcasting, windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from inlay.arith.dtype import ALL, BF16, BOOL, F16, F32, F64, STRING, DType
from inlay.arith.expr import FloorDiv, Int, Max, Min, Mod, Sym, floordiv, lit, maximum, minimum
from inlay.ir.op import TypeContext
from inlay.ir.type_printer import type_text
from inlay.ir.types import IntType, ShapeType, TensorType, Type

FLOATS: tuple[DType, ...] = (F16, BF16, F32, F64)
INTEGERS: tuple[DType, ...] = tuple(d for d in ALL if d.is_integer)
NUMBERS: tuple[DType, ...] = FLOATS + INTEGERS
BOOLS: tuple[DType, ...] = (BOOL,)
ELEMENTS: tuple[DType, ...] = tuple(d for d in ALL if d is not STRING)

Types = tuple[Type, ...]

_NO_NUMBERS = (
    "strings are moved and compared for equality; string_order gives their places in order, "
    "string_to_float what they say"
)


class Knows(Protocol):
    """The part of a type context that only asks."""

    def known_equal(self, a: Int, b: Int) -> bool:
        """Whether two integers are proved equal."""
        ...


def tensor(ctx: TypeContext, args: Types, i: int, dtypes: Sequence[DType] = ALL) -> TensorType:
    """Return the type of an argument that must be a tensor of one of these dtypes."""
    t = args[i]
    if not isinstance(t, TensorType):
        raise ctx.fail(f"argument {i + 1} is {type_text(t)}, needed a tensor")
    if t.dtype not in dtypes:
        names = ", ".join(d.name for d in dtypes)
        raise ctx.fail(
            f"argument {i + 1} has element type {t.dtype}, needed one of {names}",
            id="type.dtype-mismatch",
            hint="insert a cast" if not t.dtype.is_host_only else _NO_NUMBERS,
        )
    return t


def tensors(ctx: TypeContext, args: Types, dtypes: Sequence[DType] = ALL) -> list[TensorType]:
    """Return the types of all arguments, which must be tensors of one dtype among these."""
    found = [tensor(ctx, args, i, dtypes) for i in range(len(args))]
    for i, t in enumerate(found):
        same_dtype(ctx, found[0].dtype, t.dtype, f"argument {i + 1}")
    return found


def same_dtype(ctx: TypeContext, needed: DType, found: DType, what: str) -> None:
    """Require a dtype."""
    if found is not needed:
        raise ctx.fail(
            f"{what} has element type {found}, needed {needed}",
            id="type.dtype-mismatch",
            hint="insert a cast",
        )


def weights_of(ctx: TypeContext, args: Types, x: TensorType) -> TensorType:
    """Return the type of packed weights: of the dtype of `x`, or narrower floats, which are widened."""
    w = tensor(ctx, args, 1, NUMBERS)
    if not (x.dtype is F32 and w.dtype in (F16, BF16)):
        same_dtype(ctx, x.dtype, w.dtype, "argument 2")
    return w


def of_rank(ctx: TypeContext, t: TensorType, rank: int, what: str) -> TensorType:
    """Require a rank."""
    if len(t.shape) != rank:
        raise ctx.fail(f"{what} has rank {len(t.shape)}, needed rank {rank}", id="type.rank-mismatch")
    return t


def least_rank(ctx: TypeContext, t: TensorType, rank: int, what: str) -> TensorType:
    """Require at least a rank."""
    if len(t.shape) < rank:
        raise ctx.fail(f"{what} has rank {len(t.shape)}, needed at least {rank}", id="type.rank-mismatch")
    return t


def rank_between(ctx: TypeContext, t: TensorType, least: int, most: int, what: str) -> TensorType:
    """Require a rank of `least` to `most`."""
    if not least <= len(t.shape) <= most:
        found = f"{what} has rank {len(t.shape)}, needed {least} to {most}"
        raise ctx.fail(found, id="type.rank-mismatch")
    return t


def same_shape(ctx: TypeContext, t: TensorType, shape: Sequence[Int], what: str) -> TensorType:
    """Require a shape."""
    of_rank(ctx, t, len(shape), what)
    for i, (found, needed) in enumerate(zip(t.shape, shape, strict=True)):
        ctx.equal(found, needed, f"dim {i} of {what}")
    return t


def int_value(ctx: TypeContext, args: Types, i: int) -> Int:
    """Return the value of an argument that must be an `int`; a fresh symbol when unknown."""
    t = args[i]
    if not isinstance(t, IntType):
        raise ctx.fail(f"argument {i + 1} is {type_text(t)}, needed int", hint=_crossing(t))
    return _known(ctx, t.value)


def shape_values(ctx: TypeContext, args: Types, i: int) -> tuple[Int, ...]:
    """Return the values of an argument that must be a `shape` of known values."""
    t = args[i]
    if not isinstance(t, ShapeType):
        raise ctx.fail(f"argument {i + 1} is {type_text(t)}, needed shape", hint=_crossing(t))
    return tuple(_known(ctx, v) for v in t.values)


def _known(ctx: TypeContext, value: Int | None) -> Int:
    if value is None:
        raise ctx.fail(
            "found a control value that has no name, needed one that is bound by a let",
            hint="bind the operand with a let, which names its value",
        )
    return value


def _crossing(t: Type) -> str:
    return "use to_control" if isinstance(t, TensorType) else ""


def axis_of(ctx: TypeContext, axis: int, rank: int) -> int:
    """Return an axis counted from the front; negative ones count from the end."""
    if not -rank <= axis < rank:
        raise ctx.fail(f"found axis {axis}, needed one of a tensor of rank {rank}", id="type.bad-axis")
    return axis % rank


def axes_of(ctx: TypeContext, axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Return axes counted from the front, sorted; they must be distinct."""
    found = [axis_of(ctx, a, rank) for a in axes]
    if len(set(found)) != len(found):
        raise ctx.fail(f"found axes {tuple(found)}, needed distinct ones", id="type.bad-axis")
    return tuple(sorted(found))


def fronts(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Return axes that a type rule has accepted, counted from the front, sorted."""
    return tuple(sorted(a % rank for a in axes))


def broadcast(ctx: TypeContext, shapes: Sequence[tuple[Int, ...]]) -> tuple[Int, ...]:
    """Return the common shape of tensors aligned at their last dims.

    A dim that is the number 1 adapts to the other; all else must be equal, at run time if it cannot
    be proved: a symbol never broadcasts silently.
    """
    rank = max((len(s) for s in shapes), default=0)
    result: list[Int] = []
    for d in range(-rank, 0):
        dim = lit(1)
        for s in shapes:
            if len(s) < -d or s[d] == 1:
                continue
            dim = s[d] if dim == 1 else _common(ctx, dim, s[d], d + rank)
        result.append(dim)
    return tuple(result)


def _common(ctx: TypeContext, a: Int, b: Int, axis: int) -> Int:
    return a if a == b else ctx.equal(a, b, f"broadcast of axis {axis}")


def non_negative(ctx: Knows, value: Int) -> Int:
    """Return `max(value, 0)`, as `value` itself where it is known not to be negative."""
    return greater(ctx, value, lit(0))


def greater(ctx: Knows, a: Int, b: Int) -> Int:
    """Return the greater of two, without `max` where the context knows which it is."""
    return _decided(ctx, maximum(a, b), a, b)


def lesser(ctx: Knows, a: Int, b: Int) -> Int:
    """Return the lesser of two, without `min` where the context knows which it is."""
    return _decided(ctx, minimum(a, b), a, b)


MOST_CHOICES = 3
"""Extremes nested deeper than this are not asked about: each may double the time of an answer."""


def _decided(ctx: Knows, extreme: Int, a: Int, b: Int) -> Int:
    """Return which of two an extreme is, or the extreme where that is not known."""
    if extreme.value is not None or _choices(extreme) > MOST_CHOICES:
        return extreme
    return a if ctx.known_equal(extreme, a) else b if ctx.known_equal(extreme, b) else extreme


def _choices(e: Int) -> int:
    """Count the minima and maxima in an integer, nested ones included."""
    total = 0
    for monomial, _ in e.terms:
        for atom in monomial:
            match atom:
                case Min(args=args) | Max(args=args):
                    total += 1 + sum(map(_choices, args))
                case FloorDiv(numerator=p, denominator=q) | Mod(numerator=p, denominator=q):
                    total += _choices(p) + _choices(q)
                case Sym():
                    pass
    return total


def per_axis(
    ctx: TypeContext, given: tuple[int, ...], count: int, default: int, what: str, least: int
) -> tuple[int, ...]:
    """Return one number per spatial axis; `()` means the default for each."""
    if not given:
        return (default,) * count
    if len(given) != count:
        raise ctx.fail(f"found {len(given)} {what}, needed {count}")
    if min(given) < least:
        raise ctx.fail(f"found {what} {given}, needed at least {least}")
    return given


def window_dim(
    ctx: TypeContext,
    size: Int,
    kernel: Int,
    *,
    stride: int,
    dilation: int,
    pad: tuple[int, int],
    ceil: bool = False,
) -> Int:
    """Return how many windows of `kernel` elements fit into a padded axis.

    With `ceil` a last window may stick out behind, if it begins in the axis or before it.
    """
    reach = (kernel - 1) * dilation + 1
    room = size + (pad[0] + pad[1]) - reach
    ctx.at_least(room, 0, "the window fits into the padded input")
    if not ceil:
        return floordiv(room, lit(stride)) + 1
    return lesser(
        ctx,
        floordiv(room + (stride - 1), lit(stride)) + 1,
        floordiv(size + (pad[0] + stride - 1), lit(stride)),
    )
