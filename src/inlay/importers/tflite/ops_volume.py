"""Convolutions of volumes, `[n, d, h, w, c]`, by filters `[d, h, w, in, out]`; of floats alone."""

from __future__ import annotations

from collections.abc import Mapping

from inlay.arith.expr import lit
from inlay.importers.tflite.integers import activated
from inlay.importers.tflite.node import Node, Rule
from inlay.importers.tflite.ops_linear import biased
from inlay.importers.tflite.windows import same_or_valid
from inlay.ir.expr import Expr

_FIRST, _LAST = (0, 4, 1, 2, 3), (0, 2, 3, 4, 1)


def _options(node: Node) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    """Return the padding, the activation, strides, dilations."""
    padding, activation, *numbers = node.options(
        "Conv3DOptions",
        "Padding",
        "FusedActivationFunction",
        "StrideD",
        "StrideH",
        "StrideW",
        "DilationDFactor",
        "DilationHFactor",
        "DilationWFactor",
    )
    return padding, activation, tuple(numbers[:3]), tuple(numbers[3:])


def _convolution(node: Node) -> Expr:
    node.only_floats()
    padding, activation, strides, dilations = _options(node)
    x, kernel = node.tensor(0), node.extents(1)[:3]
    if len(node.shape(x)) != 5 or len(node.extents(1)) != 5:
        raise node.unsupported("takes tensors of other than five axes")
    pads = same_or_valid(node, padding, node.shape(x)[1:4], kernel, strides, dilations)
    w = node.op("transpose", node.reals(1), perm=(4, 3, 0, 1, 2))
    made = node.op(
        "conv",
        node.op("transpose", x, perm=_FIRST),
        w,
        strides=strides,
        dilations=dilations,
        pads=pads,
        groups=1,
    )
    return node.op("transpose", activated(node, biased(node, made, (-1, 1, 1, 1)), activation), perm=_LAST)


def _transposed(node: Node) -> Expr:
    """Emit the convolution that enlarges a volume; filters are `[d, h, w, out, in]`."""
    node.only_floats(2)
    padding, activation, strides, dilations = _options(node)
    x, kernel = node.tensor(2), node.extents(1)[:3]
    if len(node.shape(x)) != 5 or len(node.extents(1)) != 5:
        raise node.unsupported("takes tensors of other than five axes")
    shape = node.output_sizes(0)
    if dilations != (1, 1, 1) or len(shape) != 5 or None in shape[1:4]:
        raise node.unsupported(f"enlarges to {shape}, with dilations {dilations}")
    wanted = [s for s in shape[1:4] if s is not None]
    known = [d.value for d in node.shape(x)[1:4] if d.value is not None]
    sizes = [lit(s) for s in wanted]
    pads = same_or_valid(node, padding, sizes, kernel, strides, dilations)
    made = node.op(
        "conv_transpose",
        node.op("transpose", x, perm=_FIRST),
        node.op("transpose", node.reals(1), perm=(4, 3, 0, 1, 2)),
        strides=strides,
        pads=pads,
        output_pads=tuple(
            size - ((n - 1) * stride + k - front - end)
            for size, n, stride, k, front, end in zip(
                wanted, known, strides, kernel, pads[:3], pads[3:], strict=True
            )
        ),
    )
    return node.op("transpose", activated(node, biased(node, made, (-1, 1, 1, 1), 3), activation), perm=_LAST)


RULES: Mapping[str, Rule] = {"CONV_3D": _convolution, "CONV_3D_TRANSPOSE": _transposed}
