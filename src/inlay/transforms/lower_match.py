"""Takes nested patterns apart, so that every match looks at one tag.

    match t {                                     match t {
      Rose(x, Nil()) => a,                          Rose(x, ts) => match ts {
      Rose(x, Cons(u, _)) => b,        becomes        Nil() => a,
    }                                                 Cons(u, _) => b } }

After this pass the arms of a match are constructors over variables and wildcards, each tag once, and
at most one wildcard arm at the end. Tuples are taken apart by projections.

**Algorithm.** The arms are rows of a matrix with a column for each value that is looked at. The first
column that the first row tests is tested for all rows: for each tag the rows that can still match are
kept, with columns for the fields. A first row that tests nothing matches. A row may be kept for several
tags; an arm that is reached in several places becomes a local function of its variables, so code does
not grow. Source: Maranget, "Compiling pattern matching to good decision trees", 2008.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from inlay.analysis.matches import is_flat
from inlay.ir import make, walk
from inlay.ir.conform import Matching
from inlay.ir.context import StrictContext
from inlay.ir.dims import LEAST_INT, free_symbols, substitute_type
from inlay.ir.expr import (
    Arm,
    Expr,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    Var,
    pattern_vars,
)
from inlay.ir.module import Adt, Module
from inlay.ir.opening import open_exists
from inlay.ir.types import UNIT, AdtType, DimParam, TupleType, Type
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._blocks import Block, rewrite_module

_WILDCARD = PatternWildcard()


def run(module: Module, context: PassContext) -> Module:
    """Take nested patterns apart. Cost: linear in arms times the depth of their patterns."""
    del context

    def step(block: Block, value: Expr) -> Expr | None:
        if not isinstance(value, Match) or is_flat(value):
            return None
        return _Tree(module.adts, block, value).build()

    return rewrite_module(module, step)


@dataclass(frozen=True, slots=True)
class _Row:
    """An arm that can still match.

    Attributes:
        arm: its position.
        patterns: one for each column.
        bound: variables that columns gave a value so far.
    """

    arm: int
    patterns: tuple[Pattern, ...]
    bound: tuple[tuple[Var, Expr], ...] = ()


class _Tree:
    """Builds the decisions of one match."""

    def __init__(self, adts: Mapping[str, Adt], block: Block, value: Match) -> None:
        self._adts = adts
        self._block = block
        self._match = value
        self._rows = [_Row(i, (arm.pattern,)) for i, arm in enumerate(value.arms)]
        self._outer = set(free_symbols(value.scrutinee.type))
        self._functions: dict[int, Expr] = {}

    def build(self) -> Expr:
        """Return what stands for the match, of the same type."""
        leaves = [0] * len(self._match.arms)
        self._count(self._rows, leaves)
        for index, arm in enumerate(self._match.arms):
            if leaves[index] > 1:
                self._functions[index] = self._share(arm)
        tail = self._block.splice(self._decide(self._rows, [self._match.scrutinee]))
        if isinstance(tail, Match):
            return replace(tail, type=self._match.type)
        return tail

    def _count(self, rows: Sequence[_Row], leaves: list[int]) -> None:
        """Count in how many places each arm is reached."""
        column = _tested(rows[0])
        if column is None:
            leaves[rows[0].arm] += 1
            return
        for _, _, left in self._cases(rows, column):
            self._count(left, leaves)

    def _cases(
        self, rows: Sequence[_Row], column: int, subject: Expr | None = None
    ) -> list[tuple[int | None, int, list[_Row]]]:
        """Return tag, number of fields and rows of each outcome of a test.

        The tag is None for tuples, and for all constructors that no row names.
        """
        pattern = rows[0].patterns[column]
        if isinstance(pattern, PatternTuple):
            width = len(pattern.fields)
            return [(None, width, _expanded(rows, column, None, width, subject))]
        assert isinstance(pattern, PatternConstructor), "tests are of constructors and tuples"
        constructors = self._adts[pattern.adt].constructors
        named = {p.tag for r in rows if isinstance(p := r.patterns[column], PatternConstructor)}
        cases: list[tuple[int | None, int, list[_Row]]] = []
        for c in constructors:
            if c.tag in named:
                width = len(c.fields)
                cases.append((c.tag, width, _expanded(rows, column, c.tag, width, subject)))
        if len(named) < len(constructors):
            cases.append((None, 0, _expanded(rows, column, None, 0, subject)))
        return [(tag, width, left) for tag, width, left in cases if left]

    # ------------------------------------------------------------------------ building

    def _decide(self, rows: Sequence[_Row], subjects: Sequence[Expr]) -> Expr:
        """Return the block that finds the first row that matches."""
        column = _tested(rows[0])
        if column is None:
            return self._leaf(rows[0], subjects)
        subject = subjects[column]
        others = [*subjects[:column], *subjects[column + 1 :]]
        cases = self._cases(rows, column, subject)
        pattern = rows[0].patterns[column]
        if isinstance(pattern, PatternTuple):
            ((_, width, left),) = cases
            return self._projections(subject, width, left, others)
        assert isinstance(pattern, PatternConstructor), "tests are of constructors and tuples"
        arms: list[Arm] = []
        for tag, width, left in cases:
            if tag is None:
                arms.append(Arm(_WILDCARD, self._decide(left, others)))
                continue
            fields = self._fields(subject, pattern.adt, tag, left)
            constructor = self._adts[pattern.adt].constructors[tag]
            looked_at: list[Expr] = [f if f is not None else subject for f in fields]
            shown = tuple([_WILDCARD if f is None else PatternVar(f) for f in fields])
            assert len(fields) == width, "one variable for each field"
            arms.append(
                Arm(
                    PatternConstructor(pattern.adt, constructor.name, tag, shown),
                    self._decide(left, [*looked_at, *others]),
                )
            )
        span, place = self._match.span, self._match.place
        return make.match(subject, arms, span=span, place=place, known=self._block.known)

    def _fields(self, subject: Expr, adt: str, tag: int, rows: Sequence[_Row]) -> list[Var | None]:
        """Return new variables for the fields that some row looks at."""
        definition = self._adts[adt]
        constructor = definition.constructors[tag]
        assert isinstance(subject.type, AdtType), "constructors are tested on values of their type"
        types = {p.name: a for p, a in zip(definition.params, subject.type.args, strict=True)}
        found: list[Var | None] = []
        for i, declared in enumerate(constructor.fields):
            hint = _hint(rows, i)
            type = substitute_type(declared, {}, types)
            found.append(None if hint is None else self._variable(hint, type))
        return found

    def _variable(self, like: Var, type: Type) -> Var:
        opened, _ = open_exists(type)
        return Var(like.name, opened, like.span or self._match.span)

    def _projections(
        self, subject: Expr, width: int, rows: Sequence[_Row], others: Sequence[Expr]
    ) -> Expr:
        """Return the block that takes a tuple apart and goes on."""
        assert isinstance(subject.type, TupleType), "tuples are tested on tuples"
        bound: list[tuple[Var, Expr]] = []
        parts: list[Expr] = []
        for i in range(width):
            hint = _hint(rows, i)
            if hint is None:
                parts.append(subject)
                continue
            value = make.project(subject, i, span=self._match.span, place=self._match.place)
            var = self._variable(hint, value.type)
            bound.append((var, value))
            parts.append(var)
        return make.lets(bound, self._decide(rows, [*parts, *others]))

    def _leaf(self, row: _Row, subjects: Sequence[Expr]) -> Expr:
        """Return the arm of a row, over what its variables stand for here."""
        here = [
            (p.var, s)
            for p, s in zip(row.patterns, subjects, strict=True)
            if isinstance(p, PatternVar)
        ]
        atoms = dict([*row.bound, *here])
        arm = self._match.arms[row.arm]
        variables = pattern_vars(arm.pattern)
        shared = self._functions.get(row.arm)
        if shared is not None:
            args = [atoms[v] for v in variables]
            return make.call(shared, args, span=arm.body.span, known=self._block.known)
        matching = Matching(StrictContext())
        matching.bind(self._opened(variables))
        for v in variables:
            matching.match(v.type, atoms[v].type, "pattern")
        matching.finish()
        return walk.copy(arm.body, atoms, matching.ints)

    def _opened(self, variables: Sequence[Var]) -> tuple[DimParam, ...]:
        """Return the symbols that the variables of a pattern open."""
        symbols = dict.fromkeys(s for v in variables for s in free_symbols(v.type))
        return tuple([DimParam(s, LEAST_INT) for s in symbols if s not in self._outer])

    def _share(self, arm: Arm) -> Expr:
        """Bind an arm that several places reach as a function of its variables."""
        variables = pattern_vars(arm.pattern)
        function = make.function(
            variables, arm.body, dims=self._opened(variables), span=arm.body.span
        )
        return self._block.bind(function, "arm")


def _tested(row: _Row) -> int | None:
    """Return the first column that a row tests, None if it matches whatever there is."""
    for i, pattern in enumerate(row.patterns):
        if isinstance(pattern, PatternConstructor | PatternTuple):
            return i
    return None


def _hint(rows: Sequence[_Row], column: int) -> Var | None:
    """Return a variable to name a column after; None if no row looks at it."""
    read = [r.patterns[column] for r in rows if not isinstance(r.patterns[column], PatternWildcard)]
    named = next((p.var for p in read if isinstance(p, PatternVar)), None)
    if named is not None:
        return named
    return _UNNAMED if read else None


def _expanded(
    rows: Sequence[_Row], column: int, tag: int | None, width: int, subject: Expr | None
) -> list[_Row]:
    """Return the rows that can match an outcome, with columns for its fields in front."""
    result: list[_Row] = []
    for row in rows:
        pattern, bound = row.patterns[column], row.bound
        match pattern:
            case PatternConstructor(tag=found, fields=fields):
                if found != tag:
                    continue
            case PatternTuple(fields=fields):
                pass
            case PatternVar(var=var):
                fields = (_WILDCARD,) * width
                bound = bound if subject is None else (*bound, (var, subject))
            case PatternWildcard():
                fields = (_WILDCARD,) * width
        rest = (*row.patterns[:column], *row.patterns[column + 1 :])
        result.append(_Row(row.arm, (*fields, *rest), bound))
    return result


_UNNAMED = Var("field", UNIT)
"""What a column is named after that no row gives a name."""

PASS = Pass(
    __name__,
    run,
    "take nested patterns apart, so that every match looks at one tag",
    requires=(Property.ANF,),
    establishes=(Property.MATCHES_FLAT,),
)
