"""Rounds operands of float products to bf16, for who allows it (`--precision bf16`).

    let a = cast(x, bf16);    let b = cast(w, bf16);       constants are rounded here
    let p = cast(a, f32);     let q = cast(b, f32);
    matmul(x, w)                                  becomes    matmul(p, q)

The product of two bf16 is exact in f32, and so are sums and results f32 as before: what differs is that each
operand has 8 bits instead of 24. That is all that the program means from here on, on every processor. Which
instruction multiplies is for `pack-weights`, which reads `a` and `b` where a processor adds products of bf16
to f32; elsewhere weights are kept in bf16 and widened where they are used. What makes `x` writes `a` where
it can.

**What is rounded** depends on the program, not on the processor, so that results of two processors differ by
the order of sums and by numbers below 2^-126 alone, which an instruction may take for 0. It is what such an
instruction is faster for: products of matrices and convolutions with weights that all rows share, but for
those of which Winograd's form multiplies even less. Other products stay as they are, each with its reason
(`Reason`). Products of tensors of bf16 are products of this kind already (`widen-products`).

It is done behind layouts and within what runs on the host: a device keeps its own arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from math import prod

import numpy as np

from inlay.analysis.winograd import beats_pairs
from inlay.arith.deferred import DeferredArray, deferred
from inlay.arith.dtype import BF16, F32, DType
from inlay.base.span import Span
from inlay.ir import make
from inlay.ir.expr import Call, Const, Expr, OpRef, Var
from inlay.ir.module import Module
from inlay.ir.types import TensorType
from inlay.ops.convolution import ConvAttrs
from inlay.ops.elementwise import CastAttrs
from inlay.ops.table import OperatorTable
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._blocks import BlockWriter, rewrite_module


class Reason(StrEnum):
    """Why a product stays in f32."""

    DEVICE = "device"
    LAYOUT = "layout"
    FEW_TERMS = "few-terms"
    GROUPS = "groups"
    BATCHES = "batches"
    VECTOR = "vector"
    FEW_ROWS = "few-rows"
    WINOGRAD = "winograd"


REASONS: dict[Reason, str] = {
    Reason.DEVICE: "its device keeps its own arithmetic",
    Reason.LAYOUT: "its channels are not last, as kernels of the host have them",
    Reason.FEW_TERMS: "its sums are short, and loads take longer than products",
    Reason.GROUPS: "channels do not mix, or in groups only: loads take longer than products",
    Reason.BATCHES: "both operands are computed for each batch",
    Reason.VECTOR: "it multiplies a matrix with one vector: sums along rows are no faster",
    Reason.FEW_ROWS: "both operands are computed, and known rows are too few to pay for packing one",
    Reason.WINOGRAD: "Winograd's F(4, 3) multiplies a quarter as often, which is faster and more accurate",
}

FEWEST_TERMS = 8
FEWEST_ROWS = 64
"""Rows for which it pays to round and pack the other operand while the program runs."""

_PRODUCTS = ("matmul", "conv", "conv_nhwc", "depthwise_conv_nhwc")


@dataclass(frozen=True, slots=True)
class RoundedProduct:
    """A product, and whether its operands are rounded.

    Attributes:
        operator: that computes it.
        value: its name.
        span: where it comes from.
        reason: why it stays in f32; None where it does not.
    """

    operator: str
    value: str
    span: Span
    reason: Reason | None


def _is_host(device: str) -> bool:
    return not device


@dataclass(frozen=True, slots=True)
class PrecisionOptions:
    """Options of this pass.

    Attributes:
        precision: that products of floats may have, `f32` or `bf16`.
        rounds: whether products of a device are rounded, by its name; empty for the host.
        winograd: whether Winograd's F(4, 3) is accurate enough for convolutions in f32.
        watch: is told each product of floats.
    """

    precision: str = "f32"
    rounds: Callable[[str], bool] = _is_host
    winograd: bool = True
    watch: Callable[[RoundedProduct], None] | None = None


def _rounded(array: np.ndarray, out: np.ndarray) -> None:
    out[...] = array.astype(BF16.numpy)


def run(module: Module, context: PassContext) -> Module:
    """Round them. Cost: linear in the program and in the constants that are rounded."""
    operators, options = context.ops, context.options_for(PrecisionOptions)
    assert isinstance(operators, OperatorTable), "tensor passes run with the table of operators"
    if options.precision == "f32":
        return module
    cast = operators.definition("cast").op
    constants: dict[int, Const] = {}

    def narrow(block: BlockWriter, e: Expr) -> Expr:
        """Return an operand in bf16: rounded in front of the product, once in a block."""
        made = widened_from(block, e, BF16)
        if made is not None:
            return made
        if isinstance(e, Const) and isinstance(e.held, np.ndarray | DeferredArray):
            if id(e.held) not in constants:
                rounded = deferred(e.held.shape, BF16.numpy, e.held, _rounded)
                constants[id(e.held)] = make.const(rounded, span=e.span)
            return constants[id(e.held)]
        key = ("bf16", e)
        known = block.note(key)
        if isinstance(known, Var):
            return known
        found = block.call(cast, (e,), CastAttrs(BF16))
        block.notes[key] = found
        return found

    def step(block: BlockWriter, value: Expr) -> Expr | None:
        product = _product(value)
        if product is None:
            return None
        reason = _reason(product, options)
        if options.watch is not None:
            name = "" if block.variable is None else block.variable.name
            assert isinstance(product.callee, OpRef), "products are calls of their operator"
            options.watch(RoundedProduct(product.callee.op.name, name, product.span, reason))
        if reason is not None:
            return None
        assert isinstance(product.callee, OpRef), "products are calls of their operator"
        assert isinstance(product.type, TensorType), "products have one result"
        if all(widened_from(block, a, BF16) is not None for a in product.args):
            return None  # as it is already
        wide = [block.call(cast, (narrow(block, a),), CastAttrs(F32)) for a in product.args]
        return block.make(product.callee.op, wide, product.callee.attrs)

    return rewrite_module(module, step)


def widened_from(block: BlockWriter, e: Expr, dtype: DType) -> Expr | None:
    """Return what a value of f32 is the cast of, where that has a given format."""
    made = block.definition(e)
    if not isinstance(made, Call) or not isinstance(made.callee, OpRef) or made.callee.op.name != "cast":
        return None
    return made.args[0] if _dtype(made) is F32 and _dtype(made.args[0]) is dtype else None


def _dtype(e: Expr) -> DType | None:
    return e.type.dtype if isinstance(e.type, TensorType) else None


def _product(value: Expr) -> Call | None:
    """Return a product of floats that is computed in f32."""
    if not isinstance(value, Call) or not isinstance(value.callee, OpRef):
        return None
    return value if value.callee.op.name in _PRODUCTS and _dtype(value) is F32 else None


def _reason(product: Call, options: PrecisionOptions) -> Reason | None:
    """Return why a product stays in f32; None where it does not."""
    x, w = (a.type for a in product.args)
    assert isinstance(x, TensorType), "products have tensors for operands"
    assert isinstance(w, TensorType), "products have tensors for operands"
    assert isinstance(product.callee, OpRef), "products are calls of their operator"
    name, attrs = product.callee.op.name, product.callee.attrs
    if not options.rounds("" if product.place is None else product.place.device):
        return Reason.DEVICE
    if name == "conv":
        return Reason.LAYOUT
    if name.startswith("depthwise") or (isinstance(attrs, ConvAttrs) and attrs.groups > 1):
        return Reason.GROUPS
    is_constant = isinstance(product.args[1], Const)
    if name == "matmul":
        if len(w.shape) > 2:
            return Reason.BATCHES
        if len(w.shape) < 2 or len(x.shape) < 2 or w.shape[1] == 1:
            return Reason.VECTOR
    elif not is_constant:
        return Reason.BATCHES
    terms = [d.value for d in w.shape[:-1]]
    if any(d is not None for d in terms) and prod(d or FEWEST_TERMS for d in terms) < FEWEST_TERMS:
        return Reason.FEW_TERMS
    if not is_constant and prod(d.value or 0 for d in x.shape[:-1]) < FEWEST_ROWS:
        return Reason.FEW_ROWS
    if not is_constant and None in [d.value for d in w.shape]:
        return Reason.FEW_ROWS
    return Reason.WINOGRAD if options.winograd and _is_transformed(product, w) else None


def _is_transformed(product: Call, w: TensorType) -> bool:
    """Whether a product is a convolution of which Winograd's form in f32 is faster than sums of bf16."""
    assert isinstance(product.callee, OpRef), "products are calls of their operator"
    assert isinstance(product.type, TensorType), "products have one result"
    attrs = product.callee.attrs
    if not isinstance(attrs, ConvAttrs) or len(w.shape) != 4:
        return False
    images, rows, columns, oc = (d.value for d in product.type.shape)
    high, wide, c, _ = (d.value for d in w.shape)
    if (high, wide) != (3, 3) or not attrs.is_dense:
        return False
    if rows is None or columns is None or c is None or oc is None:
        return False
    return beats_pairs(rows, columns, c, oc, images=images or 1)


PASS = Pass(
    __name__,
    run,
    "round operands of float products to bf16, where that is asked for",
    requires=(Property.ANF,),
    options=PrecisionOptions,
)
