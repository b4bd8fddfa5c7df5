"""Reading at indices that data decides: gather, one-hot; ranges and triangles.
`scatter` has those that write.

Indices are integer tensors. A negative index counts from the end. An index that is still outside is
an error of the program, and stops it: the references raise it, and in compiled programs the checks
that `index_checks` describes stand in front of the kernels. A gather with `clamp` takes the nearest
element instead, which needs no check. Whatever stands in front, a kernel never leaves its memory: its
gathers clamp and its scatters leave out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inlay.arith.dtype import F16, F32, I32, I64, DType
from inlay.arith.expr import Int, lit
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.ops import _rules as rules
from inlay.ops._build import Array
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._indices import (
    clamped,
    element_axes,
    have_elements,
    np_clamped,
    np_inside,
    np_wrapped,
    tuples,
    wrapped,
)
from inlay.ops._rules import ELEMENTS, INTEGERS, NUMBERS, Types
from inlay.ops._samples import ints, noise


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


@dataclass(frozen=True, slots=True)
class RangeAttrs:
    """`dtype`: element type of the result."""

    dtype: DType = I64


@dataclass(frozen=True, slots=True)
class TriluAttrs:
    """`upper`: keep what is on and above the diagonal, or on and below it."""

    upper: bool = True


# --------------------------------------------------------------------------- gather


def _gather_rule(ctx: TypeContext, a: GatherAttrs, args: Types) -> TensorType:
    x, index = rules.tensor(ctx, args, 0), rules.tensor(ctx, args, 1, INTEGERS)
    axis = rules.axis_of(ctx, a.axis, len(x.shape))
    return TensorType((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]), x.dtype)


def _gather_reference(a: GatherAttrs, x: Array, index: Array) -> Array:
    axis = a.axis % x.ndim
    if not a.clamp:
        np_inside("gather", index, x.shape[axis])
    if x.shape[axis] == 0:
        return np.zeros((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]), x.dtype)
    return np.take(x, np_clamped(index, x.shape[axis]), axis)


def _gather_compute(a: GatherAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, index = operands
    axis = a.axis % x.ndim

    def body(*i: Int) -> te.ScalarValue:
        at = clamped(index[i[axis : axis + index.ndim]], x.shape[axis])
        value = x[(*i[:axis], at, *i[axis + index.ndim :])]
        return te.guarded(have_elements(x.shape[axis : axis + 1]), value, te.const(0, x.dtype))

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
    axis = element_axes(ctx, a.axis, x, index)
    assert axis >= 0
    return TensorType(index.shape, x.dtype)


def _cut(x: Array, index: Array, axis: int) -> Array:
    """Return the part of the data that the indices run over, in all axes but one."""
    return x[tuple(slice(None) if d == axis else slice(n) for d, n in enumerate(index.shape))]


def _elements_reference(a: AxisAttrs, x: Array, index: Array) -> Array:
    axis = a.axis % x.ndim
    np_inside("gather_elements", index, x.shape[axis])
    if x.shape[axis] == 0:
        return np.zeros(index.shape, x.dtype)
    return np.take_along_axis(_cut(x, index, axis), np_clamped(index, x.shape[axis]), axis)


def _elements_compute(a: AxisAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, index = operands
    axis = a.axis % x.ndim

    def body(*i: Int) -> te.ScalarValue:
        at = clamped(index[i], x.shape[axis])
        value = x[(*i[:axis], at, *i[axis + 1 :])]
        return te.guarded(have_elements(x.shape[axis : axis + 1]), value, te.const(0, x.dtype))

    return te.compute(result.shape, body, name="gather_elements")


def _elements_samples() -> list[Sample]:
    x = noise((4, 5), F32, seed="ge")
    index = ints(0, 1, -1, 3, 2, 0).reshape(2, 3)
    return [
        Sample("rows", AxisAttrs(0), (x, index), (("m", "n"), ("p", "q")), exact=True),
        Sample("columns", AxisAttrs(1), (x, index), (("m", "n"), ("p", "q")), exact=True),
        Sample("none", AxisAttrs(1), (x, index[:0]), (("m", "n"), ("p", "q")), exact=True),
    ]


def _gather_nd_rule(ctx: TypeContext, a: BatchAttrs, args: Types) -> TensorType:
    x, index = rules.tensor(ctx, args, 0), rules.tensor(ctx, args, 1, INTEGERS)
    if not 0 <= a.batch < max(len(index.shape), 1):
        raise ctx.fail(f"found {a.batch} batch dims of indices of rank {len(index.shape)}")
    depth = tuples(ctx, index, len(x.shape) - a.batch)
    for d in range(a.batch):
        ctx.equal(x.shape[d], index.shape[d], f"batch axis {d}")
    return TensorType((*index.shape[:-1], *x.shape[a.batch + depth :]), x.dtype)


def _gather_nd_reference(a: BatchAttrs, x: Array, index: Array) -> Array:
    depth = index.shape[-1]
    shape = (*index.shape[:-1], *x.shape[a.batch + depth :])
    if not a.clamp:
        np_inside("gather_nd", index, *x.shape[a.batch : a.batch + depth], columns=depth)
    if x.size == 0 or (index.size == 0 and depth):
        return np.zeros(shape, x.dtype)
    grids = np.indices(index.shape[:-1], sparse=True)[: a.batch] if a.batch else ()
    at = [np_clamped(index[..., k], x.shape[a.batch + k]) for k in range(depth)]
    picked = x[(*grids, *at)] if depth or a.batch else x
    if not depth:
        return np.broadcast_to(picked, shape)
    return picked.reshape(shape)


def _gather_nd_compute(a: BatchAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, index = operands
    depth = index.shape[-1].value or 0
    lead = index.ndim - 1

    def body(*i: Int) -> te.ScalarValue:
        at = [clamped(index[(*i[:lead], lit(k))], x.shape[a.batch + k]) for k in range(depth)]
        value = x[(*i[: a.batch], *at, *i[lead:])]
        filled = have_elements(x.shape[a.batch : a.batch + depth])
        return te.guarded(filled, value, te.const(0, x.dtype))

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
    wrapped = np.expand_dims(np_wrapped(index, depth), axis)
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

    def body(*i: Int) -> te.ScalarValue:
        at = wrapped(index[(*i[:axis], *i[axis + 1 :])], depth)
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

    def body(i: Int) -> te.ScalarValue:
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

    def body(*i: Int) -> te.ScalarValue:
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
    define(
        "gather",
        GatherAttrs,
        _gather_rule,
        2,
        FusionPattern.LAYOUT,
        "slices of x along an axis, one for each index: its dims replace the axis",
        reference=_gather_reference,
        compute=_gather_compute,
        samples=_gather_samples,
    ),
    define(
        "gather_elements",
        AxisAttrs,
        _elements_rule,
        2,
        FusionPattern.LAYOUT,
        "elements of x at the index's own place, but along an axis where the index says",
        reference=_elements_reference,
        compute=_elements_compute,
        samples=_elements_samples,
    ),
    define(
        "gather_nd",
        BatchAttrs,
        _gather_nd_rule,
        2,
        FusionPattern.LAYOUT,
        "slices of x at index tuples, which are the last dim of the index",
        reference=_gather_nd_reference,
        compute=_gather_nd_compute,
        samples=_gather_nd_samples,
    ),
    define(
        "one_hot",
        AxisAttrs,
        _one_hot_rule,
        3,
        FusionPattern.LAYOUT,
        "a new axis of depth (an int) with values[1] at each index and values[0] elsewhere",
        reference=_one_hot_reference,
        compute=_one_hot_compute,
        samples=_one_hot_samples,
    ),
    define(
        "range",
        RangeAttrs,
        _range_rule,
        3,
        FusionPattern.LAYOUT,
        "start, start + step, ... as long as it is before limit; the operands are ints",
        reference=_range_reference,
        compute=_range_compute,
        samples=_range_samples,
    ),
    define(
        "trilu",
        TriluAttrs,
        _trilu_rule,
        2,
        FusionPattern.ELEMENTWISE,
        "the upper or lower triangle of matrices from diagonal k (an int), else 0",
        reference=_trilu_reference,
        compute=_trilu_compute,
        samples=_trilu_samples,
        in_place=(0,),
    ),
)
_OPS = {d.name: d.op for d in DEFINITIONS}
GATHER = _OPS["gather"]
