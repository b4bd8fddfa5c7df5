"""Reshapes that cut axes into parts or join parts to axes: of channels, or of rows and columns."""

from __future__ import annotations

from collections.abc import Sequence

from inlay.arith.expr import Int
from inlay.ir import make
from inlay.ir.expr import Expr
from inlay.ir.types import TensorType
from inlay.ops.layout import PermAttrs
from inlay.transforms._axes import split_axes
from inlay.transforms._channels_last.site import Rule, Site


def _reshape(site: Site) -> Expr | None:
    x, result = site.call.args[0], site.call.type
    assert isinstance(x.type, TensorType), "the operand of a reshape is a tensor"
    assert isinstance(result, TensorType), "a reshape is a tensor"
    before, after = x.type.shape, result.shape
    if len(before) < len(after):
        return _cut(site, before, after)
    return _join(site, before, after) if 3 <= len(after) < len(before) else None


def _cut(site: Site, before: Sequence[Int], after: Sequence[Int]) -> Expr | None:
    """`[n, c, *s]` as `[n, *parts of c, *parts of s]`, as where channels are shuffled."""
    twin, parts = site.twin(site.call.args[0]), split_axes(before, after)
    if twin is None or parts is None:
        return None
    order = _with_second_last(parts)
    cut = site.op("reshape", (twin, make.shape_const([after[a] for a in order])), None)
    back = PermAttrs(tuple([order.index(a) for a in range(len(order))]))
    return site.block.make(site.operators.definition("transpose").op, (cut,), back)


def _join(site: Site, before: Sequence[Int], after: Sequence[Int]) -> Expr | None:
    """`[n, *parts of c, *parts of s]` as `[n, c, *s]`, where the last axis in memory is of channels."""
    found, parts = site.made_by_transpose(site.call.args[0]), split_axes(after, before)
    if found is None or parts is None:
        return None
    source, perm = found
    if perm.index(len(perm) - 1) not in parts[1]:
        return None
    order = tuple([perm[a] for a in _with_second_last(parts)])
    assert isinstance(source.type, TensorType), "a transpose is of a tensor"
    moved = [axis for axis in order if source.type.shape[axis] != 1]
    if moved != sorted(moved):
        source = site.op("transpose", (source,), PermAttrs(order))
    last = make.shape_const((after[0], *after[2:], after[1]))
    return site.back(site.op("reshape", (source, last), None))


def _with_second_last(parts: Sequence[Sequence[int]]) -> list[int]:
    """Return all axes, in the order in which they are where those of the channels are last."""
    first, channels, *spatial = parts
    return [a for part in (first, *spatial, channels) for a in part]


RULES: dict[str, Rule] = {"reshape": _reshape}
