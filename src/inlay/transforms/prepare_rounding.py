"""Prepares requantizations by constants for the devices that they run on.

A processor requantizes what importers write with a multiplier and a shift, or with a scale, in fewer
instructions where constants are prepared for it:

* **By floats** (`ops/float_rounding.py`), where a device has an instruction that multiplies and adds, and
  `analysis/float_roundings.py` proves that all accumulators that can occur have the same results. They are
  bounded by the weights of the product that made them, and what is added to it. An offset that the proof
  wants on accumulators is added to those; `pack-weights` joins it with what is added there anyway.
  Where that is faster, sums of products of each channel by itself are floats before they are requantized.
* **Sums of two tensors of bytes** by floats as well (`transforms/_float_sums.py`).
* **Rounded before they are clamped**, where a float scale keeps products near. That needs no proof, and a
  zero point that is added to integers needs no second constant for ties.
* **By integers** (`ops/prepared_rounding.py`) elsewhere, where shifts allow it.

Behind the choice of places: what accelerators take has the form that importers write. Devices are those that
`pack-weights` packs for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from inlay.analysis.float_roundings import float_rounding
from inlay.analysis.roundings import Requantization
from inlay.arith.dtype import F32, I32
from inlay.ir import make
from inlay.ir.expr import Call, Expr, OpRef
from inlay.ir.module import Module
from inlay.ir.types import TensorType
from inlay.machine.target import Target
from inlay.ops._build import Array
from inlay.ops.float_rounding import BYTES, FloatRoundingAttrs
from inlay.ops.integer_products import IntegerDepthwiseAttrs
from inlay.ops.requantization import RequantizeAttrs
from inlay.ops.table import OperatorTable
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._blocks import BlockWriter, is_call, rewrite_module
from inlay.transforms._constants import array_of
from inlay.transforms._float_sums import float_sum
from inlay.transforms._packings import PackOptions
from inlay.transforms._prepared_rounding import prepared_rounding

_CHANNELS = "depthwise_conv_nhwc_integer"
_PRODUCTS = ("conv_nhwc_integer", _CHANNELS, "matmul_integer")
"""Products whose last axis of weights is the last one of the result."""
_EXACT = 1 << 24
"""Whole numbers up to this are floats of 32 bits, and so are their sums."""
_LEAST, _GREATEST = -(1 << 31), (1 << 31) - 1
_NEAR_SCALE = 0.5
"""Sums of 32 bits times at most this are within 2^30."""


def run(module: Module, context: PassContext) -> Module:
    """Prepare what is constant. Cost: linear in the program and in constants, times results of 8 bits."""
    operators = context.ops
    assert isinstance(operators, OperatorTable), "tensor passes run with the table of operators"
    options = context.options_for(PackOptions)

    def step(block: BlockWriter, value: Expr) -> Expr | None:
        if not is_call(value, "requantize"):
            return None
        target = options.targets("" if value.place is None else value.place.device)
        if target is None:
            return None
        made = _sum(block, value, operators) if target.has_fma else None
        if made is None and not _sums_channels(block, value, target):
            made = _near(block, value)
        if made is None and target.has_fma:
            made = _by_floats(block, value, target, operators)
        return made or _near(block, value) or _by_integers(block, value, operators)

    return rewrite_module(module, step)


def _by_integers(block: BlockWriter, call: Call, operators: OperatorTable) -> Expr | None:
    made = prepared_rounding(call)
    if made is None:
        return None
    operands, attrs = made
    return block.make(operators.definition("requantize_prepared").op, (call.args[0], *operands), attrs)


def _sums_channels(block: BlockWriter, call: Call, target: Target) -> bool:
    """Whether sums of each channel by itself are requantized, on a device that adds these up in floats."""
    found = _product(block, call.args[0]) if target.sums_channels_in_floats else None
    return found is not None and found.callee.op.name == _CHANNELS


def _near(block: BlockWriter, call: Call) -> Expr | None:
    """Return what rounds products by float scales to bytes before it clamps them; None for others."""
    assert isinstance(call.callee, OpRef), "a requantization is a call of its operator"
    attrs, scale = call.callee.attrs, array_of(call.args[1])
    assert isinstance(attrs, RequantizeAttrs), "requantizations have their attributes"
    if scale is None or scale.dtype != np.float32 or attrs.dtype not in BYTES or attrs.near:
        return None
    if _is_power([scale]) or not np.all(np.abs(scale) <= _NEAR_SCALE):
        return None
    return block.make(call.callee.op, call.args, replace(attrs, near=True))


# --------------------------------------------------------------------------- by floats


def _sum(block: BlockWriter, call: Call, operators: OperatorTable) -> Expr | None:
    found = float_sum(block, call, operators)
    if found is None:
        return None
    operands, attrs = found
    return block.make(operators.definition("add_by_floats").op, operands, attrs)


def _by_floats(block: BlockWriter, call: Call, target: Target, operators: OperatorTable) -> Expr | None:
    assert isinstance(call.callee, OpRef), "a requantization is a call of its operator"
    attrs = call.callee.attrs
    assert isinstance(attrs, RequantizeAttrs), "requantizations have their attributes"
    x, factors = call.args[0], [array_of(a) for a in call.args[1:]]
    if not isinstance(x.type, TensorType) or x.type.dtype is not I32:
        return None
    constants = [f for f in factors if f is not None and f.size]
    if len(constants) < len(factors) or _is_power(constants):
        return None
    is_last = attrs.axis in (-1, len(x.type.shape) - 1)
    ends = _ends(block, x) if is_last or all(f.ndim == 0 for f in constants) else None
    low, high = (np.int64(_LEAST), np.int64(_GREATEST)) if ends is None else ends
    if all(f.ndim == 0 for f in constants):
        low, high = low.min(), high.max()
    channels = np.broadcast_shapes(*(f.shape for f in constants), low.shape) or (1,)
    *known, low, high = (np.broadcast_to(e, channels).copy() for e in (*constants, low, high))
    found = float_rounding(Requantization(replace(attrs, axis=0), *known), low, high)
    if found is None:
        return None
    if np.any(found.shift):
        less = make.const(_shaped(-found.shift, like=constants))
        x = block.call(operators.definition("add").op, (x, less), None)
    sums = _channel_sums(block, x, operators) if target.sums_channels_in_floats else None
    operands = [found.scale, found.offset]
    if np.any(found.step):
        pivot = found.pivot if sums is None else found.pivot.astype(np.float32)
        operands += [found.step, pivot] if np.any(pivot) else [found.step]
    made = FloatRoundingAttrs(attrs.dtype, *attrs.ends(), attrs.axis)
    arguments = (sums or x, *(make.const(_shaped(e, like=constants)) for e in operands))
    return block.make(operators.definition("requantize_by_floats").op, arguments, made)


def _shaped(e: Array, like: list[Array]) -> Array:
    """Return a number for each channel, or the one where there is one for all."""
    return e if any(f.ndim for f in like) else e.reshape(())


def _is_power(factors: list[Array]) -> bool:
    """Whether a factor is one float that is a power of two, which `lower/exact_floats.py` knows."""
    return len(factors) == 1 and factors[0].ndim == 0 and float(np.frexp(factors[0])[0]) == 0.5


def _channel_sums(block: BlockWriter, x: Expr, operators: OperatorTable) -> Expr | None:
    """Return sums of products of each channel by itself in f32; None where they may not be exact."""
    found = _product(block, x)
    if found is None or found.callee.op.name != _CHANNELS:
        return None
    low, high = found.ends()
    more = sum(found.added, np.zeros(1, np.int64))
    far = np.maximum(-low, high) + sum(map(abs, found.added), np.zeros(1, np.int64))
    attrs = found.callee.attrs
    if np.any(far > _EXACT) or not isinstance(attrs, IntegerDepthwiseAttrs):
        return None
    op = operators.definition(found.callee.op).op
    sums = block.call(op, found.call.args, replace(attrs, sums=F32))
    if not np.any(more):
        return sums
    return block.call(operators.definition("add").op, (sums, make.const(more.astype(np.float32))), None)


@dataclass(frozen=True, slots=True)
class _Product:
    """Sums of products with constant weights, and what is added to them.

    Attributes:
        call: of an operator in `_PRODUCTS`.
        callee: of the call.
        factor: the type of the other operand.
        weights: whose last axis is that of channels.
        added: in order, a number or one for each channel.
    """

    call: Call
    callee: OpRef
    factor: TensorType
    weights: Array
    added: list[Array]

    def ends(self) -> tuple[Array, Array]:
        """Return the ends of the sums of each channel, before anything is added."""
        info, axes = np.iinfo(self.factor.dtype.numpy), tuple(range(self.weights.ndim - 1))
        up = np.maximum(self.weights, 0).sum(axes, dtype=np.int64)
        down = np.minimum(self.weights, 0).sum(axes, dtype=np.int64)
        return up * info.min + down * info.max, up * info.max + down * info.min


def _product(block: BlockWriter, x: Expr) -> _Product | None:
    """Return the product that sums are made of; None where they are made of anything else."""
    added: list[Array] = []
    made = block.definition(x)
    while is_call(made, "add"):
        more = array_of(made.args[1])
        if more is None or more.size != (more.shape[-1] if more.ndim else 1):
            return None
        added.insert(0, more.reshape(-1).astype(np.int64))
        made = block.definition(made.args[0])
    if not isinstance(made, Call) or not isinstance(made.callee, OpRef):
        return None
    if made.callee.op.name not in _PRODUCTS or len(made.args) != 2:
        return None
    factor, weights = made.args[0].type, array_of(made.args[1])
    if weights is None or not isinstance(factor, TensorType):
        return None
    return _Product(made, made.callee, factor, weights, added)


def _ends(block: BlockWriter, x: Expr) -> tuple[Array, Array] | None:
    """Return the ends of sums of products with constant weights, for each channel; None if not known."""
    found = _product(block, x)
    if found is None:
        return None
    low, high = found.ends()
    for more in (np.zeros(1, np.int64), *found.added):
        low, high = low + more, high + more
        if np.any(low < _LEAST) or np.any(high > _GREATEST):
            return None
    return low, high


PASS = Pass(
    __name__, run, "prepare the constants of requantizations", requires=(Property.ANF,), options=PackOptions
)
