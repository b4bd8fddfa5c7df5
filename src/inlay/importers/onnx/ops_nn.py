"""Convolutions, and what pooling shares with them.

Padding is resolved here: `auto_pad` and `ceil_mode` become explicit begin and end paddings, so that
operators know one form only. Where strides are not 1, `SAME_*` depends on the spatial sizes; if those
are no numbers, the input is padded by an operation of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inlay.arith.expr import Int, ceildiv, floordiv, lit, maximum
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.values import OnnxValue
from inlay.ir import make
from inlay.ir.expr import Expr
from inlay.ir.types import TensorType

_LEAST = {"strides": 1, "dilations": 1, "kernel_shape": 1, "output_padding": 0}
"""The least number that an attribute may have, where negative ones mean nothing."""


def ints_attribute(node: Node, name: str, count: int, default: int) -> tuple[int, ...]:
    """Return an attribute with a number for each of so many axes."""
    found = node.int_list(name) or (default,) * count
    if len(found) != count:
        raise node.invalid(f"has {len(found)} numbers in {name}, needed {count}")
    if name in _LEAST and min(found, default=_LEAST[name]) < _LEAST[name]:
        raise node.invalid(f"has {name} = {list(found)}, needed at least {_LEAST[name]}")
    return found


def pad_mode(node: Node, count: int) -> str:
    """Return how a node with so many spatial axes is padded; it must say so in one way."""
    mode = node.choice("auto_pad", "NOTSET", "", "VALID", "SAME_UPPER", "SAME_LOWER")
    if any(ints_attribute(node, "pads", 2 * count, 0)) and mode not in ("NOTSET", ""):
        raise node.invalid(f"has both pads and auto_pad '{mode}'")
    return mode


def kernel_of(node: Node, w: TensorType) -> tuple[int, ...]:
    """Return the spatial size of weights, which the node may repeat as an attribute."""
    sizes = tuple(d.value for d in w.shape[2:])
    kernel = tuple(k for k in sizes if k is not None)
    if len(kernel) < len(sizes):
        raise node.unsupported("has weights whose spatial size is not known")
    said = ints_attribute(node, "kernel_shape", len(kernel), 1)
    if node.int_list("kernel_shape") and said != kernel:
        raise node.invalid(f"has kernel_shape {list(said)} and weights of {list(kernel)}")
    return kernel


def resolved_pads(
    node: Node,
    spatial: Sequence[Int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[int, ...]:
    """Return the padding in front of every spatial axis, then behind every one."""
    count = len(spatial)
    mode = pad_mode(node, count)
    if mode in ("NOTSET", ""):
        return ints_attribute(node, "pads", 2 * count, 0)
    if mode == "VALID":
        return (0,) * (2 * count)
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
    mode = pad_mode(node, len(spatial))
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
    strides = ints_attribute(node, "strides", spatial, 1)
    return strides, ints_attribute(node, "dilations", spatial, 1), kernel_of(node, w)


def _conv(node: Node) -> OnnxValue:
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
    return OnnxValue(y)


def _more_output(node: Node, strides: Sequence[int], dilations: Sequence[int]) -> tuple[int, ...]:
    """Return what is added behind a result, for which there are as many sizes as a step has."""
    extra = ints_attribute(node, "output_padding", len(strides), 0)
    for e, s, d in zip(extra, strides, dilations, strict=True):
        if e >= max(s, d):
            raise node.invalid(f"has output_padding {e}, needed less than {max(s, d)}")
    return extra


def _conv_transpose(node: Node) -> OnnxValue:
    x, w = node.type(0), node.type(1)
    spatial = len(x.shape) - 2
    kernel = kernel_of(node, w)
    strides = ints_attribute(node, "strides", spatial, 1)
    dilations = ints_attribute(node, "dilations", spatial, 1)
    extra = _more_output(node, strides, dilations)
    wanted = node.int_list("output_shape") or None
    if wanted is not None and len(wanted) not in (spatial, spatial + 2):
        raise node.invalid(f"has {len(wanted)} numbers in output_shape, needed {spatial}")
    if wanted is not None and min(wanted) < 1:
        raise node.invalid(f"has output_shape = {list(wanted)}, needed at least 1")
    mode = pad_mode(node, spatial)
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
    return OnnxValue(y)


RULES: Mapping[str, Rule] = {"Conv": _conv, "ConvTranspose": _conv_transpose}
