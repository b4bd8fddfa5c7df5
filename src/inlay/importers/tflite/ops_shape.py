"""Operators that move elements: shapes, slices, joins. Integers keep their scale, which must not change."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from inlay.arith.expr import floordiv, lit, product
from inlay.importers.tflite.node import Node, Rule
from inlay.importers.tflite.schema import TensorRecord
from inlay.ir import make
from inlay.ir.expr import Expr


def _keeps_scale(node: Node, *outputs: TensorRecord) -> None:
    """Require that inputs and outputs stand for the same reals."""
    given = [node.graph.tensors[i] for i in node.record.inputs if i >= 0]
    pairs = {
        (tuple(t.quantization.scales.tolist()), tuple(t.quantization.zeros.tolist()))
        for t in (*given, *outputs)
        if t.quantization is not None and t.dtype is outputs[0].dtype
    }
    if len(pairs) > 1:
        raise node.unsupported("has inputs and outputs of different scales")


def _axis(node: Node, axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise node.unsupported(f"names the axis {axis} of a tensor of rank {rank}")
    return axis % rank


def _reshape(node: Node) -> Expr:
    out = node.output()
    _keeps_scale(node, out)
    x, wanted = node.tensor(0), list(out.shape)
    if -1 in wanted and node.has(1):
        wanted = [int(d) for d in node.array(1, "a shape").reshape(-1)]
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
    gone = {_axis(node, d, len(shape)) for d in dims} or {i for i, d in enumerate(shape) if d.value == 1}
    return node.reshape(x, *(d for i, d in enumerate(shape) if i not in gone))


def _expand_dims(node: Node) -> Expr:
    x, axes = node.tensor(0), node.array(1, "an axis").reshape(-1)
    shape = list(node.shape(x))
    shape.insert(_axis(node, int(axes[0]), len(shape) + 1), lit(1))
    return node.reshape(x, *shape)


def _pack(node: Node) -> Expr:
    (axis,) = node.options("PackOptions", "Axis")
    _keeps_scale(node, node.output())
    parts = [node.tensor(i) for i in range(len(node.values))]
    at = _axis(node, axis, len(node.shape(parts[0])) + 1)
    wide = [node.reshape(p, *node.shape(p)[:at], 1, *node.shape(p)[at:]) for p in parts]
    return node.op("concat", *wide, axis=at)


def _concat(node: Node) -> Expr:
    (axis, activation) = node.options("ConcatenationOptions", "Axis", "FusedActivationFunction")
    if activation:
        raise node.unsupported(f"has the activation {activation}")
    _keeps_scale(node, node.output())
    parts = [node.tensor(i) for i in range(len(node.values))]
    return node.op("concat", *parts, axis=_axis(node, axis, len(node.shape(parts[0]))))


def _parts(node: Node, x: Expr, axis: int, count: int) -> tuple[Expr, ...]:
    size = node.shape(x)[axis].value
    if count < 1 or size is None or size % count:
        raise node.unsupported(f"makes {count} parts of {size} elements")
    step = size // count
    return tuple(node.part(x, axis, i * step, (i + 1) * step) for i in range(count))


def _unpack(node: Node) -> tuple[Expr, ...]:
    (axis,) = node.options("UnpackOptions", "Axis")
    x = node.tensor(0)
    shape = node.shape(x)
    at = _axis(node, axis, len(shape))
    parts = _parts(node, x, at, len(node.record.outputs))
    return tuple(node.reshape(p, *shape[:at], *shape[at + 1 :]) for p in parts)


def _split(node: Node) -> tuple[Expr, ...]:
    x, axes = node.tensor(1), node.array(0, "an axis").reshape(-1)
    at = _axis(node, int(axes[0]), len(node.shape(x)))
    return _parts(node, x, at, len(node.record.outputs))


def _strided_slice(node: Node) -> Expr:
    begin_mask, end_mask, ellipsis, new, shrink = node.options(
        "StridedSliceOptions", "BeginMask", "EndMask", "EllipsisMask", "NewAxisMask", "ShrinkAxisMask"
    )
    if ellipsis or new:
        raise node.unsupported("has an ellipsis or new axes")
    x = node.tensor(0)
    starts, stops, steps = (node.array(i, "ends").reshape(-1).tolist() for i in (1, 2, 3))
    kept: list[int] = []
    for axis, (start, stop, step) in enumerate(zip(starts, stops, steps, strict=True)):
        size = node.shape(x)[axis].value
        if size is None:
            raise node.unsupported("slices an axis whose size is not known")
        first = None if begin_mask >> axis & 1 else start
        last = None if end_mask >> axis & 1 else stop
        if shrink >> axis & 1:
            x = node.part(x, axis, start % size, start % size + 1)
            continue
        kept.append(axis)
        found = range(size)[first:last:step]
        if found != range(size):
            if step < 0:
                raise node.unsupported("slices backwards")
            x = node.part(x, axis, found.start, found.stop, step)
    shape = node.shape(x)
    kept += range(len(starts), len(shape))
    return x if len(kept) == len(shape) else node.reshape(x, *(shape[i] for i in kept))


def _transpose(node: Node) -> Expr:
    perm = tuple(int(p) for p in node.array(1, "an order of axes"))
    return node.op("transpose", node.tensor(0), perm=perm)


def _pad(node: Node) -> Expr:
    x, pads = node.tensor(0), node.array(1, "paddings")
    zero = node.zero(node.input(0)) if node.is_integer() else 0
    value = np.asarray(zero, node.input(0).dtype.numpy)
    if pads.shape != (len(node.shape(x)), 2):
        raise node.unsupported(f"has paddings {pads.shape} of a tensor of rank {len(node.shape(x))}")
    return node.op("pad", x, make.shape_const([int(p) for p in pads.T.reshape(-1)]), value)


RULES: Mapping[str, Rule] = {
    "RESHAPE": _reshape,
    "SQUEEZE": _squeeze,
    "EXPAND_DIMS": _expand_dims,
    "PACK": _pack,
    "CONCATENATION": _concat,
    "UNPACK": _unpack,
    "SPLIT": _split,
    "STRIDED_SLICE": _strided_slice,
    "TRANSPOSE": _transpose,
    "PAD": _pad,
}
