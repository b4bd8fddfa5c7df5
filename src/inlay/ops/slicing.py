"""Parts of tensors: slice, and replacement of a block.

Bounds are control operands (`shape`), so they may be symbolic. `slice` has the meaning of
Python's: negative bounds count from the end, and bounds beyond the ends are the ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlay.arith.dtype import F32
from inlay.arith.expr import Int, floordiv, lit, maximum, minimum
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.loop.buffer import Buffer
from inlay.loop.scalar import Load
from inlay.loop.stmt import Stmt, Store
from inlay.ops import _rules as rules
from inlay.ops._build import Array, Ints, nest, serial_loops
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._rules import Types
from inlay.ops._samples import noise


@dataclass(frozen=True, slots=True)
class AxesAttrs:
    """`axes`: to which the operator applies, in the order of its other operands."""

    axes: tuple[int, ...]


# --------------------------------------------------------------------------- slice


def _slice_rule(ctx: TypeContext, a: AxesAttrs, args: Types) -> TensorType:
    x = rules.tensor(ctx, args, 0)
    bounds = [rules.shape_values(ctx, args, k) for k in (1, 2, 3)]
    axes = [rules.axis_of(ctx, v, len(x.shape)) for v in a.axes]
    if len(set(axes)) != len(axes) or any(len(b) != len(axes) for b in bounds):
        raise ctx.fail(
            f"found axes {a.axes} with {[len(b) for b in bounds]} begins, ends and steps, needed "
            "distinct axes and one of each for every axis"
        )
    dims = list(x.shape)
    for d, begin, end, step in zip(axes, bounds[0], bounds[1], bounds[2], strict=True):
        if step.value is None:
            ctx.at_least(step * step, 1, "the step is not 0")
        elif step.value == 0:
            raise ctx.fail("found a step of 0, needed any other")
        for v in (begin, end):
            if _is_far(v, x.shape[d]) and abs(v.constant) < 2**62:
                ctx.at_least(lit(abs(v.constant)) - x.shape[d], 0, "a bound beyond the axis")
        first, last = _bounds(ctx, x.shape[d], begin, end, step)
        dims[d] = rules.non_negative(ctx, -floordiv(first - last, step))
    return TensorType(tuple(dims), x.dtype)


FAR = 2**31 - 1
"""Bounds beyond this stand for an end of the axis: what exporters write for "to the end"."""


def _is_far(v: Int, size: Int) -> bool:
    return size.value is None and v.value is not None and abs(v.value) >= FAR


class _NormalForms:
    """Knows no more than normal forms tell: for rules that only compute."""

    def known_equal(self, a: Int, b: Int) -> bool:
        """Whether two integers have one normal form."""
        return a == b


def _bounds(ctx: rules.Knows, size: Int, begin: Int, end: Int, step: Int) -> tuple[Int, Int]:
    """Return the first index and the one behind the last, as Python's `slice.indices`.

    The sign of a number that is not known is an integer too: `is_negative` is 0 or 1.
    """
    backward = _is_negative(ctx, step)
    low, high = -backward, size - backward

    def clamp(v: Int) -> Int:
        if _is_far(v, size):
            return high if v.constant > 0 else low
        v = v + size * _is_negative(ctx, v)
        return rules.greater(ctx, rules.lesser(ctx, v, high), low)

    return clamp(begin), clamp(end)


def _is_negative(ctx: rules.Knows, v: Int) -> Int:
    if v.value is not None:
        return lit(int(v.value < 0))
    below = maximum(-v, 0)
    return lit(0) if ctx.known_equal(below, lit(0)) else minimum(below, 1)


def _slice_reference(
    a: AxesAttrs, x: Array, begins: tuple[int, ...], ends: tuple[int, ...], steps: tuple[int, ...]
) -> Array:
    for axis, begin, end, step in zip(a.axes, begins, ends, steps, strict=True):
        places = range(*slice(begin, end, step).indices(x.shape[axis]))
        x = np.take(x, np.array(places, np.int64), axis)
    return x


def _slice_compute(a: AxesAttrs, operands: Sequence[Any], result: TensorType) -> te.Tensor:
    x: te.Tensor = operands[0]
    begins: Ints = operands[1]
    ends: Ints = operands[2]
    steps: Ints = operands[3]
    moves: dict[int, tuple[Int, Int]] = {}
    for axis, b, e, s in zip(a.axes, begins, ends, steps, strict=True):
        d = axis % x.ndim
        first, _ = _bounds(_NormalForms(), x.shape[d], b, e, s)
        moves[d] = (first, s)

    def body(*i: Int) -> te.ScalarValue:
        at = (moves[d][0] + v * moves[d][1] if d in moves else v for d, v in enumerate(i))
        return x[tuple(at)]

    return te.compute(result.shape, body, name="slice")


def _slice_samples() -> list[Sample]:
    x = noise((5, 9, 4), F32, seed="slice")
    n = ("a", "b", "c")
    far = 2**31 - 1

    def one(name: str, axis: int, b: int, e: int, s: int, *names: object) -> Sample:
        spelled = (n, *names) if names else (n, (b,), (e,), (s,))
        return Sample(name, AxesAttrs((axis,)), (x, (b,), (e,), (s,)), spelled, exact=True)  # type: ignore[arg-type]

    return [
        one("middle", 1, 2, 7, 1),
        one("step", 1, 1, 8, 3),
        one("from the end", -1, -3, -1, 1),
        one("to the end", 0, 1, far, 1),
        one("from before", 0, -100, 3, 1),
        one("backward", 1, -1, -far, -1),
        one("backward step", 1, 7, 0, -2),
        one("nothing", 1, 5, 2, 1),
        one("behind", 1, 20, 30, 1),
        one("free bounds", 1, 2, 7, 1, ("p",), ("q",), (1,)),
        one("free negative", 1, -6, -2, 2, ("p",), ("q",), (2,)),
        one("free step", 1, 8, 1, -3, ("p",), ("q",), ("s",)),
        Sample(
            "two axes",
            AxesAttrs((2, 0)),
            (x, (1, 0), (3, 5), (1, 2)),
            (n, (1, 0), (3, 5), (1, 2)),
            exact=True,
        ),
        Sample("no axes", AxesAttrs(()), (x, (), (), ()), exact=True),
    ]


def _update_rule(ctx: TypeContext, a: AxesAttrs, args: Types) -> TensorType:
    x, u = rules.tensor(ctx, args, 0), rules.tensor(ctx, args, 1)
    rules.same_dtype(ctx, x.dtype, u.dtype, "the update")
    rules.of_rank(ctx, u, len(x.shape), "the update")
    axes = [rules.axis_of(ctx, v, len(x.shape)) for v in a.axes]
    begins = rules.shape_values(ctx, args, 2)
    if len(set(axes)) != len(axes) or len(begins) != len(axes):
        raise ctx.fail(f"found axes {a.axes} with {len(begins)} begins, needed one for each")
    for d in range(len(x.shape)):
        if d in axes:
            begin = begins[axes.index(d)]
            ctx.at_least(begin, 0, f"the update begins inside axis {d}")
            ctx.at_least(x.shape[d] - begin - u.shape[d], 0, f"the update ends inside axis {d}")
        else:
            ctx.equal(x.shape[d], u.shape[d], f"axis {d} of the update")
    return x


def _update_reference(a: AxesAttrs, x: Array, u: Array, begins: tuple[int, ...]) -> Array:
    index: list[slice] = [slice(None)] * x.ndim
    for axis, b in zip(a.axes, begins, strict=True):
        index[axis] = slice(b, b + u.shape[axis])
    y = x.copy()
    y[tuple(index)] = u
    return y


def _update_compute(a: AxesAttrs, operands: Sequence[Any], result: TensorType) -> te.Tensor:
    x: te.Tensor = operands[0]
    u: te.Tensor = operands[1]
    begins: Ints = operands[2]
    start = {axis % x.ndim: b for axis, b in zip(a.axes, begins, strict=True)}

    def body(*i: Int) -> te.ScalarValue:
        at, inside = list(i), None
        for d, b in start.items():
            at[d] = i[d] - b
            inside = te.all_of(inside, te.index(at[d]) >= 0)
            inside = te.all_of(inside, te.index(at[d]) < te.index(u.shape[d]))
        return te.guarded(inside, u[tuple(at)], x[i])

    return te.compute(result.shape, body, name="update_slice")


def _update_in_place(a: AxesAttrs, operands: Sequence[Any], outputs: Sequence[Buffer]) -> Stmt:
    (_, u, begins), (out,) = operands, outputs
    start = {axis % len(out.shape): b for axis, b in zip(a.axes, begins, strict=True)}
    loops, i = serial_loops(u.shape)
    at = tuple(v + start[d] if d in start else v for d, v in enumerate(i))
    return nest(loops, Store(out, at, Load(u, i)))


def _update_samples() -> list[Sample]:
    x, u = noise((5, 6, 3), F32, seed="x"), noise((2, 6, 3), F32, seed="u")
    return [
        Sample("rows", AxesAttrs((0,)), (x, u, (1,)), (("n", "a", 3), ("k", "a", 3), ("b",)), exact=True),
        Sample("block", AxesAttrs((1, 0)), (x, u[:, :4].copy(), (2, 3)), exact=True),
        Sample("nothing", AxesAttrs((0,)), (x, u[:0], (5,)), exact=True),
    ]


# --------------------------------------------------------------------------- the table

DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "slice",
        AxesAttrs,
        _slice_rule,
        4,
        FusionPattern.LAYOUT,
        "x[begin:end:step] along axes; begins, ends and steps are shapes",
        reference=_slice_reference,
        compute=_slice_compute,
        samples=_slice_samples,
    ),
    define(
        "update_slice",
        AxesAttrs,
        _update_rule,
        3,
        FusionPattern.LAYOUT,
        "x with the block that begins at a shape replaced by the second operand",
        reference=_update_reference,
        compute=_update_compute,
        update=_update_in_place,
        samples=_update_samples,
        in_place=(0,),
        stands_alone=True,
    ),
)

SLICE, UPDATE_SLICE = (d.op for d in DEFINITIONS)
