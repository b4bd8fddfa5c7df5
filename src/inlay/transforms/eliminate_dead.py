"""Removes what nobody can miss: unused lets, functions, kernels and data types.

A let stays if its variable is read by something that stays, if a dim that it names (the `k` of a value
of type `some k. T`) is mentioned by something that stays, or if its value may write, fail or call
something unknown. One backward walk over each spine finds out: by the time a let is reached,
everything that could read its variable has been seen. A call that may not return is no reason to
keep it.

Functions and kernels stay if the entries reach them, data types if a type, pattern or constructor
that stays mentions them. A module whose entry it does not define (a library) keeps its functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeVar

from inlay.analysis.blocks import binders, nested, operands, relet, values, with_blocks
from inlay.analysis.call_graph import mentioned_globals
from inlay.analysis.effects import EffectTable, effect_table
from inlay.arith.expr import Sym
from inlay.ir.dims import free_symbols
from inlay.ir.existentials import opened_dims
from inlay.ir.expr import (
    ConstructorRef,
    Expr,
    Function,
    Let,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    Var,
)
from inlay.ir.module import Adt, Module
from inlay.ir.types import AdtType, DimParam, ExistsType, FuncType, RefType, TupleType, Type
from inlay.ir.walk import spine
from inlay.passes.contract import Pass, PassContext, Property

T = TypeVar("T")


def run(module: Module, context: PassContext) -> Module:
    """Remove unused lets, functions, kernels and data types. Cost: linear."""
    del context
    reached = _reached(module)
    functions = {n: f for n, f in module.functions.items() if n in reached}
    smaller = replace(module, functions=MappingProxyType(functions))
    table = effect_table(smaller)
    trimmed = {name: _trim(function, table) for name, function in functions.items()}
    # Trimming may have removed the last mention of a function.
    smaller = replace(smaller, functions=MappingProxyType(trimmed))
    reached = _reached(smaller)
    return replace(
        smaller,
        functions=_only(trimmed, reached),
        kernels=_only(module.kernels, reached),
        adts=_only(module.adts, _mentioned_adts(smaller, reached)),
    )


def _only(table: Mapping[str, T], names: set[str]) -> Mapping[str, T]:
    return MappingProxyType({name: thing for name, thing in table.items() if name in names})


def _reached(module: Module) -> set[str]:
    roots = [name for name in (module.entry, *module.entries) if name in module.functions]
    if not roots:
        return {*module.functions, *module.kernels}
    found: set[str] = set()
    pending = list(roots)
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found.add(name)
        if name in module.functions:
            pending.extend(mentioned_globals(module.functions[name]))
    return found


def _trim(function: Function, table: EffectTable) -> Function:
    opens = any(_opened(let) for let in _lets(function.body))
    state = _Trimming(table, set(), set() if opens else None, set())
    body = _trim_block(function.body, state)
    return function if body is function.body else replace(function, body=body)


@dataclass(frozen=True, slots=True)
class _Trimming:
    """What the backward walk over one function knows.

    Attributes:
        table: effects of calls.
        live: variables that are read by what was kept so far.
        dims: symbols that what was kept so far mentions; None where no let names any.
        types: whose symbols were added.
    """

    table: EffectTable
    live: set[Var]
    dims: set[Sym] | None
    types: set[Type]

    def is_live(self, let: Let) -> bool:
        """Whether what a let binds is needed by what was kept."""
        if let.var in self.live:
            return True
        return self.dims is not None and any(d.sym in self.dims for d in _opened(let))

    def mention(self, *nodes: Expr) -> None:
        """Note that nodes are kept, whose types and constants mention symbols."""
        if self.dims is None:
            return
        for node in nodes:
            if node.type not in self.types:
                self.types.add(node.type)
                self.dims.update(free_symbols(node.type))


def _opened(let: Let) -> tuple[DimParam, ...]:
    """Return the symbols that a let names."""
    return () if let.var.type is let.value.type else opened_dims(let.value.type, let.var.type)


def _lets(block: Expr) -> Iterator[Let]:
    """Yield every let under a block, nested ones included."""
    pending = [block]
    while pending:
        lets, tail = spine(pending.pop())
        for let in lets:
            yield let
            pending.extend(nested(let.value))
        pending.extend(nested(tail))


def _trim_block(block: Expr, state: _Trimming) -> Expr:
    """Return the block without its dead lets, having added what it reads to the live variables."""
    lets, tail = spine(block)
    new_tail = _trim_value(tail, state)
    result, changed = new_tail, new_tail is not tail
    kept: list[tuple[Let, Expr]] = []
    for let in reversed(lets):
        if not state.is_live(let) and state.table.of(let.value).is_discardable:
            changed = True
            continue
        state.mention(let.var)
        value = _trim_value(let.value, state)
        changed = changed or value is not let.value
        kept.append((let, value))
    if not changed:
        return block
    for let, value in kept:
        result = relet(let, value, result)
    return result


def _trim_value(value: Expr, state: _Trimming) -> Expr:
    """Return the value with its nested blocks trimmed; what it reads becomes live."""
    state.mention(value, *operands(value), *binders(value))
    if isinstance(value, Var):
        state.live.add(value)
        return value
    for operand in operands(value):
        if isinstance(operand, Var):
            state.live.add(operand)
    return with_blocks(value, lambda block: _trim_block(block, state))


def _mentioned_adts(module: Module, reached: set[str]) -> set[str]:
    """Return the data types that the reached functions and kernels mention, in whatever way."""
    found: set[str] = set()
    types: list[Type] = [k.type for n, k in module.kernels.items() if n in reached]
    for name, function in module.functions.items():
        if name in reached:
            types.append(function.type)
            _visit_function(function, found, types)
    _add_adts(types, module.adts, found)
    return found


def _visit_function(function: Function, found: set[str], types: list[Type]) -> None:
    for value in values(function.body):
        types.append(value.type)
        types.extend(v.type for v in binders(value))
        for operand in (value, *operands(value)):
            if isinstance(operand, ConstructorRef):
                found.add(operand.adt)
        if isinstance(value, Match):
            for arm in value.arms:
                _visit_pattern(arm.pattern, found)


def _visit_pattern(pattern: Pattern, found: set[str]) -> None:
    if isinstance(pattern, PatternConstructor):
        found.add(pattern.adt)
    if isinstance(pattern, PatternConstructor | PatternTuple):
        for field in pattern.fields:
            _visit_pattern(field, found)


def _add_adts(types: list[Type], adts: Mapping[str, Adt], found: set[str]) -> None:
    """Add the data types named in types, and those in the fields of these and of `found`."""
    pending = list(types)
    for name in found:
        pending.extend(t for c in adts[name].constructors for t in c.fields)
    while pending:
        match pending.pop():
            case AdtType(name=name, args=args):
                pending.extend(args)
                if name not in found and name in adts:
                    found.add(name)
                    pending.extend(t for c in adts[name].constructors for t in c.fields)
            case TupleType(fields=fields):
                pending.extend(fields)
            case FuncType(params=params, result=result):
                pending.extend((*params, result))
            case RefType(content=body) | ExistsType(body=body):
                pending.append(body)
            case _:
                pass


PASS = Pass(
    __name__,
    run,
    "remove lets, functions, kernels and data types that nobody can miss",
    requires=(Property.ANF,),
)
