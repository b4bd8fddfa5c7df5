"""Operators that join tensors along an axis and cut them: concat, extend, split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlay.arith.dtype import BOOL, F32
from inlay.arith.expr import Int, lit
from inlay.ir.builder import Builder
from inlay.ir.expr import Expr
from inlay.ir.make import shape_const
from inlay.ir.op import TypeContext
from inlay.ir.types import ShapeType, TensorType, TupleType
from inlay.loop import te
from inlay.ops import _rules as rules
from inlay.ops import slicing
from inlay.ops._build import Array, Ints
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._rules import Types
from inlay.ops._samples import noise


@dataclass(frozen=True, slots=True)
class AxisAttrs:
    """`axis`: joined or cut along."""

    axis: int = 0


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
        Sample("behind a one", AxisAttrs(-2), (x[None], y[None]), ((1, "n", 2), (1, "m", 2)), exact=True),
        Sample("nothing", AxisAttrs(0), (x[:0], y), exact=True),
    ]


def _concat_compute(a: AxisAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    axis = a.axis % len(result.shape)

    def body(*i: Int) -> te.ScalarValue:
        ends, end = list[Int](), lit(0)
        for x in operands:
            end = end + x.shape[axis]
            ends.append(end)

        def piece(k: int) -> te.ScalarValue:
            begin = ends[k - 1] if k else lit(0)
            return operands[k][(*i[:axis], i[axis] - begin, *i[axis + 1 :])]

        def choose(low: int, high: int) -> te.ScalarValue:
            """Choose among pieces low .. high by halving, so that many cost their logarithm."""
            if high - low == 1:
                return piece(low)
            middle = (low + high) // 2
            here = te.index(i[axis]) < te.index(ends[middle - 1])
            return te.select(here, choose(low, middle), choose(middle, high))

        return choose(0, len(operands))

    return te.compute(result.shape, body, name="concat")


def _concat_samples() -> list[Sample]:
    x, y = noise((2, 3, 4), F32, seed="x"), noise((2, 5, 4), F32, seed="y")
    n = ("a", "b", "c")
    return [
        Sample("two", AxisAttrs(1), (x, y), (n, ("a", "e", "c")), exact=True),
        Sample("three", AxisAttrs(-2), (x, y, x), (n, ("a", 5, "c"), n), exact=True),
        Sample("one", AxisAttrs(0), (x,), (n,), exact=True),
        Sample("last", AxisAttrs(-1), (x, x), (n, n), exact=True),
        Sample("many", AxisAttrs(0), tuple(x[:, :k, 0].copy().T for k in (1, 2, 3, 1, 2)), exact=True),
        Sample(
            "an empty one", AxisAttrs(1), (x, y[:, :0], y), (n, ("a", "e", "c"), ("a", 5, "c")), exact=True
        ),
        Sample("bools", AxisAttrs(0), (noise((3,), BOOL), noise((4,), BOOL)), (("m",), ("n",)), exact=True),
    ]


def _split_rule(ctx: TypeContext, a: AxisAttrs, args: Types) -> TupleType:
    x, sizes = rules.tensor(ctx, args, 0), rules.shape_values(ctx, args, 1)
    axis = rules.axis_of(ctx, a.axis, len(x.shape))
    total = lit(0)
    for i, s in enumerate(sizes):
        ctx.at_least(s, 0, f"size of part {i}")
        total = total + s
    ctx.equal(x.shape[axis], total, "the axis and the sum of its parts")
    return TupleType(tuple(TensorType((*x.shape[:axis], s, *x.shape[axis + 1 :]), x.dtype) for s in sizes))


def _split_reference(a: AxisAttrs, x: Array, sizes: tuple[int, ...]) -> tuple[Array, ...]:
    cuts = np.cumsum(sizes)[:-1]
    return tuple(p for p in np.split(x, cuts, a.axis))


def _split_compute(a: AxisAttrs, operands: Sequence[Any], result: TupleType) -> tuple[te.Tensor, ...]:
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

    def body(*i: Int) -> te.ScalarValue:
        return x[(*i[:axis], i[axis] + begin, *i[axis + 1 :])]

    return te.compute(shape, body, name="part")


def _split_samples() -> list[Sample]:
    x = noise((2, 9, 4), F32, seed="split")
    return [
        Sample("three", AxisAttrs(1), (x, (2, 3, 4)), (("a", 9, "c"), (2, 3, 4)), exact=True),
        Sample("symbolic", AxisAttrs(1), (x[:, :8].copy(), (3, 5)), (("a", 8, "c"), ("s", 5)), exact=True),
        Sample("one", AxisAttrs(-1), (x, (4,)), (("a", "b", "c"), ("c",)), exact=True),
        Sample("empty part", AxisAttrs(0), (x, (0, 2)), exact=True),
    ]


DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "concat",
        AxisAttrs,
        _concat_rule,
        (1, None),
        FusionPattern.LAYOUT,
        "tensors one after the other along an axis",
        reference=_concat_reference,
        compute=_concat_compute,
        samples=_concat_samples,
        stands_alone=True,
    ),
    define(
        "extend",
        AxisAttrs,
        _extend_rule,
        2,
        FusionPattern.CONTROL,
        "x with another tensor joined to its end along an axis, before which all dims are 1; "
        "amortized constant time for each element that is added, in place",
        reference=_concat_reference,
        samples=_extend_samples,
        in_place=(0,),
    ),
    define(
        "split",
        AxisAttrs,
        _split_rule,
        2,
        FusionPattern.LAYOUT,
        "x cut along an axis into parts of sizes given by a shape; a tuple",
        reference=_split_reference,
        compute=_split_compute,
        decompose=_split_decompose,
        samples=_split_samples,
        stands_alone=True,
    ),
)

_OPS = {d.name: d.op for d in DEFINITIONS}
CONCAT, EXTEND = _OPS["concat"], _OPS["extend"]
