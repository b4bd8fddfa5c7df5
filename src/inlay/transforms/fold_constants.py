"""Computes now what does not depend on inputs.

* **Tensors.** An operator whose operands are all constants is evaluated, by the evaluator of the pass
  context, if the result is not much larger than the operands or below a limit: packing and
  transposing weights always pays, expanding a scalar to a megabyte does not. What fails is left for
  the program to fail on.
* **Control values** need no evaluation: an operator whose result type carries its value
  (`shape_of(x)` of type `shape[n, 64]`) is that constant, whatever its operands are, and comparisons
  of integers are decided by what is known of their symbols.
* **Checks** that are provable become their operand.
* **Branches** on known conditions, matches on known constructors and projections of known tuples
  become the arm, or the field, that is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from inlay.arith.deferred import DeferredArray
from inlay.arith.expr import Int, lit
from inlay.base.options import option
from inlay.ir import core_ops as core
from inlay.ir import make
from inlay.ir.core_ops import LeastAttrs
from inlay.ir.dims import free_symbols
from inlay.ir.expr import (
    Arm,
    Call,
    Const,
    ConstructorRef,
    Expr,
    Function,
    If,
    Match,
    OpRef,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    Project,
    Tuple,
    Var,
)
from inlay.ir.module import Module
from inlay.ir.op import Effect, Op
from inlay.ir.types import DimParam, FuncType, IntType, ShapeType
from inlay.ir.walk import postorder
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._blocks import BlockWriter, rewrite_module
from inlay.transforms._constants import LIMIT, computed
from inlay.transforms._same import callee_key, operand_key


@dataclass(frozen=True, slots=True)
class FoldOptions:
    """Options of this pass."""

    limit: int = option(LIMIT, help="bytes up to which a constant may be larger than its operands")
    growth: int = option(1 << 26, help="bytes that constants may grow by in all, beyond doubling once")


def run(module: Module, context: PassContext) -> Module:
    """Fold constants, control values, provable checks and known branches. Cost: linear."""
    evaluate = context.evaluate
    options = context.options_for(FoldOptions)
    left = [options.growth + _constant_bytes(module)]
    made: dict[Hashable, Expr] = {}

    def fold(value: Call) -> Expr | None:
        """Return the constant that a call is: the same one for the same call, wherever it stands."""
        if evaluate is None or not all(isinstance(a, Const) for a in value.args):
            return None
        key = callee_key(value.callee), tuple([operand_key(a) for a in value.args]), value.type, value.place
        try:
            found = made.get(key)
        except TypeError:  # attributes that hold an array
            return computed(value, evaluate, options.limit, left)
        if found is None:
            found = computed(value, evaluate, options.limit, left)
            if found is not None:
                made[key] = found
        return found

    def step(block: BlockWriter, value: Expr) -> Expr | None:
        match value:
            case Call(callee=OpRef(op=op)):
                return _control_result(value, op) or _known_relation(block, value, op) or fold(value)
            case If(condition=Const(held=bool() as condition), then=then, otherwise=otherwise):
                return block.splice(then if condition else otherwise)
            case Match():
                return _known_case(block, value)
            case Project(value=inner, index=index):
                made = block.definition(inner)
                return made.fields[index] if isinstance(made, Tuple) else None
            case _:
                return None

    return rewrite_module(module, step)


def _control_result(value: Call, op: Op) -> Expr | None:
    """Return the constant that an operator's result type says it is."""
    if op.effect is not Effect.PURE:
        return None
    match value.type:
        case IntType(value=Int() as known):
            return Const(known, value.type, value.span, value.place)
        case ShapeType(values=values) if None not in values:
            known_values = tuple([v for v in values if v is not None])
            return Const(known_values, value.type, value.span, value.place)
        case _:
            return None


_Decide = Callable[[BlockWriter, Int, Int], bool | None]
_COMPARISONS: dict[Op, _Decide] = {
    core.INT_EQUAL: lambda block, a, b: block.known.facts.equal(a, b),
    core.INT_LESS: lambda block, a, b: block.known.facts.less(a, b),
    core.INT_LESS_EQUAL: lambda block, a, b: block.known.facts.less(a, b + 1),
}

_DECIDABLE = {
    *_COMPARISONS,
    *(core.CHECK_EQUAL, core.CHECK_AT_LEAST, core.CHECK_SHAPE),
    *(core.BOOL_AND, core.BOOL_OR, core.BOOL_NOT),
}


def _known_relation(block: BlockWriter, value: Call, op: Op) -> Expr | None:
    """Return the outcome of a comparison, the operand of a check that holds, a shorter condition."""
    if op not in _DECIDABLE:
        return None
    args = value.args
    ints = [_int_of(a) for a in args]
    facts = block.known.facts
    answer: bool | None = None
    if op in _COMPARISONS and ints[0] is not None and ints[1] is not None:
        answer = _COMPARISONS[op](block, ints[0], ints[1])
    elif op is core.CHECK_EQUAL and ints[1] is not None and ints[2] is not None:
        return args[0] if facts.equal(ints[1], ints[2]) else None
    elif op is core.CHECK_AT_LEAST and ints[1] is not None:
        attrs = value.callee.attrs if isinstance(value.callee, OpRef) else None
        assert isinstance(attrs, LeastAttrs), "check_at_least has a limit"
        return args[0] if facts.at_least(ints[1], lit(attrs.low)) else None
    elif op is core.CHECK_SHAPE:
        return args[0] if args[0].type == value.type else None
    elif op in (core.BOOL_AND, core.BOOL_OR, core.BOOL_NOT):
        return _logic(op, args)
    return None if answer is None else make.bool_const(answer, value.span)


def _logic(op: Op, args: Sequence[Expr]) -> Expr | None:
    known = [a.value if isinstance(a, Const) else None for a in args]
    if op is core.BOOL_NOT:
        return None if known[0] is None else make.bool_const(not known[0])
    absorbing = op is core.BOOL_OR
    for index in range(2):
        if known[index] is not None:
            return args[index] if known[index] is absorbing else args[1 - index]
    return None


def _int_of(atom: Expr) -> Int | None:
    """Return the value of a control integer, which its type carries."""
    return atom.type.value if isinstance(atom.type, IntType) else None


def _constant_bytes(module: Module) -> int:
    arrays = {
        id(e.held): e.held.nbytes
        for f in module.functions.values()
        for e in postorder(f)
        if isinstance(e, Const) and isinstance(e.held, np.ndarray | DeferredArray)
    }
    return sum(arrays.values())


def _known_case(block: BlockWriter, value: Match) -> Expr | None:
    """Return the arm of a match whose scrutinee is known, with its variables replaced."""
    for arm in value.arms:
        bound: dict[Var, Expr] = {}
        answer = _matches(block, arm.pattern, value.scrutinee, bound)
        if answer is None:
            return None
        if answer:
            taken = _as_function(value, arm, tuple(bound))
            return block.inline(taken, tuple(bound.values()))
    return None


def _as_function(value: Match, arm: Arm, params: tuple[Var, ...]) -> Function:
    """Return an arm as a function of its variables, polymorphic in the dims that they open."""
    outer = set(free_symbols(value.scrutinee.type))
    opened = dict.fromkeys(s for p in params for s in free_symbols(p.type) if s not in outer)
    dims = tuple([DimParam(s) for s in opened])
    types = tuple([p.type for p in params])
    return Function(params, arm.body, FuncType(types, arm.body.type, dims), value.span)


def _matches(block: BlockWriter, pattern: Pattern, atom: Expr, bound: dict[Var, Expr]) -> bool | None:
    """Whether a pattern matches an atom; None where that is not known. Collects its variables."""
    match pattern:
        case PatternWildcard():
            return True
        case PatternVar(var=var):
            bound[var] = atom
            return True
        case PatternTuple(fields=fields):
            made = block.definition(atom)
            if not isinstance(made, Tuple):
                return None
            return _all_match(block, fields, made.fields, bound)
        case PatternConstructor(tag=tag, fields=fields):
            made = block.definition(atom)
            match made:
                case Call(callee=ConstructorRef(tag=found), args=args):
                    return _all_match(block, fields, args, bound) if found == tag else False
                case ConstructorRef(tag=found) if not fields:
                    return found == tag
                case _:
                    return None


def _all_match(
    block: BlockWriter, patterns: Sequence[Pattern], atoms: Sequence[Expr], bound: dict[Var, Expr]
) -> bool | None:
    answer: bool | None = True
    for pattern, atom in zip(patterns, atoms, strict=True):
        one = _matches(block, pattern, atom, bound)
        if one is False:
            return False
        answer = None if one is None else answer
    return answer


PASS = Pass(
    __name__,
    run,
    "compute what does not depend on inputs, and take branches that are known",
    requires=(Property.ANF,),
    options=FoldOptions,
)
