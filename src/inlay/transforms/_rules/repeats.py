"""Products with a factor that is repeated along an axis of matrices: it is broadcast, and not copied.

    k5 = broadcast_to(k1, [b, g, r, n, d]); k = reshape(k5, [b, g * r, n, d]); s = matmul(q, transpose(k))
    ->
    q5 = reshape(q, [b, g, r, m, d]); s5 = matmul(q5, transpose(k1)); s = reshape(s5, [b, g * r, m, n])

Decoders whose heads share keys are exported with copies of the keys for each head. The product with heads
in two axes, groups and heads of a group, has the same bits and reads each key where it is. What is between
the product of scores and that of values then works on scores in that shape too: a reshape in front of the
second product undoes the one behind the first, over work on elements and along rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inlay.arith.expr import Int, lit
from inlay.ir import make
from inlay.ir.expr import Call, Expr, OpRef
from inlay.ir.types import TensorType
from inlay.ops.layout import PermAttrs
from inlay.ops.normalization import AxisAttrs
from inlay.transforms._rules.layout import BROADCASTING
from inlay.transforms._rules.rule_match import Rule, RuleMatch, attrs_of

MOST = 8
"""Operations between two reshapes that undo each other, one behind the other, at most."""

_OF_ELEMENTS = (*BROADCASTING, "cast", "clip", "neg", "tanh")
"""What is done to scores, element by element."""

Shape = tuple[Int, ...]


@dataclass(frozen=True, slots=True)
class _Repeat:
    """A tensor whose matrices are repeated.

    Attributes:
        source: the tensor with each matrix once, and an axis of 1 where they are repeated.
        axis: the axis of the repeated tensor that two axes of the source are.
        split: the lengths of these two, the repeats counted.
    """

    source: Expr
    axis: int
    split: tuple[Int, Int]


def _repeat(matched: RuleMatch, atom: Expr) -> _Repeat | None:
    """Return what an atom repeats, if it does."""
    merged = matched.producer(atom, "reshape")
    copied = None if merged is None else matched.producer(merged.args[0], "broadcast_to")
    if merged is None or copied is None:
        return None
    types = (atom.type, copied.type, copied.args[0].type)
    whole, wide, source = (t.shape if isinstance(t, TensorType) else () for t in types)
    if len(source) != len(wide) or len(wide) != len(whole) + 1:
        return None
    for axis in range(len(whole) - 2):
        split = wide[axis], wide[axis + 1]
        if whole != (*wide[:axis], split[0] * split[1], *wide[axis + 2 :]):
            continue
        once = ((lit(1), split[1]), (split[0], lit(1)))
        if any(source == (*wide[:axis], *pair, *wide[axis + 2 :]) for pair in once):
            return _Repeat(copied.args[0], axis, split)
    return None


def _with_repeated_factor(matched: RuleMatch) -> Expr | None:
    """`a @ repeat(b)` with a in as many groups as b has matrices."""
    left, right = matched.args
    transpose = matched.only_producer(right, "transpose")
    found = _repeat(matched, right if transpose is None else transpose.args[0])
    if found is None or not isinstance(left.type, TensorType) or matched.type is None:
        return None
    axis, shape, source = found.axis, left.type.shape, found.source
    if len(shape) != len(matched.type.shape) or shape[axis] != matched.type.shape[axis]:
        return None
    if transpose is not None:
        perm = attrs_of(transpose, PermAttrs).perm
        if perm[:-2] != tuple(range(len(perm) - 2)):
            return None
        moved = (*range(axis + 1), *(p + 1 for p in perm[axis:]))
        source = matched.bind("transpose", (source,), PermAttrs(moved))
    opened = _reshaped(matched, left, _split(shape, found))
    product = matched.bind("matmul", (opened, source))
    return matched.make("reshape", (product, make.shape_const(matched.type.shape, matched.call.span)))


def _split(shape: Shape, repeat: _Repeat) -> Shape:
    """Return a shape with groups and the repeats of a group."""
    return (*shape[: repeat.axis], *repeat.split, *shape[repeat.axis + 1 :])


def _reshaped(matched: RuleMatch, atom: Expr, shape: Sequence[Int]) -> Expr:
    return matched.bind("reshape", (atom, make.shape_const(tuple(shape), matched.call.span)))


# --------------------------------------------------------------------------- reshapes that undo each other


def _over_scores(matched: RuleMatch) -> Expr | None:
    """A reshape that splits an axis again which another one made, over what is between."""
    source, result = matched.args[0].type, matched.type
    if not isinstance(source, TensorType) or result is None or len(result.shape) != len(source.shape) + 1:
        return None
    whole, split = source.shape, result.shape
    axis = next((i for i, (a, b) in enumerate(zip(whole, split, strict=False)) if a != b), len(whole))
    if axis >= len(whole) - 2 or whole != (*split[:axis], split[axis] * split[axis + 1], *split[axis + 2 :]):
        return None
    return _Splitting(matched, axis, whole, split).apply(matched.args[0])


@dataclass(frozen=True, slots=True)
class _Splitting:
    """An axis that is split.

    Attributes:
        matched: the reshape.
        axis: it.
        whole: the shape of what is split, which that of all between is.
        split: the shape that comes out.
    """

    matched: RuleMatch
    axis: int
    whole: Shape
    split: Shape

    def apply(self, atom: Expr) -> Expr | None:
        """Return a value with its axis split, if this undoes a reshape; None otherwise."""
        return self._made(atom) if self._undoes(atom, MOST) else None

    def _undoes(self, atom: Expr, steps: int) -> bool:
        """Whether an atom was merged to, or is work on what was."""
        if self._before(atom) is not None:
            return steps < MOST  # next to each other they are one reshape
        call = self._between(atom)
        return call is not None and steps > 0 and any(self._undoes(a, steps - 1) for a in call.args)

    def _before(self, atom: Expr) -> Expr | None:
        """Return what is merged to an atom, if it is."""
        merged = self.matched.only_producer(atom, "reshape")
        t = None if merged is None else merged.args[0].type
        return merged.args[0] if merged is not None and _has_shape(t, self.split) else None

    def _between(self, atom: Expr) -> Call | None:
        """Return the call behind an atom if it is work on elements or along last axes, read once."""
        call = self.matched.block.definition(atom)
        if not isinstance(call, Call) or not isinstance(call.callee, OpRef):
            return None
        op = call.callee.op
        if not _has_shape(call.type, self.whole) or self.matched.only_producer(atom, op.name) is None:
            return None
        if op.name == "softmax":
            axis = attrs_of(call, AxisAttrs).axis % len(self.whole)
            return call if axis > self.axis else None
        return call if op.name in _OF_ELEMENTS else None

    def _made(self, atom: Expr) -> Expr:
        """Return an atom of the value with its axis split."""
        before, call = self._before(atom), self._between(atom)
        if before is not None:
            return before
        if call is None or not any(self._undoes(a, MOST - 1) for a in call.args):
            return self._opened(atom)
        assert isinstance(call.callee, OpRef), "an operator is between"
        attrs = call.callee.attrs
        if call.callee.op.name == "softmax":
            attrs = AxisAttrs(attrs_of(call, AxisAttrs).axis % len(self.whole) + 1)
        return self.matched.bind(call.callee.op.name, [self._made(a) for a in call.args], attrs)

    def _opened(self, atom: Expr) -> Expr:
        """Return an operand from outside: with its axis split, or as it is where it does not reach so far."""
        assert isinstance(atom.type, TensorType), "operands of work on elements are tensors"
        shape = atom.type.shape
        at = self.axis - (len(self.whole) - len(shape))
        if at < 0:
            return atom
        parts = (lit(1), lit(1)) if shape[at] == 1 else self.split[self.axis : self.axis + 2]
        return _reshaped(self.matched, atom, (*shape[:at], *parts, *shape[at + 1 :]))


def _has_shape(t: object, shape: Shape) -> bool:
    return isinstance(t, TensorType) and t.shape == shape


RULES: dict[str, tuple[Rule, ...]] = {"matmul": (_with_repeated_factor,), "reshape": (_over_scores,)}
