"""Makes convolutions read and write channels-last tensors, and everything between them with it.

Exporters write `[n, c, h, w]`; vector code wants the channels of a pixel side by side. The pass goes
through a block once, from top to bottom, with one idea: a value `x` has a **twin** if it is bound to
`transpose(t)` with the permutation that moves the last axis to position 1; then `t` is the same value,
channels last. A convolution always computes a twin and binds its result to the transpose of it. An
operator that can work on twins does, and binds its result likewise. Readers that cannot (reshape,
outputs) read the transposed value. A transpose that nobody reads is dead, so between two
convolutions no transpose is left.

What can work on a twin: element-wise operators (constants and values that broadcast are transposed
with it), pools, batch normalization, concatenation, slices, padding, resampling, reductions, softmax,
and transposes, which compose. An operator with several large operands changes over if at least half of
them have a twin already; then the others are transposed, which costs no more than transposing back.

With one spatial axis that permutation is its own inverse, and programs have it for other reasons: the tokens
of an image, say. It makes a twin where something has windows over one axis.

Weights that are constants are rewritten here: `[oc, c, *k]` to `[*k, c, oc]`.

A twin is of one device: where a value goes to another one, it is in the layout of the program. A device
whose kernels are not made of loops is given operators as they are in the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import prod
from typing import Any

import numpy as np

from inlay.analysis.blocks import values
from inlay.arith.deferred import DeferredArray, transposed
from inlay.arith.dtype import F32
from inlay.arith.expr import Int, lit
from inlay.ir import make
from inlay.ir.expr import Call, Const, Expr, OpRef
from inlay.ir.module import Module
from inlay.ir.types import ShapeType, TensorType
from inlay.ops._define import FusionPattern, OpDef
from inlay.ops.convolution import ConvAttrs, DepthwiseAttrs
from inlay.ops.integer_products import IntegerConvAttrs, IntegerDepthwiseAttrs
from inlay.ops.layout import PermAttrs
from inlay.ops.padding import PadAttrs
from inlay.ops.table import OperatorTable
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._blocks import BlockWriter, rewrite_module


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
        return rule(_Site(operators, block, definition, value, value.callee.attrs, has_lines))

    return rewrite_module(module, step)


def _is_of_lines(e: Expr) -> bool:
    """Whether a value has windows over one spatial axis."""
    if not isinstance(e, Call) or not isinstance(e.callee, OpRef) or e.callee.op.name not in _WINDOWS:
        return False
    x = e.args[0].type
    return isinstance(x, TensorType) and len(x.shape) == 3


def to_last(rank: int) -> tuple[int, ...]:
    """Return the permutation that moves axis 1 to the end."""
    return (0, *range(2, rank), 1)


def to_second(rank: int) -> tuple[int, ...]:
    """Return the permutation that moves the last axis to position 1."""
    return (0, rank - 1, *range(1, rank - 1))


@dataclass(frozen=True, slots=True)
class _Site:
    """A call under consideration."""

    operators: OperatorTable
    block: BlockWriter
    definition: OpDef
    call: Call
    attrs: Any
    has_lines: bool

    @property
    def rank(self) -> int:
        """The rank of the first operand."""
        return self.rank_of(self.call.args[0])

    def rank_of(self, e: Expr) -> int:
        """Return the rank of a tensor."""
        assert isinstance(e.type, TensorType), "operands of tensor operators are tensors"
        return len(e.type.shape)

    def twin(self, e: Expr) -> Expr | None:
        """Return the same value with channels last, where it is at hand."""
        found = self.made_by_transpose(e)
        return found[0] if found is not None and found[1] == to_second(len(found[1])) else None

    def made_by_transpose(self, e: Expr) -> tuple[Expr, tuple[int, ...]] | None:
        """Return what a value is the transpose of, and how; None where that is of no use."""
        found = self.block.definition(e)
        if not isinstance(found, Call) or not isinstance(found.callee, OpRef):
            return None
        attrs = found.callee.attrs
        if not isinstance(attrs, PermAttrs) or found.place != self.call.place:
            return None
        if len(attrs.perm) == 3 and not (self.has_lines and attrs.perm == to_second(3)):
            return None
        return found.args[0], attrs.perm

    def transposed(self, e: Expr, perm: tuple[int, ...]) -> Expr:
        """Return a value with its axes in another order; constants are rewritten."""
        if isinstance(e, Const) and isinstance(e.held, np.ndarray | DeferredArray):
            return make.const(transposed(e.held, perm), span=e.span)
        return self.op("transpose", (e,), PermAttrs(perm))

    def last(self, e: Expr) -> Expr:
        """Return a value with channels last."""
        found = self.twin(e)
        return self.transposed(e, to_last(self.rank_of(e))) if found is None else found

    def op(self, name: str, args: Sequence[Expr], attrs: object) -> Expr:
        """Bind another operation in front of this one."""
        return self.block.call(self.operators.definition(name).op, args, attrs)

    def instead(self, args: Sequence[Expr], attrs: object, name: str = "") -> Expr:
        """Return the answer: the operation on channels-last operands, transposed."""
        made = self.op(name or self.definition.name, args, attrs)
        return self.back(made)

    def back(self, e: Expr) -> Expr:
        """Return the transpose that stands for a channels-last value."""
        perm = PermAttrs(to_second(self.rank_of(e)))
        return self.block.make(self.operators.definition("transpose").op, (e,), perm)


_Rule = Callable[[_Site], "Expr | None"]


def _conv(site: _Site) -> Expr | None:
    assert isinstance(site.attrs, ConvAttrs)
    return _last_conv(site, site.last(site.call.args[0]), site.attrs, ())


def _integer_conv(site: _Site) -> Expr | None:
    """As for floats; padding with a number in front becomes that of the convolution."""
    assert isinstance(site.attrs, ConvAttrs)
    x, _, *zeros = site.call.args
    attrs = IntegerConvAttrs(**{f.name: getattr(site.attrs, f.name) for f in fields(site.attrs)})
    if not all(map(_is_zero, zeros)):
        return _last_conv(site, site.last(x), attrs, zeros)
    twin = site.twin(x)
    padding = None if any(attrs.pads) else _padding(site, x if twin is None else twin, last=twin is not None)
    if padding is None:
        return _last_conv(site, site.last(x), attrs, ())
    inner, pads, outside = padding
    source = site.last(inner) if twin is None else inner
    return _last_conv(site, source, replace(attrs, pads=pads, outside=outside), ())


def _is_zero(e: Expr) -> bool:
    return isinstance(e, Const) and isinstance(e.value, np.ndarray) and not e.value.any()


def _padding(site: _Site, e: Expr, *, last: bool) -> tuple[Expr, tuple[int, ...], int] | None:
    """Return what is padded with a number along spatial axes only, how far, and the number.

    Args:
        site: of the convolution.
        e: its input.
        last: whether channels are the last axis.
    """
    made = site.block.definition(e)
    if not isinstance(made, Call) or not isinstance(made.callee, OpRef) or made.place != site.call.place:
        return None
    if made.callee.attrs != PadAttrs():
        return None
    x, pads, *fill = made.args
    known = pads.type.values if isinstance(pads.type, ShapeType) else (None,)
    numbers = [-1 if v is None or v.value is None else v.value for v in known]
    value = fill[0].value if fill and isinstance(fill[0], Const) else None
    if min(numbers) < 0 or (fill and not isinstance(value, np.ndarray)):
        return None
    rank = site.rank_of(x)
    spatial = range(1, rank - 1) if last else range(2, rank)
    sides = [numbers[side * rank + axis] for side in (0, 1) for axis in spatial]
    if sum(numbers) != sum(sides):
        return None
    return x, tuple(sides), int(value) if isinstance(value, np.ndarray) else 0


def _last_conv(site: _Site, source: Expr, attrs: ConvAttrs, zeros: Sequence[Expr]) -> Expr | None:
    """Return a convolution of an input with channels last."""
    x, w, *_ = site.call.args
    rank = site.rank
    suffix = "_integer" if isinstance(attrs, IntegerConvAttrs) else ""
    if not (_is_depthwise(x, w, attrs) and not zeros):
        weights = site.transposed(w, (*range(2, rank), 1, 0))
        return site.instead((source, weights, *zeros), attrs, f"conv_nhwc{suffix}")
    taps = site.transposed(w, (*range(2, rank), 0, 1))
    assert isinstance(taps.type, TensorType)
    shape = taps.type.shape[:-1]
    if isinstance(taps, Const) and isinstance(taps.value, np.ndarray):
        taps = make.const(taps.value.reshape(taps.value.shape[:-1]), span=taps.span)
    else:
        taps = site.op("reshape", (taps, make.shape_const(shape)), None)
    window = (attrs.strides, attrs.pads, attrs.dilations)
    depthwise = (
        IntegerDepthwiseAttrs(*window, attrs.outside)
        if isinstance(attrs, IntegerConvAttrs)
        else DepthwiseAttrs(*window)
    )
    return site.instead((source, taps), depthwise, f"depthwise_conv_nhwc{suffix}")


def _is_depthwise(x: Expr, w: Expr, attrs: ConvAttrs) -> bool:
    assert isinstance(x.type, TensorType)
    assert isinstance(w.type, TensorType)
    channels, outputs = x.type.shape[1], w.type.shape[0]
    return attrs.groups > 1 and channels == attrs.groups and outputs == channels


def _pool(site: _Site) -> Expr | None:
    x = site.twin(site.call.args[0])
    if x is None or getattr(site.attrs, "channels_last", True):
        return None
    return site.instead((x,), replace(site.attrs, channels_last=True))


def _moved_axis(axis: int, rank: int) -> int:
    """Return where an axis of `[n, c, *s]` is in `[n, *s, c]`."""
    return to_last(rank).index(axis % rank)


def _one_axis(site: _Site) -> Expr | None:
    """An operator whose first operand has an attribute `axis`; the others have rank 1 or less."""
    x, *others = site.call.args
    twin = site.twin(x)
    if twin is None or any(site.rank_of(o) > 1 for o in others):
        return None
    axis = _moved_axis(site.attrs.axis, site.rank)
    return site.instead((twin, *others), replace(site.attrs, axis=axis))


def _gather(site: _Site) -> Expr | None:
    """A table, read at the places that a twin says, is read at them in another order."""
    table, index = site.call.args
    twin = site.twin(index)
    return None if twin is None or site.rank_of(table) != 1 else site.instead((table, twin), site.attrs)


def _concat(site: _Site) -> Expr | None:
    args = site.call.args
    twins = sum(site.twin(a) is not None for a in args)
    if site.rank < 3 or twins == 0 or 2 * twins < len(args):
        return None
    axis = _moved_axis(site.attrs.axis, site.rank)
    attrs = replace(site.attrs, axis=axis)
    return site.instead([site.last(a) for a in args], attrs)


def _pad(site: _Site) -> Expr | None:
    x, pads, *fill = site.call.args
    twin = site.twin(x)
    values = pads.type.values if isinstance(pads.type, ShapeType) else ()
    if twin is None or None in values or not isinstance(site.attrs, PadAttrs):
        return None
    rank, order = site.rank, to_last(site.rank)
    moved = [values[side * rank + axis] for side in (0, 1) for axis in order]
    shape = make.shape_const([v for v in moved if v is not None])
    return site.instead((twin, shape, *fill), site.attrs)


def _slice(site: _Site) -> Expr | None:
    x, *bounds = site.call.args
    twin = site.twin(x)
    if twin is None:
        return None
    axes = tuple([_moved_axis(a, site.rank) for a in site.attrs.axes])
    return site.instead((twin, *bounds), replace(site.attrs, axes=axes))


def _resize(site: _Site) -> Expr | None:
    """Channels side by side take the same taps. A few of them fill no vector."""
    x, shape = site.call.args
    twin = site.twin(x)
    sizes = shape.type.values if isinstance(shape.type, ShapeType) else ()
    channels = sizes[1].value if len(sizes) > 1 and sizes[1] is not None else None
    if twin is None or None in sizes or channels is None or channels < _LEAST_CHANNELS:
        return None
    order = to_last(site.rank)
    moved = make.shape_const([v for v in (sizes[axis] for axis in order) if v is not None])
    scales = tuple([site.attrs.scales[axis] for axis in order]) if site.attrs.scales else ()
    return site.instead((twin, moved), replace(site.attrs, scales=scales))


def _reduce(site: _Site) -> Expr | None:
    twin = site.twin(site.call.args[0])
    if twin is None:
        return None
    rank = site.rank
    axes = {a % rank for a in site.attrs.axes}
    moved = replace(site.attrs, axes=tuple(sorted(_moved_axis(a, rank) for a in axes)))
    if len(axes) > 1 and 1 not in axes and _is_by_line(site, twin):
        line = replace(site.attrs, axes=moved.axes[1:], keepdims=True)
        twin = site.op(site.definition.name, (twin,), line)
        if site.attrs.keepdims:
            moved = replace(moved, axes=moved.axes[:1])
    if site.attrs.keepdims:
        return site.instead((twin,), moved)
    kept = [a for a in to_last(rank) if a not in axes]
    if kept != sorted(kept):
        return None
    return site.block.make(site.definition.op, (twin,), moved)


def _is_by_line(site: _Site, twin: Expr) -> bool:
    """Whether a reduction over an image is one of each line, and one of those.

    Threads share lines, as the kernels around do; so what a thread has written it reads, and owns when it
    is written again. One thread that reads all of it takes 63 us for 112 x 112 x 32, and two threads that
    scale it then 105; 11 and 14 by lines.
    """
    assert isinstance(twin.type, TensorType), "operands of tensor operators are tensors"
    numbers = [d.value for d in twin.type.shape[1:]]
    is_exact = twin.type.dtype.is_float and twin.type.dtype.itemsize >= F32.itemsize
    known = [n for n in numbers if n is not None]
    return (
        site.definition.name in _BY_LINES
        and is_exact
        and len(known) == len(numbers)
        and prod(known) >= _LARGE
    )


def _transpose(site: _Site) -> Expr | None:
    """A transpose of a transpose is one, or nothing."""
    found = site.made_by_transpose(site.call.args[0])
    if found is None or not isinstance(site.attrs, PermAttrs):
        return None
    source, inner = found
    perm = tuple([inner[a] for a in site.attrs.perm])
    if perm == tuple(range(site.rank)):
        return source
    return site.block.make(site.definition.op, (source,), PermAttrs(perm))


def _reshape(site: _Site) -> Expr | None:
    """Channels of an image that are cut into groups, or are one axis again, as when they are shuffled."""
    x, result = site.call.args[0], site.call.type
    assert isinstance(x.type, TensorType), "the operand of a reshape is a tensor"
    assert isinstance(result, TensorType), "a reshape is a tensor"
    before, after = x.type.shape, result.shape
    spatial = min(len(before), len(after)) - 2
    if spatial < 2 or before[0] != after[0] or before[-spatial:] != after[-spatial:]:
        return None
    if len(before) < len(after):
        return _cut_channels(site, after, spatial)
    return _join_channels(site, after, spatial) if len(before) > len(after) else None


def _cut_channels(site: _Site, shape: Sequence[Int], spatial: int) -> Expr | None:
    """`[n, c, *s]` as `[n, *parts, *s]`."""
    twin, parts = site.twin(site.call.args[0]), len(shape) - 1 - spatial
    if twin is None:
        return None
    last = make.shape_const((shape[0], *shape[1 + parts :], *shape[1 : 1 + parts]))
    back = (0, *range(1 + spatial, len(shape)), *range(1, 1 + spatial))
    cut = site.op("reshape", (twin, last), None)
    return site.block.make(site.operators.definition("transpose").op, (cut,), PermAttrs(back))


def _join_channels(site: _Site, shape: Sequence[Int], spatial: int) -> Expr | None:
    """`[n, *parts, *s]` as `[n, c, *s]`, where a part is the last axis in memory."""
    found, parts = site.made_by_transpose(site.call.args[0]), site.rank - 1 - spatial
    if found is None or not 1 <= found[1].index(site.rank - 1) <= parts:
        return None
    source, perm = found
    order = tuple([perm[a] for a in (0, *range(1 + parts, site.rank), *range(1, 1 + parts))])
    if order != tuple(range(site.rank)):
        source = site.op("transpose", (source,), PermAttrs(order))
    last = make.shape_const((shape[0], *shape[2:], shape[1]))
    return site.back(site.op("reshape", (source, last), None))


def _elementwise(site: _Site) -> Expr | None:
    assert isinstance(site.call.type, TensorType)
    rank = len(site.call.type.shape)
    if rank < 3:
        return None
    args = site.call.args
    if not all(isinstance(a.type, TensorType) for a in args):
        return None  # shapes and other control operands say where axes are
    twins = [site.twin(a) if site.rank_of(a) == rank else None for a in args]
    has = sum(t is not None for t in twins)
    costly = sum(t is None and not _is_small(a, rank) for t, a in zip(twins, args, strict=True))
    if has == 0 or costly > has:
        return None
    moved = [_aligned(site, a, rank) if t is None else t for t, a in zip(twins, args, strict=True)]
    return site.instead(moved, site.attrs)


def _is_small(e: Expr, rank: int) -> bool:
    """Whether transposing costs nothing that matters: a constant, or few axes that are not 1."""
    assert isinstance(e.type, TensorType)
    if isinstance(e, Const):
        return True
    return sum(d != 1 for d in e.type.shape) <= 1 and len(e.type.shape) <= rank


def _aligned(site: _Site, e: Expr, rank: int) -> Expr:
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
            e = site.op("reshape", (e, make.shape_const(wide)), None)
    return site.transposed(e, to_last(rank))


_LEAST_CHANNELS = 8
"""Of what is resampled with its channels last."""

_BY_LINES = ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min")
_LARGE = 1 << 14
"""Elements of an image that threads share when it is reduced."""

_WINDOWS = ("conv", "conv_integer", "max_pool", "average_pool")

_REDUCTIONS = tuple(
    (
        "reduce_sum reduce_prod reduce_max reduce_min reduce_any reduce_all reduce_l1 reduce_l2 "
        "reduce_sum_square reduce_log_sum reduce_logsumexp reduce_mean"
    ).split()
)

_RULES: Mapping[str, _Rule] = {
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
    "reshape": _reshape,
    "resize": _resize,
    "slice": _slice,
    "transpose": _transpose,
    **dict.fromkeys(_REDUCTIONS, _reduce),
}

PASS = Pass(
    __name__,
    run,
    "make convolutions and what is between them channels-last",
    requires=(Property.ANF,),
    establishes=(Property.CHANNELS_LAST,),
    options=LayoutOptions,
)
