"""Splits matches whose decisions would outgrow them.

    match t {                        let rest = fn() { match t {
      K(Z(), _, O()) => a,             K(O(), O(), _) => c,
      K(_, O(), Z()) => b,    ->       _ => d,
      K(O(), O(), _) => c,           } };
      _ => d,                        match t { K(Z(), _, O()) => a, K(_, O(), Z()) => b, _ => rest() }
    }

A match becomes a tree of tests, in which no value is looked at twice and an arm stands wherever it is
reached. Where rows test different fields, each test leaves most rows possible on both sides, and the
tree grows with every row by a factor. So rows are taken from the top as long as their tree is not much
larger than the rows themselves; what is left becomes a function, which all places call that get past
these rows. It looks at the value anew. Code is so at most `_GROWTH` times as long as the rows, and
what most matches are, one tree, stays one.

Source: the mixture rule of Wadler in Peyton Jones, "The Implementation of Functional Programming
Languages", 1987, chapter 5.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from inlay.analysis.blocks import values
from inlay.analysis.matches import is_flat
from inlay.ir import make
from inlay.ir.exhaustive import missing_pattern
from inlay.ir.expr import (
    Arm,
    Expr,
    Function,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternWildcard,
    Var,
)
from inlay.ir.module import Adt, Module
from inlay.ir.types import FuncType
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._blocks import BlockWriter, rewrite_module

_GROWTH = 2
"""How many times larger than its rows a tree may be."""

_SMALL = 256
"""Tests and values of arms that a tree may have in any case."""

_Row = tuple[int, tuple[Pattern, ...]]
"""An arm that can still match: its position, and a pattern for each value that is looked at."""


def run(module: Module, context: PassContext) -> Module:
    """Split. Cost: linear but for matches that are split, there times the number of rows."""
    del context

    def step(block: BlockWriter, value: Expr) -> Expr | None:
        return _split(module.adts, block, value) if isinstance(value, Match) else None

    return rewrite_module(module, step)


def _split(adts: Mapping[str, Adt], block: BlockWriter, value: Match) -> Expr | None:
    if is_flat(value):
        return None
    tests = [_tests(arm.pattern) for arm in value.arms]
    sizes = [sum(1 for _ in values(arm.body)) for arm in value.arms]
    allowed = [_GROWTH * (t + s + 1) for t, s in zip(tests, sizes, strict=True)]
    rows: list[_Row] = [(i, (arm.pattern,)) for i, arm in enumerate(value.arms)]
    if _fits(adts, rows, sizes, max(sum(allowed), _SMALL)):
        return None
    starts = [0]
    while starts[-1] < len(value.arms):
        starts.append(_end_of_part(adts, value, starts[-1], sizes, allowed))
    rest: Var | None = None
    for first, end in reversed(list(itertools.pairwise(starts))[1:]):
        var = Var("rest", FuncType((), value.type, (), ()), value.span)
        arms = value.arms[first:end]
        if rest is None and missing_pattern(
            [a.pattern for a in arms], value.scrutinee.type, adts
        ):  # what is missing is in the parts before: nothing gets here, but a match is to be whole
            rest = var
        body = _part(value, arms, rest)
        block.add(var, Function((), body, FuncType((), value.type, (), ()), value.span), ())
        rest = var
    return _part(value, value.arms[: starts[1]], rest)


def _part(value: Match, arms: Sequence[Arm], rest: Var | None) -> Match:
    """Return a match of some arms, and of a call of the rest."""
    if rest is not None:
        arms = (*arms, Arm(PatternWildcard(), make.call(rest, (), span=value.span)))
    return Match(value.scrutinee, tuple(arms), value.type, value.span, value.place)


def _end_of_part(
    adts: Mapping[str, Adt], value: Match, first: int, sizes: Sequence[int], allowed: Sequence[int]
) -> int:
    """Return the end of a part whose tree is small enough, found by doubling and then by halving."""
    low, high, step = first + 1, len(sizes), 1  # one row is small enough
    doubling = True
    while low < high:
        end = min(low + step, high)
        rows: list[_Row] = [(i, (value.arms[i].pattern,)) for i in range(first, end)]
        if end < len(sizes):
            rows.append((-1, (PatternWildcard(),)))
        if _fits(adts, rows, (*sizes, 1), sum(allowed[first:end])):
            low = end
        else:
            high, doubling = end - 1, False
        step = 2 * step if doubling else (high - low + 1) // 2
    return low


def _tests(pattern: Pattern) -> int:
    found, pending = 0, [pattern]
    while pending:
        p = pending.pop()
        if isinstance(p, (PatternConstructor, PatternTuple)):
            found += 1
            pending.extend(p.fields)
    return found


def _fits(adts: Mapping[str, Adt], rows: list[_Row], sizes: Sequence[int], allowed: int) -> bool:
    """Whether the tree of these rows, arms included, is no larger than this."""
    pending = [rows]
    while pending:
        rows = pending.pop()
        position, patterns = rows[0]
        column = next(
            (i for i, p in enumerate(patterns) if isinstance(p, (PatternConstructor, PatternTuple))), None
        )
        allowed -= 1 if column is not None else sizes[position]
        if allowed < 0:
            return False
        if column is None:
            continue
        pattern = patterns[column]
        if isinstance(pattern, PatternTuple):
            pending.append(_left(rows, column, None, len(pattern.fields)))
            continue
        assert isinstance(pattern, PatternConstructor), "tests are of constructors and tuples"
        heads = [p[column] for _, p in rows]
        named = {h.tag for h in heads if isinstance(h, PatternConstructor)}
        constructors = adts[pattern.adt].constructors
        cases = [_left(rows, column, t, len(constructors[t].fields)) for t in sorted(named)]
        if len(named) < len(constructors):
            cases.append(_left(rows, column, None, 0))
        pending += [left for left in cases if left]
    return True


def _left(rows: Sequence[_Row], column: int, tag: int | None, width: int) -> list[_Row]:
    """Return the rows that can still match behind a test."""
    found: list[_Row] = []
    for position, patterns in rows:
        pattern = patterns[column]
        fields: tuple[Pattern, ...] = (PatternWildcard(),) * width
        if isinstance(pattern, (PatternConstructor, PatternTuple)):
            if isinstance(pattern, PatternConstructor) and pattern.tag != tag:
                continue
            fields = pattern.fields
        found.append((position, (*fields, *patterns[:column], *patterns[column + 1 :])))
    return found


PASS = Pass(__name__, run, "split matches whose decisions would outgrow them", requires=(Property.ANF,))
