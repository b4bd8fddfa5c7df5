"""Scatters: elements or slices at indices that data decides are replaced or combined.

Updates take effect in row-major order, so where several meet at one place, the last one stays or
all combine. What indices mean is in `indexing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from inlay.arith.dtype import F32, I32, DType
from inlay.arith.expr import Int, fresh, lit, to_int
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.loop.buffer import Buffer
from inlay.loop.stmt import If, Let, Stmt, Store
from inlay.ops import _rules as rules
from inlay.ops._build import Array, copied, nest, serial_loops, widen, widened
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._indices import element_axes, np_inside, np_wrapped, tuples, wrapped
from inlay.ops._rules import ELEMENTS, INTEGERS, NUMBERS, Types
from inlay.ops._samples import ints, noise


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


def _combined(combine: Combine, old: te.ScalarValue, new: te.ScalarValue) -> te.ScalarValue:
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


def _accumulate(dtype: DType, old: te.ScalarValue, new: te.ScalarValue, combine: Combine) -> te.ScalarValue:
    if combine is Combine.REPLACE:
        return new
    wide = widened(dtype)
    return _combined(combine, old.cast(wide), new.cast(wide)).cast(dtype)


def _stored(
    out: Buffer, at: Sequence[te.ScalarValue | Int], update: te.ScalarValue, combine: Combine
) -> Stmt:
    """Combine one element with an update, if all computed indices are inside."""
    syms = [(d, fresh("at"), v) for d, v in enumerate(at) if isinstance(v, te.ScalarValue)]
    place = list(at)
    inside: te.ScalarValue | None = None
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
    element_axes(ctx, a.axis, x, index)
    rules.same_shape(ctx, update, index.shape, "the updates")
    return x


def _combinable(ctx: TypeContext, combine: Combine, dtype: DType) -> None:
    if combine is not Combine.REPLACE and dtype not in NUMBERS:
        raise ctx.fail(f"cannot {combine} elements of type {dtype}", id="type.dtype-mismatch")


def _scatter_elements_reference(a: ScatterElementsAttrs, x: Array, index: Array, update: Array) -> Array:
    y, axis = x.copy(), a.axis % x.ndim
    np_inside("scatter_elements", index, x.shape[axis])
    wrapped = np_wrapped(index, x.shape[axis])
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
    at: list[te.ScalarValue | Int] = list(i)
    at[axis] = wrapped(te.Tensor(index)[i], x.shape[axis])
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
    depth = tuples(ctx, index, len(x.shape))
    rules.same_shape(ctx, update, (*index.shape[:-1], *x.shape[depth:]), "the updates")
    return x


def _scatter_nd_reference(a: ScatterAttrs, x: Array, index: Array, update: Array) -> Array:
    y, depth = x.copy(), index.shape[-1]
    np_inside("scatter_nd", index, *x.shape[:depth], columns=depth)
    for at in np.ndindex(*index.shape[:-1]):
        place = tuple(int(np_wrapped(v, n)) for v, n in zip(index[at], x.shape, strict=False))
        old, new = widen(y[place]), widen(update[at])
        y[place] = np.asarray(_np_combined(a.combine, old, new)).astype(x.dtype)
    return y


def _scatter_nd_update(a: ScatterAttrs, operands: Sequence[Buffer], outputs: Sequence[Buffer]) -> Stmt:
    (x, index, update), (out,) = operands, outputs
    lead, depth = len(index.shape) - 1, index.shape[-1].value or 0
    loops, i = serial_loops(update.shape)
    at: list[te.ScalarValue | Int] = [
        wrapped(te.Tensor(index)[(*i[:lead], lit(k))], x.shape[k]) for k in range(depth)
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
        Sample(f"rows {c}", ScatterAttrs(c), (x, rows, u), (n, ("k", 1), ("k", "b", "c"))) for c in Combine
    ]
    return [
        *made,
        Sample("cells", ScatterAttrs(), (x, cells, u[:2, 0].copy()), (n, ("k", 2), ("k", "c"))),
        Sample("elements", ScatterAttrs(), (x, full, u[:2, 0, 0].copy()), (n, ("k", 3), ("k",))),
        Sample("none", ScatterAttrs(), (x, rows[:0], u[:0]), (n, ("k", 1), ("k", "b", "c"))),
    ]


DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "scatter_elements",
        ScatterElementsAttrs,
        _scatter_elements_rule,
        3,
        FusionPattern.OPAQUE,
        "x with elements at places as in gather_elements replaced or combined, in order",
        reference=_scatter_elements_reference,
        loops=copied(_scatter_elements_update),
        update=_scatter_elements_update,
        samples=_scatter_elements_samples,
        in_place=(0,),
    ),
    define(
        "scatter_nd",
        ScatterAttrs,
        _scatter_nd_rule,
        3,
        FusionPattern.OPAQUE,
        "x with slices at index tuples replaced or combined, in order",
        reference=_scatter_nd_reference,
        loops=copied(_scatter_nd_update),
        update=_scatter_nd_update,
        samples=_scatter_nd_samples,
        in_place=(0,),
    ),
)
