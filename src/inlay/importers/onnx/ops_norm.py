"""Normalization, softmax and their kin."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import TensorProto

from inlay.arith import dtype as dt
from inlay.arith.expr import floordiv, lit, product
from inlay.importers.onnx import load
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.term import Term, term
from inlay.importers.onnx.values import OnnxValue
from inlay.ir import make


def _batch_norm(node: Node) -> tuple[OnnxValue, ...]:
    epsilon = node.float("epsilon", 1e-5)
    x, scale, bias, mean, variance = (term(node, i) for i in range(5))
    if not node.flag("training_mode"):
        return (x.op("batch_norm", scale, bias, mean, variance, epsilon=epsilon).value,)
    momentum = node.float("momentum", 0.9)
    others = tuple(d for d in range(x.rank) if d != 1)
    own_mean = x.over("mean", *others)
    centered = x - own_mean.along(1, x.rank)
    own_variance = (centered * centered).over("mean", *others)
    y = x.op("batch_norm", scale, bias, own_mean, own_variance, epsilon=epsilon)
    running = [
        old * momentum + new.cast(old.dtype) * (1.0 - momentum)
        for old, new in ((mean, own_mean), (variance, own_variance))
    ]
    return tuple(t.value for t in (y, *running))


def _layer_norm(node: Node) -> tuple[OnnxValue, ...]:
    x, epsilon = term(node, 0), node.float("epsilon", 1e-5)
    axis = node.axis(node.int("axis", -1), x.rank)
    stashed = load.dtype_of(node.int("stash_type", TensorProto.FLOAT))
    if stashed is None or not stashed.is_float:
        raise node.invalid(f"has stash_type = {node.int('stash_type', 0)}, which is no float format")
    if not any(node.proto.output[1:]):
        return (node.result("layer_norm", *node.tensors(), axis=axis, epsilon=epsilon),)
    wide = x.cast(dt.F32) if x.dtype in (dt.F16, dt.BF16) else x
    axes = tuple(range(axis, x.rank))
    mean = wide.over("mean", *axes, keep=True)
    centered = wide - mean
    variance = (centered * centered).over("mean", *axes, keep=True)
    deviation = (variance + epsilon).op("sqrt").op("reciprocal")
    y = (centered * deviation).cast(x.dtype) * term(node, 1)
    if node.has(2):
        y = y + term(node, 2)
    return tuple(t.value for t in (y, mean, deviation))


def _instance_norm(node: Node) -> OnnxValue:
    return node.result("instance_norm", *node.tensors(), epsilon=node.float("epsilon", 1e-5))


def _group_norm(node: Node) -> OnnxValue:
    """Before opset 21 scale and bias are of groups, since then of channels."""
    groups = node.int("num_groups", 0)
    x, scale, bias = node.tensors()
    shape = node.type(0).shape
    if groups < 1 or len(shape) < 2:
        raise node.invalid(f"has num_groups = {groups} for {len(shape)} axes, needed 1 and 2 or more")
    if node.opset < 21:
        parts = (lit(groups), floordiv(shape[1], lit(groups)))
        each = [node.reshape(w, (groups, 1)) for w in (scale, bias)]
        wide = [node.emit("broadcast_to", w, make.shape_const(parts)) for w in each]
        scale, bias = (node.reshape(w, (product(parts),)) for w in wide)
    image = x if len(shape) > 2 else node.reshape(x, (*shape, 1))
    epsilon = node.float("epsilon", 1e-5)
    y = node.emit("group_norm", image, scale, bias, groups=groups, epsilon=epsilon)
    return OnnxValue(node.reshape(y, shape))


def _softmax(name: str) -> Rule:
    def rule(node: Node) -> OnnxValue:
        dims = node.type(0).shape
        axis = node.axis(node.int("axis", -1 if node.opset >= 13 else 1), len(dims))
        if node.opset >= 13 or axis == len(dims) - 1:
            return node.result(name, node.tensor(0), axis=axis)
        # Before opset 13 the axes from `axis` on are one axis.
        flat = node.reshape(node.tensor(0), (*dims[:axis], product(dims[axis:])))
        return OnnxValue(node.reshape(node.emit(name, flat, axis=axis), dims))

    return rule


def _lrn(node: Node) -> OnnxValue:
    return node.result(
        "lrn",
        node.tensor(0),
        size=node.int("size", 1),
        alpha=node.float("alpha", 1e-4),
        beta=node.float("beta", 0.75),
        bias=node.float("bias", 1.0),
    )


def _lp_normalization(node: Node) -> OnnxValue:
    x = term(node, 0)
    axis = node.axis(node.int("axis", -1), x.rank)
    p = node.int("p", 2)
    if p not in (1, 2):
        raise node.invalid(f"has p = {p}, needed 1 or 2")
    return x.op("lp_normalize", axis=axis, p=p).value


def _rms_norm(node: Node) -> OnnxValue:
    axis = node.axis(node.int("axis", -1), node.rank(0))
    x, scale = term(node, 0), term(node, 1)
    if x.dtype is not scale.dtype or scale.shape != x.shape[axis:]:
        return _composed_rms_norm(node, x, scale, axis)
    return x.op("rms_norm", scale, axis=axis, epsilon=node.float("epsilon", 1e-5)).value


def _composed_rms_norm(node: Node, x: Term, scale: Term, axis: int) -> OnnxValue:
    wide = x.cast(dt.F32) if x.dtype in (dt.F16, dt.BF16) else x
    square = (wide * wide).over("mean", *range(axis, x.rank), keep=True)
    normal = wide / (square + node.float("epsilon", 1e-5)).op("sqrt")
    return (normal.cast(scale.dtype) * scale).value


RULES: Mapping[str, Rule] = {
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "SimplifiedLayerNormalization": _rms_norm,
    "InstanceNormalization": _instance_norm,
    "GroupNormalization": _group_norm,
    "LpNormalization": _lp_normalization,
    "Softmax": _softmax("softmax"),
    "LogSoftmax": _softmax("log_softmax"),
    "LRN": _lrn,
}
