"""How long a group of operators takes, roughly: a roofline over dims.

The estimate decides whether a kernel is worth sharing between threads, so what matters is the order
of magnitude around ten microseconds. Time is work divided by speed plus bytes divided by bandwidth,
with the figures of one core of a present-day server:

* a multiply-add of a contraction: 1/40 ns;
* an element of cheap element-wise work or of a reduction: 1/8 ns, of a transcendental function: 1 ns;
* a byte of an operand or result: 1/12 ns.

The result is an integer over the dims of the group, so it can be evaluated when sizes are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inlay.arith.expr import Int, floordiv, lit, product
from inlay.ir.expr import Call, Expr, Function, OpRef
from inlay.ir.types import TensorType, TupleType, Type
from inlay.ir.walk import postorder
from inlay.ops._define import Cost, FusionPattern, OpDef
from inlay.ops.table import OperatorTable

_MACS_PER_NS = 40
_CHEAP_PER_NS = 8
_BYTES_PER_NS = 12


def predicted_ns(function: Function, operators: OperatorTable) -> Int:
    """Return the predicted time of a primitive function on one core, in nanoseconds."""
    macs, cheap, transcendental = lit(0), lit(0), lit(0)
    for e in postorder(function.body):
        if not isinstance(e, Call) or not isinstance(e.callee, OpRef):
            continue
        definition = operators.definition(e.callee.op)
        size = _elements(e.type)
        if definition.update is not None:  # only what the last operands say is touched
            part = sum((_elements(a.type) for a in e.args[1:]), lit(0))
            return floordiv(part, lit(_CHEAP_PER_NS)) + 1
        if definition.pattern is FusionPattern.CONTRACTION:
            macs = macs + size * _terms(e, definition)
        elif definition.cost is Cost.FUNCTION:
            transcendental = transcendental + size
        else:
            cheap = cheap + _touched(size, e.args)
    moved = _bytes([p.type for p in function.params]) + _bytes([function.body.type])
    time = floordiv(macs, lit(_MACS_PER_NS)) + floordiv(cheap, lit(_CHEAP_PER_NS)) + transcendental
    return time + floordiv(moved, lit(_BYTES_PER_NS)) + 1


@dataclass(frozen=True, slots=True)
class Work:
    """What one call of an operator does, over dims.

    Attributes:
        macs: multiply-adds of contractions.
        cheap: elements of element-wise work.
        transcendental: elements of functions that are not one instruction.
    """

    macs: Int
    cheap: Int
    transcendental: Int


def work_of(call: Call, operators: OperatorTable) -> Work:
    """Return the work of a call of an operator; else of a look at each element."""
    size, none = _elements(call.type), lit(0)
    if not isinstance(call.callee, OpRef):
        return Work(none, size, none)
    definition = operators.definition(call.callee.op)
    if definition.pattern is FusionPattern.CONTRACTION:
        return Work(size * _terms(call, definition), none, none)
    if definition.cost is Cost.FUNCTION:
        return Work(none, none, size)
    return Work(none, _touched(size, call.args), none)


def bytes_of(t: Type) -> Int:
    """Return the bytes of the tensors in a value."""
    return _bytes([t])


def _touched(size: Int, args: Sequence[Expr]) -> Int:
    """Return how many elements are touched: of the result, or of the operand that is reduced."""
    if not args:
        return size
    operand = _elements(args[0].type)
    return operand if _surely_larger(operand, size) else size


def _surely_larger(a: Int, b: Int) -> bool:
    """Whether no coefficient of `a - b` is negative; dims are not negative."""
    return all(c >= 0 for _, c in (a - b).terms)


def _terms(call: Call, definition: OpDef) -> Int:
    """Return how many products are summed for one element of a contraction."""
    types = [a.type for a in call.args if isinstance(a.type, TensorType)]
    assert isinstance(call.callee, OpRef), "contractions are operators"
    if definition.terms is None or len(types) < 2:
        return lit(1)
    return definition.terms(call.callee.attrs, types[0], types[1])


def _elements(t: Type) -> Int:
    match t:
        case TensorType(shape=shape):
            return product(shape)
        case TupleType(fields=fields):
            total = lit(0)
            for f in fields:
                total = total + _elements(f)
            return total
        case _:
            return lit(0)


def _bytes(types: Sequence[Type]) -> Int:
    total = lit(0)
    for t in types:
        match t:
            case TensorType(shape=shape, dtype=dtype):
                total = total + product(shape) * dtype.itemsize
            case TupleType(fields=fields):
                total = total + _bytes(fields)
            case _:
                pass
    return total
