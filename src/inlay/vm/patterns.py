"""Matches as decisions: which value to look at next, and which arms are left after that.

The arms of a match are rows of patterns, one for each value that is looked at. The first pattern of
the first row that needs a test decides: a value with one form only is taken apart at once, another
one is tested by its tag, and each tag leaves the rows that may still match, with columns for the
fields in place of the column of the value. Patterns are so tested from left to right, and the first
row whose patterns all match is taken.

Source: Maranget, "Compiling pattern matching to good decision trees", 2008, with the first column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from inlay.bytecode.isa import Kind
from inlay.ir.expr import (
    Expr,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    Var,
)
from inlay.vm.code import Operand
from inlay.vm.environment import Environment
from inlay.vm.values import VmValue


@dataclass(frozen=True, slots=True)
class Row:
    """An arm while its pattern is being tested: one pattern for each value looked at."""

    patterns: tuple[Pattern, ...]
    bound: tuple[tuple[Var, VmValue], ...]
    body: Expr


@dataclass(frozen=True, slots=True)
class Test:
    """A tag to be looked at: of which value, and what is decided by it.

    Attributes:
        subject: the constructed value.
        column: where its patterns stand in the rows.
        widths: number of fields of each constructor.
        others: the values of the other columns.
        rows: what may match so far.
    """

    subject: Operand
    column: int
    widths: list[int]
    others: list[VmValue]
    rows: list[Row]


def rows_of(e: Match) -> list[Row]:
    """Return the arms of a match as rows over its value."""
    return [Row((arm.pattern,), (), arm.body) for arm in e.arms]


def next_test(env: Environment, looked_at: list[VmValue], rows: list[Row]) -> Row | Test:
    """Take apart what needs no test; return the first test, or the row that matches."""
    while True:
        assert rows, "the verifier found that arms cover every value"
        first = rows[0]
        column = next((i for i, p in enumerate(first.patterns) if _is_test(p)), None)
        if column is None:
            for pattern, value in zip(first.patterns, looked_at, strict=True):
                if isinstance(pattern, PatternVar):
                    env.bind(pattern.var, value)
            for var, value in first.bound:
                env.bind(var, value)
            return first
        pattern, subject = first.patterns[column], looked_at[column]
        others = looked_at[:column] + looked_at[column + 1 :]
        if isinstance(pattern, PatternConstructor):
            constructors = env.tables.module.adts[pattern.adt].constructors
            widths = [len(c.fields) for c in constructors]
            whole = env.operand(subject)
            if len(widths) > 1:
                return Test(whole, column, widths, others, rows)
            rows = _expand_all(rows, column, whole, 0, widths[0])
            looked_at = _take_fields(env, whole, rows, widths[0]) + others
        else:
            assert isinstance(pattern, PatternTuple), "tests are constructors and tuples"
            width = len(pattern.fields)
            rows = _expand_all(rows, column, subject, None, width)
            looked_at = list(env.fields(subject, width)) + others


def named_tags(test: Test) -> frozenset[int]:
    """Return the tags that some row asks for; all others have the same outcome."""
    patterns = (row.patterns[test.column] for row in test.rows)
    return frozenset(p.tag for p in patterns if isinstance(p, PatternConstructor))


def rows_with(test: Test, tag: int | None) -> list[Row]:
    """Return the rows that may match where the test found a tag; None for any that has no name."""
    width = 0 if tag is None else test.widths[tag]
    return _expand_all(test.rows, test.column, test.subject, tag, width)


def inside(env: Environment, test: Test, tag: int | None, rows: list[Row]) -> list[VmValue]:
    """Return the values that those rows look at."""
    width = 0 if tag is None else test.widths[tag]
    return _take_fields(env, test.subject, rows, width) + test.others


def _take_fields(env: Environment, whole: Operand, rows: list[Row], width: int) -> list[VmValue]:
    """Take the fields that some row looks at out of a constructed value."""
    used = [any(not isinstance(r.patterns[i], PatternWildcard) for r in rows) for i in range(width)]
    if width and all(used):
        return list(env.writer.emit("UNPACK", width, args=(whole,), kinds=(Kind.ANY,) * width))
    return [env.writer.make("FIELD", i, args=(whole,), kind=Kind.ANY) if u else 0 for i, u in enumerate(used)]


def _is_test(pattern: Pattern) -> bool:
    return isinstance(pattern, (PatternConstructor, PatternTuple))


def _expand_all(rows: list[Row], column: int, subject: VmValue, tag: int | None, width: int) -> list[Row]:
    """Return the rows that can still match, with one column replaced by columns for its fields."""
    return [r for row in rows if (r := _expand(row, column, subject, tag, width)) is not None]


def _expand(row: Row, column: int, subject: VmValue, tag: int | None, width: int) -> Row | None:
    """Return a row with one column replaced by columns for its fields; None if it cannot match."""
    pattern = row.patterns[column]
    bound = row.bound
    match pattern:
        case PatternWildcard():
            inner: tuple[Pattern, ...] = (PatternWildcard(),) * width
        case PatternVar(var=var):
            inner, bound = (PatternWildcard(),) * width, (*bound, (var, subject))
        case PatternTuple(fields=inner):
            pass
        case PatternConstructor(tag=found, fields=inner):
            if found != tag:
                return None
        case _:
            assert_never(pattern)
    rest = row.patterns[:column] + row.patterns[column + 1 :]
    return Row(inner + rest, bound, row.body)
