"""Convolutions of 3 x 3 and k x 3 x 3 of floats by Winograd's F(m x m, 3 x 3), block by block.

The sums are those of `ops/_winograd_forms.py`, for `m` of 2 and 4. Some lines of tiles are a *block*, and
every temporary has the blocks as an axis of its own:

    lines[n, block, m * lines + 2, columns, c]           the input that a block reads, padding written out
    halves[n, block, lines, m + 2, columns, c]           columns of it transformed, for each line of tiles
    tiles[n, block, (m + 2)^2, lines * tiles, c]         transformed tiles
    products[n, block, (m + 2)^2, lines * tiles, oc]     one matrix product for each element of a tile
    y[n, rows, columns, oc]                              transformed back

A kernel of k x 3 x 3 over volumes is one of 3 x 3 over images, one for each plane of the result, whose
pixels have the channels of k planes: planes are an axis behind `n`, and k is one in front of `c`.

So a schedule runs these four for one block after the other, and temporaries of one stay in the second
cache. Lines that two blocks read are copied twice.

Rounding is a little larger than that of plain sums: elements of a tile are sums of elements of the input, and
results are sums of products of those. An infinity becomes NaN in all results of each tile that reads it,
as its difference with itself is taken.

Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (2015), section 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from inlay.arith.dtype import F32
from inlay.arith.expr import Int, ceildiv, floordiv, lit, mod, product
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.ops import _rules as rules
from inlay.ops._build import Array
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._rules import Types
from inlay.ops._samples import noise
from inlay.ops._windows import resolve
from inlay.ops._winograd_forms import FORMS
from inlay.ops.matmul import inside_panels
from inlay.ops.winograd import KERNEL, tiles_of


@dataclass(frozen=True, slots=True)
class WinogradFloatPackAttrs:
    """`panel`: channels of the result in a panel; `tile`: m of F(m x m, 3 x 3)."""

    panel: int
    tile: int = 2


@dataclass(frozen=True, slots=True)
class WinogradFloatAttrs:
    """`channels` of the result in panels of `panel`, `pads` (all fronts, then all ends), `lines` of tiles in
    a block, each of which gives `tile x tile` results; of a volume each result is of `planes`.
    """

    panel: int
    channels: int
    pads: tuple[int, ...] = ()
    lines: int = 1
    tile: int = 2
    planes: int = 1


def _check_tile(ctx: TypeContext, tile: int) -> None:
    if tile not in FORMS:
        raise ctx.fail(f"found tile {tile}, needed {' or '.join(map(str, FORMS))}")


# --------------------------------------------------------------------------- weights


def _pack_rule(ctx: TypeContext, a: WinogradFloatPackAttrs, args: Types) -> TensorType:
    w = rules.tensor(ctx, args, 0, (F32,))
    rules.rank_between(ctx, w, 4, 5, "the weights")
    if a.panel < 1:
        raise ctx.fail(f"found panel {a.panel}, needed at least 1")
    _check_tile(ctx, a.tile)
    *planes, height, width, c, oc = w.shape
    for found, needed in zip((height, width), KERNEL, strict=True):
        ctx.equal(found, needed, "the kernel of Winograd's form")
    terms = FORMS[a.tile].side ** 2
    return TensorType((lit(terms), ceildiv(oc, a.panel), product((*planes, c)), lit(a.panel)), F32)


def _pack_reference(a: WinogradFloatPackAttrs, w: Array) -> Array:
    form = FORMS[a.tile]
    oc = w.shape[-1]
    panels, terms = -(-oc // a.panel), form.side**2
    wide = w.astype(np.float64)
    u = np.einsum("ir,...rsco,js->ij...co", form.weights, wide, form.weights, optimize=True)
    flat = u.reshape(terms, -1, oc)
    full = np.zeros((*flat.shape[:2], panels * a.panel), np.float32)
    full[..., :oc] = flat
    return np.ascontiguousarray(full.reshape(terms, -1, panels, a.panel).swapaxes(1, 2))


def _pack_compute(a: WinogradFloatPackAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    (w,) = operands
    form = FORMS[a.tile]
    side, c = lit(form.side), w.shape[-2]

    def body(f: Int, p: Int, i: Int, column: Int) -> te.ScalarValue:
        o = p * a.panel + column
        plane, channel = ((), i) if w.ndim == 4 else ((floordiv(i, c),), mod(i, c))

        def line(r: int) -> te.ScalarValue:
            return form.weight_line(mod(f, side), lambda s: w[(*plane, lit(r), lit(s), channel, o)])

        value = form.weight_line(floordiv(f, side), line)
        return te.guarded(inside_panels(o, w.shape[-1], a.panel), value, te.const(0.0, F32))

    return te.compute(result.shape, body, name="packed")


# --------------------------------------------------------------------------- product


def _rule(ctx: TypeContext, a: WinogradFloatAttrs, args: Types) -> TensorType:
    x, u = rules.tensor(ctx, args, 0, (F32,)), rules.tensor(ctx, args, 1, (F32,))
    rules.rank_between(ctx, x, 4, 5, "the input")
    rules.of_rank(ctx, u, 4, "the transformed weights")
    if a.panel < 1 or a.lines < 1:
        raise ctx.fail(f"found panel {a.panel} and {a.lines} lines in a block, needed at least 1")
    if a.planes < 1 or (a.planes > 1 and len(x.shape) == 4):
        raise ctx.fail(f"found {a.planes} planes for an input of {len(x.shape)} axes, needed 1, or 5 axes")
    _check_tile(ctx, a.tile)
    ctx.equal(u.shape[0], lit(FORMS[a.tile].side ** 2), "elements of a transformed tile")
    ctx.equal(u.shape[1], ceildiv(a.channels, a.panel), "panels of the transformed weights")
    ctx.equal(u.shape[2], x.shape[-1] * a.planes, "channels of the input and of the weights")
    ctx.equal(u.shape[3], lit(a.panel), "channels of a panel")
    kernel = KERNEL if len(x.shape) == 4 else (lit(a.planes), *KERNEL)
    windows = resolve(ctx, kernel, (), (), a.pads)
    return TensorType((x.shape[0], *windows.out(ctx, x.shape[1:-1]), lit(a.channels)), F32)


def _reference(a: WinogradFloatAttrs, x: Array, u: Array) -> Array:
    if x.ndim == 4:
        return _of_images(a, x, u)
    front, top, left, end, bottom, right = a.pads or (0,) * 6
    padded = np.pad(x, ((0, 0), (front, end), *[(0, 0)] * 3))
    windows = np.lib.stride_tricks.sliding_window_view(padded, a.planes, 1)  # [n, planes, h, w, c, k]
    n, planes, height, width, c, k = windows.shape
    images = windows.swapaxes(-1, -2).reshape(n * planes, height, width, k * c)
    y = _of_images(replace(a, pads=(top, left, bottom, right)), images, u)
    return y.reshape(n, planes, *y.shape[1:])


def _of_images(a: WinogradFloatAttrs, x: Array, u: Array) -> Array:
    form = FORMS[a.tile]
    m, side = form.tile, form.side
    tiles, oh, ow = tiles_of(x, a.pads, x.shape[3], np.dtype(np.float64), tile=m)
    n, th, tw, c = tiles.shape[:4]
    v = np.einsum("ir,ntucrs,js->ijntuc", form.input, tiles, form.input, optimize=True)
    whole = u.swapaxes(1, 2).reshape(side, side, 1, c, -1)[..., : a.channels].astype(np.float64)
    products = (v.reshape(side, side, 1, n * th * tw, c) @ whole).reshape(side, side, n, th, tw, a.channels)
    y = np.einsum("pi,ijntuo,qj->ntpuqo", form.result, products, form.result, optimize=True)
    return y.reshape(n, m * th, m * tw, a.channels)[:, :oh, :ow].astype(np.float32)


def _compute(a: WinogradFloatAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, u = operands
    form = FORMS[a.tile]
    tile, side = lit(form.tile), lit(form.side)
    *images, oh, ow, _ = result.shape
    columns, c, first = ceildiv(ow, tile), x.shape[-1], len(images)
    blocks = ceildiv(ceildiv(oh, tile), lit(a.lines))
    read = (c,) if first == 1 else (lit(a.planes), c)
    source = _lines(x, (*images, blocks, tile * a.lines + 2, columns * tile + 2, *read), a)

    def upright(*i: Int) -> te.ScalarValue:
        image, (k, line, f, z), at = i[:first], i[first : first + 4], i[first + 4 :]
        return form.input_line(f, lambda r: source[(*image, k, line * tile + r, z, *at)])

    shape = (*images, blocks, lit(a.lines), side, columns * tile + 2, *read)
    halves = te.compute(shape, upright, name="halves", stored=True)

    def transform(*i: Int) -> te.ScalarValue:
        image, (k, f, t), at = i[:first], i[first : first + 3], i[first + 3 :]
        line, column = (lit(0), t) if a.lines == 1 else (floordiv(t, columns), mod(t, columns))
        row = floordiv(f, side)
        return form.input_line(mod(f, side), lambda s: halves[(*image, k, line, row, column * tile + s, *at)])

    rows, terms = columns * a.lines, side * side
    v = te.compute((*images, blocks, terms, rows, *read), transform, name="tiles", stored=True)

    def multiply(*i: Int) -> te.ScalarValue:
        f, t, o = i[first + 1 :]
        at = [te.reduce_axis(name, size) for name, size in zip(("k", "c")[-len(read) :], read, strict=True)]
        channel = at[0] if len(at) == 1 else at[0] * c + at[1]
        weight = u[(f, floordiv(o, lit(a.panel)), channel, mod(o, lit(a.panel)))]
        return te.sum_over(at, v[(*i[: first + 1], f, t, *at)] * weight)

    made = (*images, blocks, terms, rows, a.channels)
    m = te.compute(made, multiply, name="products", tag="conv_winograd_float")

    def back(*i: Int) -> te.ScalarValue:
        image, (y, z, o) = i[:first], i[first:]
        k = floordiv(y, tile * a.lines)
        t = (floordiv(y, tile) - k * a.lines) * columns + floordiv(z, tile)

        def line(r: int) -> te.ScalarValue:
            return form.result_line(mod(z, tile), lambda j: m[(*image, k, side * r + j, t, o)])

        return form.result_line(mod(y, tile), line)

    return te.compute(result.shape, back, name="conv")


def _lines(x: te.Tensor, shape: tuple[Int, ...], a: WinogradFloatAttrs) -> te.Tensor:
    """Return the lines of the input that each block reads, with all that its tiles cover written out."""
    *fronts, top, left = a.pads[: len(a.pads) // 2] or (0,) * (x.ndim - 2)
    *outside, height, width, _ = x.shape
    first = len(outside)

    def body(*i: Int) -> te.ScalarValue:
        image, (k, y, z), at = i[:first], i[first : first + 3], i[first + 3 :]
        row, column = k * (a.tile * a.lines) + y - top, z - left
        inside = te.all_of(
            te.index(row) >= 0 if top else None,
            te.index(row) < te.index(height),
            te.index(column) >= 0 if left else None,
            te.index(column) < te.index(width),
        )
        if fronts:
            plane = image[1] + at[0] - fronts[0]
            image = (image[0], plane)
            inside = te.all_of(inside, te.index(plane) >= 0, te.index(plane) < te.index(outside[1]))
        return te.guarded(inside, x[(*image, row, column, at[-1])], te.const(0.0, F32))

    return te.compute(shape, body, name="lines", stored=True)


# --------------------------------------------------------------------------- samples

_CASES = (
    ((1, 8, 8, 4), 8, (1, 1, 1, 1), 4, 1),
    ((2, 7, 5, 3), 5, (1, 1, 1, 1), 4, 2),
    ((1, 4, 4, 2), 3, (), 8, 1),
    ((1, 19, 6, 17), 24, (0, 1, 2, 1), 16, 3),
    ((3, 16, 9, 16), 32, (1, 1, 1, 1), 32, 8),
)


_VOLUMES = (
    ((1, 4, 6, 5, 3), 8, (1, 1, 1, 1, 1, 1), 4, 1, 3),
    ((2, 3, 8, 8, 4), 5, (0, 1, 0, 1, 2, 1), 8, 2, 2),
    ((1, 3, 5, 9, 16), 8, (), 8, 2, 1),
)
"""With how many planes each result is of."""


def _weights(*shape: int) -> Array:
    return noise(shape, F32, seed="w")


def _pack_samples() -> list[Sample]:
    made: list[Sample] = []
    for m in FORMS:
        for x, oc, _, panel, _, *planes in (*_CASES, *_VOLUMES):
            w = _weights(*planes, 3, 3, x[-1], oc)
            made.append(Sample(f"{w.shape} by {panel}, tile {m}", WinogradFloatPackAttrs(panel, m), (w,)))
    return made


def _samples() -> list[Sample]:
    made: list[Sample] = []
    for m in FORMS:
        for shape, oc, pads, panel, lines, *planes in (*_CASES, *_VOLUMES):
            w = _weights(*planes, 3, 3, shape[-1], oc)
            u = _pack_reference(WinogradFloatPackAttrs(panel, m), w)
            names = ("n", *("d" for _ in planes), "h", "w", shape[-1])
            attrs = WinogradFloatAttrs(panel, oc, pads, lines, m, *planes)
            operands = (noise(shape, F32, seed="x"), u)
            title = f"{shape} to {oc} by {lines}, tile {m}"
            made.append(Sample(title, attrs, operands, (names, u.shape)))
    return made


DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "pack_winograd_floats",
        WinogradFloatPackAttrs,
        _pack_rule,
        1,
        FusionPattern.LAYOUT,
        "[*k, 3, 3, c, oc] transformed, as panels [(tile + 2)^2, ceil(oc/panel), k * c, panel]",
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
        "3 x 3 convolution of [n, *d, h, w, c] with transformed weights, block of lines by block",
        reference=_reference,
        compute=_compute,
        samples=_samples,
        form_of="conv",
        terms=lambda a, _, u: floordiv(FORMS[a.tile].side ** 2 * u.shape[2], lit(a.tile**2)),
    ),
)
