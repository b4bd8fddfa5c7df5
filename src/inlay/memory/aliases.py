"""Aliases: which tensors the bytes of a variable may be, through views, tuples, branches and loops.

    let v = reshape(cache, ..);             v shows cache
    let t = (v, h);                         t shows cache and h
    let r = if (c) { cache } else { h };    r shows cache and h
    step(int(i + 1), next, reshape(next))   both parameters of step show one tensor

A variable that is no view of another one shows itself. What a call of a function returns counts as new.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from inlay.analysis.blocks import binders, nested, spine
from inlay.ir.expr import (
    Call,
    Const,
    Expr,
    Function,
    If,
    Let,
    Match,
    OpRef,
    Project,
    Tuple,
    Var,
    pattern_vars,
)

NOTHING: frozenset[Var] = frozenset()


@dataclass(frozen=True, slots=True)
class Aliases:
    """What variables of a function of the module show.

    Attributes:
        shows: the variables whose bytes each one may be, itself included where it is no view.
        homes: the function in which each is bound: a local one, or that of the module.
        constants: variables of constants.
        names: of local functions.
        loops: local functions that call themselves.
    """

    shows: Mapping[Var, frozenset[Var]]
    homes: Mapping[Var, Function]
    constants: frozenset[Var]
    names: Mapping[Function, Var]
    loops: frozenset[Function]

    def of(self, e: Expr) -> frozenset[Var]:
        """Return what an operand shows."""
        return self.shows.get(e, NOTHING) if isinstance(e, Var) else NOTHING

    def of_all(self, exprs: Iterable[Expr]) -> frozenset[Var]:
        """Return what any of these shows."""
        return NOTHING.union(*map(self.of, exprs))


def find_aliases(root: Function) -> Aliases:
    """Return the aliases of a function. Cost: linear, for each loop that carries one tensor twice."""
    joined: dict[Var, frozenset[Var]] = {}
    while True:
        finder = _Finder(joined)
        finder.function(root)
        if finder.joined == joined:
            return Aliases(
                finder.shows, finder.homes, frozenset(finder.constants), finder.names, frozenset(finder.loops)
            )
        joined = finder.joined


class _Finder:
    """Goes through the blocks of a function in order.

    Attributes:
        joined: for parameters of loops, the other parameters that may be the same tensor.
    """

    def __init__(self, joined: Mapping[Var, frozenset[Var]]) -> None:
        self.joined = dict(joined)
        self.shows: dict[Var, frozenset[Var]] = {}
        self.homes: dict[Var, Function] = {}
        self.constants: set[Var] = set()
        self.names: dict[Function, Var] = {}
        self.loops: set[Function] = set()
        self._tuples: dict[Var, tuple[Expr, ...]] = {}
        self._functions: dict[Var, Function] = {}
        self._inside: list[Function] = []

    def function(self, function: Function) -> None:
        """Find those of a function and of those in it."""
        self._inside.append(function)
        self._bind(function)
        for param in function.params:
            self.shows[param] |= self.joined.get(param, NOTHING)
        self._block(function.body)
        self._inside.pop()

    def _bind(self, value: Expr) -> None:
        for var in binders(value):
            self.shows[var] = frozenset((var,))
            self.homes[var] = self._inside[-1]

    def _block(self, block: Expr) -> frozenset[Var]:
        """Go through a block; return what its result shows."""
        lets, tail = spine(block)
        for let in lets:
            self.homes[let.var] = self._inside[-1]
            if isinstance(let.value, Function):
                self.names[let.value] = let.var
                self._functions[let.var] = let.value
            shown = self._value(let.value, let)
            self.shows[let.var] = shown or frozenset((let.var,))
        return self._value(tail, None)

    def _value(self, value: Expr, let: Let | None) -> frozenset[Var]:
        """Return what a value shows; nothing where it is new."""
        match value:
            case Var():
                return self.shows.get(value, NOTHING)
            case Const():
                if let is not None:
                    self.constants.add(let.var)
                return NOTHING
            case Function():
                self.function(value)
                return NOTHING
            case If():
                return NOTHING.union(*map(self._block, nested(value)))
            case Match(scrutinee=scrutinee, arms=arms):
                self._bind(value)
                for var in (v for arm in arms for v in pattern_vars(arm.pattern)):
                    self.shows[var] |= self._of(scrutinee)
                return NOTHING.union(*map(self._block, nested(value)))
            case Tuple(fields=fields):
                if let is not None:
                    self._tuples[let.var] = fields
                return NOTHING.union(*map(self._of, fields))
            case Project(value=whole, index=index):
                fields = self._tuples.get(whole) if isinstance(whole, Var) else None
                return self._of(whole if fields is None else fields[index])
            case Call():
                return self._call(value)
            case _:
                return NOTHING

    def _call(self, call: Call) -> frozenset[Var]:
        match call.callee:
            case OpRef(op=op) if op.alias is not None:
                return self._of(call.args[op.alias])
            case Var() as callee if self._functions.get(callee) in self._inside:
                self._turn(self._functions[callee], call.args)
                return NOTHING
            case _:
                return NOTHING

    def _turn(self, loop: Function, args: tuple[Expr, ...]) -> None:
        """Note which parameters of a loop are given the same tensor for the next turn."""
        self.loops.add(loop)
        by_root: dict[Var, list[Var]] = {}
        for param, arg in zip(loop.params, args, strict=True):
            for root in sorted(self._of(arg), key=lambda v: v.name):
                by_root.setdefault(root, []).append(param)
        for same in by_root.values():
            if len(same) > 1:
                for param in same:
                    self.joined[param] = self.joined.get(param, NOTHING).union(same)

    def _of(self, e: Expr) -> frozenset[Var]:
        return self.shows.get(e, NOTHING) if isinstance(e, Var) else NOTHING
