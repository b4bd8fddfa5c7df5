"""Lays constant right-hand sides of contractions out as their kernels read them.

`matmul(x, W)` with a constant matrix and `conv_nhwc(x, W)` with constant weights become products with
panels of columns (`pack_weights`, `pack_conv_weights`), packed once when the program is compiled if
there is an evaluator, else by a packing operator that constant folding evaluates. The original
constant is gone when nothing else reads it.

A panel is as many columns as one tile of the kernel computes. Of the widths that a target offers, the
one that wastes the fewest columns of zeros is taken; of equals, the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inlay.base.diagnostics import CompileError
from inlay.base.options import option
from inlay.ir import make
from inlay.ir.expr import Call, Const, Expr, OpRef
from inlay.ir.module import Module
from inlay.ir.types import TensorType
from inlay.ops.convolution import ConvAttrs, PackedConvAttrs
from inlay.ops.matmul import PackAttrs, PackedAttrs
from inlay.passes.contract import Pass, PassContext, Property, Remark
from inlay.transforms._blocks import Block, rewrite_module


@dataclass(frozen=True, slots=True)
class PackOptions:
    """Options of this pass."""

    panels: tuple[int, ...] = option(
        (32, 48, 16, 8), help="widths of panels that the kernels have, the best first"
    )


def run(module: Module, context: PassContext) -> Module:
    """Pack the constant weights of products and channels-last convolutions. Cost: linear."""
    panels = context.options_for(PackOptions).panels

    def step(block: Block, value: Expr) -> Expr | None:
        match value:
            case Call(
                callee=OpRef(op=op, attrs=attrs), args=(x, Const(value=np.ndarray()) as weights)
            ) if op.name in ("matmul", "conv_nhwc"):
                refusal = _refusal(op.name, attrs, weights)
                if refusal:
                    _remark(context, value, refusal)
                    return None
                return _packed(block, context, op.name, attrs, (x, weights), panels)
            case _:
                return None

    return rewrite_module(module, step)


def _refusal(name: str, attrs: object, weights: Const) -> str:
    """Return why weights are not packed, nothing if they may be."""
    t = weights.type
    assert isinstance(t, TensorType), "weights are a tensor"
    if any(d == 0 for d in t.shape):
        return "empty"
    if name == "matmul":
        return "" if len(t.shape) == 2 else "batched"
    assert isinstance(attrs, ConvAttrs), "the attributes of a convolution"
    return "" if attrs.groups == 1 else "grouped"


def choose_panel(columns: int, panels: Sequence[int]) -> int:
    """Return the width that leaves the fewest columns of zeros; of equals, the first."""
    return min(panels, key=lambda p: -(-columns // p) * p)


def _packed(
    block: Block,
    context: PassContext,
    name: str,
    attrs: object,
    operands: tuple[Expr, Const],
    panels: Sequence[int],
) -> Expr:
    x, weights = operands
    assert isinstance(weights.type, TensorType), "weights are a tensor"
    columns = weights.type.shape[-1].value
    assert columns is not None, "constants have known shapes"
    panel = choose_panel(columns, panels)
    if name == "matmul":
        packed = _pack(block, context, "pack_weights", weights, panel)
        op, new_attrs = context.ops.find("matmul_packed"), PackedAttrs(panel, columns)
    else:
        assert isinstance(attrs, ConvAttrs), "the attributes of a convolution"
        packed = _pack(block, context, "pack_conv_weights", weights, panel)
        op = context.ops.find("conv_nhwc_packed")
        new_attrs = PackedConvAttrs(
            panel, columns, attrs.strides, attrs.pads, attrs.dilations, attrs.groups
        )
    assert op is not None, "the table of operators has the packed forms"
    return block.make(op, (x, packed), new_attrs)


def _pack(block: Block, context: PassContext, name: str, weights: Const, panel: int) -> Expr:
    """Return an atom for packed weights; equal constants are packed once in a block."""
    key = ("packed", id(weights.value), name, panel)
    found = block.note(key)
    if isinstance(found, Const):
        return found
    op = context.ops.find(name)
    assert op is not None, "the table of operators has the packing operators"
    made = block.make(op, (weights,), PackAttrs(panel))
    if context.evaluate is not None:
        try:
            value = context.evaluate(made)
        except CompileError:
            return block.bind(made, "packed")
        if isinstance(value, np.ndarray):
            constant = make.const(value, span=weights.span, place=weights.place)
            block.notes[key] = constant
            return constant
    return block.bind(made, "packed")


def _remark(context: PassContext, value: Call, reason: str) -> None:
    message = f"the weights are {reason}: kernels for panels take one matrix"
    context.remarks.add(Remark(PASS.name, "not-packed", reason, message, value.span))


PASS = Pass(
    __name__,
    run,
    "lay constant weights out in panels of columns",
    requires=(Property.ANF,),
    establishes=(Property.PACKED,),
    options=PackOptions,
)
