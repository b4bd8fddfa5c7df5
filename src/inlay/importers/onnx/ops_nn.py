"""Convolutions, and what pooling shares with them.

Padding is resolved here: `auto_pad` and `ceil_mode` become explicit begin and end paddings, so that
operators know one form only. Where strides are not 1, `SAME_*` depends on the spatial sizes; if those
are no numbers, the input is padded by an operation of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inlay.arith.expr import Int, ceildiv, floordiv, lit, maximum
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.values import Value
from inlay.ir import make
from inlay.ir.expr import Expr
from inlay.ir.types import TensorType


def ints_attribute(node: Node, name: str, count: int, default: int) -> tuple[int, ...]:
    """Return an attribute with a number for each of so many axes."""
    found = node.int_list(name) or (default,) * count
    if len(found) != count:
        raise node.invalid(f"has {len(found)} {name} for {count} spatial axes")
    return found


def resolved_pads(
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


def pads_to_same(
    node: Node,
    spatial: Sequence[Int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[Int, ...]:
    """Return fronts, then ends, of `SAME_*` where they depend on sizes; else nothing."""
    mode = node.string("auto_pad", "NOTSET")
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        return ()
    if all(n.value is not None or s == 1 for n, s in zip(spatial, strides, strict=True)):
        return ()
    totals: list[Int] = []
    for n, k, s, d in zip(spatial, kernel, strides, dilations, strict=True):
        totals.append(maximum((ceildiv(n, s) - 1) * s + ((k - 1) * d + 1) - n, 0))
    front = [floordiv(t + (mode == "SAME_LOWER"), lit(2)) for t in totals]
    return (*front, *(t - f for t, f in zip(totals, front, strict=True)))


def padded(node: Node, x: Expr, pads: Sequence[Int], *fill: Expr) -> Expr:
    """Pad the spatial axes of `[n, c, ...]`."""
    count = len(pads) // 2
    every = (lit(0), lit(0), *pads[:count], lit(0), lit(0), *pads[count:])
    return node.emit("pad", x, make.shape_const(every), *fill)


def of_same_size(node: Node, y: Expr, spatial: Sequence[Int], strides: Sequence[int]) -> Expr:
    """Say that a windowed result has its input's spatial sizes, divided by strides, rounded up."""
    whole = [ceildiv(n, s) for n, s in zip(spatial, strides, strict=True)]
    dims = (*node.type_of(y).shape[:2], *whole)
    return node.b.bind(make.assume_shape(y, dims, "sizes of a result of the same size"))


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
    strides, dilations, kernel = _windows(node, x, w)
    pads = resolved_pads(node, x.shape[2:], kernel, strides, dilations)
    groups = node.int("group", 1)
    return {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups}


def _windows(
    node: Node, x: TensorType, w: TensorType
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return strides, dilations and kernel of a convolution."""
    spatial = len(x.shape) - 2
    if spatial < 1 or len(w.shape) != len(x.shape):
        raise node.invalid(f"has an input of rank {len(x.shape)}, weights of {len(w.shape)}")
    kernel = tuple(d.value for d in w.shape[2:])
    if any(k is None for k in kernel):
        raise node.unsupported("has weights whose spatial size is not known")
    sizes = tuple(k for k in kernel if k is not None)
    strides = ints_attribute(node, "strides", spatial, 1)
    return strides, ints_attribute(node, "dilations", spatial, 1), sizes


def _conv(node: Node) -> Value:
    x, w = node.tensor(0), node.tensor(1)
    spatial = node.type(0).shape[2:]
    strides, dilations, kernel = _windows(node, node.type(0), node.type(1))
    pads = pads_to_same(node, spatial, kernel, strides, dilations)
    if pads:
        groups = node.int("group", 1)
        x = padded(node, x, pads)
        y = node.emit("conv", x, w, strides=strides, dilations=dilations, groups=groups)
        y = of_same_size(node, y, spatial, strides)
    else:
        y = node.emit("conv", x, w, **conv_attributes(node, node.type(0), node.type(1)))
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
            n = x.shape[2 + i]
            out = n * strides[i] if wanted is None else lit(wanted[len(wanted) - spatial + i])
            reach = (kernel[i] - 1) * dilations[i] + 1
            total = ((n - 1) * strides[i] + extra[i] + reach - out).value
            if total is None:
                raise node.unsupported("has an output shape over an axis of unknown size")
            totals.append(total)
        # What is missing for the wanted size is padding of the result.
        extra = tuple(e + max(-t, 0) for e, t in zip(extra, totals, strict=True))
        totals = [max(t, 0) for t in totals]
        resolved = _shared(totals, more_in_front=mode != "SAME_UPPER")
    else:
        resolved = resolved_pads(node, x.shape[2:], kernel, strides, dilations)
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


RULES: Mapping[str, Rule] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
}
