"""Operators that move elements: shapes, slices, joins. Integers keep their scale, which must not change."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from inlay.arith.dtype import I64, U8
from inlay.arith.expr import Int, floordiv, lit, product
from inlay.importers.tflite import tables
from inlay.importers.tflite.node import Kind, Node, Rule
from inlay.ir import make
from inlay.ir.expr import Const, Expr


def _reshape(node: Node) -> Expr:
    out = node.output()
    node.keeps_scale(out)
    x, said = node.tensor(0), [lit(d) for d in out.shape]
    wanted, given = said, node.known(1) if node.has(1) else None
    if given is not None:
        wanted = list(given)
    elif (
        node.has(1)
        and not out.is_complex
        and (-1 in out.shape or any(d.value is None for d in node.shape(x)))
    ):
        return node.op("reshape", x, node.op("to_control", node.cast(node.tensor(1), I64)))
    elif not node.has(1) and node.record.raw.BuiltinOptionsType():
        (shape,) = node.options("ReshapeOptions", "NewShape")
        wanted = [lit(d) for d in shape] or wanted
    if out.is_complex and wanted is not said:
        wanted.append(lit(2))
    rest = [d for d in wanted if d.value != -1]
    if len(wanted) - len(rest) > 1:
        raise node.unsupported("has a shape that is not known")
    known = product(rest)
    known = lit(1) if known.value == 0 else known
    return node.reshape(x, *(floordiv(product(node.shape(x)), known) if d.value == -1 else d for d in wanted))


def _squeeze(node: Node) -> Expr:
    (dims,) = node.options("SqueezeOptions", "SqueezeDims")
    x = node.tensor(0)
    shape = node.shape(x)
    gone = {node.axis(d, len(shape)) for d in dims} or {i for i, d in enumerate(shape) if d.value == 1}
    return node.reshape(x, *(d for i, d in enumerate(shape) if i not in gone))


def _expand_dims(node: Node) -> Expr:
    x, axes = node.tensor(0), node.numbers(1, "an axis")
    shape = list(node.shape(x))
    shape.insert(node.axis(axes[0], len(shape) + (not node.output().is_complex)), lit(1))
    return node.reshape(x, *shape)


def _pack(node: Node) -> Expr:
    (axis,) = node.options("PackOptions", "Axis")
    node.keeps_scale()
    parts = [node.tensor(i) for i in range(len(node.values))]
    at = node.axis(axis, len(node.shape(parts[0])) + 1)
    wide = [node.reshape(p, *node.shape(p)[:at], 1, *node.shape(p)[at:]) for p in parts]
    return node.op("concat", *wide, axis=at)


def _concat(node: Node) -> Expr:
    """Emit a join; bytes of another scale than the result's are brought to it."""
    (axis, activation) = node.options("ConcatenationOptions", "Axis", "FusedActivationFunction")
    if activation:
        raise node.unsupported(f"has the activation {activation}")
    out = node.output()
    if out.dtype is not U8 or out.quantization is None:
        node.keeps_scale()
    parts: list[Expr] = []
    for i in range(len(node.values)):
        part, t = node.tensor(i), node.input(i)
        if out.dtype is U8 and out.quantization is not None:
            pair, wanted = (node.scale(t), node.zero(t)), (node.scale(out), node.zero(out))
            part = part if pair == wanted else node.looked_up(_moved_bytes(pair, wanted), part)
        parts.append(part)
    return node.op("concat", *parts, axis=node.axis(axis, len(node.shape(parts[0]))))


def _moved_bytes(pair: tuple[np.float32, int], wanted: tuple[np.float32, int]) -> np.ndarray:
    """Return a table of bytes of one scale as those of another, computed in f32."""
    factor = pair[0] * (np.float32(1) / wanted[0])
    moved = tables.all_of(U8).astype(np.float32) * factor + np.float32(-pair[1]) * factor
    return tables.fitted(tables.rounded(moved).astype(np.int64) + wanted[1], U8)


def _cut(node: Node, x: Expr, axis: int, sizes: Sequence[int]) -> tuple[Expr, ...]:
    whole, places = node.shape(x)[axis].value, np.cumsum([0, *sizes]).tolist()
    if whole != places[-1]:
        raise node.unsupported(f"makes parts of {list(sizes)} elements of {whole}")
    node.keeps_scale(*(node.output(k) for k in range(len(sizes))))
    return tuple(node.part(x, axis, a, b) for a, b in pairwise(places))


def _equal_parts(node: Node, x: Expr, axis: int) -> tuple[Expr, ...]:
    size, count = node.shape(x)[axis].value, len(node.record.outputs)
    if count < 1 or size is None or size % count:
        raise node.unsupported(f"makes {count} parts of {size} elements")
    return _cut(node, x, axis, [size // count] * count)


def _unpack(node: Node) -> tuple[Expr, ...]:
    (axis,) = node.options("UnpackOptions", "Axis")
    x = node.tensor(0)
    shape = node.shape(x)
    at = node.axis(axis, len(shape))
    return tuple(node.reshape(p, *shape[:at], *shape[at + 1 :]) for p in _equal_parts(node, x, at))


def _split(node: Node) -> tuple[Expr, ...]:
    x = node.tensor(1)
    return _equal_parts(node, x, node.axis(node.numbers(0, "an axis")[0], len(node.shape(x))))


def _split_v(node: Node) -> tuple[Expr, ...]:
    x, sizes = node.tensor(0), node.numbers(1, "sizes")
    axis = node.axis(node.numbers(2, "an axis")[0], len(node.shape(x)))
    whole = node.shape(x)[axis].value
    if sizes.count(-1) == 1 and whole is not None:
        sizes[sizes.index(-1)] = whole - sum(s for s in sizes if s != -1)
    return _cut(node, x, axis, sizes)


def _transpose(node: Node) -> Expr:
    return node.op("transpose", node.tensor(0), perm=tuple(node.numbers(1, "an order of axes")))


def _pads(node: Node) -> list[tuple[Int, Int]]:
    """Return how many elements are put in front of each axis, and behind."""
    rank = len(node.shape(node.tensor(0)))
    if [d.value for d in node.shape(node.tensor(1))] != [rank, 2]:
        raise node.unsupported(f"has paddings {list(node.input(1).shape)} of a tensor of rank {rank}")
    flat = node.known(1)
    if flat is None:
        flat = node.read(node.reshape(node.tensor(1), 2 * rank))
    return list(zip(flat[::2], flat[1::2], strict=True))


_Pads = Sequence[tuple[Int | int, Int | int]]


def _padded(node: Node, x: Expr, pads: _Pads, value: np.ndarray | Expr) -> Expr:
    return node.op("pad", x, make.shape_const([*(p[0] for p in pads), *(p[1] for p in pads)]), value)


def _pad(node: Node) -> Expr:
    node.keeps_scale()
    x = node.tensor(0)
    zero = node.zero(node.input(0)) if node.kind() is Kind.QUANTIZED else 0
    return _padded(node, x, _pads(node), node.number(zero, x))


def _pad_v2(node: Node) -> Expr:
    node.keeps_scale()
    return _padded(node, node.tensor(0), _pads(node), node.reshape(node.tensor(2)))


def _mirror_pad(node: Node) -> Expr:
    """Emit reflections: the elements at the ends are repeated in mode 1."""
    (mode,) = node.options("MirrorPadOptions", "Mode")
    x = node.tensor(0)
    for axis, pair in enumerate(_pads(node)):
        size, front, behind = node.shape(x)[axis].value, pair[0].value, pair[1].value
        if front == behind == 0:
            continue
        if front is None or behind is None:
            raise node.unsupported("takes paddings that are computed", "make them a constant")
        if size is None or max(front, behind) > size - (mode == 0):
            raise node.unsupported(f"reflects {max(front, behind)} of {size} elements")
        node.bounded(size)
        inner = np.arange(size)
        edge = int(mode == 0)
        before, after = inner[edge : edge + front][::-1], inner[::-1][edge : edge + behind]
        x = node.op("gather", x, np.concatenate([before, inner, after]).astype(np.int64), axis=axis)
    return x


def _tile(node: Node) -> Expr:
    return node.op("tile", node.tensor(0), make.shape_const(node.sizes(1)))


def _shape(node: Node) -> Expr:
    shape = node.shape(node.tensor(0))
    dtype = node.output().dtype
    known = [d.value for d in shape]
    if None not in known:
        return make.const(np.array(known, dtype.numpy))
    return node.cast(node.op("to_tensor", make.shape_const(shape)), dtype)


def _rank(node: Node) -> Expr:
    return make.const(np.array(len(node.shape(node.tensor(0))), node.output().dtype.numpy))


def _fill(node: Node) -> Expr:
    return node.op("broadcast_to", node.reshape(node.tensor(1)), make.shape_const(node.sizes(0)))


def _broadcast_to(node: Node) -> Expr:
    return node.op("broadcast_to", node.tensor(0), make.shape_const(node.sizes(1)))


def _broadcast_args(node: Node) -> Expr:
    """Emit the shape that two shapes have in common: each size that is not 1."""
    lengths = [node.shape(node.tensor(i))[0].value or 0 for i in (0, 1)]
    a, b = (
        node.op("pad", e, make.shape_const([max(lengths) - n, 0]), node.number(1, e))
        for e, n in ((node.tensor(i), n) for i, n in enumerate(lengths))
    )
    return node.op("select", node.op("equal", a, node.number(1, a)), b, a)


def _range(node: Node) -> Expr:
    ends = [node.values[i] for i in range(3) if node.has(i)]
    if not all(isinstance(e, Const) for e in ends) and node.output().dtype.is_integer:
        numbers = [make.int_const(node.sizes(i)[0]) for i in range(3)]
        return node.op("range", *numbers, dtype=node.output().dtype)
    start, stop, step = (float(node.array(i, "ends").reshape(())) for i in range(3))
    if step == 0 or not abs((stop - start) / step) <= 1 << 24:
        raise node.unsupported("has no step, or too many elements")
    values = start + step * np.arange(math.ceil((stop - start) / step), dtype=np.float64)
    return make.const(values.astype(node.output().dtype.numpy))


def _reverse(node: Node) -> Expr:
    x = node.tensor(0)
    rank = len(node.shape(x))
    return node.op("flip", x, axes=tuple(node.axis(a, rank) for a in node.numbers(1, "axes")))


def _depth_to_space(node: Node, options: str, *, is_back: bool) -> Expr:
    """Emit blocks of channels as squares, or squares as blocks of channels; channels are last."""
    (b,) = node.options(options, "BlockSize")
    x = node.tensor(0)
    n, h, w, c = node.shape(x)
    channels = c.value
    if b < 1 or channels is None:
        raise node.unsupported(f"has squares of {b} and {channels} channels")
    if is_back:
        parts = node.reshape(x, n, floordiv(h, lit(b)), b, floordiv(w, lit(b)), b, c)
        moved = node.op("transpose", parts, perm=(0, 1, 3, 2, 4, 5))
        return node.reshape(moved, n, floordiv(h, lit(b)), floordiv(w, lit(b)), channels * b * b)
    parts = node.reshape(x, n, h, w, b, b, channels // (b * b))
    return node.reshape(
        node.op("transpose", parts, perm=(0, 1, 3, 2, 4, 5)), n, h * b, w * b, channels // (b * b)
    )


def _pairs(pads: np.ndarray) -> _Pads:
    return [(int(front), int(behind)) for front, behind in pads]


def _batch_to_space(node: Node) -> Expr:
    x, blocks = node.tensor(0), node.numbers(1, "blocks")
    crops, (n, *sizes) = node.array(2, "crops"), node.shape(x)
    m, whole = len(blocks), math.prod(blocks)
    spatial, rest = sizes[:m], sizes[m:]
    parts = node.reshape(x, *blocks, floordiv(n, lit(whole)), *spatial, *rest)
    order = [m, *(a for i in range(m) for a in (m + 1 + i, i)), *(2 * m + 1 + i for i in range(len(rest)))]
    joined = [s * b for s, b in zip(spatial, blocks, strict=True)]
    y = node.reshape(node.op("transpose", parts, perm=tuple(order)), floordiv(n, lit(whole)), *joined, *rest)
    pads = np.zeros((len(sizes) + 1, 2), np.int64)
    pads[1 : m + 1] = -crops
    return _padded(node, y, _pairs(pads), node.number(0, y)) if pads.any() else y


def _space_to_batch(node: Node) -> Expr:
    x, blocks = node.tensor(0), node.numbers(1, "blocks")
    m, rank = len(blocks), len(node.shape(x))
    pads = np.zeros((rank, 2), np.int64)
    pads[1 : m + 1] = node.array(2, "paddings")
    zero = node.zero(node.input(0)) if node.kind() is Kind.QUANTIZED else 0
    x = _padded(node, x, _pairs(pads), node.number(zero, x)) if pads.any() else x
    n, *sizes = node.shape(x)
    spatial, rest = sizes[:m], sizes[m:]
    cut = [floordiv(s, lit(b)) for s, b in zip(spatial, blocks, strict=True)]
    parts = node.reshape(x, n, *(d for s, b in zip(cut, blocks, strict=True) for d in (s, lit(b))), *rest)
    order = [
        *(2 + 2 * i for i in range(m)),
        0,
        *(1 + 2 * i for i in range(m)),
        *(1 + 2 * m + i for i in range(len(rest))),
    ]
    return node.reshape(node.op("transpose", parts, perm=tuple(order)), n * math.prod(blocks), *cut, *rest)


RULES: Mapping[str, Rule] = {
    "RESHAPE": _reshape,
    "SQUEEZE": _squeeze,
    "EXPAND_DIMS": _expand_dims,
    "PACK": _pack,
    "CONCATENATION": _concat,
    "UNPACK": _unpack,
    "SPLIT": _split,
    "SPLIT_V": _split_v,
    "TRANSPOSE": _transpose,
    "PAD": _pad,
    "PADV2": _pad_v2,
    "MIRROR_PAD": _mirror_pad,
    "TILE": _tile,
    "SHAPE": _shape,
    "RANK": _rank,
    "FILL": _fill,
    "BROADCAST_TO": _broadcast_to,
    "BROADCAST_ARGS": _broadcast_args,
    "RANGE": _range,
    "REVERSE_V2": _reverse,
    "DEPTH_TO_SPACE": partial(_depth_to_space, options="DepthToSpaceOptions", is_back=False),
    "SPACE_TO_DEPTH": partial(_depth_to_space, options="SpaceToDepthOptions", is_back=True),
    "BATCH_TO_SPACE_ND": _batch_to_space,
    "SPACE_TO_BATCH_ND": _space_to_batch,
}
