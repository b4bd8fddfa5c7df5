"""Whether an operator computes each sample of its result from the same sample of its operands.

A *sample* is what one index of the first axis has. An operator *keeps samples apart* if

    result[i, ...]  depends on  operand[i, ...]  alone, and on i in no other way

for every operand with samples; others may be read anywhere. Then the operator on some of the samples
gives those of its result. The formula of the operator tells it: it is made for a symbolic number of samples,
and every load from a tensor with samples must be at the index of the result's own first axis, which, as the
number itself, must occur nowhere else. So there is no list of operators, and none is believed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from inlay.arith.expr import Int, Sym, symbols, to_int
from inlay.base.graph import postorder
from inlay.ir.expr import Call, Const, Expr, OpRef
from inlay.ir.types import IntType, ShapeType, TensorType
from inlay.loop import te
from inlay.loop.scalar import Index, Load, Reduce
from inlay.loop.te import Tensor
from inlay.loop.walk import scalars_below

Rule = Callable[[Any, Sequence[Any], Any], Any]
"""The formula of an operator: `OpDef.compute`."""


def keeps_samples_apart(call: Call, rule: Rule, count: Sym) -> bool:
    """Whether each sample of a call's result comes from the same sample of its operands.

    Args:
        call: of an operator. Operands and results with samples have `count` as their first dim.
        rule: the formula of the operator.
        count: how many samples there are. No other dim mentions it.

    Cost: linear in the formula.
    """
    assert isinstance(call.callee, OpRef), "operators have formulas"
    operands: list[object] = []
    varying: set[Tensor] = set()
    for a in call.args:
        operand = _operand(a)
        operands.append(operand)
        if isinstance(operand, Tensor) and _has_samples(operand, count):
            varying.add(operand)
    results = _leaves(rule(call.callee.attrs, operands, call.type))
    return all(_has_samples(t, count) and _is_apart(t, varying, count) for t in results)


def _operand(e: Expr) -> object:
    """Return an operand as formulas take it. Values of tensors are not read."""
    match e.type:
        case TensorType(shape=shape, dtype=dtype):
            return te.placeholder(shape, dtype)
        case IntType(value=value):
            return value
        case ShapeType(values=values):
            return values
        case _:
            return e.value if isinstance(e, Const) else None


def _leaves(value: Tensor | tuple[Any, ...]) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else [leaf for part in value for leaf in _leaves(part)]


def _has_samples(t: Tensor, count: Sym) -> bool:
    return bool(t.shape) and t.shape[0] == to_int(count)


def _is_apart(root: Tensor, varying: Collection[Tensor], count: Sym) -> bool:
    """Whether a tensor, and all that it is made of, keeps those of the `varying` ones apart."""
    made = [t for t in postorder([root], lambda t: t.inputs) if t.body is not None]
    depends = set(varying)
    for t in made:  # behind what it reads
        if not depends.isdisjoint(t.inputs):
            depends.add(t)
    return all(_keeps(t, depends, count) for t in made)


def _keeps(t: Tensor, depends: Collection[Tensor], count: Sym) -> bool:
    assert t.body is not None, "formulas have bodies"
    own = t.axes[0] if t in depends or (t.axes and _has_samples(t, count)) else None
    if own is not None and not _has_samples(t, count):
        return False
    with_samples = {x.buffer for x in t.inputs if x in depends or _has_samples(x, count)}
    forbidden = {count} if own is None else {count, own}
    if _meet(t.shape if own is None else t.shape[1:], forbidden):
        return False
    for x in scalars_below(t.body):
        match x:
            case Load(buffer=buffer, indices=indices) if buffer in with_samples:
                if own is None or indices[0] != to_int(own) or _meet(indices[1:], forbidden):
                    return False
            case Load(indices=indices):
                if _meet(indices, forbidden):
                    return False
            case Index(value=value):
                if _meet((value,), forbidden):
                    return False
            case Reduce(axes=axes):
                if _meet(tuple(a.extent for a in axes), forbidden):
                    return False
            case _:
                pass
    return True


def _meet(ints: Sequence[Int], forbidden: Collection[Sym]) -> bool:
    return any(s in forbidden for e in ints for s in symbols(e))
