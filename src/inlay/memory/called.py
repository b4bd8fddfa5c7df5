"""Calls of functions in a plan: who is called, with which dims, and what happens to what it is given.

A function that is called by its name is that one. A function that is a value may be any that the program
uses as a value, of as many parameters: the sums of `account` take the largest of those. The dims of a callee
are those that the types of its parameters and of the operands say; a dim that they do not say has no number.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from inlay.analysis.blocks import nested, operands, spine, values
from inlay.arith.expr import Int, Sym, from_atom
from inlay.base.diagnostics import CompileError
from inlay.ir.conform import Matching
from inlay.ir.context import StrictContext
from inlay.ir.dims import rename_dims, substitute_type
from inlay.ir.expr import Call, Expr, Function, GlobalVar, If, Match, Var
from inlay.ir.module import Module
from inlay.ir.types import FuncType
from inlay.memory.activations import IN_RESULT, TAKEN, Activation, Site, Storage
from inlay.memory.plan import KEPT, Called, Counted, Origin, Param

GIVEN = "a function gives it"
"""Why what a call gives is beside the block, where it does not escape."""


@dataclass(frozen=True, slots=True)
class Functions:
    """The functions of a module that have plans.

    Attributes:
        named: functions by the names of their plans.
        local: the names of local functions, by their variables.
        values: the names of those that may be called from anywhere.
    """

    named: Mapping[str, Function]
    local: Mapping[Var, str]
    values: frozenset[str]


def functions_of(module: Module, activations: Sequence[Activation]) -> Functions:
    """Return the functions that activations are of, and which are values. Cost: linear in the module."""
    mentioned: set[Expr | str] = set()
    for function in module.functions.values():
        for value in values(function.body):
            given = value.args if isinstance(value, Call) else (value, *operands(value))
            mentioned.update(x.name if isinstance(x, GlobalVar) else x for x in given)
    local = {a.var: a.name for a in activations if a.var is not None}
    kept = {name for var, name in local.items() if var in mentioned}
    kept |= {name for name in module.functions if name in mentioned}
    return Functions({a.name: a.function for a in activations}, local, frozenset(kept))


def calls_of(activation: Activation, functions: Functions) -> tuple[Called, ...]:
    """Return the calls of functions in an activation."""
    phases, found, tails = activation.phases(), list[Called](), _tails(activation.function)
    for site in activation.sites:
        names, is_named = _callees(site.call, functions)
        dims = tuple(_dims(functions.named[name], site.call) for name in names)
        moment = bisect_left(phases, site.position) + 1
        is_tail = site.call in tails
        count = len(site.call.args)
        found.append(Called(moment, names, count, dims, is_named, is_tail, site.inside, site.arms))
    return tuple(found)


def _tails(function: Function) -> set[Expr]:
    """Return the values that a function may end with."""
    found, pending = set[Expr](), [function.body]
    while pending:
        _, tail = spine(pending.pop())
        found.add(tail)
        if isinstance(tail, If | Match):
            pending.extend(nested(tail))
    return found


def _callees(call: Call, functions: Functions) -> tuple[tuple[str, ...], bool]:
    """Return who may be called, and whether it is named: else all that are values with so many parameters."""
    match call.callee:
        case GlobalVar(name=name) if name in functions.named:
            return (name,), True
        case Var() as var if var in functions.local:
            return (functions.local[var],), True
        case _:
            count = len(call.args)
            every = functions.named.items()
            return tuple(n for n, f in every if n in functions.values and len(f.params) == count), False


def _dims(function: Function, call: Call) -> Mapping[Sym, Int]:
    """Return the dims of a function at a call, as far as types say them."""
    renamed = rename_dims(function.dims)  # a function that calls itself has the same symbols on both sides
    ints = {d.sym: from_atom(r.sym) for d, r in zip(function.dims, renamed, strict=True)}
    matching = Matching(StrictContext())
    matching.bind(renamed, function.type.type_vars)
    pairs = [(substitute_type(p.type, ints), a.type) for p, a in zip(function.params, call.args, strict=True)]
    # What functions have is decided by the other operands, and no more is asked of a type than to say a dim.
    for declared, actual in sorted(pairs, key=lambda pair: isinstance(pair[0], FuncType)):
        with suppress(CompileError):
            matching.match(declared, actual, "an operand")
    with suppress(CompileError):
        matching.finish()
    found = {d.sym: matching.ints.get(r.sym) for d, r in zip(function.dims, renamed, strict=True)}
    return {sym: value for sym, value in found.items() if value is not None}


def params_of(activation: Activation) -> tuple[Param, ...]:
    """Return what becomes of the parameters of an activation."""
    phases = activation.phases()

    def param(storage: Storage | None) -> Param:
        if storage is None:
            return Param(KEPT)
        until = bisect_right(phases, storage.end) if storage.reasons.keys() <= {TAKEN} else KEPT
        return Param(until, tuple(storage.takers), storage.bytes, _is_frame(storage))

    return tuple(map(param, activation.params))


def given_by_calls(activation: Activation, *, is_entry: bool) -> Iterator[Counted]:
    """Yield the tensors that calls give: from behind the call to their last use, or to the end."""
    phases = activation.phases()
    for number, site in enumerate(activation.sites):
        for storage in site.results or ():
            yield _given(storage, site, number, phases, is_entry=is_entry)


def _given(storage: Storage, site: Site, number: int, phases: Sequence[int], *, is_entry: bool) -> Counted:
    moment, end = bisect_left(phases, site.position) + 1, len(phases) + 1
    until = bisect_right(phases, storage.end)
    last, inside = (end, site.inside) if storage.reasons else (until, "")
    return Counted(
        storage.name,
        site.call.span,
        storage.escapes or GIVEN,
        Origin.RESULT if is_entry and storage.is_result else Origin.VALUE,
        bytes=storage.bytes,
        first=moment + 1,
        last=last,
        inside=inside,
        arms=storage.arms,
        **takers_of(storage, until),
        giver=number,
        is_sure=not site.inside,
        is_result=storage.reasons.keys() == {IN_RESULT},
    )


def takers_of(storage: Storage, until: int) -> dict[str, Any]:
    """Return who takes a storage, and its last moment where nothing else keeps it, for a `Counted`."""
    return {
        "takers": tuple(storage.takers),
        "until": until if storage.reasons.keys() == {TAKEN} else 0,
        "is_frame": _is_frame(storage),
    }


def _is_frame(storage: Storage) -> bool:
    """Whether nothing but results and what functions take holds it when its function has ended."""
    return storage.reasons.keys() <= {TAKEN, IN_RESULT}
