"""Padding: a border of one value, of the edge, of the mirror image or of the other end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from inlay.arith.dtype import F32
from inlay.arith.expr import Int, lit, maximum, minimum, mod
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.ops import _rules as rules
from inlay.ops._build import Array, Ints
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._rules import Types
from inlay.ops._samples import noise


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

    def body(*i: Int) -> te.ScalarValue:
        at, inside = list(i), None
        for d in range(rank):
            if pads[d] == 0 and pads[rank + d] == 0:
                continue
            at[d] = _source(a.mode, i[d] - pads[d], x.shape[d])
            if a.mode is PadMode.CONSTANT and pads[d] != 0:
                inside = te.all_of(inside, te.index(at[d]) >= 0)
            if a.mode is PadMode.CONSTANT and pads[rank + d] != 0:
                inside = te.all_of(inside, te.index(at[d]) < te.index(x.shape[d]))
        if a.mode is PadMode.CONSTANT:
            fill = value[0][()] if value else te.const(0, x.dtype)
            return te.guarded(inside, x[tuple(at)], fill)
        if not rank or pads[-1] == pads[rank - 1] == 0:
            return x[tuple(at)]
        # The middle of a line is a copy: said apart, so that it can be one of vectors.
        near = i[-1] - pads[rank - 1]
        is_near = (te.index(near) >= 0) & (te.index(near) < te.index(x.shape[-1]))
        return te.select(is_near, x[(*at[:-1], near)], x[tuple(at)])

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
        Sample(
            "value",
            PadAttrs(),
            (x, (0, 1, 2, 0), np.asarray(7, np.float32)),
            (n, (0, 1, 2, 0), ()),
            exact=True,
        ),
        Sample("cut", PadAttrs(), (x, (-1, 1, 0, -2)), (n, (-1, 1, 0, -2)), exact=True),
        Sample("free", PadAttrs(), (x, (1, 2, 0, 1)), (n, ("p", "q", 0, 1)), exact=True),
        Sample("none", PadAttrs(), (x, (0, 0, 0, 0)), exact=True),
        Sample("around nothing", PadAttrs(), (x[:0], (1, 0, 1, 1)), exact=True),
    ]


DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "pad",
        PadAttrs,
        _pad_rule,
        (2, 3),
        FusionPattern.LAYOUT,
        "x with elements around it: pads is a shape of all fronts, then all ends; negative ones "
        "cut; the value outside is 0 or a tensor of rank 0",
        reference=_pad_reference,
        compute=_pad_compute,
        samples=_pad_samples,
        stands_alone=True,
    ),
)
