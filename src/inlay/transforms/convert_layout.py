"""Makes convolutions read and write channels-last tensors, and everything between them with it.

Exporters write `[n, c, h, w]`; vector code wants the channels of a pixel side by side. The pass goes
through a block once, from top to bottom, with one idea: a value `x` has a **twin** if it is bound to
`transpose(t)` with the permutation that moves the last axis to position 1; then `t` is the same value,
channels last. A convolution always computes a twin and binds its result to the transpose of it. An
operator that can work on twins does, and binds its result likewise. Readers that cannot
(outputs, say) read the transposed value. A transpose that nobody reads is dead, so between two
convolutions no transpose is left.

What can work on a twin: element-wise operators (constants and values that broadcast are transposed
with it), pools, normalizations, concatenation, slices, padding, resampling, reductions, softmax, reshapes
that cut or join axes, and transposes, which compose. An operator with several large operands changes over
if at least half of them have a twin already; then the others are transposed, which costs no more than
transposing back.

With one spatial axis that permutation is its own inverse, and programs have it for other reasons: the tokens
of an image, say. It makes a twin where something has windows over one axis.

Weights that are constants are rewritten here: `[oc, c, *k]` to `[*k, c, oc]`.

A twin is of one device: where a value goes to another one, it is in the layout of the program. A device
whose kernels are not made of loops is given operators as they are in the program.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np

from inlay.analysis.blocks import values
from inlay.arith.expr import lit
from inlay.ir import make
from inlay.ir.expr import Call, Const, Expr, OpRef
from inlay.ir.module import Module
from inlay.ir.types import ShapeType, TensorType
from inlay.ops._define import FusionPattern
from inlay.ops.convolution import ConvAttrs, DepthwiseAttrs
from inlay.ops.integer_products import IntegerConvAttrs, IntegerDepthwiseAttrs
from inlay.ops.layout import PermAttrs
from inlay.ops.padding import PadAttrs
from inlay.ops.table import OperatorTable
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._blocks import BlockWriter, rewrite_module
from inlay.transforms._channels_last import reductions, shapes
from inlay.transforms._channels_last.layout_match import LayoutMatch, Rule, moved_axis, to_last


@dataclass(frozen=True, slots=True)
class LayoutOptions:
    """Options of this pass.

    Attributes:
        canonical: names of the devices that are given operators as they are in the program.
    """

    canonical: frozenset[str] = field(default_factory=frozenset[str])


def run(module: Module, context: PassContext) -> Module:
    """Change layouts. Cost: linear."""
    operators, canonical = context.ops, context.options_for(LayoutOptions).canonical
    assert isinstance(operators, OperatorTable), "tensor passes run with the table of operators"
    has_lines = any(_is_of_lines(e) for f in module.functions.values() for e in values(f.body))

    made: dict[Hashable, Const] = {}

    def step(block: BlockWriter, value: Expr) -> Expr | None:
        if not isinstance(value, Call) or not isinstance(value.callee, OpRef):
            return None
        if value.place is not None and value.place.device in canonical:
            return None
        definition = operators.definition(value.callee.op)
        rule = _RULES.get(definition.name)
        if rule is None and definition.pattern in (FusionPattern.ELEMENTWISE, FusionPattern.BROADCAST):
            rule = _elementwise
        if rule is None or not isinstance(value.type, TensorType):
            return None
        return rule(LayoutMatch(operators, block, definition, value, value.callee.attrs, has_lines, made))

    return rewrite_module(module, step)


def _is_of_lines(e: Expr) -> bool:
    """Whether a value has windows over one spatial axis."""
    if not isinstance(e, Call) or not isinstance(e.callee, OpRef) or e.callee.op.name not in _WINDOWS:
        return False
    x = e.args[0].type
    return isinstance(x, TensorType) and len(x.shape) == 3


def _conv(matched: LayoutMatch) -> Expr | None:
    assert isinstance(matched.attrs, ConvAttrs)
    return _last_conv(matched, matched.last(matched.call.args[0]), matched.attrs, ())


def _integer_conv(matched: LayoutMatch) -> Expr | None:
    """As for floats; padding with a number in front becomes that of the convolution."""
    assert isinstance(matched.attrs, ConvAttrs)
    x, _, *zeros = matched.call.args
    attrs = IntegerConvAttrs(**{f.name: getattr(matched.attrs, f.name) for f in fields(matched.attrs)})
    if not all(map(_is_zero, zeros)):
        return _last_conv(matched, matched.last(x), attrs, zeros)
    twin = matched.twin(x)
    padding = (
        None if any(attrs.pads) else _padding(matched, x if twin is None else twin, last=twin is not None)
    )
    if padding is None:
        return _last_conv(matched, matched.last(x), attrs, ())
    inner, pads, outside = padding
    source = matched.last(inner) if twin is None else inner
    return _last_conv(matched, source, replace(attrs, pads=pads, outside=outside), ())


def _is_zero(e: Expr) -> bool:
    return isinstance(e, Const) and isinstance(e.value, np.ndarray) and not e.value.any()


def _padding(matched: LayoutMatch, e: Expr, *, last: bool) -> tuple[Expr, tuple[int, ...], int] | None:
    """Return what is padded with a number along spatial axes only, how far, and the number.

    Args:
        matched: of the convolution.
        e: its input.
        last: whether channels are the last axis.
    """
    made = matched.block.definition(e)
    if not isinstance(made, Call) or not isinstance(made.callee, OpRef) or made.place != matched.call.place:
        return None
    if made.callee.attrs != PadAttrs():
        return None
    x, pads, *fill = made.args
    known = pads.type.values if isinstance(pads.type, ShapeType) else (None,)
    numbers = [-1 if v is None or v.value is None else v.value for v in known]
    value = fill[0].value if fill and isinstance(fill[0], Const) else None
    if min(numbers) < 0 or (fill and not isinstance(value, np.ndarray)):
        return None
    rank = matched.rank_of(x)
    spatial = range(1, rank - 1) if last else range(2, rank)
    sides = [numbers[side * rank + axis] for side in (0, 1) for axis in spatial]
    if sum(numbers) != sum(sides):
        return None
    return x, tuple(sides), int(value) if isinstance(value, np.ndarray) else 0


def _last_conv(matched: LayoutMatch, source: Expr, attrs: ConvAttrs, zeros: Sequence[Expr]) -> Expr | None:
    """Return a convolution of an input with channels last."""
    x, w, *_ = matched.call.args
    rank = matched.rank
    suffix = "_integer" if isinstance(attrs, IntegerConvAttrs) else ""
    if not (_is_depthwise(x, w, attrs) and not zeros):
        weights = matched.transposed(w, (*range(2, rank), 1, 0))
        return matched.instead((source, weights, *zeros), attrs, f"conv_nhwc{suffix}")
    taps = matched.transposed(w, (*range(2, rank), 0, 1))
    assert isinstance(taps.type, TensorType)
    shape = taps.type.shape[:-1]
    if isinstance(taps, Const) and isinstance(taps.value, np.ndarray):
        taps = make.const(taps.value.reshape(taps.value.shape[:-1]), span=taps.span)
    else:
        taps = matched.op("reshape", (taps, make.shape_const(shape)), None)
    window = (attrs.strides, attrs.pads, attrs.dilations)
    depthwise = (
        IntegerDepthwiseAttrs(*window, attrs.outside)
        if isinstance(attrs, IntegerConvAttrs)
        else DepthwiseAttrs(*window)
    )
    return matched.instead((source, taps), depthwise, f"depthwise_conv_nhwc{suffix}")


def _is_depthwise(x: Expr, w: Expr, attrs: ConvAttrs) -> bool:
    assert isinstance(x.type, TensorType)
    assert isinstance(w.type, TensorType)
    channels, outputs = x.type.shape[1], w.type.shape[0]
    return attrs.groups > 1 and channels == attrs.groups and outputs == channels


def _pool(matched: LayoutMatch) -> Expr | None:
    x = matched.twin(matched.call.args[0])
    if x is None or getattr(matched.attrs, "channels_last", True):
        return None
    return matched.instead((x,), replace(matched.attrs, channels_last=True))


def _one_axis(matched: LayoutMatch) -> Expr | None:
    """An operator whose first operand has an attribute `axis`; the others have rank 1 or less."""
    x, *others = matched.call.args
    twin = matched.twin(x)
    if twin is None or any(matched.rank_of(o) > 1 for o in others):
        return None
    axis = moved_axis(matched.attrs.axis, matched.rank)
    return matched.instead((twin, *others), replace(matched.attrs, axis=axis))


def _gather(matched: LayoutMatch) -> Expr | None:
    """A table, read at the places that a twin says, is read at them in another order."""
    table, index = matched.call.args
    twin = matched.twin(index)
    return (
        None if twin is None or matched.rank_of(table) != 1 else matched.instead((table, twin), matched.attrs)
    )


def _concat(matched: LayoutMatch) -> Expr | None:
    args = matched.call.args
    twins = sum(matched.twin(a) is not None for a in args)
    if matched.rank < 3 or twins == 0 or 2 * twins < len(args):
        return None
    axis = moved_axis(matched.attrs.axis, matched.rank)
    attrs = replace(matched.attrs, axis=axis)
    return matched.instead([matched.last(a) for a in args], attrs)


def _pad(matched: LayoutMatch) -> Expr | None:
    x, pads, *fill = matched.call.args
    twin = matched.twin(x)
    values = pads.type.values if isinstance(pads.type, ShapeType) else ()
    if twin is None or None in values or not isinstance(matched.attrs, PadAttrs):
        return None
    rank, order = matched.rank, to_last(matched.rank)
    moved = [values[side * rank + axis] for side in (0, 1) for axis in order]
    shape = make.shape_const([v for v in moved if v is not None])
    return matched.instead((twin, shape, *fill), matched.attrs)


def _slice(matched: LayoutMatch) -> Expr | None:
    x, *bounds = matched.call.args
    twin = matched.twin(x)
    if twin is None:
        return None
    axes = tuple([moved_axis(a, matched.rank) for a in matched.attrs.axes])
    return matched.instead((twin, *bounds), replace(matched.attrs, axes=axes))


def _resize(matched: LayoutMatch) -> Expr | None:
    """Channels side by side take the same taps. A few of them fill no vector."""
    x, shape = matched.call.args
    twin = matched.twin(x)
    sizes = shape.type.values if isinstance(shape.type, ShapeType) else ()
    channels = sizes[1].value if len(sizes) > 1 and sizes[1] is not None else None
    if twin is None or None in sizes or channels is None or channels < _LEAST_CHANNELS:
        return None
    order = to_last(matched.rank)
    moved = make.shape_const([v for v in (sizes[axis] for axis in order) if v is not None])
    scales = tuple([matched.attrs.scales[axis] for axis in order]) if matched.attrs.scales else ()
    return matched.instead((twin, moved), replace(matched.attrs, scales=scales))


def _transpose(matched: LayoutMatch) -> Expr | None:
    """A transpose of a transpose is one, or nothing."""
    found = matched.made_by_transpose(matched.call.args[0])
    if found is None or not isinstance(matched.attrs, PermAttrs):
        return None
    source, inner = found
    perm = tuple([inner[a] for a in matched.attrs.perm])
    if perm == tuple(range(matched.rank)):
        return source
    return matched.block.make(matched.definition.op, (source,), PermAttrs(perm))


def _elementwise(matched: LayoutMatch) -> Expr | None:
    assert isinstance(matched.call.type, TensorType)
    rank = len(matched.call.type.shape)
    if rank < 3:
        return None
    args = matched.call.args
    if not all(isinstance(a.type, TensorType) for a in args):
        return None  # shapes and other control operands say where axes are
    twins = [matched.twin(a) if matched.rank_of(a) == rank else None for a in args]
    has = sum(t is not None for t in twins)
    costly = sum(t is None and not _is_small(a, rank) for t, a in zip(twins, args, strict=True))
    if has == 0 or costly > has:
        return None
    moved = [_aligned(matched, a, rank) if t is None else t for t, a in zip(twins, args, strict=True)]
    return matched.instead(moved, matched.attrs)


def _is_small(e: Expr, rank: int) -> bool:
    """Whether transposing costs nothing that matters: a constant, or few axes that are not 1."""
    assert isinstance(e.type, TensorType)
    if isinstance(e, Const):
        return True
    return sum(d != 1 for d in e.type.shape) <= 1 and len(e.type.shape) <= rank


def _aligned(matched: LayoutMatch, e: Expr, rank: int) -> Expr:
    """Return an operand that broadcasts against `[n, c, *s]` so that it does against `[n, *s, c]`."""
    assert isinstance(e.type, TensorType)
    shape = e.type.shape
    if all(d == 1 for d in shape) and len(shape) <= 1:
        return e
    if len(shape) < rank:
        wide = (*(lit(1) for _ in range(rank - len(shape))), *shape)
        if isinstance(e, Const) and isinstance(e.value, np.ndarray):
            numbers = [1] * (rank - len(shape)) + list(e.value.shape)
            e = make.const(e.value.reshape(numbers), span=e.span)
        else:
            e = matched.op("reshape", (e, make.shape_const(wide)), None)
    return matched.transposed(e, to_last(rank))


_LEAST_CHANNELS = 8
"""Of what is resampled with its channels last."""

_WINDOWS = ("conv", "conv_integer", "max_pool", "average_pool")

_RULES: Mapping[str, Rule] = {
    "conv": _conv,
    "conv_integer": _integer_conv,
    "max_pool": _pool,
    "average_pool": _pool,
    "batch_norm": _one_axis,
    "softmax": _one_axis,
    "log_softmax": _one_axis,
    "quantize": _one_axis,
    "dequantize": _one_axis,
    "requantize": _one_axis,
    "gather": _gather,
    "concat": _concat,
    "pad": _pad,
    "resize": _resize,
    "slice": _slice,
    "transpose": _transpose,
    **reductions.RULES,
    **shapes.RULES,
}

PASS = Pass(
    __name__,
    run,
    "make convolutions and what is between them channels-last",
    requires=(Property.ANF,),
    establishes=(Property.CHANNELS_LAST,),
    options=LayoutOptions,
)
