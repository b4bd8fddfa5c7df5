"""Convolutions of 3 x 3 of floats by Winograd's F(2x2, 3x3), block by block.

The sums are those of `ops/winograd.py`; weights are transformed with G itself, halves and all, so nothing
is divided afterwards. Some lines of tiles are a *block*, and every temporary has the blocks as an axis
of its own:

    lines[n, block, 2 * lines + 2, columns, c]     the input that a block reads, padding written out
    tiles[n, block, 16, lines * tiles, c]          transformed tiles
    products[n, block, 16, lines * tiles, oc]      one matrix product for each of 16 elements
    y[n, rows, columns, oc]                        transformed back

So a schedule runs these four for one block after the other, and temporaries of one stay in the second
cache. Lines that two blocks read are copied twice.

Rounding is a little larger than that of plain sums: elements of a tile are sums of four elements of the
input, and results are sums of nine products of those. An infinity becomes NaN in all four results of
each tile that reads it, as its difference with itself is taken.

Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (2015), section 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inlay.arith.dtype import F32
from inlay.arith.expr import Int, ceildiv, floordiv, lit, mod
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.ops import _rules as rules
from inlay.ops._build import Array
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._rules import Types
from inlay.ops._samples import noise
from inlay.ops._windows import resolve
from inlay.ops.matmul import PackAttrs, inside_panels
from inlay.ops.winograd import (
    INPUT,
    KERNEL,
    RESULT,
    TERMS,
    TILE,
    TWICE_G,
    input_line,
    result_line,
    tiles_of,
    weight_line,
)


@dataclass(frozen=True, slots=True)
class WinogradFloatAttrs:
    """`channels` of the result in panels of `panel`, `pads` (all fronts, then all ends), `lines` of tiles in
    a block.
    """

    panel: int
    channels: int
    pads: tuple[int, ...] = ()
    lines: int = 1


# --------------------------------------------------------------------------- weights


def _pack_rule(ctx: TypeContext, a: PackAttrs, args: Types) -> TensorType:
    w = rules.of_rank(ctx, rules.tensor(ctx, args, 0, (F32,)), 4, "the weights")
    if a.panel < 1:
        raise ctx.fail(f"found panel {a.panel}, needed at least 1")
    for i in range(2):
        ctx.equal(w.shape[i], KERNEL[i], "the kernel of Winograd's form")
    return TensorType((lit(TERMS), ceildiv(w.shape[3], a.panel), w.shape[2], lit(a.panel)), F32)


def _pack_reference(a: PackAttrs, w: Array) -> Array:
    c, oc = w.shape[2:]
    panels = -(-oc // a.panel)
    u = np.einsum("ir,rsco,js->ijco", TWICE_G / 2, w.astype(np.float64), TWICE_G / 2, optimize=True)
    full = np.zeros((TERMS, c, panels * a.panel), np.float32)
    full[:, :, :oc] = u.reshape(TERMS, c, oc)
    return np.ascontiguousarray(full.reshape(TERMS, c, panels, a.panel).swapaxes(1, 2))


def _pack_compute(a: PackAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    (w,) = operands

    def body(f: Int, p: Int, c: Int, column: Int) -> te.ScalarValue:
        o = p * a.panel + column

        def line(r: int) -> te.ScalarValue:
            return weight_line(mod(f, lit(4)), lambda s: w[lit(r), lit(s), c, o])

        value = weight_line(floordiv(f, lit(4)), line) * 0.25
        return te.guarded(inside_panels(o, w.shape[3], a.panel), value, te.const(0.0, F32))

    return te.compute(result.shape, body, name="packed")


# --------------------------------------------------------------------------- product


def _rule(ctx: TypeContext, a: WinogradFloatAttrs, args: Types) -> TensorType:
    x, u = rules.tensor(ctx, args, 0, (F32,)), rules.tensor(ctx, args, 1, (F32,))
    rules.of_rank(ctx, x, 4, "the input")
    rules.of_rank(ctx, u, 4, "the transformed weights")
    if a.panel < 1 or a.lines < 1:
        raise ctx.fail(f"found panel {a.panel} and {a.lines} lines in a block, needed at least 1")
    ctx.equal(u.shape[0], lit(TERMS), "elements of a transformed tile")
    ctx.equal(u.shape[1], ceildiv(a.channels, a.panel), "panels of the transformed weights")
    ctx.equal(u.shape[2], x.shape[3], "channels of the input and of the weights")
    ctx.equal(u.shape[3], lit(a.panel), "channels of a panel")
    windows = resolve(ctx, KERNEL, (), (), a.pads)
    return TensorType((x.shape[0], *windows.out(ctx, x.shape[1:3]), lit(a.channels)), F32)


def _reference(a: WinogradFloatAttrs, x: Array, u: Array) -> Array:
    tiles, oh, ow = tiles_of(x, a.pads, x.shape[3], np.dtype(np.float64))
    n, th, tw, c = tiles.shape[:4]
    v = np.einsum("ir,ntucrs,js->ijntuc", INPUT, tiles, INPUT, optimize=True)
    whole = u.swapaxes(1, 2).reshape(4, 4, 1, c, -1)[..., : a.channels].astype(np.float64)
    m = (v.reshape(4, 4, 1, n * th * tw, c) @ whole).reshape(4, 4, n, th, tw, a.channels)
    y = np.einsum("pi,ijntuo,qj->ntpuqo", RESULT, m, RESULT, optimize=True)
    return y.reshape(n, 2 * th, 2 * tw, a.channels)[:, :oh, :ow].astype(np.float32)


def _compute(a: WinogradFloatAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, u = operands
    n, oh, ow, _ = result.shape
    columns, c = ceildiv(ow, TILE), x.shape[3]
    blocks = ceildiv(ceildiv(oh, TILE), lit(a.lines))
    source = _lines(x, (n, blocks, lit(2 * a.lines + 2), columns * TILE + 2, c), a)

    def transform(b: Int, k: Int, f: Int, t: Int, i: Int) -> te.ScalarValue:
        first, at = (lit(0), t) if a.lines == 1 else (floordiv(t, columns) * TILE, mod(t, columns))

        def line(r: int) -> te.ScalarValue:
            return input_line(mod(f, lit(4)), lambda s: source[(b, k, first + r, at * TILE + s, i)])

        return input_line(floordiv(f, lit(4)), line)

    rows = columns * a.lines
    v = te.compute((n, blocks, TERMS, rows, c), transform, name="tiles", stored=True)

    def product(b: Int, k: Int, f: Int, t: Int, o: Int) -> te.ScalarValue:
        i = te.reduce_axis("c", c)
        weight = u[(f, floordiv(o, lit(a.panel)), i, mod(o, lit(a.panel)))]
        return te.sum_over(i, v[(b, k, f, t, i)] * weight)

    m = te.compute((n, blocks, TERMS, rows, a.channels), product, name="products", tag="conv_winograd_float")

    def back(b: Int, y: Int, z: Int, o: Int) -> te.ScalarValue:
        k = floordiv(y, lit(2 * a.lines))
        t = (floordiv(y, TILE) - k * a.lines) * columns + floordiv(z, TILE)

        def line(i: int) -> te.ScalarValue:
            return result_line(mod(z, TILE), lambda j: m[(b, k, lit(4 * i + j), t, o)])

        return result_line(mod(y, TILE), line)

    return te.compute(result.shape, back, name="conv")


def _lines(x: te.Tensor, shape: tuple[Int, ...], a: WinogradFloatAttrs) -> te.Tensor:
    """Return the lines of the input that each block reads, with all that its tiles cover written out."""
    top, left = a.pads[:2] or (0, 0)
    _, height, width, _ = x.shape

    def body(b: Int, k: Int, y: Int, z: Int, i: Int) -> te.ScalarValue:
        row, column = k * (2 * a.lines) + y - top, z - left
        inside = te.all_of(
            te.index(row) >= 0 if top else None,
            te.index(row) < te.index(height),
            te.index(column) >= 0 if left else None,
            te.index(column) < te.index(width),
        )
        return te.guarded(inside, x[b, row, column, i], te.const(0.0, F32))

    return te.compute(shape, body, name="lines", stored=True)


# --------------------------------------------------------------------------- samples

_CASES = (
    ((1, 8, 8, 4), 8, (1, 1, 1, 1), 4, 1),
    ((2, 7, 5, 3), 5, (1, 1, 1, 1), 4, 2),
    ((1, 4, 4, 2), 3, (), 8, 1),
    ((1, 19, 6, 17), 24, (0, 1, 2, 1), 16, 3),
    ((3, 16, 9, 16), 32, (1, 1, 1, 1), 32, 8),
)


def _weights(c: int, oc: int) -> Array:
    return noise((3, 3, c, oc), F32, seed="w")


def _pack_samples() -> list[Sample]:
    return [
        Sample(f"{x[-1]} to {oc} by {panel}", PackAttrs(panel), (_weights(x[-1], oc),))
        for x, oc, _, panel, _ in _CASES
    ]


def _samples() -> list[Sample]:
    made: list[Sample] = []
    for shape, oc, pads, panel, lines in _CASES:
        u = _pack_reference(PackAttrs(panel), _weights(shape[-1], oc))
        names = ("n", "h", "w", shape[-1])
        attrs = WinogradFloatAttrs(panel, oc, pads, lines)
        operands = (noise(shape, F32, seed="x"), u)
        made.append(Sample(f"{shape} to {oc} by {lines}", attrs, operands, (names, u.shape)))
    return made


DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "pack_winograd_floats",
        PackAttrs,
        _pack_rule,
        1,
        FusionPattern.LAYOUT,
        "[3, 3, c, oc] transformed, as panels [16, ceil(oc/panel), c, panel]",
        reference=_pack_reference,
        compute=_pack_compute,
        samples=_pack_samples,
    ),
    define(
        "conv_winograd_float",
        WinogradFloatAttrs,
        _rule,
        2,
        FusionPattern.CONTRACTION,
        "3 x 3 convolution of [n, h, w, c] with transformed weights, block of lines by block",
        reference=_reference,
        compute=_compute,
        samples=_samples,
        form_of="conv",
        terms=lambda _, x, u: 4 * u.shape[2],
    ),
)
