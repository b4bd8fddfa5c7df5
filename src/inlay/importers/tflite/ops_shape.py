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
    x, wanted = node.tensor(0), list(out.shape)
    given = node.values[1] if node.has(1) else None
    if isinstance(given, Const):
        wanted = node.numbers(1, "a shape")
    elif given is not None and (-1 in wanted or any(d.value is None for d in node.shape(x))):
        return node.op("reshape", x, node.op("to_control", node.cast(given, I64)))
    elif not node.has(1) and node.record.raw.BuiltinOptionsType():
        (shape,) = node.options("ReshapeOptions", "NewShape")
        wanted = list(shape) or wanted
    if wanted.count(-1) > 1:
        raise node.unsupported("has a shape that is not known")
    rest = math.prod(d for d in wanted if d != -1)
    return node.reshape(
        x, *(floordiv(product(node.shape(x)), lit(rest or 1)) if d == -1 else d for d in wanted)
    )


def _squeeze(node: Node) -> Expr:
    (dims,) = node.options("SqueezeOptions", "SqueezeDims")
    x = node.tensor(0)
    shape = node.shape(x)
    gone = {node.axis(d, len(shape)) for d in dims} or {i for i, d in enumerate(shape) if d.value == 1}
    return node.reshape(x, *(d for i, d in enumerate(shape) if i not in gone))


def _expand_dims(node: Node) -> Expr:
    x, axes = node.tensor(0), node.numbers(1, "an axis")
    shape = list(node.shape(x))
    shape.insert(node.axis(axes[0], len(shape) + 1), lit(1))
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


def _slice(node: Node) -> Expr:
    node.keeps_scale()
    x = node.tensor(0)
    if not isinstance(node.values[1], Const):
        return _moved_slice(node, x)
    begins, sizes = node.numbers(1, "begins"), node.numbers(2, "sizes")
    for axis, (begin, size) in enumerate(zip(begins, sizes, strict=True)):
        whole = node.shape(x)[axis].value
        if size == -1 and whole is None:
            if begin:
                raise node.unsupported("slices an axis whose size is not known")
            continue
        end = whole if size == -1 and whole is not None else begin + size
        if (begin, end) != (0, whole):
            x = node.part(x, axis, begin, end)
    return x


def _moved_slice(node: Node, x: Expr) -> Expr:
    """Emit a slice of a known size that begins where a tensor says: a gather along each axis."""
    sizes, begins = node.numbers(2, "sizes"), node.cast(node.tensor(1), I64)
    for axis, size in enumerate(sizes):
        whole = node.shape(x)[axis].value
        if whole is None or size == whole:
            continue
        if size < 0:
            raise node.unsupported("has a size that begins to count where a tensor says")
        node.bounded(size)
        begin = node.reshape(node.part(begins, 0, axis, axis + 1))
        place = node.op("add", begin, np.arange(size, dtype=np.int64))
        x = node.op("gather", x, place, axis=axis)
    return x


def _strided_slice(node: Node) -> Expr:
    begin_mask, end_mask, ellipsis, new, shrink, is_offset = node.options(
        "StridedSliceOptions",
        "BeginMask",
        "EndMask",
        "EllipsisMask",
        "NewAxisMask",
        "ShrinkAxisMask",
        "Offset",
    )
    x = node.tensor(0)
    starts, stops, steps = (node.numbers(i, "ends") for i in (1, 2, 3))
    if not len(starts) == len(stops) == len(steps):
        raise node.unsupported("has ends and steps of different lengths")
    rank, extra = len(node.shape(x)), sum(new >> i & 1 for i in range(len(starts)))
    result: list[Int | int | None] = []  # the shape, None for a size that is read off the axis
    axis = 0
    for i, (start, stop, step) in enumerate(zip(starts, stops, steps, strict=True)):
        if ellipsis >> i & 1:
            count = rank - (len(starts) - 1 - extra)
            result += [None] * count
            axis += count
            continue
        if new >> i & 1:
            result.append(1)
            continue
        size = node.shape(x)[axis].value if axis < rank else None
        if size is None:
            if axis < rank and begin_mask >> i & 1 and end_mask >> i & 1 and step == 1:
                result.append(None)
                axis += 1
                continue
            raise node.unsupported("slices an axis whose size is not known")
        if is_offset:
            stop += start
        if shrink >> i & 1:
            begin = start % size if size else 0
            x = node.part(x, axis, begin, begin + 1)
            result.append(0)  # gone
        else:
            found = range(size)[
                slice(None if begin_mask >> i & 1 else start, None if end_mask >> i & 1 else stop, step)
            ]
            x = _ranged(node, x, axis, found, size)
            result.append(None)
        axis += 1
    result += [None] * (rank - axis)
    return _reshaped(node, x, result)


def _ranged(node: Node, x: Expr, axis: int, found: range, size: int) -> Expr:
    """Cut the elements of a range out of an axis."""
    if found == range(size):
        return x
    if found.step < 0:
        node.bounded(len(found))
        return node.op("gather", x, np.array(found, np.int64), axis=axis)
    return node.part(x, axis, found.start, max(found.stop, found.start), found.step)


def _reshaped(node: Node, x: Expr, result: Sequence[Int | int | None]) -> Expr:
    """Remove the axes that are marked with 0, and add those with 1."""
    if all(d is None for d in result):
        return x
    sizes, shape = list(node.shape(x)), list[Int | int]()
    for d in result:
        if d == 1:
            shape.append(1)
        else:
            size = sizes.pop(0)
            if d is None:
                shape.append(size)
    return node.reshape(x, *shape)


def _transpose(node: Node) -> Expr:
    return node.op("transpose", node.tensor(0), perm=tuple(node.numbers(1, "an order of axes")))


def _pads(node: Node) -> np.ndarray:
    pads, rank = node.array(1, "paddings"), len(node.shape(node.tensor(0)))
    if pads.shape != (rank, 2):
        raise node.unsupported(f"has paddings {pads.shape} of a tensor of rank {rank}")
    return pads.astype(np.int64)


def _padded(node: Node, x: Expr, pads: np.ndarray, value: np.ndarray | Expr, mode: str = "constant") -> Expr:
    ends = make.shape_const([int(p) for p in pads.T.reshape(-1)])
    return node.op("pad", x, ends, value) if mode == "constant" else node.op("pad", x, ends, mode=mode)


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
    for axis, (front, behind) in enumerate(_pads(node).tolist()):
        size = node.shape(x)[axis].value
        if front == behind == 0:
            continue
        if size is None or max(front, behind) > size - (mode == 0):
            raise node.unsupported(f"reflects {max(front, behind)} of {size} elements")
        node.bounded(size)
        inner = np.arange(size)
        edge = int(mode == 0)
        before, after = inner[edge : edge + front][::-1], inner[::-1][edge : edge + behind]
        x = node.op("gather", x, np.concatenate([before, inner, after]).astype(np.int64), axis=axis)
    return x


def _tile(node: Node) -> Expr:
    return node.op("tile", node.tensor(0), make.shape_const(node.numbers(1, "how often")))


def _shape(node: Node) -> Expr:
    shape = node.shape(node.tensor(0))
    dtype = node.output().dtype
    known = [d.value for d in shape]
    if None not in known:
        return make.const(np.array(known, dtype.numpy))
    return node.cast(node.op("to_tensor", make.shape_const(shape)), dtype)


def _rank(node: Node) -> Expr:
    return make.const(np.array(len(node.shape(node.tensor(0))), node.output().dtype.numpy))


def _as_shape(node: Node, i: int) -> Expr:
    """Return an input as a shape."""
    if isinstance(node.values[i], Const):
        return make.shape_const(node.numbers(i, "a shape"))
    return node.op("to_control", node.cast(node.tensor(i), I64))


def _fill(node: Node) -> Expr:
    return node.op("broadcast_to", node.reshape(node.tensor(1)), _as_shape(node, 0))


def _broadcast_to(node: Node) -> Expr:
    return node.op("broadcast_to", node.tensor(0), _as_shape(node, 1))


def _broadcast_args(node: Node) -> Expr:
    shapes = [tuple(node.numbers(i, "a shape")) for i in (0, 1)]
    try:
        found = np.broadcast_shapes(*shapes)
    except ValueError as fault:
        raise node.unsupported(f"has shapes that do not fit: {fault}") from fault
    return make.const(np.array(found, node.output().dtype.numpy))


def _range(node: Node) -> Expr:
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
    return _padded(node, y, pads, node.number(0, y)) if pads.any() else y


def _space_to_batch(node: Node) -> Expr:
    x, blocks = node.tensor(0), node.numbers(1, "blocks")
    m, rank = len(blocks), len(node.shape(x))
    pads = np.zeros((rank, 2), np.int64)
    pads[1 : m + 1] = node.array(2, "paddings")
    zero = node.zero(node.input(0)) if node.kind() is Kind.QUANTIZED else 0
    x = _padded(node, x, pads, node.number(zero, x)) if pads.any() else x
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
    "SLICE": _slice,
    "STRIDED_SLICE": _strided_slice,
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
