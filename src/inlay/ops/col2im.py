"""Columns to an image: elements of windows are added up where the windows lie.

The reverse of taking windows apart, and a transposed convolution without weights: `x` is
`[n, c, *kernel, *windows]`, an element of a window goes to `window * stride + tap * dilation` of the padded
image, and the result is `[n, c, *image]`, without the padding. Narrow floats are added in f32.

Every element of the image sums the taps that reach it. With a stride those are others for neighbors, and the
same for every `stride`-th one: so images of every `stride`-th element are made first, in which neighbors read
neighbors, and are put together then.

Source: Col2Im of ONNX; `fold` of other systems.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inlay.arith.dtype import F16, F32, I32
from inlay.arith.expr import Int, ceildiv, floordiv, lit, mod
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.ops import _rules as rules
from inlay.ops._build import Array, widen, widened
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._rules import NUMBERS, Types
from inlay.ops._samples import noise
from inlay.ops._windows import Windows, accepted, resolve
from inlay.ops.convolution import narrowed


@dataclass(frozen=True, slots=True)
class Col2imAttrs:
    """`strides`, `pads`, `dilations`: as of a convolution of the image."""

    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()


def _rule(ctx: TypeContext, a: Col2imAttrs, args: Types) -> TensorType:
    x = rules.tensor(ctx, args, 0, NUMBERS)
    image = rules.shape_values(ctx, args, 1)
    count = len(image)
    rules.of_rank(ctx, x, 2 + 2 * count, "the columns")
    windows = resolve(ctx, x.shape[2 : 2 + count], a.strides, a.dilations, a.pads)
    for i, fitting in enumerate(windows.out(ctx, image)):
        ctx.equal(x.shape[2 + count + i], fitting, f"windows along axis {i} of the image")
    return TensorType((*x.shape[:2], *image), x.dtype)


def _windows(a: Col2imAttrs, shape: Sequence[Int]) -> Windows:
    return accepted(shape[2 : 1 + len(shape) // 2], a.strides, a.dilations, a.pads)


def _compute(a: Col2imAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x = operands[0]
    windows = _windows(a, x.shape)
    strides, before = windows.strides, windows.before
    strided = [i for i in range(windows.count) if strides[i] > 1]

    def phases(n: Int, c: Int, *at: Int) -> te.ScalarValue:
        offsets = [i + b for i, b in zip(at[len(strided) :], before, strict=True)]
        for i, phase in zip(strided, at, strict=False):
            offsets[i] = at[len(strided) + i] * strides[i] + phase
        return _sum(x, windows, n, c, offsets)

    shape = list(result.shape)
    for i in strided:
        shape[2 + i] = ceildiv(shape[2 + i] + before[i], lit(strides[i]))
    shape[2:2] = [lit(strides[i]) for i in strided]
    y = te.compute(shape, phases, name="col2im", tag="pool")
    if not strided:
        return narrowed(y, result)

    def interleaved(n: Int, c: Int, *at: Int) -> te.ScalarValue:
        places = list(at)
        for i in strided:
            places[i] = floordiv(at[i] + before[i], lit(strides[i]))
        first = [mod(at[i] + before[i], lit(strides[i])) for i in strided]
        return y[(n, c, *first, *places)].cast(x.dtype)

    return te.compute(result.shape, interleaved, name="interleaved")


def _sum(x: te.Tensor, windows: Windows, n: Int, c: Int, offsets: Sequence[Int]) -> te.ScalarValue:
    """Return the sum of what windows have for an element of the padded image."""
    count = windows.count
    met = [windows.meeting(i, offset, x.shape[2 + count + i]) for i, offset in enumerate(offsets)]
    inside = te.all_of(*(one.inside for one in met))
    value = x[(n, c, *(one.tap for one in met), *(one.window for one in met))]
    return te.sum_over([one.axis for one in met], te.guarded(inside, value.cast(widened(x.dtype)), 0))


def _reference(a: Col2imAttrs, x: Array, image: tuple[int, ...]) -> Array:
    windows = _windows(a, [lit(n) for n in x.shape])
    count = windows.count
    whole = [image[i] + windows.before[i] + windows.after[i] for i in range(count)]
    y = np.zeros((*x.shape[:2], *whole), widen(x).dtype)
    for k in np.ndindex(*x.shape[2 : 2 + count]):
        starts = [k[i] * windows.dilations[i] for i in range(count)]
        place = tuple(
            slice(starts[i], starts[i] + (out - 1) * windows.strides[i] + 1, windows.strides[i])
            for i, out in enumerate(x.shape[2 + count :])
        )
        if x.size:
            y[(..., *place)] += x[(slice(None), slice(None), *k)]
    cut = tuple(slice(windows.before[i], whole[i] - windows.after[i]) for i in range(count))
    return y[(..., *cut)].astype(x.dtype)


def _samples() -> list[Sample]:
    made: list[Sample] = []
    for kernel, image, attrs in (
        ((3, 3), (6, 7), Col2imAttrs()),
        ((3, 2), (5, 20), Col2imAttrs(pads=(1, 0, 1, 1))),
        ((3, 3), (7, 37), Col2imAttrs((2, 2), (1, 1, 1, 1))),
        ((7, 7), (12, 12), Col2imAttrs((4, 4), (2, 2, 2, 2))),
        ((2, 3), (9, 8), Col2imAttrs((1, 2), (0, 1, 1, 0), (2, 3))),
        ((2, 2), (9, 9), Col2imAttrs((2, 4), (), (2, 6))),
        ((2, 2), (11, 5), Col2imAttrs((3, 3))),
        ((5,), (40,), Col2imAttrs((2,), (3, 1))),
        ((2, 2, 2), (4, 3, 5), Col2imAttrs((2, 1, 1))),
    ):
        windows = accepted([lit(k) for k in kernel], attrs.strides, attrs.dilations, attrs.pads)
        whole = [image[i] + windows.before[i] + windows.after[i] for i in range(len(image))]
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, windows.dilations, strict=True)]
        out = [(n - r) // s + 1 for n, r, s in zip(whole, reach, windows.strides, strict=True)]
        x = noise((2, 3, *kernel, *out), F32, seed="columns")
        made.append(Sample(f"{kernel} {image} {attrs}", attrs, (x, image)))
    x = noise((1, 2, 3, 3, 4, 5), F32, seed="columns")
    return [
        *made,
        Sample("sizes", Col2imAttrs(), (x, (6, 7)), (("n", "c", 3, 3, 4, 5), (6, 7))),
        Sample("f16", Col2imAttrs(), (x.astype(F16.numpy), (6, 7))),
        Sample("i32", Col2imAttrs(), (noise(x.shape, I32, low=-9, high=9), (6, 7)), exact=True),
        Sample("no images", Col2imAttrs(), (x[:0], (6, 7))),
    ]


DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "col2im",
        Col2imAttrs,
        _rule,
        2,
        FusionPattern.REDUCTION,
        "columns [n, c, *kernel, *windows] added up into an image of a shape: [n, c, *image]",
        reference=_reference,
        compute=_compute,
        samples=_samples,
    ),
)
