"""Operators that move elements: what moves nothing goes away, what follows each other is combined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from inlay.arith.expr import Int, lit, product
from inlay.ir import make
from inlay.ir.expr import Call, Const, Expr, OpRef
from inlay.ir.types import IntType, TensorType
from inlay.ops.convolution import ConvAttrs
from inlay.ops.indexing import GatherAttrs
from inlay.ops.layout import PermAttrs
from inlay.ops.padding import PadAttrs, PadMode
from inlay.ops.reduction import OVER_AXES, CumulativeAttrs, ReduceAttrs
from inlay.transforms._axes import split_axes
from inlay.transforms._rules.rule_match import Rule, RuleMatch, attrs_of, is_exactly, rank


def _unchanged(matched: RuleMatch) -> Expr | None:
    """A result with the very type of the operand, where the elements cannot be others."""
    return matched.args[0] if matched.args[0].type == matched.call.type else None


# --------------------------------------------------------------------------- reshape


def _reshape_of_reshape(matched: RuleMatch) -> Expr | None:
    inner = matched.producer(matched.args[0], "reshape")
    return None if inner is None else matched.make("reshape", (inner.args[0], matched.args[1]))


def _reshape_of_reduction(matched: RuleMatch) -> Expr | None:
    """A reduction that is given back its axes, each of length 1, may as well keep them."""
    made = matched.block.definition(matched.args[0])
    if not isinstance(made, Call) or not isinstance(made.callee, OpRef):
        return None
    name, attrs = made.callee.op.name, made.callee.attrs
    if not isinstance(attrs, ReduceAttrs) or attrs.keepdims:
        return None
    x = made.args[0].type
    if matched.only_producer(matched.args[0], name) is None or not isinstance(x, TensorType):
        return None
    axes = {a % len(x.shape) for a in attrs.axes}
    kept = tuple([lit(1) if i in axes else d for i, d in enumerate(x.shape)])
    if matched.type is None or matched.type.shape != kept:
        return None
    return matched.make(name, made.args, replace(attrs, keepdims=True))


def _split_before_transpose(matched: RuleMatch) -> Expr | None:
    """A reshape that splits axes behind a transpose of what was merged splits in front of it.

    Exporters merge the axes of heads and batches to transpose matrices, and split them again.
    """
    transpose = matched.only_producer(matched.args[0], "transpose")
    if transpose is None or matched.producer(transpose.args[0], "reshape") is None or matched.type is None:
        return None
    opened = _split_in_front(matched, transpose, matched.args[0], matched.type)
    return None if opened is None else matched.make("transpose", (opened[0],), PermAttrs(opened[1]))


def _split_in_front(
    matched: RuleMatch, transpose: Call, moved: Expr, split: TensorType
) -> tuple[Expr, tuple[int, ...]] | None:
    """Split axes in front of a transpose as a reshape behind it does.

    Returns:
        What is split, and the transpose of it that gives the same; None where a reshape does more.
    """
    assert isinstance(moved.type, TensorType), "a transpose of a tensor"
    parts = split_axes(moved.type.shape, split.shape)
    if parts is None:
        return None
    before = attrs_of(transpose, PermAttrs).perm
    # parts[i] are the axes of the split result that axis i of the middle became.
    source_order = sorted(range(len(before)), key=lambda i: before[i])
    order = [axis for i in source_order for axis in parts[i]]
    shape = make.shape_const([split.shape[axis] for axis in order], matched.call.span)
    opened = matched.bind("reshape", (transpose.args[0], shape))
    return opened, tuple([order.index(axis) for axis in range(len(order))])


# --------------------------------------------------------------------------- transpose


def _identity_transpose(matched: RuleMatch) -> Expr | None:
    """A transpose that keeps the order of all axes longer than 1 moves nothing."""
    x = matched.args[0]
    perm = matched.attrs(PermAttrs).perm
    if perm == tuple(range(len(perm))):
        return x
    assert isinstance(x.type, TensorType), "a transpose of a tensor"
    assert matched.type is not None, "a transpose of a tensor"
    moved = [axis for axis in perm if x.type.shape[axis] != 1]
    if moved != sorted(moved):
        return None
    return matched.make("reshape", (x, make.shape_const(matched.type.shape, matched.call.span)))


def _transpose_of_transpose(matched: RuleMatch) -> Expr | None:
    inner = matched.producer(matched.args[0], "transpose")
    if inner is None:
        return None
    before = attrs_of(inner, PermAttrs).perm
    perm = tuple([before[axis] for axis in matched.attrs(PermAttrs).perm])
    return matched.make("transpose", (inner.args[0],), PermAttrs(perm))


def _transpose_over_reshape(matched: RuleMatch) -> Expr | None:
    """Two transposes with a reshape between that only splits axes are one transpose.

    The reshape may as well split first; then the transposes meet.
    """
    reshape = matched.producer(matched.args[0], "reshape")
    inner = None if reshape is None else matched.producer(reshape.args[0], "transpose")
    if reshape is None or inner is None:
        return None
    split = matched.args[0].type
    assert isinstance(split, TensorType), "a reshape of a tensor"
    opened = _split_in_front(matched, inner, reshape.args[0], split)
    if opened is None:
        return None
    perm = tuple([opened[1][axis] for axis in matched.attrs(PermAttrs).perm])
    return matched.make("transpose", (opened[0],), PermAttrs(perm))


def _rows_behind_product(matched: RuleMatch) -> Expr | None:
    """`transpose(rows) @ matrix` is `transpose(rows @ matrix)` where rows stay rows.

    Rows that lie one behind the other fill the tiles of a product, and results of products are transposed
    anyway where they are heads: PyTorch puts batches inside of steps in front of attention.
    """
    transpose = matched.producer(matched.args[0], "transpose")
    if transpose is None or rank(matched.args[1]) != 2:
        return None
    perm = attrs_of(transpose, PermAttrs).perm
    if perm[-1] != len(perm) - 1:
        return None
    product = matched.bind("matmul", (transpose.args[0], matched.args[1]))
    return matched.make("transpose", (product,), PermAttrs(perm))


def _transpose_behind_bias(matched: RuleMatch) -> Expr | None:
    """A number for each column is added to a product before its rows are moved."""
    for moved, bias in (matched.args, matched.args[::-1]):
        transpose = matched.only_producer(moved, "transpose")
        if transpose is None or rank(bias) != 1 or moved.type != matched.call.type:
            continue
        perm = attrs_of(transpose, PermAttrs).perm
        if perm[-1] != len(perm) - 1 or matched.only_producer(transpose.args[0], "matmul") is None:
            continue
        total = matched.bind("add", (transpose.args[0], bias))
        return matched.make("transpose", (total,), PermAttrs(perm))
    return None


def _reduction_of_transpose(matched: RuleMatch) -> Expr | None:
    """A reduction takes axes as they lie, and what is left of them is turned.

    That is less; and along axes that lie apart each element would be loaded by itself.
    """
    transpose = matched.only_producer(matched.args[0], "transpose")
    if transpose is None:
        return None
    attrs, perm = matched.attrs(ReduceAttrs), attrs_of(transpose, PermAttrs).perm
    axes = {a % len(perm) for a in attrs.axes}
    kept = [source for axis, source in enumerate(perm) if attrs.keepdims or axis not in axes]
    as_it_lies = replace(attrs, axes=tuple(sorted(perm[a] for a in axes)))
    if kept == sorted(kept):
        return matched.make(matched.name, transpose.args, as_it_lies)
    reduced = matched.bind(matched.name, transpose.args, as_it_lies)
    turned = PermAttrs(tuple(sorted(kept).index(source) for source in kept))
    return matched.make("transpose", (reduced,), turned)


# --------------------------------------------------------------------------- others


def _whole_slice(matched: RuleMatch) -> Expr | None:
    """A slice by steps of 1 that keeps every dim keeps every element."""
    return _unchanged(matched) if _all_are(matched.args[3], 1) else None


def _no_padding(matched: RuleMatch) -> Expr | None:
    return _unchanged(matched) if _all_are(matched.args[1], 0) else None


def _all_are(atom: Expr, number: int) -> bool:
    """Whether an atom is a constant shape of this number over and over."""
    if not isinstance(atom, Const) or not isinstance(atom.value, tuple):
        return False
    return all(v == number for v in atom.value)


def _single(matched: RuleMatch) -> Expr | None:
    """A concatenation of one tensor."""
    first, *others = matched.args
    return None if others else first


def _padded_convolution(matched: RuleMatch) -> Expr | None:
    """Zeros around the input are pads of the convolution."""
    pad = matched.only_producer(matched.args[0], "pad")
    if pad is None or attrs_of(pad, PadAttrs).mode is not PadMode.CONSTANT:
        return None
    if any(not is_exactly(outside, 0.0) for outside in pad.args[2:]):
        return None
    count, pads = rank(matched.args[0]), pad.args[1]
    if not isinstance(pads, Const) or not isinstance(pads.value, tuple):
        return None
    numbers = [p.value for p in pads.value]
    attrs = matched.attrs(ConvAttrs)
    first = 2 if matched.name == "conv" else 1
    spatial = range(first, first + count - 2)
    added: list[int] = []
    for i, number in enumerate(numbers):
        if number is None or number < 0 or (number and i % count not in spatial):
            return None
        if i % count in spatial:
            added.append(number)
    own = attrs.pads or (0,) * len(added)
    total = tuple([a + b for a, b in zip(own, added, strict=True)])
    return matched.make(matched.name, (pad.args[0], *matched.args[1:]), replace(attrs, pads=total))


def _tiles_as_broadcast(matched: RuleMatch) -> Expr | None:
    """Copies side by side are a broadcast along an axis in front of the one that is copied."""
    source, times, result = matched.args[0].type, matched.args[1], matched.type
    if not isinstance(source, TensorType) or result is None or not isinstance(times, Const):
        return None
    if not isinstance(times.value, tuple) or len(times.value) != len(source.shape):
        return None
    opened: list[Int] = []
    wide: list[Int] = []
    for d, n in zip(source.shape, times.value, strict=True):
        if d != 1 and n != 1:
            opened, wide = [*opened, lit(1)], [*wide, n]
        opened.append(d)
        wide.append(n if d == 1 else d)
    span = matched.call.span
    one = matched.bind("reshape", (matched.args[0], make.shape_const(opened, span)))
    copies = matched.bind("broadcast_to", (one, make.shape_const(wide, span)))
    return matched.make("reshape", (copies, make.shape_const(result.shape, span)))


def _unbroadcast(matched: RuleMatch) -> Expr | None:
    """Operators that broadcast need no broadcast operand, unless it makes the result larger."""
    for i, arg in enumerate(matched.args):
        inner = matched.producer(arg, "broadcast_to")
        if inner is None:
            continue
        args = (*matched.args[:i], inner.args[0], *matched.args[i + 1 :])
        others = [a.type for j, a in enumerate(matched.args) if j != i]
        if matched.call.type in others or _same_shape_in(matched, others):
            assert isinstance(matched.call.callee, OpRef), "matches are calls of operators"
            return matched.make(matched.name, args, matched.call.callee.attrs)
    return None


def _same_shape_in(matched: RuleMatch, types: Sequence[object]) -> bool:
    """Whether another operand alone has the shape of the result."""
    return matched.type is not None and any(
        isinstance(t, TensorType) and t.shape == matched.type.shape for t in types
    )


BROADCASTING = tuple(
    (
        "add sub mul div pow minimum maximum select equal not_equal less less_equal greater greater_equal "
        "logical_and logical_or"
    ).split()
)

# --------------------------------------------------------------------------- running totals


def _totals_of_lines(matched: RuleMatch) -> Expr | None:
    """Axes behind that of a running total are one: its kernel takes neighboring lines together."""
    x, attrs = matched.args[0], matched.attrs(CumulativeAttrs)
    if matched.type is None or not isinstance(x.type, TensorType):
        return None
    shape = x.type.shape
    axis = attrs.axis % len(shape)
    if len(shape) - axis < 3:
        return None
    span = matched.call.span
    flat = make.shape_const((*shape[: axis + 1], product(shape[axis + 1 :])), span)
    lines = matched.bind("reshape", (x, flat))
    totals = matched.bind(matched.name, (lines,), replace(attrs, axis=axis))
    return matched.make("reshape", (totals, make.shape_const(shape, span)))


# --------------------------------------------------------------------------- gather


def _row(matched: RuleMatch) -> Expr | None:
    """A gather of one row whose number the machine knows is a view, and needs no kernel.

    Not where the tensor is computed for this alone: in one kernel, only the row is.
    """
    x, index = matched.args
    attrs = matched.attrs(GatherAttrs)
    number = matched.producer(index, "to_tensor")
    if attrs.clamp or rank(index) or attrs.axis % rank(x) or number is None:
        return None
    t = number.args[0].type
    if not isinstance(t, IntType) or t.value is None:
        return None
    if not matched.block.known.facts.at_least(t.value, lit(0)):
        return None  # it may count from the end
    if matched.block.definition(x) is not x and matched.context.uses.get(x, 2) == 1:  # type: ignore[call-overload]
        return None
    return matched.make("get_row", (x, number.args[0]))


RULES: dict[str, tuple[Rule, ...]] = {
    "reshape": (_unchanged, _reshape_of_reshape, _reshape_of_reduction, _split_before_transpose),
    "transpose": (_identity_transpose, _transpose_of_transpose, _transpose_over_reshape),
    "broadcast_to": (_unchanged,),
    "tile": (_unchanged, _tiles_as_broadcast),
    "slice": (_whole_slice,),
    "gather": (_row,),
    "pad": (_no_padding,),
    "cumsum": (_totals_of_lines,),
    "cumprod": (_totals_of_lines,),
    "concat": (_single,),
    "conv": (_padded_convolution,),
    "conv_nhwc": (_padded_convolution,),
    **dict.fromkeys(BROADCASTING, (_unbroadcast,)),
    **dict.fromkeys(OVER_AXES, (_reduction_of_transpose,)),
    "add": (_unbroadcast, _transpose_behind_bias),
    "matmul": (_rows_behind_product,),
}
