"""Operators that move elements: what moves nothing goes away, what follows each other is combined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from inlay.arith.expr import Int, lit
from inlay.ir import make
from inlay.ir.expr import Call, Const, Expr, OpRef
from inlay.ir.types import IntType, TensorType
from inlay.ops.convolution import ConvAttrs
from inlay.ops.indexing import GatherAttrs
from inlay.ops.layout import PermAttrs
from inlay.ops.padding import PadAttrs, PadMode
from inlay.ops.reduction import ReduceAttrs
from inlay.transforms._rules.site import Rule, Site, attrs_of, is_exactly, rank


def _unchanged(site: Site) -> Expr | None:
    """A result with the very type of the operand, where the elements cannot be others."""
    return site.args[0] if site.args[0].type == site.call.type else None


# --------------------------------------------------------------------------- reshape


def _reshape_of_reshape(site: Site) -> Expr | None:
    inner = site.producer(site.args[0], "reshape")
    return None if inner is None else site.make("reshape", (inner.args[0], site.args[1]))


def _reshape_of_reduction(site: Site) -> Expr | None:
    """A reduction that is given back its axes, each of length 1, may as well keep them."""
    made = site.block.definition(site.args[0])
    if not isinstance(made, Call) or not isinstance(made.callee, OpRef):
        return None
    name, attrs = made.callee.op.name, made.callee.attrs
    if not isinstance(attrs, ReduceAttrs) or attrs.keepdims:
        return None
    x = made.args[0].type
    if site.only_producer(site.args[0], name) is None or not isinstance(x, TensorType):
        return None
    axes = {a % len(x.shape) for a in attrs.axes}
    kept = tuple([lit(1) if i in axes else d for i, d in enumerate(x.shape)])
    if site.type is None or site.type.shape != kept:
        return None
    return site.make(name, made.args, replace(attrs, keepdims=True))


# --------------------------------------------------------------------------- transpose


def _identity_transpose(site: Site) -> Expr | None:
    """A transpose that keeps the order of all axes longer than 1 moves nothing."""
    x = site.args[0]
    perm = site.attrs(PermAttrs).perm
    if perm == tuple(range(len(perm))):
        return x
    assert isinstance(x.type, TensorType), "a transpose of a tensor"
    assert site.type is not None, "a transpose of a tensor"
    moved = [axis for axis in perm if x.type.shape[axis] != 1]
    if moved != sorted(moved):
        return None
    return site.make("reshape", (x, make.shape_const(site.type.shape, site.call.span)))


def _transpose_of_transpose(site: Site) -> Expr | None:
    inner = site.producer(site.args[0], "transpose")
    if inner is None:
        return None
    before = attrs_of(inner, PermAttrs).perm
    perm = tuple([before[axis] for axis in site.attrs(PermAttrs).perm])
    return site.make("transpose", (inner.args[0],), PermAttrs(perm))


def _transpose_over_reshape(site: Site) -> Expr | None:
    """Two transposes with a reshape between that only splits axes are one transpose.

    The reshape may as well split first; then the transposes meet.
    """
    reshape = site.producer(site.args[0], "reshape")
    inner = None if reshape is None else site.producer(reshape.args[0], "transpose")
    if reshape is None or inner is None:
        return None
    middle, split = reshape.args[0].type, site.args[0].type
    assert isinstance(middle, TensorType), "a reshape of a tensor"
    assert isinstance(split, TensorType), "a reshape of a tensor"
    parts = _split_axes(middle.shape, split.shape)
    if parts is None:
        return None
    before = attrs_of(inner, PermAttrs).perm
    # parts[i] are the axes of the split result that axis i of the middle became.
    source_order = sorted(range(len(before)), key=lambda i: before[i])
    order = [axis for i in source_order for axis in parts[i]]
    shape = [split.shape[axis] for axis in order]
    position = {axis: i for i, axis in enumerate(order)}
    perm = tuple([position[axis] for axis in site.attrs(PermAttrs).perm])
    opened = site.bind("reshape", (inner.args[0], make.shape_const(shape, site.call.span)))
    return site.make("transpose", (opened,), PermAttrs(perm))


def _split_axes(whole: Sequence[Int], split: Sequence[Int]) -> list[list[int]] | None:
    """Return for each axis the axes it was split into; None if axes were merged or cut across."""
    parts: list[list[int]] = []
    at = 0
    for d in whole:
        product, axes = lit(1), list[int]()
        while at < len(split) and (product != d or not axes):
            product = product * split[at]
            axes.append(at)
            at += 1
        if product != d:
            return None
        parts.append(axes)
    while at < len(split) and split[at] == 1 and parts:
        parts[-1].append(at)
        at += 1
    return parts if at == len(split) else None


# --------------------------------------------------------------------------- others


def _whole_slice(site: Site) -> Expr | None:
    """A slice by steps of 1 that keeps every dim keeps every element."""
    return _unchanged(site) if _all_are(site.args[3], 1) else None


def _no_padding(site: Site) -> Expr | None:
    return _unchanged(site) if _all_are(site.args[1], 0) else None


def _all_are(atom: Expr, number: int) -> bool:
    """Whether an atom is a constant shape of this number over and over."""
    if not isinstance(atom, Const) or not isinstance(atom.value, tuple):
        return False
    return all(v == number for v in atom.value)


def _single(site: Site) -> Expr | None:
    """A concatenation of one tensor."""
    first, *others = site.args
    return None if others else first


def _padded_convolution(site: Site) -> Expr | None:
    """Zeros around the input are pads of the convolution."""
    pad = site.only_producer(site.args[0], "pad")
    if pad is None or attrs_of(pad, PadAttrs).mode is not PadMode.CONSTANT:
        return None
    if any(not is_exactly(outside, 0.0) for outside in pad.args[2:]):
        return None
    count, pads = rank(site.args[0]), pad.args[1]
    if not isinstance(pads, Const) or not isinstance(pads.value, tuple):
        return None
    numbers = [p.value for p in pads.value]
    attrs = site.attrs(ConvAttrs)
    first = 2 if site.name == "conv" else 1
    spatial = range(first, first + count - 2)
    added: list[int] = []
    for i, number in enumerate(numbers):
        if number is None or number < 0 or (number and i % count not in spatial):
            return None
        if i % count in spatial:
            added.append(number)
    own = attrs.pads or (0,) * len(added)
    total = tuple([a + b for a, b in zip(own, added, strict=True)])
    return site.make(site.name, (pad.args[0], *site.args[1:]), replace(attrs, pads=total))


def _unbroadcast(site: Site) -> Expr | None:
    """Operators that broadcast need no broadcast operand, unless it makes the result larger."""
    for i, arg in enumerate(site.args):
        inner = site.producer(arg, "broadcast_to")
        if inner is None:
            continue
        args = (*site.args[:i], inner.args[0], *site.args[i + 1 :])
        others = [a.type for j, a in enumerate(site.args) if j != i]
        if site.call.type in others or _same_shape_in(site, others):
            assert isinstance(site.call.callee, OpRef), "sites are calls of operators"
            return site.make(site.name, args, site.call.callee.attrs)
    return None


def _same_shape_in(site: Site, types: Sequence[object]) -> bool:
    """Whether another operand alone has the shape of the result."""
    return site.type is not None and any(
        isinstance(t, TensorType) and t.shape == site.type.shape for t in types
    )


_BROADCASTING = (
    "add", "sub", "mul", "div", "pow", "minimum", "maximum", "select", "equal", "not_equal",
    "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or",
)  # fmt: skip

# --------------------------------------------------------------------------- gather


def _row(site: Site) -> Expr | None:
    """A gather of one row whose number the machine knows is a view, and needs no kernel.

    Not where the tensor is computed for this alone: in one kernel, only the row is.
    """
    x, index = site.args
    attrs = site.attrs(GatherAttrs)
    number = site.producer(index, "to_tensor")
    if attrs.clamp or rank(index) or attrs.axis % rank(x) or number is None:
        return None
    t = number.args[0].type
    if not isinstance(t, IntType) or t.value is None:
        return None
    if not site.block.known.facts.at_least(t.value, lit(0)):
        return None  # it may count from the end
    if site.block.definition(x) is not x and site.scene.uses.get(x, 2) == 1:  # type: ignore[call-overload]
        return None
    return site.make("get_row", (x, number.args[0]))


RULES: dict[str, tuple[Rule, ...]] = {
    "reshape": (_unchanged, _reshape_of_reshape, _reshape_of_reduction),
    "transpose": (_identity_transpose, _transpose_of_transpose, _transpose_over_reshape),
    "broadcast_to": (_unchanged,),
    "slice": (_whole_slice,),
    "gather": (_row,),
    "pad": (_no_padding,),
    "concat": (_single,),
    "conv": (_padded_convolution,),
    "conv_nhwc": (_padded_convolution,),
    **dict.fromkeys(_BROADCASTING, (_unbroadcast,)),
}
