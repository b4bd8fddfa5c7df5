"""Layout: the same elements elsewhere. Reshape, transpose, pad, concat, split, broadcast, tile.

Shapes, sizes and paddings are control operands (`shape`), so they may be symbolic; adding and
removing dims of 1 is `reshape`, filling a tensor with one value is `broadcast_to`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from inlay.arith.dtype import BOOL, F32, I32
from inlay.arith.expr import Int, floordiv, fresh, lit, maximum, minimum, mod, product, to_int
from inlay.ir.builder import Builder
from inlay.ir.expr import Expr
from inlay.ir.make import shape_const
from inlay.ir.op import NoAttrs, TypeContext
from inlay.ir.types import ShapeType, TensorType, TupleType
from inlay.loop import te
from inlay.loop.buffer import Buffer
from inlay.loop.scalar import Load
from inlay.loop.stmt import For, LoopKind, Seq, Stmt, Store
from inlay.ops import _rules as rules
from inlay.ops import slicing
from inlay.ops._build import element
from inlay.ops._define import OpDef, Pattern, Sample, define
from inlay.ops._rules import Types
from inlay.ops._samples import noise

Array = np.ndarray
Ints = tuple[Int, ...]
"""A shape operand as a compute rule sees it."""


@dataclass(frozen=True, slots=True)
class PermAttrs:
    """`perm`: for each axis of the result, the axis of the operand."""

    perm: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AxisAttrs:
    """`axis`: joined or cut along."""

    axis: int = 0


@dataclass(frozen=True, slots=True)
class AxesAttrs:
    """`axes`: to which the operator applies, in the order of its other operands."""

    axes: tuple[int, ...]


class PadMode(StrEnum):
    """What stands outside: a value, a mirror at the last element, the last element, a repetition."""

    CONSTANT = "constant"
    REFLECT = "reflect"
    EDGE = "edge"
    WRAP = "wrap"


@dataclass(frozen=True, slots=True)
class PadAttrs:
    """`mode`: what stands outside."""

    mode: PadMode = PadMode.CONSTANT


# --------------------------------------------------------------------------- reshape


def _reshape_rule(ctx: TypeContext, a: NoAttrs, args: Types) -> TensorType:
    x, shape = rules.tensor(ctx, args, 0), rules.shape_values(ctx, args, 1)
    for i, d in enumerate(shape):
        ctx.at_least(d, 0, f"dim {i} of the new shape")
    ctx.equal(product(x.shape), product(shape), "elements before and after reshape")
    return TensorType(shape, x.dtype)


def _reshape_reference(a: NoAttrs, x: Array, shape: tuple[int, ...]) -> Array:
    return x.reshape(shape)


def _reshape_compute(a: NoAttrs, operands: Sequence[Any], result: TensorType) -> te.Tensor:
    return reshaped(operands[0], result.shape)


def reshaped(x: te.Tensor, shape: Sequence[Int], name: str = "reshape") -> te.Tensor:
    """Return the same elements, in row-major order, in another shape.

    Dims are matched in groups of equal products, so that an index of the result that belongs to
    dims which do not change stays itself: `[b, s, h*d]` to `[b, s, h, d]` divides nothing by `s`.
    """
    groups = _groups(x.shape, shape)

    def body(*i: Int) -> te.Value:
        at: list[Int] = []
        for (i0, i1), (o0, o1) in groups:
            flat = lit(0)
            for d in range(o0, o1):
                flat = flat * shape[d] + i[d]
            at += _unflatten(flat, x.shape[i0:i1])
        return x[tuple(at)]

    return te.compute(shape, body, name=name)


Span = tuple[int, int]


def _groups(a: Sequence[Int], b: Sequence[Int]) -> list[tuple[Span, Span]]:
    """Cut two shapes of one size into the shortest runs of equal products."""
    found: list[tuple[Span, Span]] = []
    i = j = 0
    while i < len(a) or j < len(b):
        cut = _shortest(a, b, i, j)
        if cut is None:
            found.append(((i, len(a)), (j, len(b))))
            break
        found.append(((i, cut[0]), (j, cut[1])))
        i, j = cut
    return found


def _shortest(a: Sequence[Int], b: Sequence[Int], i: int, j: int) -> Span | None:
    """Return the ends of the shortest runs from i and j with equal products; None if there is none."""
    best: Span | None = None
    left = lit(1)
    for end_a in range(i, len(a) + 1):
        if end_a > i:
            left = left * a[end_a - 1]
        right = lit(1)
        for end_b in range(j, len(b) + 1):
            if end_b > j:
                right = right * b[end_b - 1]
            taken = end_a - i + end_b - j
            if taken and left == right and (best is None or taken < sum(best) - i - j):
                best = (end_a, end_b)
    return best


def _unflatten(flat: Int, dims: Sequence[Int]) -> list[Int]:
    """Return the row-major index of an element by its number."""
    out: list[Int] = []
    for k, d in enumerate(dims):
        inner = floordiv(flat, product(dims[k + 1 :]))
        out.append(lit(0) if d == 1 else inner if k == 0 else mod(inner, d))
    return out


def _reshape_samples() -> list[Sample]:
    x = noise((2, 3, 8), F32, seed="reshape")
    none = NoAttrs()
    return [
        Sample("split", none, (x, (2, 3, 2, 4)), (("b", "s", 8), ("b", "s", 2, 4)), exact=True),
        Sample("merge", none, (x, (6, 8)), (("b", 3, 8), None), exact=True),
        Sample("mix", none, (x, (4, 12)), exact=True),
        Sample("ones", none, (x, (1, 2, 3, 1, 8, 1)), exact=True),
        Sample("flat", none, (x, (48,)), exact=True),
        Sample("to rank 0", none, (x[:1, :1, :1], ()), exact=True),
        Sample("from rank 0", none, (np.asarray(x[0, 0, 0]), (1, 1)), exact=True),
        Sample("empty", none, (x[:0], (3, 0, 5)), exact=True),
        Sample("bools", none, (x > 0, (8, 6)), exact=True),
    ]


# --------------------------------------------------------------------------- transpose, flip


def _transpose_rule(ctx: TypeContext, a: PermAttrs, args: Types) -> TensorType:
    x = rules.tensor(ctx, args, 0)
    if sorted(a.perm) != list(range(len(x.shape))):
        raise ctx.fail(
            f"found perm {a.perm}, needed each axis of rank {len(x.shape)} once", id="type.bad-axis"
        )
    return TensorType(tuple(x.shape[p] for p in a.perm), x.dtype)


def _transpose_reference(a: PermAttrs, x: Array) -> Array:
    return x.transpose(a.perm)


def _transpose_compute(
    a: PermAttrs, operands: Sequence[te.Tensor], result: TensorType
) -> te.Tensor:
    (x,) = operands
    inverse = [a.perm.index(d) for d in range(x.ndim)]
    return te.compute(
        result.shape, lambda *i: x[tuple(i[inverse[d]] for d in range(x.ndim))], name="transpose"
    )


def _transpose_samples() -> list[Sample]:
    x = noise((2, 3, 4, 5), F32, seed="transpose")
    names = (("a", "b", "c", "d"),)
    return [
        Sample("swap", PermAttrs((1, 0)), (x[0, 0],), (("m", "n"),), exact=True),
        Sample("last first", PermAttrs((0, 3, 1, 2)), (x,), names, exact=True),
        Sample("heads", PermAttrs((0, 2, 1, 3)), (x,), names, exact=True),
        Sample("cycle", PermAttrs((2, 0, 3, 1)), (x,), names, exact=True),
        Sample("same", PermAttrs((0, 1)), (x[0, 0],), (("m", "n"),), exact=True),
        Sample("rank 0", PermAttrs(()), (np.asarray(x[0, 0, 0, 0]),), exact=True),
        Sample("larger", PermAttrs((1, 0)), (noise((37, 50), I32),), (("m", "n"),), exact=True),
    ]


def _flip_rule(ctx: TypeContext, a: AxesAttrs, args: Types) -> TensorType:
    x = rules.tensor(ctx, args, 0)
    rules.axes_of(ctx, a.axes, len(x.shape))
    return x


def _flip_reference(a: AxesAttrs, x: Array) -> Array:
    return np.flip(x, a.axes)


def _flip_compute(a: AxesAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    (x,) = operands
    axes = rules.fronts(a.axes, x.ndim)

    def body(*i: Int) -> te.Value:
        return x[tuple(x.shape[d] - 1 - v if d in axes else v for d, v in enumerate(i))]

    return te.compute(result.shape, body, name="flip")


def _flip_samples() -> list[Sample]:
    x = noise((2, 3, 4), F32, seed="flip")
    return [
        Sample("one", AxesAttrs((-1,)), (x,), (("a", "b", "c"),), exact=True),
        Sample("two", AxesAttrs((0, 1)), (x,), (("a", "b", "c"),), exact=True),
    ]


# --------------------------------------------------------------------------- pad


def _pad_rule(ctx: TypeContext, a: PadAttrs, args: Types) -> TensorType:
    x, pads = rules.tensor(ctx, args, 0), rules.shape_values(ctx, args, 1)
    rank = len(x.shape)
    if len(pads) != 2 * rank:
        raise ctx.fail(f"found {len(pads)} pads, needed {2 * rank}: all fronts, then all ends")
    if len(args) > 2:
        value = rules.of_rank(ctx, rules.tensor(ctx, args, 2), 0, "the value")
        rules.same_dtype(ctx, x.dtype, value.dtype, "the value")
    dims: list[Int] = []
    for d in range(rank):
        size = x.shape[d] + pads[d] + pads[rank + d]
        ctx.at_least(size, 0, f"axis {d} after padding")
        if a.mode is not PadMode.CONSTANT and not (pads[d] == 0 and pads[rank + d] == 0):
            ctx.at_least(x.shape[d], 1, f"an element of axis {d} to repeat")
        dims.append(size)
    return TensorType(tuple(dims), x.dtype)


def _source(mode: PadMode, i: Int, size: Int) -> Int:
    """Return which element stands at an index that may be outside."""
    match mode:
        case PadMode.EDGE:
            return minimum(maximum(i, 0), size - 1)
        case PadMode.WRAP:
            return mod(i, size)
        case PadMode.REFLECT:
            # The mirror images repeat with a period of 2 * (size - 1); one element has no mirror.
            period = maximum((size - 1) * 2, 1)
            once = mod(i, period)
            return minimum(once, (size - 1) * 2 - once)
        case PadMode.CONSTANT:
            return i


def _pad_compute(a: PadAttrs, operands: Sequence[Any], result: TensorType) -> te.Tensor:
    x: te.Tensor = operands[0]
    pads: Ints = operands[1]
    value: Sequence[te.Tensor] = operands[2:]
    rank = x.ndim

    def body(*i: Int) -> te.Value:
        at, inside = list(i), None
        for d in range(rank):
            if pads[d] == 0 and pads[rank + d] == 0:
                continue
            at[d] = _source(a.mode, i[d] - pads[d], x.shape[d])
            if a.mode is PadMode.CONSTANT and pads[d] != 0:
                inside = te.all_of(inside, te.index(at[d]) >= 0)
            if a.mode is PadMode.CONSTANT and pads[rank + d] != 0:
                inside = te.all_of(inside, te.index(at[d]) < te.index(x.shape[d]))
        fill = value[0][()] if value else te.const(0, x.dtype)
        return te.guarded(inside, x[tuple(at)], fill)

    return te.compute(result.shape, body, name="pad", tag="pad")


def _pad_reference(a: PadAttrs, x: Array, pads: tuple[int, ...], *value: Array) -> Array:
    y = x
    for d in range(x.ndim):
        front, back = pads[d], pads[x.ndim + d]
        size = y.shape[d]
        places = np.array(range(-front, size + back), np.int64)
        if front == back == 0:
            continue
        if a.mode is PadMode.CONSTANT:
            fill = value[0] if value else np.zeros((), x.dtype)
            inside = (places >= 0) & (places < size)
            shape = [1] * y.ndim
            shape[d] = len(places)
            if size == 0:
                new = [*y.shape]
                new[d] = len(places)
                y = np.full(new, fill, x.dtype)
                continue
            taken = np.take(y, np.clip(places, 0, size - 1), d)
            y = np.asarray(np.where(inside.reshape(shape), taken, fill), x.dtype)
        else:
            y = np.take(y, [_place(a.mode, int(p), size) for p in places], d)
    return y


def _place(mode: PadMode, i: int, size: int) -> int:
    value = _source(mode, lit(i), lit(size)).value
    assert value is not None, "numbers give a number"
    return value


def _pad_samples() -> list[Sample]:
    x = noise((3, 4), F32, seed="pad")
    n = ("m", "n")
    made = [
        Sample(f"{mode}", PadAttrs(mode), (x, (1, 2, 2, 3)), (n, (1, 2, 2, 3)), exact=True)
        for mode in PadMode
    ]
    return [
        *made,
        Sample("far", PadAttrs(PadMode.REFLECT), (x, (7, 0, 0, 9)), (n, (7, 0, 0, 9)), exact=True),
        Sample("mirror of one", PadAttrs(PadMode.REFLECT), (x[:1], (2, 0, 1, 0)), exact=True),
        Sample("far wrap", PadAttrs(PadMode.WRAP), (x, (7, 0, 0, 9)), exact=True),
        Sample("value", PadAttrs(), (x, (0, 1, 2, 0), np.asarray(7, np.float32)),
               (n, (0, 1, 2, 0), ()), exact=True),
        Sample("cut", PadAttrs(), (x, (-1, 1, 0, -2)), (n, (-1, 1, 0, -2)), exact=True),
        Sample("free", PadAttrs(), (x, (1, 2, 0, 1)), (n, ("p", "q", 0, 1)), exact=True),
        Sample("none", PadAttrs(), (x, (0, 0, 0, 0)), exact=True),
        Sample("around nothing", PadAttrs(), (x[:0], (1, 0, 1, 1)), exact=True),
    ]  # fmt: skip


# --------------------------------------------------------------------------- concat, split


def _concat_rule(ctx: TypeContext, a: AxisAttrs, args: Types) -> TensorType:
    xs = rules.tensors(ctx, args)
    rank = len(xs[0].shape)
    axis = rules.axis_of(ctx, a.axis, rank)
    dims, total = list(xs[0].shape), lit(0)
    for k, x in enumerate(xs):
        rules.of_rank(ctx, x, rank, f"argument {k + 1}")
        total = total + x.shape[axis]
        for d in range(rank):
            if d != axis:
                dims[d] = ctx.equal(dims[d], x.shape[d], f"axis {d} of concatenated tensors")
    dims[axis] = total
    return TensorType(tuple(dims), xs[0].dtype)


def _concat_reference(a: AxisAttrs, *xs: Array) -> Array:
    return np.concatenate(xs, a.axis)


def _extend_rule(ctx: TypeContext, a: AxisAttrs, args: Types) -> TensorType:
    x = rules.tensor(ctx, args, 0)
    for d in range(rules.axis_of(ctx, a.axis, len(x.shape))):
        ctx.equal(x.shape[d], lit(1), f"axis {d}, before the one that grows")
    return _concat_rule(ctx, a, args)


def _extend_samples() -> list[Sample]:
    x, y = noise((3, 2), F32, seed="x"), noise((2, 2), F32, seed="y")
    return [
        Sample("rows", AxisAttrs(0), (x, y), (("n", 2), ("m", 2)), exact=True),
        Sample("behind a one", AxisAttrs(-2), (x[None], y[None]), ((1, "n", 2), (1, "m", 2)),
               exact=True),
        Sample("nothing", AxisAttrs(0), (x[:0], y), exact=True),
    ]  # fmt: skip


def _concat_compute(a: AxisAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    axis = a.axis % len(result.shape)

    def body(*i: Int) -> te.Value:
        ends, end = list[Int](), lit(0)
        for x in operands:
            end = end + x.shape[axis]
            ends.append(end)

        def piece(k: int) -> te.Value:
            begin = ends[k - 1] if k else lit(0)
            return operands[k][(*i[:axis], i[axis] - begin, *i[axis + 1 :])]

        def choose(low: int, high: int) -> te.Value:
            """Choose among pieces low .. high by halving, so that many cost their logarithm."""
            if high - low == 1:
                return piece(low)
            middle = (low + high) // 2
            here = te.index(i[axis]) < te.index(ends[middle - 1])
            return te.select(here, choose(low, middle), choose(middle, high))

        return choose(0, len(operands))

    return te.compute(result.shape, body, name="concat")


def _concat_loops(a: AxisAttrs, operands: Sequence[Buffer], outputs: Sequence[Buffer]) -> Stmt:
    (out,) = outputs
    axis, begin = a.axis % len(out.shape), lit(0)
    copies: list[Stmt] = []
    for x in operands:
        syms = [fresh(f"i{d}") for d in range(len(x.shape))]
        at = tuple(map(to_int, syms))
        place = (*at[:axis], at[axis] + begin, *at[axis + 1 :])
        copy: Stmt = Store(out, place, Load(x, at))
        for d in reversed(range(len(syms))):
            copy = For(syms[d], lit(0), x.shape[d], LoopKind.SERIAL, copy)
        copies.append(copy)
        begin = begin + x.shape[axis]
    return Seq(tuple(copies))


def _concat_samples() -> list[Sample]:
    x, y = noise((2, 3, 4), F32, seed="x"), noise((2, 5, 4), F32, seed="y")
    n = ("a", "b", "c")
    return [
        Sample("two", AxisAttrs(1), (x, y), (n, ("a", "e", "c")), exact=True),
        Sample("three", AxisAttrs(-2), (x, y, x), (n, ("a", 5, "c"), n), exact=True),
        Sample("one", AxisAttrs(0), (x,), (n,), exact=True),
        Sample("last", AxisAttrs(-1), (x, x), (n, n), exact=True),
        Sample("many", AxisAttrs(0), tuple(x[:, :k, 0].copy().T for k in (1, 2, 3, 1, 2)),
               exact=True),
        Sample("an empty one", AxisAttrs(1), (x, y[:, :0], y), (n, ("a", "e", "c"), ("a", 5, "c")),
               exact=True),
        Sample("bools", AxisAttrs(0), (noise((3,), BOOL), noise((4,), BOOL)), (("m",), ("n",)),
               exact=True),
    ]  # fmt: skip


def _split_rule(ctx: TypeContext, a: AxisAttrs, args: Types) -> TupleType:
    x, sizes = rules.tensor(ctx, args, 0), rules.shape_values(ctx, args, 1)
    axis = rules.axis_of(ctx, a.axis, len(x.shape))
    total = lit(0)
    for i, s in enumerate(sizes):
        ctx.at_least(s, 0, f"size of part {i}")
        total = total + s
    ctx.equal(x.shape[axis], total, "the axis and the sum of its parts")
    return TupleType(
        tuple(TensorType((*x.shape[:axis], s, *x.shape[axis + 1 :]), x.dtype) for s in sizes)
    )


def _split_reference(a: AxisAttrs, x: Array, sizes: tuple[int, ...]) -> tuple[Array, ...]:
    cuts = np.cumsum(sizes)[:-1]
    return tuple(p for p in np.split(x, cuts, a.axis))


def _split_compute(
    a: AxisAttrs, operands: Sequence[Any], result: TupleType
) -> tuple[te.Tensor, ...]:
    x: te.Tensor = operands[0]
    sizes: Ints = operands[1]
    axis = a.axis % x.ndim
    parts: list[te.Tensor] = []
    begin = lit(0)
    for size in sizes:
        parts.append(_cut(x, axis, begin, size))
        begin = begin + size
    return tuple(parts)


def _split_decompose(b: Builder, a: AxisAttrs, args: tuple[Expr, ...]) -> Expr | None:
    """Take slices, which join what reads them, if sizes are known."""
    x, sizes = args
    assert isinstance(x.type, TensorType)
    assert isinstance(sizes.type, ShapeType)
    known = [None if s is None else s.value for s in sizes.type.values]
    if any(s is None for s in known):
        return None
    axes = slicing.AxesAttrs((a.axis % len(x.type.shape),))
    parts: list[Expr] = []
    begin = 0
    for size in known:
        end = begin + (size or 0)
        bounds = [shape_const((value,)) for value in (begin, end, 1)]
        parts.append(b.emit(slicing.SLICE, (x, *bounds), axes, name="part"))
        begin = end
    return b.tuple(parts)


def _cut(x: te.Tensor, axis: int, begin: Int, size: Int) -> te.Tensor:
    shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])

    def body(*i: Int) -> te.Value:
        return x[(*i[:axis], i[axis] + begin, *i[axis + 1 :])]

    return te.compute(shape, body, name="part")


def _split_samples() -> list[Sample]:
    x = noise((2, 9, 4), F32, seed="split")
    return [
        Sample("three", AxisAttrs(1), (x, (2, 3, 4)), (("a", 9, "c"), (2, 3, 4)), exact=True),
        Sample("symbolic", AxisAttrs(1), (x[:, :8].copy(), (3, 5)),
               (("a", 8, "c"), ("s", 5)), exact=True),
        Sample("one", AxisAttrs(-1), (x, (4,)), (("a", "b", "c"), ("c",)), exact=True),
        Sample("empty part", AxisAttrs(0), (x, (0, 2)), exact=True),
    ]  # fmt: skip


# --------------------------------------------------------------------------- broadcast, tile


def _broadcast_rule(ctx: TypeContext, a: NoAttrs, args: Types) -> TensorType:
    x, shape = rules.tensor(ctx, args, 0), rules.shape_values(ctx, args, 1)
    for i, d in enumerate(shape):
        ctx.at_least(d, 0, f"dim {i} of the shape")
    return TensorType(rules.broadcast(ctx, (x.shape, shape)), x.dtype)


def _broadcast_reference(a: NoAttrs, x: Array, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, shape))


def _broadcast_compute(a: NoAttrs, operands: Sequence[Any], result: TensorType) -> te.Tensor:
    x: te.Tensor = operands[0]
    return te.compute(result.shape, lambda *i: element(x, i), name="broadcast_to")


def _broadcast_samples() -> list[Sample]:
    x = noise((3, 1, 4), F32, seed="broadcast")
    none = NoAttrs()
    return [
        Sample("middle", none, (x, (3, 2, 4)), (("a", 1, "c"), ("a", "b", "c")), exact=True),
        Sample("in front", none, (x, (2, 3, 5, 4)), (("a", 1, 4), ("p", "a", "b", 4)), exact=True),
        Sample("both ways", none, (x, (2, 1)), (("a", 1, 4), ("b", 1)), exact=True),
        Sample("fill", none, (np.asarray(x[0, 0, 0]), (2, 3)), ((), ("m", "n")), exact=True),
        Sample("to nothing", none, (x, (3, 0, 4)), (("a", 1, 4), ("a", "b", 4)), exact=True),
    ]


def _tile_rule(ctx: TypeContext, a: NoAttrs, args: Types) -> TensorType:
    x, repeats = rules.tensor(ctx, args, 0), rules.shape_values(ctx, args, 1)
    if len(repeats) != len(x.shape):
        raise ctx.fail(f"found {len(repeats)} repeats, needed {len(x.shape)}")
    for d, r in enumerate(repeats):
        ctx.at_least(r, 0, f"repeats of axis {d}")
    return TensorType(tuple(d * r for d, r in zip(x.shape, repeats, strict=True)), x.dtype)


def _tile_reference(a: NoAttrs, x: Array, repeats: tuple[int, ...]) -> Array:
    return np.tile(x, repeats)


def _tile_compute(a: NoAttrs, operands: Sequence[Any], result: TensorType) -> te.Tensor:
    x: te.Tensor = operands[0]
    repeats: Ints = operands[1]

    def body(*i: Int) -> te.Value:
        return x[tuple(v if repeats[d] == 1 else mod(v, x.shape[d]) for d, v in enumerate(i))]

    return te.compute(result.shape, body, name="tile")


def _tile_samples() -> list[Sample]:
    x = noise((2, 1, 3), F32, seed="tile")
    n = ("a", 1, "c")
    return [
        Sample("some", NoAttrs(), (x, (2, 4, 1)), (n, (2, 4, 1)), exact=True),
        Sample("free", NoAttrs(), (x, (1, 2, 3)), (n, ("p", "q", 3)), exact=True),
        Sample("away", NoAttrs(), (x, (2, 0, 1)), exact=True),
    ]


# --------------------------------------------------------------------------- the table

DEFINITIONS: tuple[OpDef, ...] = (
    define("reshape", NoAttrs, _reshape_rule, 2, Pattern.LAYOUT,
           "x with another shape: the same elements in row-major order",
           reference=_reshape_reference,
           compute=_reshape_compute,
           samples=_reshape_samples, alias=0),
    define("transpose", PermAttrs, _transpose_rule, 1, Pattern.LAYOUT,
           "axes in another order: axis d of the result is axis perm[d] of x",
           reference=_transpose_reference,
           compute=_transpose_compute, samples=_transpose_samples),
    define("flip", AxesAttrs, _flip_rule, 1, Pattern.LAYOUT, "axes reversed",
           reference=_flip_reference,
           compute=_flip_compute, samples=_flip_samples),
    define("concat", AxisAttrs, _concat_rule, (1, None), Pattern.LAYOUT,
           "tensors one after the other along an axis",
           reference=_concat_reference,
           compute=_concat_compute, loops=_concat_loops, samples=_concat_samples),
    define("extend", AxisAttrs, _extend_rule, 2, Pattern.CONTROL,
           "x with another tensor joined to its end along an axis, before which all dims are 1; "
           "amortized constant time for each element that is added, in place",
           reference=_concat_reference, samples=_extend_samples, in_place=(0,)),
    define("split", AxisAttrs, _split_rule, 2, Pattern.LAYOUT,
           "x cut along an axis into parts of sizes given by a shape; a tuple",
           reference=_split_reference, compute=_split_compute, decompose=_split_decompose,
           samples=_split_samples),
    define("broadcast_to", NoAttrs, _broadcast_rule, 2, Pattern.BROADCAST,
           "x repeated to the common shape of its own and a given one",
           reference=_broadcast_reference, compute=_broadcast_compute,
           samples=_broadcast_samples),
    define("tile", NoAttrs, _tile_rule, 2, Pattern.LAYOUT,
           "x repeated along each axis as often as a shape says",
           reference=_tile_reference,
           compute=_tile_compute, samples=_tile_samples),
    define("pad", PadAttrs, _pad_rule, (2, 3), Pattern.LAYOUT,
           "x with elements around it: pads is a shape of all fronts, then all ends; negative ones "
           "cut; the value outside is 0 or a tensor of rank 0",
           reference=_pad_reference, compute=_pad_compute, samples=_pad_samples),
)  # fmt: skip

_OPS = {d.name: d.op for d in DEFINITIONS}
TRANSPOSE, RESHAPE = _OPS["transpose"], _OPS["reshape"]
CONCAT, EXTEND = _OPS["concat"], _OPS["extend"]
