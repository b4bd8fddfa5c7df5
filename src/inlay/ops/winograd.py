"""Convolutions of 3 x 3 by Winograd's F(2x2, 3x3): 16 products for four results instead of 36.

A tile of 4 x 4 elements of the input gives 2 x 2 of the result:

    Y = A^T [(G w G^T) * (B^T x B)] A        * = element by element

so for each of the 16 elements of a transformed tile there is one matrix product, of tiles by channels
with channels by channels. B and A hold 0, 1 and -1; G holds halves, so weights of integers are
transformed with 2 G, which makes them integers four times as large (at most 9 * 128), and the result is
divided by four, without a rest. Elements of a transformed tile are sums of four elements of the input.
Both fit i16, so that products go as fast as those of `conv_nhwc_integer_packed`, and the result is
exact as long as four times it stays in i32: `fits` decides.

Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (2015), section 4.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlay.arith.dtype import I8, I16, I32, U8
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
from inlay.ops.matmul import inside_panels

KERNEL = (lit(3), lit(3))
TILE = lit(2)
"""Rows and columns of the result that a tile gives."""
TERMS = 16
"""Elements of a transformed tile."""
INPUT = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
RESULT = np.array([[1, 1, 1, 0], [0, 1, -1, -1]])
TWICE_G = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]])


@dataclass(frozen=True, slots=True)
class WinogradPackAttrs:
    """`panel`: channels of the result in a panel; `group`: of the input side by side."""

    panel: int
    group: int = 2


@dataclass(frozen=True, slots=True)
class WinogradAttrs:
    """`pads` (all fronts, then all ends) of `outside`, `channels` of the result, in panels of `panel`."""

    panel: int
    channels: int
    pads: tuple[int, ...] = ()
    outside: int = 0


def fits(weights: Array, most: int) -> bool:
    """Whether four times each result stays in i32.

    Args:
        weights: `[3, 3, c, oc]`.
        most: magnitude of the input's elements.
    """
    sums = np.abs(weights.astype(np.int64)).sum(axis=(0, 1, 2))
    return bool(sums.size) and 4 * most * int(sums.max()) < 1 << 31


# --------------------------------------------------------------------------- lines

Element = Callable[[int], te.ScalarValue]
"""An element of a line, by its position."""


def weight_line(which: Int, w: Element) -> te.ScalarValue:
    """Return an element of the line of four that three weights give: a row of 2 G times the line."""
    forms = (w(0) * 2, w(0) + w(1) + w(2), w(0) - w(1) + w(2), w(2) * 2)
    return _chosen(which, forms)


def input_line(which: Int, d: Element) -> te.ScalarValue:
    """Return an element of a transformed line of four: a row of B^T times the line."""
    forms = (d(0) - d(2), d(1) + d(2), d(2) - d(1), d(1) - d(3))
    return _chosen(which, forms)


def result_line(which: Int, m: Element) -> te.ScalarValue:
    """Return an element of the line of two that a transformed one of four gives: a row of A^T."""
    return _chosen(which, (m(0) + m(1) + m(2), m(1) - m(2) - m(3)))


def _chosen(which: Int, forms: Sequence[te.ScalarValue]) -> te.ScalarValue:
    """Return one of several values; loops over `which` are written out, which settles the choice."""
    value = forms[-1]
    for i in reversed(range(len(forms) - 1)):
        value = te.select(te.index(which).equals(te.index(i)), forms[i], value)
    return value


# --------------------------------------------------------------------------- weights


def _pack_rule(ctx: TypeContext, a: WinogradPackAttrs, args: Types) -> TensorType:
    w = rules.of_rank(ctx, rules.tensor(ctx, args, 0, (I8, U8)), 4, "the weights")
    if a.panel < 1 or a.group < 1:
        raise ctx.fail(f"found panel {a.panel} and group {a.group}, needed at least 1")
    for i in range(2):
        ctx.equal(w.shape[i], KERNEL[i], "the kernel of Winograd's form")
    groups, panels = ceildiv(w.shape[2], a.group), ceildiv(w.shape[3], a.panel)
    return TensorType((lit(TERMS), panels, groups, lit(a.panel), lit(a.group)), I16)


def _pack_reference(a: WinogradPackAttrs, w: Array) -> Array:
    c, oc = w.shape[2:]
    u = np.einsum("ir,js,rsco->ijco", TWICE_G, TWICE_G, w.astype(np.int64))
    groups, panels = -(-c // a.group), -(-oc // a.panel)
    full = np.zeros((TERMS, groups * a.group, panels * a.panel), np.int16)
    full[:, :c, :oc] = u.reshape(TERMS, c, oc)
    split = full.reshape(TERMS, groups, a.group, panels, a.panel)
    return np.ascontiguousarray(split.transpose(0, 3, 1, 4, 2))


def _pack_compute(a: WinogradPackAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    (w,) = operands

    def body(f: Int, p: Int, group: Int, column: Int, j: Int) -> te.ScalarValue:
        c, o = group * a.group + j, p * a.panel + column
        inside = te.all_of(inside_panels(c, w.shape[2], a.group), inside_panels(o, w.shape[3], a.panel))

        def line(r: int) -> te.ScalarValue:
            return weight_line(mod(f, lit(4)), lambda s: w[lit(r), lit(s), c, o].cast(I16))

        return te.guarded(inside, weight_line(floordiv(f, lit(4)), line), te.const(0, I16))

    return te.compute(result.shape, body, name="packed")


# --------------------------------------------------------------------------- product


def _rule(ctx: TypeContext, a: WinogradAttrs, args: Types) -> TensorType:
    x, u = rules.tensor(ctx, args, 0, (I8, U8)), rules.tensor(ctx, args, 1, (I16,))
    rules.of_rank(ctx, x, 4, "the input")
    rules.of_rank(ctx, u, 5, "the transformed weights")
    ctx.equal(u.shape[0], lit(TERMS), "elements of a transformed tile")
    ctx.equal(u.shape[1], ceildiv(a.channels, a.panel), "panels of the transformed weights")
    ctx.equal(u.shape[2], ceildiv(x.shape[3], u.shape[4]), "groups of channels")
    ctx.equal(u.shape[3], lit(a.panel), "channels of a panel")
    windows = resolve(ctx, KERNEL, (), (), a.pads)
    return TensorType((x.shape[0], *windows.out(ctx, x.shape[1:3]), lit(a.channels)), I32)


def tiles_of(
    x: Array, pads: tuple[int, ...], channels: int, dtype: np.dtype[Any], outside: int = 0, tile: int = 2
) -> tuple[Array, int, int]:
    """Return the tiles of images, `[n, line, column, c, tile + 2, tile + 2]`, and the rows and columns of the
    result.

    Args:
        x: the image, `[n, h, w, c]`.
        pads: around it; nothing for none.
        channels: of the tiles; those behind the last one are `outside`.
        dtype: of the tiles.
        outside: what padding has.
        tile: rows and columns of the result that a tile gives.
    """
    n, height, width, c = x.shape
    top, left, bottom, right = pads or (0, 0, 0, 0)
    oh, ow = height + top + bottom - 2, width + left + right - 2
    th, tw = -(-oh // tile), -(-ow // tile)
    full = np.full((n, tile * th + 2, tile * tw + 2, channels), outside, dtype)
    full[:, top : top + height, left : left + width, :c] = x
    windows = np.lib.stride_tricks.sliding_window_view(full, (tile + 2, tile + 2), (1, 2))
    return windows[:, ::tile, ::tile], oh, ow


def _reference(a: WinogradAttrs, x: Array, u: Array) -> Array:
    groups, group = u.shape[2], u.shape[4]
    tiles, oh, ow = tiles_of(x, a.pads, groups * group, np.dtype(np.int64), a.outside)
    n, th, tw = tiles.shape[:3]
    v = np.einsum("ir,js,ntucrs->ijntuc", INPUT, INPUT, tiles)
    whole = u.transpose(0, 2, 4, 1, 3).reshape(4, 4, groups * group, -1)[..., : a.channels]
    m = np.einsum("ijntuc,ijco->ijntuo", v, whole.astype(np.int64))
    y = np.einsum("pi,qj,ijntuo->ntpuqo", RESULT, RESULT, m) >> 2
    return y.reshape(n, 2 * th, 2 * tw, a.channels)[:, :oh, :ow].astype(np.int32)


def _compute(a: WinogradAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, u = operands
    n, oh, ow, _ = result.shape
    th, tw = ceildiv(oh, TILE), ceildiv(ow, TILE)
    source = _widened(x, u.shape[2] * u.shape[4], (th, tw), a)
    tiles = n * th * tw

    def transform(f: Int, t: Int, c: Int) -> te.ScalarValue:
        b, row, column = floordiv(t, th * tw), mod(floordiv(t, tw), th) * TILE, mod(t, tw) * TILE

        def line(r: int) -> te.ScalarValue:
            return input_line(mod(f, lit(4)), lambda s: source[(b, row + r, column + s, c)])

        return input_line(floordiv(f, lit(4)), line)

    v = te.compute((TERMS, tiles, source.shape[-1]), transform, name="tiles", stored=True)

    def product(f: Int, t: Int, o: Int) -> te.ScalarValue:
        c, j = te.reduce_axis("c", u.shape[2]), te.reduce_axis("j", u.shape[4])
        weight = u[(f, floordiv(o, lit(a.panel)), c, mod(o, lit(a.panel)), j)]
        return te.sum_over([c, j], v[(f, t, c * u.shape[4] + j)].cast(I32) * weight.cast(I32))

    m = te.compute((TERMS, tiles, a.channels), product, name="products", tag="conv_winograd")

    def back(b: Int, y: Int, z: Int, o: Int) -> te.ScalarValue:
        t = (b * th + floordiv(y, TILE)) * tw + floordiv(z, TILE)

        def line(i: int) -> te.ScalarValue:
            return result_line(mod(z, TILE), lambda j: m[(4 * i + j, t, o)])

        return result_line(mod(y, TILE), line) >> 2

    return te.compute(result.shape, back, name="conv")


def _widened(x: te.Tensor, channels: Int, tiles: tuple[Int, Int], a: WinogradAttrs) -> te.Tensor:
    """Return the input in i16 with all that tiles cover written out, and whole groups of channels."""
    top, left = a.pads[:2] or (0, 0)
    n, height, width, c = x.shape

    def body(b: Int, y: Int, z: Int, k: Int) -> te.ScalarValue:
        row, column = y - top, z - left
        inside = te.all_of(
            te.index(row) >= 0 if top else None,
            te.index(row) < te.index(height),
            te.index(column) >= 0 if left else None,
            te.index(column) < te.index(width),
            te.index(k) < te.index(c) if channels != c else None,
        )
        return te.guarded(inside, x[b, row, column, k].cast(I16), te.const(a.outside, I16))

    return te.compute(
        (n, tiles[0] * TILE + 2, tiles[1] * TILE + 2, channels), body, name="widened", stored=True
    )


# --------------------------------------------------------------------------- samples

_CASES = (
    ((1, 8, 8, 4), 8, (1, 1, 1, 1), 4),
    ((2, 7, 5, 3), 5, (1, 1, 1, 1), 4),
    ((1, 4, 4, 2), 3, (), 8),
    ((1, 5, 6, 17), 24, (0, 1, 2, 1), 16),
)


def _pack_samples() -> list[Sample]:
    return [
        Sample(f"{x[-1]} to {oc} by {panel}", WinogradPackAttrs(panel), (_weights(x[-1], oc),))
        for x, oc, _, panel in _CASES
    ]


def _weights(c: int, oc: int) -> Array:
    return noise((3, 3, c, oc), I8, low=-128, high=127, seed="w")


def _samples() -> list[Sample]:
    made: list[Sample] = []
    for shape, oc, pads, panel in _CASES:
        u = _pack_reference(WinogradPackAttrs(panel), _weights(shape[-1], oc))
        for dtype, low, high in ((U8, 0, 255), (I8, -128, 127)):
            x = noise(shape, dtype, low=low, high=high, seed="x")
            names = ("n", "h", "w", shape[-1])
            attrs = WinogradAttrs(panel, oc, pads, 0 if dtype is U8 else -3)
            made.append(Sample(f"{dtype} {shape} to {oc}", attrs, (x, u), (names, u.shape)))
    return made


DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "pack_winograd_weights",
        WinogradPackAttrs,
        _pack_rule,
        1,
        FusionPattern.LAYOUT,
        "[3, 3, c, oc] transformed, four times as large, as panels [16, ceil(oc/panel), ceil(c/group), "
        "panel, group]",
        reference=_pack_reference,
        compute=_pack_compute,
        samples=_pack_samples,
    ),
    define(
        "conv_winograd",
        WinogradAttrs,
        _rule,
        2,
        FusionPattern.CONTRACTION,
        "3 x 3 convolution of [n, h, w, c] with transformed weights, in i32",
        reference=_reference,
        compute=_compute,
        samples=_samples,
        form_of="conv",
        terms=lambda _, x, u: 4 * u.shape[2] * u.shape[4],
    ),
)
