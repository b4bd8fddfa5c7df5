"""Convolution, pooling and normalization.

Padding is resolved here: `auto_pad` and `ceil_mode` become explicit begin and end paddings, so that
operators know one form only. `SAME_*` needs the spatial sizes as numbers when strides are not 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inlay.arith.expr import Int, lit
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.ops_shape import product
from inlay.importers.onnx.values import Value
from inlay.ir.expr import Expr
from inlay.ir.types import TensorType


def ints_attribute(node: Node, name: str, count: int, default: int) -> tuple[int, ...]:
    """Return an attribute with a number for each of so many axes."""
    found = node.int_list(name) or (default,) * count
    if len(found) != count:
        raise node.invalid(f"has {len(found)} {name} for {count} spatial axes")
    return found


def _pads(
    node: Node,
    spatial: Sequence[Int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[int, ...]:
    """Return the padding in front of every spatial axis, then behind every one."""
    count = len(spatial)
    mode = node.string("auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        return ints_attribute(node, "pads", 2 * count, 0)
    if mode == "VALID":
        return (0,) * (2 * count)
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise node.invalid(f"has auto_pad '{mode}'")
    totals: list[int] = []
    for n, k, s, d in zip(spatial, kernel, strides, dilations, strict=True):
        reach = (k - 1) * d + 1
        if s == 1:
            total = reach - 1
        elif n.value is None:
            raise node.unsupported(
                f"pads to the same size with stride {s} along an axis whose size {n} is not known",
                hint="export the model with explicit pads",
            )
        else:
            total = max((-(-n.value // s) - 1) * s + reach - n.value, 0)
        totals.append(total)
    return _shared(totals, more_in_front=mode == "SAME_LOWER")


def _shared(totals: Sequence[int], *, more_in_front: bool) -> tuple[int, ...]:
    """Share out paddings between front and end, as evenly as can be."""
    front = tuple((t + more_in_front) // 2 for t in totals)
    return (*front, *(t - f for t, f in zip(totals, front, strict=True)))


def channel_bias(node: Node, y: Expr, bias: Expr, spatial: int) -> Expr:
    """Add a vector over the channel axis of `[n, c, ...]`."""
    shape = (*node.type_of(bias).shape, *(lit(1),) * spatial)
    return node.emit("add", y, node.reshape(bias, shape))


def conv_attributes(node: Node, x: TensorType, w: TensorType) -> dict[str, object]:
    """Return strides, pads, dilations and groups of a convolution of `x` with weights `w`."""
    spatial = len(x.shape) - 2
    if spatial < 1 or len(w.shape) != len(x.shape):
        raise node.invalid(f"has an input of rank {len(x.shape)}, weights of {len(w.shape)}")
    kernel = tuple(d.value for d in w.shape[2:])
    if any(k is None for k in kernel):
        raise node.unsupported("has weights whose spatial size is not known")
    sizes = tuple(k for k in kernel if k is not None)
    strides = ints_attribute(node, "strides", spatial, 1)
    dilations = ints_attribute(node, "dilations", spatial, 1)
    pads = _pads(node, x.shape[2:], sizes, strides, dilations)
    groups = node.int("group", 1)
    return {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups}


def _conv(node: Node) -> Value:
    attrs = conv_attributes(node, node.type(0), node.type(1))
    y = node.emit("conv", node.tensor(0), node.tensor(1), **attrs)
    if node.has(2):
        y = channel_bias(node, y, node.tensor(2), node.rank(0) - 2)
    return Value(y)


def _conv_transpose(node: Node) -> Value:
    x, w = node.type(0), node.type(1)
    spatial = len(x.shape) - 2
    sizes = tuple(d.value for d in w.shape[2:])
    if any(k is None for k in sizes):
        raise node.unsupported("has weights whose spatial size is not known")
    kernel = tuple(k for k in sizes if k is not None)
    strides = ints_attribute(node, "strides", spatial, 1)
    dilations = ints_attribute(node, "dilations", spatial, 1)
    extra = ints_attribute(node, "output_padding", spatial, 0)
    wanted = node.int_list("output_shape")
    mode = node.string("auto_pad", "NOTSET")
    if wanted is not None or mode in ("SAME_UPPER", "SAME_LOWER"):
        totals: list[int] = []
        for i in range(spatial):
            n = x.shape[2 + i].value
            if n is None:
                raise node.unsupported("has an output shape over an axis of unknown size")
            out = wanted[len(wanted) - spatial + i] if wanted is not None else n * strides[i]
            reach = (kernel[i] - 1) * dilations[i] + 1
            totals.append((n - 1) * strides[i] + extra[i] + reach - out)
        # What is missing for the wanted size is padding of the result.
        extra = tuple(e + max(-t, 0) for e, t in zip(extra, totals, strict=True))
        totals = [max(t, 0) for t in totals]
        resolved = _shared(totals, more_in_front=mode != "SAME_UPPER")
    else:
        resolved = _pads(node, x.shape[2:], kernel, strides, dilations)
    y = node.emit(
        "conv_transpose",
        node.tensor(0),
        node.tensor(1),
        strides=strides,
        pads=resolved,
        dilations=dilations,
        groups=node.int("group", 1),
        output_pads=extra,
    )
    if node.has(2):
        y = channel_bias(node, y, node.tensor(2), spatial)
    return Value(y)


def _pool(name: str) -> Rule:
    def rule(node: Node) -> tuple[Value, ...]:
        dims = node.type(0).shape
        spatial = len(dims) - 2
        kernel = ints_attribute(node, "kernel_shape", spatial, 1)
        strides = ints_attribute(node, "strides", spatial, 1)
        dilations = ints_attribute(node, "dilations", spatial, 1)
        pads = _pads(node, dims[2:], kernel, strides, dilations)
        attrs: dict[str, object] = {
            "kernel": kernel,
            "strides": strides,
            "pads": pads,
            "dilations": dilations,
            "ceil_mode": node.flag("ceil_mode"),
        }
        if name == "average_pool":
            attrs["count_include_pad"] = node.flag("count_include_pad")
        result = node.result(name, node.tensor(0), **attrs)
        if len(node.proto.output) < 2:
            return (result,)
        if node.int("storage_order", 0):
            raise node.unsupported("gives indices in column-major order")
        return result, node.result("max_pool_index", node.tensor(0), **attrs)

    return rule


def _global(reduction: str) -> Rule:
    def rule(node: Node) -> Value:
        axes = tuple(range(2, node.rank(0)))
        return node.result(reduction, node.tensor(0), axes=axes, keepdims=True)

    return rule


def _batch_norm(node: Node) -> Value:
    if node.flag("training_mode"):
        raise node.unsupported("is in training mode")
    x, scale, bias, mean, variance = (node.tensor(i) for i in range(5))
    return node.result(
        "batch_norm", x, scale, bias, mean, variance, epsilon=node.float("epsilon", 1e-5)
    )


def _layer_norm(node: Node) -> Value:
    if len([o for o in node.proto.output if o]) > 1:
        raise node.unsupported("gives mean and deviation besides its result")
    axis = node.axis(node.int("axis", -1), node.rank(0))
    return node.result(
        "layer_norm", *node.tensors(), axis=axis, epsilon=node.float("epsilon", 1e-5)
    )


def _instance_norm(node: Node) -> Value:
    return node.result("instance_norm", *node.tensors(), epsilon=node.float("epsilon", 1e-5))


def _softmax(name: str) -> Rule:
    def rule(node: Node) -> Value:
        dims = node.type(0).shape
        axis = node.axis(node.int("axis", -1 if node.opset >= 13 else 1), len(dims))
        if node.opset >= 13 or axis == len(dims) - 1:
            return node.result(name, node.tensor(0), axis=axis)
        # Before opset 13 the axes from `axis` on are one axis.
        flat = node.reshape(node.tensor(0), (*dims[:axis], product(dims[axis:])))
        return Value(node.reshape(node.emit(name, flat, axis=axis), dims))

    return rule


def _lrn(node: Node) -> Value:
    return node.result(
        "lrn",
        node.tensor(0),
        size=node.int("size", 1),
        alpha=node.float("alpha", 1e-4),
        beta=node.float("beta", 0.75),
        bias=node.float("bias", 1.0),
    )


RULES: Mapping[str, Rule] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _pool("max_pool"),
    "AveragePool": _pool("average_pool"),
    "GlobalAveragePool": _global("reduce_mean"),
    "GlobalMaxPool": _global("reduce_max"),
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "InstanceNormalization": _instance_norm,
    "Softmax": _softmax("softmax"),
    "LogSoftmax": _softmax("log_softmax"),
    "LRN": _lrn,
}
