"""Primitive functions of the tensor IR to loop functions, through the rules of their operators.

A primitive function is a group of operations that becomes one kernel. Its body is a chain of lets,
calls of operators, tuples and projections; values are kept as the rules want them: a tensor is a
`te.Tensor`, an `int` or a `shape` its `Int`s, read off the type.

* If every operator has a compute rule, the whole group becomes tensor expressions, and `from_te`
  makes a schedulable function of them.
* An operator with a `loops` rule stands alone in its group, and the rule's statement is the body of
  a function that is lowered already.

Parameters of the loop function are the tensor parameters in order, then the results. `dims` are the
symbols that the code mentions; a control parameter without a tensor contributes its value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from inlay.arith.dtype import BOOL, from_numpy
from inlay.arith.expr import Int, Sym
from inlay.base.diagnostics import InternalError, unsupported
from inlay.ir.expr import Call, Const, Expr, Function, Let, OpRef, Project, Tuple, Var
from inlay.ir.op import Op
from inlay.ir.types import IntType, ShapeType, TensorType, TupleType, Type
from inlay.loop import te
from inlay.loop.buffer import Buffer
from inlay.loop.from_te import free_symbols, from_te
from inlay.loop.func import LoopFunction, Stage
from inlay.loop.scalar import Lit
from inlay.loop.stmt import Stmt
from inlay.loop.te_batch import batch as batch_te
from inlay.lower.lower_binds import lower_binds


class Definition(Protocol):
    """What is asked of the record of an operator; `ops._define.OpDef` is one."""

    @property
    def compute(self) -> Callable[[Any, Sequence[Any], Any], Any] | None:
        """`(attrs, operands, result type)` to a tensor or a tuple of tensors."""
        ...

    @property
    def loops(self) -> Callable[[Any, Sequence[Any], Sequence[Buffer]], Stmt] | None:
        """`(attrs, operands, outputs)` to a lowered statement."""
        ...

    @property
    def update(self) -> Callable[[Any, Sequence[Any], Sequence[Buffer]], Stmt] | None:
        """The same where the output holds operand 0 already."""
        ...


Find = Callable[[Op], Definition]
"""Finds the record of an operator: `ops.table.table().definition`."""

_Value = te.Tensor | Int | bool | tuple[Any, ...]
"""A tensor, an int, a bool, a shape (tuple of `Int`) or a tuple of values."""


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """Many samples at once: see `loop.te_batch`.

    Attributes:
        count: how many there are.
        shared: positions of the tensor parameters that all samples share.
    """

    count: Sym
    shared: frozenset[int]


def updated_param(function: Function, find: Find) -> int | None:
    """Return the position of the tensor parameter that a primitive function updates, if it does.

    Its only operator then has an `update` rule, and nothing else reads the operand that is updated.
    """
    alone = _single_call(function)
    if alone is None or find(alone[0].op).update is None:
        return None
    _, (first, *others), result = alone
    tensors = [p for p in function.params if isinstance(p.type, TensorType)]
    if first not in tensors or first in others or first.type != result:
        return None
    return tensors.index(first)


def ops_to_loops(
    function: Function,
    find: Find,
    name: str | None = None,
    batch: SampleBatch | None = None,
    *,
    in_place: bool = False,
) -> LoopFunction:
    """Return the loop function of a primitive function.

    Args:
        function: typed; constants that are large are parameters.
        find: gives the record of an operator.
        name: a C identifier; None = made of `function.primitive`.
        batch: makes it work on many samples, each the size of what the function takes.
        in_place: whether the result of a function with an `updated_param` is given the buffer of
            that parameter, so that only what differs is written.

    Raises:
        UnsupportedError: `loop.no-rule`: an operator has no rule, cannot be in a group, or cannot
            be batched.
    """
    name = identifier(name or function.primitive or "kernel")
    alone = _single_call(function)
    if alone is not None:
        definition = find(alone[0].op)
        is_update = in_place and batch is None and updated_param(function, find) is not None
        if is_update and definition.update is not None:
            return _opaque(function, *alone, definition.update, name)
        if definition.compute is None and definition.loops is not None and batch is None:
            return _opaque(function, *alone, definition.loops, name)
    evaluator = _Evaluator(find)
    inputs: list[te.Tensor] = []
    for p in function.params:
        operand = _parameter(p)
        evaluator.values[p] = operand
        if isinstance(operand, te.Tensor):
            inputs.append(operand)
    outputs = _distinct(_leaves(evaluator.run(function.body)), inputs)
    if batch is None:
        return from_te(name, inputs, outputs)
    return from_te(name, *batch_te(inputs, outputs, batch.shared, batch.count))


def identifier(text: str) -> str:
    """Return a C identifier that resembles a text."""
    made = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in text)
    return made if made and not made[0].isdigit() else f"k_{made}"


def _parameter(p: Var) -> _Value:
    if isinstance(p.type, TensorType):
        return te.placeholder(p.type.shape, p.type.dtype, identifier(p.name))
    return _control(p.type, p.name)


def _control(t: Type, what: str) -> _Value:
    match t:
        case IntType(value=value) if value is not None:
            return value
        case ShapeType(values=values) if all(v is not None for v in values):
            return tuple(v for v in values if v is not None)
        case _:
            raise unsupported(
                "loop.no-rule", f"found {what} of a type that no kernel takes: {type(t).__name__}"
            )


class _Evaluator:
    """Runs compute rules along a body; lets are walked with a loop."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self.values: dict[Var, _Value] = {}

    def run(self, e: Expr) -> _Value:
        while isinstance(e, Let):
            self.values[e.var] = self._value(e.value)
            e = e.body
        return self._value(e)

    def _value(self, e: Expr) -> _Value:
        match e:
            case Var():
                return self.values[e]
            case Call(callee=OpRef(op=op, attrs=attrs), args=args):
                rule = self._find(op).compute
                if rule is None:
                    raise _no_rule(op)
                operands = [self._value(a) for a in args]
                return rule(attrs, operands, e.type)
            case Tuple(fields=fields):
                return tuple(self._value(f) for f in fields)
            case Project(value=value, index=index):
                inner = self._value(value)
                assert isinstance(inner, tuple), "a projection is of a tuple"
                return inner[index]
            case Const():
                return _constant(e)
            case Let():
                return self.run(e)
            case _:
                raise InternalError(
                    f"found a {type(e).__name__.lower()} in a primitive function", where="lower.ops_to_loops"
                )


def _constant(e: Const) -> _Value:
    if not isinstance(e.value, np.ndarray):
        return e.value
    array = e.value
    if array.size != 1:
        raise InternalError(
            f"found a constant of shape {array.shape} in a primitive function, needed a parameter",
            where="lower.ops_to_loops",
        )
    dtype = from_numpy(array.dtype)
    number = array.reshape(-1)[0].item() if dtype.name != "bf16" else float(array.reshape(-1)[0])
    literal = Lit(bool(number) if dtype == BOOL else number, dtype)
    return te.compute(array.shape, lambda *_: te.ScalarValue(literal), name="constant")


def _no_rule(op: Op) -> Exception:
    return unsupported(
        "loop.no-rule",
        f"found operator {op.name} without a compute rule inside a group",
        hint="decompose it, or keep it in a group of its own",
    )


def _leaves(value: _Value) -> list[te.Tensor]:
    if isinstance(value, te.Tensor):
        return [value]
    assert isinstance(value, tuple), "a kernel gives tensors"
    return [leaf for part in value for leaf in _leaves(part)]


def _distinct(outputs: list[te.Tensor], inputs: list[te.Tensor]) -> list[te.Tensor]:
    """Copy what is an input, or an output a second time: each result has bytes of its own."""
    seen = set(inputs)
    result: list[te.Tensor] = []
    for t in outputs:
        if t in seen:
            t = _copy(t)
        seen.add(t)
        result.append(t)
    return result


def _copy(t: te.Tensor) -> te.Tensor:
    return te.compute(t.shape, lambda *i: t[i], name=t.buffer.name)


# --------------------------------------------------------------------------- loops rules


def _single_call(function: Function) -> tuple[OpRef, Sequence[Expr], Type] | None:
    """Return the only call of a function, when it has no other."""
    body = function.body
    if isinstance(body, Let) and body.body is body.var:
        body = body.value
    if isinstance(body, Call) and isinstance(body.callee, OpRef):
        return body.callee, body.args, body.type
    return None


def _opaque(
    function: Function,
    callee: OpRef,
    args: Sequence[Expr],
    result: Type,
    rule: Callable[[Any, Sequence[Any], Sequence[Buffer]], Stmt],
    name: str,
) -> LoopFunction:
    reads: dict[Var, Buffer] = {}
    for p in function.params:
        if isinstance(p.type, TensorType):
            reads[p] = Buffer(identifier(p.name), p.type.shape, p.type.dtype)
    operands: list[object] = []
    for a in args:
        if isinstance(a, Var) and a in reads:
            operands.append(reads[a])
        elif isinstance(a, Const) and not isinstance(a.value, np.ndarray):
            operands.append(a.value)
        else:
            operands.append(_control(a.type, "an operand"))
    taken = {b.name for b in reads.values()}
    writes: list[Buffer] = []
    for i, t in enumerate(result.fields if isinstance(result, TupleType) else (result,)):
        if not isinstance(t, TensorType):
            raise unsupported(
                "loop.no-rule", f"found operator {callee.op.name} with a result of unknown size"
            )
        out = f"y{i}"
        while out in taken:
            out += "_"
        writes.append(Buffer(out, t.shape, t.dtype))
    body = lower_binds(rule(callee.attrs, operands, writes))
    params = (*reads.values(), *writes)
    dims = tuple(free_symbols(params, body))
    return LoopFunction(name, params, len(reads), dims, body, Stage.LOWERED)
