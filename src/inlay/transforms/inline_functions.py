"""Replaces calls by the bodies of what they call: of small functions, and of those called once.

A function is put in place of its calls if it is not recursive, is no kernel to be (`primitive`), and

* has at most `small` operations, or
* is mentioned once in all, in that call. What else mentions it (an entry, a closure that escapes)
  would keep it alive and double the code.

Callees are done before callers, so that what is small is judged after its own calls were replaced.
Every copy binds variables and dims of its own. Where the types of the arguments do not provably fit
the parameters, the call stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from inlay.analysis.blocks import nested, operands, values
from inlay.analysis.call_graph import bottom_up, call_graph, recursive_functions
from inlay.base.options import option
from inlay.ir.expr import Call, Expr, Function, GlobalVar, Let, Var
from inlay.ir.module import Module
from inlay.ir.walk import spine
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._blocks import BlockWriter, rewrite_function


@dataclass(frozen=True, slots=True)
class InlineOptions:
    """Options of this pass."""

    small: int = option(6, help="number of operations up to which every call is replaced")


def run(module: Module, context: PassContext) -> Module:
    """Replace calls of small functions and of functions called once. Cost: linear in the result."""
    small = context.options_for(InlineOptions).small
    graph = call_graph(module)
    recursive = recursive_functions(graph)
    mentions = _count_mentions(module)
    for name in (module.entry, *module.entries):
        mentions[name] = mentions.get(name, 0) + 1
    done: dict[str, Function] = {}
    available: dict[str, Function] = {}
    for group in bottom_up(graph):
        for name in group:
            function = _inline_in(module.functions[name], available, small)
            done[name] = function
            if name not in recursive and function.primitive is None and not _is_placed(function):
                if mentions.get(name, 0) == 1 or _size(function, small) <= small:
                    available[name] = function
    if all(done[name] is f for name, f in module.functions.items()):
        return module
    return module.with_functions({name: done[name] for name in module.functions})


def _count_mentions(module: Module) -> dict[str, int]:
    count: dict[str, int] = {}
    for function in module.functions.values():
        for value in values(function.body):
            for operand in (value, *operands(value)):
                if isinstance(operand, GlobalVar):
                    count[operand.name] = count.get(operand.name, 0) + 1
    return count


def _inline_in(function: Function, available: Mapping[str, Function], small: int) -> Function:
    local = _local_functions(function.body, small)

    def step(block: BlockWriter, value: Expr) -> Expr | None:
        if not isinstance(value, Call):
            return None
        match value.callee:
            case GlobalVar(name=name) if name in available:
                return block.inline(available[name], value.args)
            case Var() as callee:
                found = block.definition(callee)
                if isinstance(found, Function) and callee in local:
                    return block.inline(found, value.args)
            case _:
                pass
        return None

    return rewrite_function(function, step)


def _local_functions(body: Expr, small: int) -> set[Var]:
    """Return the variables of local functions whose calls may be replaced."""
    mentions: dict[Var, int] = {}
    calls: dict[Var, int] = {}
    literals: dict[Var, Function] = {}
    recursive: set[Var] = set()
    for value in values(body):
        for operand in (value, *operands(value)):
            if isinstance(operand, Var):
                mentions[operand] = mentions.get(operand, 0) + 1
        if isinstance(value, Call) and isinstance(value.callee, Var):
            calls[value.callee] = calls.get(value.callee, 0) + 1
    for let in _lets(body):
        if isinstance(let.value, Function) and let.value.primitive is None:
            if _is_placed(let.value):
                continue
            literals[let.var] = let.value
            if any(let.var in operands(v) or v is let.var for v in values(let.value.body)):
                recursive.add(let.var)
    return {
        var
        for var, function in literals.items()
        if var not in recursive
        and calls.get(var, 0) > 0
        and (mentions[var] == 1 or _size(function, small) <= small)
    }


def _is_placed(function: Function) -> bool:
    """Whether somebody said where parameters or result are to be: a call may need copies there."""
    return function.place is not None or any(p.place is not None for p in function.params)


def _lets(body: Expr) -> list[Let]:
    """Return every let under a block whose value is a function literal, nested ones included."""
    found: list[Let] = []
    pending = [body]
    while pending:
        lets, tail = spine(pending.pop())
        for let in lets:
            if isinstance(let.value, Function):
                found.append(let)
            pending.extend(nested(let.value))
        pending.extend(nested(tail))
    return found


def _size(function: Function, limit: int) -> int:
    """Return the number of operations in a function, counted only until it is beyond the limit."""
    count = 0
    for _ in values(function.body):
        count += 1
        if count > limit + 1:
            break
    return count - 1


PASS = Pass(
    __name__,
    run,
    "replace calls of small functions and of functions called once by their bodies",
    requires=(Property.ANF,),
    options=InlineOptions,
)
