"""What cuts axes into parts or joins parts to axes: of channels, or of rows and columns."""

from __future__ import annotations

from collections.abc import Sequence

from inlay.arith.expr import Int
from inlay.ir import make
from inlay.ir.expr import Expr
from inlay.ir.types import TensorType
from inlay.ops.layout import PermAttrs
from inlay.transforms._axes import split_axes
from inlay.transforms._channels_last.layout_match import LayoutMatch, Rule


def _reshape(matched: LayoutMatch) -> Expr | None:
    x, result = matched.call.args[0], matched.call.type
    assert isinstance(x.type, TensorType), "the operand of a reshape is a tensor"
    assert isinstance(result, TensorType), "a reshape is a tensor"
    before, after = x.type.shape, result.shape
    if len(before) < len(after):
        return _cut(matched, before, after)
    return _join(matched, before, after) if 3 <= len(after) < len(before) else None


def _cut(matched: LayoutMatch, before: Sequence[Int], after: Sequence[Int]) -> Expr | None:
    """`[n, c, *s]` as `[n, *parts of c, *parts of s]`, as where channels are shuffled."""
    twin, parts = matched.twin(matched.call.args[0]), split_axes(before, after)
    if twin is None or parts is None:
        return None
    order = _with_second_last(parts)
    cut = matched.op("reshape", (twin, make.shape_const([after[a] for a in order])), None)
    back = PermAttrs(tuple([order.index(a) for a in range(len(order))]))
    return matched.block.make(matched.operators.definition("transpose").op, (cut,), back)


def _join(matched: LayoutMatch, before: Sequence[Int], after: Sequence[Int]) -> Expr | None:
    """`[n, *parts of c, *parts of s]` as `[n, c, *s]`, where parts of the channels are last in memory."""
    found, parts = matched.made_by_transpose(matched.call.args[0]), split_axes(after, before)
    if found is None or parts is None:
        return None
    source, perm = found
    assert isinstance(source.type, TensorType), "a transpose is of a tensor"
    wide = [axis for axis, size in enumerate(source.type.shape) if size != 1]
    channels = sorted(perm[a] for a in parts[1] if before[a] != 1)
    if not channels or channels != wide[-len(channels) :]:
        return None
    order = tuple([perm[a] for a in _with_second_last(parts)])
    moved = [axis for axis in order if axis in wide]
    if moved != wide:
        source = matched.op("transpose", (source,), PermAttrs(order))
    last = make.shape_const((after[0], *after[2:], after[1]))
    return matched.back(matched.op("reshape", (source, last), None))


def _with_second_last(parts: Sequence[Sequence[int]]) -> list[int]:
    """Return all axes, in the order in which they are where those of the channels are last."""
    first, channels, *spatial = parts
    return [a for part in (first, *spatial, channels) for a in part]


RULES: dict[str, Rule] = {"reshape": _reshape}
