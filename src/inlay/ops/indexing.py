"""Indexing by data: gather, scatter, one-hot; ranges and triangles.

Indices are integer tensors. A negative index counts from the end. An index that is still outside is
an error of the program, and stops it: the references raise it, and in compiled programs the checks
that `index_checks` describes stand in front of the kernels. A gather with `clamp` takes the nearest
element instead, which needs no check. Whatever stands in front, a kernel never leaves its memory: its
gathers clamp and its scatters leave out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from inlay.arith.dtype import F16, F32, I32, I64, DType
from inlay.arith.expr import Int, fresh, lit, to_int
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.loop.buffer import Buffer
from inlay.loop.stmt import If, Let, Stmt, Store
from inlay.ops import _rules as rules
from inlay.ops._build import copied, nest, serial_loops, widen, widened
from inlay.ops._define import OpDef, Pattern, Sample, define
from inlay.ops._rules import ELEMENTS, INTEGERS, NUMBERS, Types
from inlay.ops._samples import ints, noise
from inlay.ops.index_checks import extremes, require_inside

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class AxisAttrs:
    """`axis`: indexed."""

    axis: int = 0


@dataclass(frozen=True, slots=True)
class GatherAttrs:
    """`axis`: indexed; `clamp`: an index outside means the nearest element."""

    axis: int = 0
    clamp: bool = False


@dataclass(frozen=True, slots=True)
class BatchAttrs:
    """`batch`: leading dims that both share; `clamp`: an index outside means the nearest element."""

    batch: int = 0
    clamp: bool = False


class Combine(StrEnum):
    """What a scatter does to an element: replaces it, or combines it with the update."""

    REPLACE = "replace"
    ADD = "add"
    MUL = "mul"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class ScatterAttrs:
    """`combine`: what happens to an element."""

    combine: Combine = Combine.REPLACE


@dataclass(frozen=True, slots=True)
class ScatterElementsAttrs:
    """`axis`: indexed; `combine`: what happens to an element."""

    axis: int = 0
    combine: Combine = Combine.REPLACE


@dataclass(frozen=True, slots=True)
class RangeAttrs:
    """`dtype`: element type of the result."""

    dtype: DType = I64


@dataclass(frozen=True, slots=True)
class TriluAttrs:
    """`upper`: keep what is on and above the diagonal, or on and below it."""

    upper: bool = True


# --------------------------------------------------------------------------- indices


def _wrapped(index: te.Value, size: Int) -> te.Value:
    """Return an index as i64, counted from the front."""
    v = index.cast(I64)
    return te.select(v < 0, v + te.index(size), v) if index.dtype.is_signed else v


def _clamped(index: te.Value, size: Int) -> te.Value:
    """Return an index that is inside an axis, if the axis has any element."""
    return te.maximum(te.minimum(_wrapped(index, size), te.index(size - 1)), 0)


def _some(sizes: Sequence[Int]) -> te.Value | None:
    """Whether every axis has an element; None where it is sure: then nothing needs to guard."""
    condition: te.Value | None = None
    for size in sizes:
        if size.value is None or size.value < 1:
            condition = te.all_of(condition, te.index(size) > 0)
    return condition


def _np_wrapped(index: Array, size: int) -> Array:
    index = index.astype(np.int64)
    return np.where(index < 0, index + size, index)


def _np_clamped(index: Array, size: int) -> Array:
    return np.clip(_np_wrapped(index, size), 0, max(size - 1, 0))


def _np_inside(why: str, index: Array, *sizes: int, columns: int = 0) -> None:
    """Refuse indices outside their axes, in the words of the compiled check."""
    ends = extremes(index, columns)
    for k, size in enumerate(sizes):
        require_inside(why, int(ends[2 * k]), ~int(ends[2 * k + 1]), size)


# --------------------------------------------------------------------------- gather


def _gather_rule(ctx: TypeContext, a: GatherAttrs, args: Types) -> TensorType:
    x, index = rules.tensor(ctx, args, 0), rules.tensor(ctx, args, 1, INTEGERS)
    axis = rules.axis_of(ctx, a.axis, len(x.shape))
    return TensorType((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]), x.dtype)


def _gather_reference(a: GatherAttrs, x: Array, index: Array) -> Array:
    axis = a.axis % x.ndim
    if not a.clamp:
        _np_inside("gather", index, x.shape[axis])
    if x.shape[axis] == 0:
        return np.zeros((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]), x.dtype)
    return np.take(x, _np_clamped(index, x.shape[axis]), axis)


def _gather_compute(a: GatherAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, index = operands
    axis = a.axis % x.ndim

    def body(*i: Int) -> te.Value:
        at = _clamped(index[i[axis : axis + index.ndim]], x.shape[axis])
        value = x[(*i[:axis], at, *i[axis + index.ndim :])]
        return te.guarded(_some(x.shape[axis : axis + 1]), value, te.const(0, x.dtype))

    return te.compute(result.shape, body, name="gather")


def _gather_samples() -> list[Sample]:
    x = noise((5, 4, 3), F32, seed="gather")
    n = ("a", "b", "c")
    two = ints(0, 3, -1, 2).reshape(2, 2)
    return [
        Sample("rows", GatherAttrs(0), (x, ints(4, 0, 2)), (n, ("k",)), exact=True),
        Sample("middle", GatherAttrs(1), (x, two), (n, ("p", "q")), exact=True),
        Sample("last", GatherAttrs(-1), (x, ints(2, -3)), (n, ("k",)), exact=True),
        Sample("one", GatherAttrs(1), (x, np.asarray(2)), (n, ()), exact=True),
        Sample("i32", GatherAttrs(0), (x, ints(1, -1).astype(np.int32)), (n, ("k",)), exact=True),
        Sample("u8", GatherAttrs(0), (x, ints(1, 4).astype(np.uint8)), (n, ("k",)), exact=True),
        Sample("outside", GatherAttrs(0, clamp=True), (x, ints(9, -9, 2**40)), (n, ("k",)), exact=True),
        Sample("none", GatherAttrs(0), (x, ints()), (n, ("k",)), exact=True),
        Sample("of nothing", GatherAttrs(0, clamp=True), (x[:0], ints(0, 1)), (n, ("k",)), exact=True),
    ]


def _elements_rule(ctx: TypeContext, a: AxisAttrs, args: Types) -> TensorType:
    x, index = rules.tensor(ctx, args, 0), rules.tensor(ctx, args, 1, INTEGERS)
    axis = _element_axes(ctx, a.axis, x, index)
    assert axis >= 0
    return TensorType(index.shape, x.dtype)


def _element_axes(ctx: TypeContext, axis: int, x: TensorType, index: TensorType) -> int:
    rank = len(x.shape)
    axis = rules.axis_of(ctx, axis, rank)
    rules.of_rank(ctx, index, rank, "the indices")
    for d in range(rank):
        if d != axis:
            ctx.at_least(x.shape[d] - index.shape[d], 0, f"axis {d} of the indices is in the data")
    return axis


def _cut(x: Array, index: Array, axis: int) -> Array:
    """Return the part of the data that the indices run over, in all axes but one."""
    return x[tuple(slice(None) if d == axis else slice(n) for d, n in enumerate(index.shape))]


def _elements_reference(a: AxisAttrs, x: Array, index: Array) -> Array:
    axis = a.axis % x.ndim
    _np_inside("gather_elements", index, x.shape[axis])
    if x.shape[axis] == 0:
        return np.zeros(index.shape, x.dtype)
    return np.take_along_axis(_cut(x, index, axis), _np_clamped(index, x.shape[axis]), axis)


def _elements_compute(a: AxisAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, index = operands
    axis = a.axis % x.ndim

    def body(*i: Int) -> te.Value:
        at = _clamped(index[i], x.shape[axis])
        value = x[(*i[:axis], at, *i[axis + 1 :])]
        return te.guarded(_some(x.shape[axis : axis + 1]), value, te.const(0, x.dtype))

    return te.compute(result.shape, body, name="gather_elements")


def _elements_samples() -> list[Sample]:
    x = noise((4, 5), F32, seed="ge")
    index = ints(0, 1, -1, 3, 2, 0).reshape(2, 3)
    return [
        Sample("rows", AxisAttrs(0), (x, index), (("m", "n"), ("p", "q")), exact=True),
        Sample("columns", AxisAttrs(1), (x, index), (("m", "n"), ("p", "q")), exact=True),
        Sample("none", AxisAttrs(1), (x, index[:0]), (("m", "n"), ("p", "q")), exact=True),
    ]


def _tuples(ctx: TypeContext, index: TensorType, most: int) -> int:
    """Return how many axes the last dim of the indices addresses."""
    rules.least_rank(ctx, index, 1, "the indices")
    depth = index.shape[-1].value
    if depth is None or depth > most:
        raise ctx.fail(
            f"found indices of {index.shape[-1]} axes, needed a known number of at most {most}",
            id="type.dynamic-rank" if depth is None else "type.op-argument",
        )
    return depth


def _gather_nd_rule(ctx: TypeContext, a: BatchAttrs, args: Types) -> TensorType:
    x, index = rules.tensor(ctx, args, 0), rules.tensor(ctx, args, 1, INTEGERS)
    if not 0 <= a.batch < max(len(index.shape), 1):
        raise ctx.fail(f"found {a.batch} batch dims of indices of rank {len(index.shape)}")
    depth = _tuples(ctx, index, len(x.shape) - a.batch)
    for d in range(a.batch):
        ctx.equal(x.shape[d], index.shape[d], f"batch axis {d}")
    return TensorType((*index.shape[:-1], *x.shape[a.batch + depth :]), x.dtype)


def _gather_nd_reference(a: BatchAttrs, x: Array, index: Array) -> Array:
    depth = index.shape[-1]
    shape = (*index.shape[:-1], *x.shape[a.batch + depth :])
    if not a.clamp:
        _np_inside("gather_nd", index, *x.shape[a.batch : a.batch + depth], columns=depth)
    if x.size == 0 or (index.size == 0 and depth):
        return np.zeros(shape, x.dtype)
    grids = np.indices(index.shape[:-1], sparse=True)[: a.batch] if a.batch else ()
    at = [_np_clamped(index[..., k], x.shape[a.batch + k]) for k in range(depth)]
    picked = x[(*grids, *at)] if depth or a.batch else x
    if not depth:
        return np.broadcast_to(picked, shape)
    return picked.reshape(shape)


def _gather_nd_compute(
    a: BatchAttrs, operands: Sequence[te.Tensor], result: TensorType
) -> te.Tensor:
    x, index = operands
    depth = index.shape[-1].value or 0
    lead = index.ndim - 1

    def body(*i: Int) -> te.Value:
        at = [_clamped(index[(*i[:lead], lit(k))], x.shape[a.batch + k]) for k in range(depth)]
        value = x[(*i[: a.batch], *at, *i[lead:])]
        some = _some(x.shape[a.batch : a.batch + depth])
        return te.guarded(some, value, te.const(0, x.dtype))

    return te.compute(result.shape, body, name="gather_nd")


def _gather_nd_samples() -> list[Sample]:
    x = noise((2, 3, 4), F32, seed="gnd")
    full = ints(0, 1, 2, 1, -1, 3).reshape(2, 3)
    part = ints(1, 0, 0, 2).reshape(2, 2)
    n = ("a", "b", "c")
    return [
        Sample("elements", BatchAttrs(), (x, full), (n, ("k", 3)), exact=True),
        Sample("rows", BatchAttrs(), (x, part), (n, ("k", 2)), exact=True),
        Sample("grid", BatchAttrs(), (x, part[:, None, :1].copy()), (n, ("k", 1, 1)), exact=True),
        Sample("batch", BatchAttrs(1), (x, part), (n, ("a", 2)), exact=True),
        Sample("batches", BatchAttrs(2), (x, (ints(*range(6)) % 4).reshape(2, 3, 1)), exact=True),
        Sample("outside", BatchAttrs(clamp=True), (x, full * 9), exact=True),
        Sample("none", BatchAttrs(), (x, full[:0]), (n, ("k", 3)), exact=True),
    ]  # fmt: skip


# --------------------------------------------------------------------------- scatter


def _combined(combine: Combine, old: te.Value, new: te.Value) -> te.Value:
    match combine:
        case Combine.REPLACE:
            return new
        case Combine.ADD:
            return old + new
        case Combine.MUL:
            return old * new
        case Combine.MIN:
            return te.minimum(old, new)
        case Combine.MAX:
            return te.maximum(old, new)


def _np_combined(combine: Combine, old: Array, new: Array) -> Array:
    match combine:
        case Combine.REPLACE:
            return new
        case Combine.ADD:
            return old + new
        case Combine.MUL:
            return old * new
        case Combine.MIN:
            return np.minimum(old, new)
        case Combine.MAX:
            return np.maximum(old, new)


def _accumulate(dtype: DType, old: te.Value, new: te.Value, combine: Combine) -> te.Value:
    if combine is Combine.REPLACE:
        return new
    wide = widened(dtype)
    return _combined(combine, old.cast(wide), new.cast(wide)).cast(dtype)


def _stored(
    out: Buffer,
    at: Sequence[te.Value | Int],
    update: te.Value,
    combine: Combine,
) -> Stmt:
    """Combine one element with an update, if all computed indices are inside."""
    syms = [(d, fresh("at"), v) for d, v in enumerate(at) if isinstance(v, te.Value)]
    place = list(at)
    inside: te.Value | None = None
    for d, sym, _ in syms:
        place[d] = to_int(sym)
        here = te.index(sym)
        inside = te.all_of(inside, (here >= 0) & (here < te.index(out.shape[d])))
    old = te.Tensor(out)[tuple(place)]
    value = _accumulate(out.dtype, old, update, combine)
    body: Stmt = Store(out, tuple(map(to_int, place)), value.scalar)  # type: ignore[arg-type]
    if inside is not None:
        body = If(inside.scalar, body)
    for _, sym, v in reversed(syms):
        body = Let(sym, v.scalar, body)
    return body


def _scatter_elements_rule(ctx: TypeContext, a: ScatterElementsAttrs, args: Types) -> TensorType:
    x, index = rules.tensor(ctx, args, 0, ELEMENTS), rules.tensor(ctx, args, 1, INTEGERS)
    update = rules.tensor(ctx, args, 2)
    rules.same_dtype(ctx, x.dtype, update.dtype, "the updates")
    _combinable(ctx, a.combine, x.dtype)
    _element_axes(ctx, a.axis, x, index)
    rules.same_shape(ctx, update, index.shape, "the updates")
    return x


def _combinable(ctx: TypeContext, combine: Combine, dtype: DType) -> None:
    if combine is not Combine.REPLACE and dtype not in NUMBERS:
        raise ctx.fail(f"cannot {combine} elements of type {dtype}", id="type.dtype-mismatch")


def _scatter_elements_reference(
    a: ScatterElementsAttrs, x: Array, index: Array, update: Array
) -> Array:
    y, axis = x.copy(), a.axis % x.ndim
    _np_inside("scatter_elements", index, x.shape[axis])
    wrapped = _np_wrapped(index, x.shape[axis])
    for at in np.ndindex(*index.shape):
        place = (*at[:axis], wrapped[at], *at[axis + 1 :])
        y[place] = _np_combined(a.combine, widen(y[place]), widen(update[at])).astype(x.dtype)
    return y


def _scatter_elements_update(
    a: ScatterElementsAttrs, operands: Sequence[Buffer], outputs: Sequence[Buffer]
) -> Stmt:
    (x, index, update), (out,) = operands, outputs
    axis = a.axis % len(x.shape)
    loops, i = serial_loops(index.shape)
    at: list[te.Value | Int] = list(i)
    at[axis] = _wrapped(te.Tensor(index)[i], x.shape[axis])
    return nest(loops, _stored(out, at, te.Tensor(update)[i], a.combine))


def _scatter_elements_samples() -> list[Sample]:
    x, u = noise((4, 5), F32, seed="x"), noise((2, 3), F32, seed="u")
    index = ints(0, 1, -1, 3, 1, 1).reshape(2, 3)
    names = (("m", "n"), ("p", "q"), ("p", "q"))
    made = [
        Sample(f"{c} {axis}", ScatterElementsAttrs(axis, c), (x, index, u), names)
        for c in Combine
        for axis in (0, 1)
    ]
    half = (x.astype(np.float16), index, u.astype(np.float16))
    return [
        *made,
        Sample("f16", ScatterElementsAttrs(1, Combine.ADD), half),
        Sample("i32", ScatterElementsAttrs(0), (noise((4, 5), I32), index, noise((2, 3), I32))),
        Sample("none", ScatterElementsAttrs(0), (x, index[:0], u[:0]), names),
    ]


def _scatter_nd_rule(ctx: TypeContext, a: ScatterAttrs, args: Types) -> TensorType:
    x, index = rules.tensor(ctx, args, 0, ELEMENTS), rules.tensor(ctx, args, 1, INTEGERS)
    update = rules.tensor(ctx, args, 2)
    rules.same_dtype(ctx, x.dtype, update.dtype, "the updates")
    _combinable(ctx, a.combine, x.dtype)
    depth = _tuples(ctx, index, len(x.shape))
    rules.same_shape(ctx, update, (*index.shape[:-1], *x.shape[depth:]), "the updates")
    return x


def _scatter_nd_reference(a: ScatterAttrs, x: Array, index: Array, update: Array) -> Array:
    y, depth = x.copy(), index.shape[-1]
    _np_inside("scatter_nd", index, *x.shape[:depth], columns=depth)
    for at in np.ndindex(*index.shape[:-1]):
        place = tuple(int(_np_wrapped(v, n)) for v, n in zip(index[at], x.shape, strict=False))
        old, new = widen(y[place]), widen(update[at])
        y[place] = np.asarray(_np_combined(a.combine, old, new)).astype(x.dtype)
    return y


def _scatter_nd_update(
    a: ScatterAttrs, operands: Sequence[Buffer], outputs: Sequence[Buffer]
) -> Stmt:
    (x, index, update), (out,) = operands, outputs
    lead, depth = len(index.shape) - 1, index.shape[-1].value or 0
    loops, i = serial_loops(update.shape)
    at: list[te.Value | Int] = [
        _wrapped(te.Tensor(index)[(*i[:lead], lit(k))], x.shape[k]) for k in range(depth)
    ]
    at += i[lead:]
    return nest(loops, _stored(out, at, te.Tensor(update)[i], a.combine))


def _scatter_nd_samples() -> list[Sample]:
    x = noise((4, 3, 2), F32, seed="x")
    rows, cells = ints(2, -4, 2).reshape(3, 1), ints(0, 1, 3, -1).reshape(2, 2)
    full = ints(0, 0, 0, 3, 2, 1).reshape(2, 3)
    u = noise((3, 3, 2), F32, seed="u")
    n = ("a", "b", "c")
    made = [
        Sample(f"rows {c}", ScatterAttrs(c), (x, rows, u), (n, ("k", 1), ("k", "b", "c")))
        for c in Combine
    ]
    return [
        *made,
        Sample("cells", ScatterAttrs(), (x, cells, u[:2, 0].copy()), (n, ("k", 2), ("k", "c"))),
        Sample("elements", ScatterAttrs(), (x, full, u[:2, 0, 0].copy()), (n, ("k", 3), ("k",))),
        Sample("none", ScatterAttrs(), (x, rows[:0], u[:0]), (n, ("k", 1), ("k", "b", "c"))),
    ]


# --------------------------------------------------------------------------- one-hot, ranges


def _one_hot_rule(ctx: TypeContext, a: AxisAttrs, args: Types) -> TensorType:
    index, depth = rules.tensor(ctx, args, 0, INTEGERS), rules.int_value(ctx, args, 1)
    values = rules.same_shape(ctx, rules.tensor(ctx, args, 2, ELEMENTS), (lit(2),), "off and on")
    axis = rules.axis_of(ctx, a.axis, len(index.shape) + 1)
    ctx.at_least(depth, 0, "the depth")
    return TensorType((*index.shape[:axis], depth, *index.shape[axis:]), values.dtype)


def _one_hot_reference(a: AxisAttrs, index: Array, depth: int, values: Array) -> Array:
    axis = a.axis % (index.ndim + 1)
    wrapped = np.expand_dims(_np_wrapped(index, depth), axis)
    shape = [1] * (index.ndim + 1)
    shape[axis] = depth
    hit = wrapped == np.arange(depth).reshape(shape)
    return np.asarray(np.where(hit, values[1], values[0]), values.dtype)


def _one_hot_compute(a: AxisAttrs, operands: Sequence[object], result: TensorType) -> te.Tensor:
    index, depth, values = operands
    assert isinstance(index, te.Tensor)
    assert isinstance(depth, Int)
    assert isinstance(values, te.Tensor)
    axis = a.axis % (index.ndim + 1)

    def body(*i: Int) -> te.Value:
        at = _wrapped(index[(*i[:axis], *i[axis + 1 :])], depth)
        return te.select(at.equals(te.index(i[axis])), values[lit(1)], values[lit(0)])

    return te.compute(result.shape, body, name="one_hot")


def _one_hot_samples() -> list[Sample]:
    index = ints(0, 2, -1, 4, 9, -9).reshape(2, 3)
    f32 = np.array([0.5, 2], np.float32)
    return [
        Sample("last", AxisAttrs(-1), (index, 5, f32), (("m", "n"), "d", (2,)), exact=True),
        Sample("first", AxisAttrs(0), (index, 5, f32), (("m", "n"), "d", (2,)), exact=True),
        Sample("bool", AxisAttrs(1), (index, 3, np.array([False, True]))),
        Sample("one", AxisAttrs(-1), (np.asarray(1), 3, ints(0, 1))),
        Sample("no depth", AxisAttrs(-1), (index, 0, f32)),
    ]


def _range_rule(ctx: TypeContext, a: RangeAttrs, args: Types) -> TensorType:
    if a.dtype not in NUMBERS:
        raise ctx.fail(f"found {a.dtype}, needed numbers", id="type.dtype-mismatch")
    start, limit, step = (rules.int_value(ctx, args, k) for k in range(3))
    if step.value is None:
        ctx.at_least(step * step, 1, "the step is not 0")
    elif step.value == 0:
        raise ctx.fail("found a step of 0, needed any other")
    return TensorType((rules.non_negative(ctx, -((start - limit) // step)),), a.dtype)


def _range_reference(a: RangeAttrs, start: int, limit: int, step: int) -> Array:
    return np.array(range(start, limit, step), np.int64).astype(a.dtype.numpy)


def _range_compute(a: RangeAttrs, operands: Sequence[Int], result: TensorType) -> te.Tensor:
    start, _, step = operands

    def body(i: Int) -> te.Value:
        return te.index(start + i * step, a.dtype)

    return te.compute(result.shape, body, name="range")


def _range_samples() -> list[Sample]:
    return [
        Sample("up", RangeAttrs(), (2, 9, 3), ("a", "b", 3), exact=True),
        Sample("down", RangeAttrs(I32), (9, -2, -4), ("a", "b", -4), exact=True),
        Sample("free", RangeAttrs(F32), (5, -4, -2), ("a", "b", "s"), exact=True),
        Sample("from 0", RangeAttrs(F16), (0, 6, 1), (0, "n", 1), exact=True),
        Sample("none", RangeAttrs(), (3, 3, 1), (3, "b", 1), exact=True),
        Sample("backwards", RangeAttrs(), (3, 0, 1), ("a", 0, 1), exact=True),
        Sample("below 0", RangeAttrs(), (-7, -2, 1), ("a", -2, 1), exact=True),
    ]


def _trilu_rule(ctx: TypeContext, a: TriluAttrs, args: Types) -> TensorType:
    x = rules.least_rank(ctx, rules.tensor(ctx, args, 0, ELEMENTS), 2, "the input")
    rules.int_value(ctx, args, 1)
    return x


def _trilu_reference(a: TriluAttrs, x: Array, k: int) -> Array:
    return np.triu(x, k) if a.upper else np.tril(x, k)


def _trilu_compute(a: TriluAttrs, operands: Sequence[object], result: TensorType) -> te.Tensor:
    x, k = operands
    assert isinstance(x, te.Tensor)
    assert isinstance(k, Int)

    def body(*i: Int) -> te.Value:
        above = te.index(i[-1] - i[-2])
        keep = above >= te.index(k) if a.upper else above <= te.index(k)
        return te.select(keep, x[i], 0)

    return te.compute(result.shape, body, name="trilu")


def _trilu_samples() -> list[Sample]:
    x = noise((2, 4, 5), F32, seed="trilu")
    return [
        Sample(f"{upper} {k}", TriluAttrs(upper), (x, k), (("a", "m", "n"), "k"), exact=True)
        for upper in (True, False)
        for k in (0, -2, 3, 9)
    ]


# --------------------------------------------------------------------------- the table

DEFINITIONS: tuple[OpDef, ...] = (
    define("gather", GatherAttrs, _gather_rule, 2, Pattern.LAYOUT,
           "slices of x along an axis, one for each index: its dims replace the axis",
           reference=_gather_reference, compute=_gather_compute, samples=_gather_samples),
    define("gather_elements", AxisAttrs, _elements_rule, 2, Pattern.LAYOUT,
           "elements of x at the index's own place, but along an axis where the index says",
           reference=_elements_reference, compute=_elements_compute, samples=_elements_samples),
    define("gather_nd", BatchAttrs, _gather_nd_rule, 2, Pattern.LAYOUT,
           "slices of x at index tuples, which are the last dim of the index",
           reference=_gather_nd_reference, compute=_gather_nd_compute,
           samples=_gather_nd_samples),
    define("scatter_elements", ScatterElementsAttrs, _scatter_elements_rule, 3, Pattern.OPAQUE,
           "x with elements at places as in gather_elements replaced or combined, in order",
           reference=_scatter_elements_reference, loops=copied(_scatter_elements_update),
           update=_scatter_elements_update,
           samples=_scatter_elements_samples, in_place=(0,)),
    define("scatter_nd", ScatterAttrs, _scatter_nd_rule, 3, Pattern.OPAQUE,
           "x with slices at index tuples replaced or combined, in order",
           reference=_scatter_nd_reference, loops=copied(_scatter_nd_update),
           update=_scatter_nd_update,
           samples=_scatter_nd_samples, in_place=(0,)),
    define("one_hot", AxisAttrs, _one_hot_rule, 3, Pattern.LAYOUT,
           "a new axis of depth (an int) with values[1] at each index and values[0] elsewhere",
           reference=_one_hot_reference, compute=_one_hot_compute, samples=_one_hot_samples),
    define("range", RangeAttrs, _range_rule, 3, Pattern.LAYOUT,
           "start, start + step, ... as long as it is before limit; the operands are ints",
           reference=_range_reference, compute=_range_compute, samples=_range_samples),
    define("trilu", TriluAttrs, _trilu_rule, 2, Pattern.ELEMENTWISE,
           "the upper or lower triangle of matrices from diagonal k (an int), else 0",
           reference=_trilu_reference,
           compute=_trilu_compute, samples=_trilu_samples, in_place=(0,)),
)  # fmt: skip
