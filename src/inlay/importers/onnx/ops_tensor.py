"""Operators that move elements: gather, scatter, pad, resize, pixel shuffles, top-k."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from inlay.arith import dtype as dt
from inlay.arith.expr import lit
from inlay.importers.onnx import axes as runtime_axes
from inlay.importers.onnx import load
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.term import arange, concat, integers, term
from inlay.importers.onnx.values import OnnxValue
from inlay.ir import make
from inlay.ops.padding import PadMode
from inlay.ops.scatter import Combine


def _depth_to_space(node: Node) -> OnnxValue:
    column_row = node.choice("mode", "DCR", "CRD") == "CRD"
    block = node.int("blocksize", 1)
    return node.result("depth_to_space", node.tensor(0), block=block, column_row=column_row)


def _space_to_depth(node: Node) -> OnnxValue:
    column_row = node.choice("mode", "DCR", "CRD") == "CRD"
    block = node.int("blocksize", 1)
    return node.result("space_to_depth", node.tensor(0), block=block, column_row=column_row)


def _pad(node: Node) -> OnnxValue:
    rank = node.rank(0)
    mode = node.string("mode", "constant")
    dtype = node.type(0).dtype
    if node.opset < 11:
        flat = tuple(lit(p) for p in node.int_list("pads") or ())
        fill = make.const(np.array(node.float("value", 0.0), dtype.numpy))
    else:
        flat = () if node.has(3) and node.array(3) is None else node.shape(1)
        zero = make.const(np.zeros((), dtype.numpy))
        fill = node.reshape(node.tensor(2), ()) if node.has(2) else zero
    axes = tuple(range(rank))
    if node.has(3) and node.array(3) is None:
        named = runtime_axes.given(node, 3, rank)
        both = term(node, 1).cast(dt.I64).reshape(2, named.shape[0])
        sides = [runtime_axes.full(named, both.at(0, k), rank, 0).controls() for k in (0, 1)]
        flat = (*sides[0], *sides[1])
    elif node.has(3):
        axes = tuple(node.axis(a, rank) for a in node.numbers(3, "axes"))
    if len(flat) != 2 * len(axes):
        raise node.invalid(f"has {len(flat)} pads for {len(axes)} axes")
    begin, end = [lit(0)] * rank, [lit(0)] * rank
    for i, a in enumerate(axes):
        begin[a], end[a] = flat[i], flat[i + len(axes)]
    if mode not in tuple(PadMode):
        raise node.invalid(f"has mode '{mode}'")
    pads = make.shape_const((*begin, *end))
    return node.result("pad", node.tensor(0), pads, fill, mode=PadMode(mode))


def _gather_elements(node: Node) -> OnnxValue:
    axis = node.axis(node.int("axis", 0), node.rank(0))
    return node.result("gather_elements", node.tensor(0), node.tensor(1), axis=axis)


def _gather_nd(node: Node) -> OnnxValue:
    return node.result("gather_nd", node.tensor(0), node.tensor(1), batch=node.int("batch_dims", 0))


def _combine(node: Node) -> Combine:
    spelled = node.string("reduction", "none")
    if spelled == "none":
        return Combine.REPLACE
    if spelled not in tuple(Combine):
        raise node.invalid(f"has reduction '{spelled}'")
    return Combine(spelled)


def _scatter_elements(node: Node) -> OnnxValue:
    axis = node.axis(node.int("axis", 0), node.rank(0))
    return node.result("scatter_elements", *node.tensors(), axis=axis, combine=_combine(node))


def _scatter_nd(node: Node) -> OnnxValue:
    return node.result("scatter_nd", *node.tensors(), combine=_combine(node))


def _one_hot(node: Node) -> OnnxValue:
    depth = node.control_int(1)
    rank = node.rank(0) + 1
    indices = node.cast(node.tensor(0), dt.I64)
    axis = node.axis(node.int("axis", -1), rank)
    return node.result("one_hot", indices, depth, node.tensor(2), axis=axis)


def _top_k(node: Node) -> tuple[OnnxValue, ...]:
    axis = node.axis(node.int("axis", -1), node.rank(0))
    k = make.int_const(lit(node.int("k", 1))) if node.opset < 10 else node.control_int(1)
    both = node.emit("top_k", node.tensor(0), k, axis=axis, largest=node.flag("largest", default=True))
    return tuple(OnnxValue(e) for e in node.b.unpack(both, [o or "unused" for o in node.proto.output]))


def _trilu(node: Node) -> OnnxValue:
    diagonal = node.control_int(1) if node.has(1) else make.int_const(0)
    upper = node.flag("upper", default=True)
    return node.result("trilu", node.tensor(0), diagonal, upper=upper)


def _eye_like(node: Node) -> OnnxValue:
    dims = node.type(0).shape
    if len(dims) != 2:
        raise node.invalid(f"has an input of rank {len(dims)}, needed 2")
    asked = node.int("dtype", 0)
    dtype = load.dtype_of(asked) if asked else node.type(0).dtype
    if dtype is None:
        raise node.unsupported(f"gives {load.elem_type_name(asked)}")
    rows, columns = arange(node, dims[0]).along(0, 2), arange(node, dims[1]).along(1, 2)
    return (rows + node.int("k", 0)).equals(columns).cast(dtype).value


def _reverse_sequence(node: Node) -> OnnxValue:
    x, lengths = term(node, 0), term(node, 1).cast(dt.I64)
    time = node.axis(node.int("time_axis", 0), x.rank)
    batch = node.axis(node.int("batch_axis", 1), x.rank)
    if {time, batch} != {0, 1}:
        raise node.invalid(f"has time axis {time} and batch axis {batch}")
    steps, count = x.shape[time], x.shape[batch]
    at = arange(node, steps).along(time, 2)
    ends = lengths.along(batch, 2)
    source = (at < ends).where(ends - (at + 1), at)
    other = arange(node, count).along(batch, 2).broadcast(source.shape)
    pair = [source, other] if time == 0 else [other, source]
    rows, columns = source.shape
    index = concat([p.reshape(rows, columns, 1) for p in pair], 2)
    return x.op("gather_nd", index, batch=0).value


def _tensor_scatter(node: Node) -> OnnxValue:
    """Write new entries into a cache of sequences, each at its own place; maybe in a circle."""
    x, update = term(node, 0), term(node, 1)
    axis = node.axis(node.int("axis", -2), x.rank)
    mode = node.string("mode", "linear")
    if axis == 0 or mode not in ("linear", "circular"):
        raise node.invalid(f"has axis {axis} and mode '{mode}'")
    cache, new = x.move(axis, 1), update.move(axis, 1)
    batch, room, steps = cache.shape[0], cache.shape[1], new.shape[1]
    at = arange(node, steps).reshape(1, steps)
    if node.has(2):
        at = at + term(node, 2).cast(dt.I64).reshape(batch, 1)
    at = at.broadcast((batch, steps))
    if mode == "circular":
        at = at.op("mod", integers(node, (room,)).reshape())
    rows = arange(node, batch).reshape(batch, 1).broadcast((batch, steps))
    index = concat([t.reshape(batch, steps, 1) for t in (rows, at)], 2)
    return cache.op("scatter_nd", index, new, combine=Combine.REPLACE).move(1, axis).value


RULES: Mapping[str, Rule] = {
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "Pad": _pad,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterElements": _scatter_elements,
    "Scatter": _scatter_elements,
    "ScatterND": _scatter_nd,
    "OneHot": _one_hot,
    "TopK": _top_k,
    "Trilu": _trilu,
    "EyeLike": _eye_like,
    "ReverseSequence": _reverse_sequence,
    "TensorScatter": _tensor_scatter,
}
