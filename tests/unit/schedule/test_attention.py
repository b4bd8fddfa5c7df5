"""Two products with reductions along rows between run as one loop over heads and blocks of rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inlay.arith.dtype import F32
from inlay.arith.expr import Int, to_int
from inlay.loop import te
from inlay.loop.buffer import Scope
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.loop.printer import print_function
from inlay.loop.stmt import Alloc, For, LoopKind
from inlay.loop.walk import stmts_below
from inlay.lower.lower import lower
from inlay.machine.target import Target, baseline
from inlay.schedule.choose import schedule
from inlay.schedule.rules import attention as rule
from inlay.schedule.rules.attention import attention
from inlay.schedule.state import Illegal, Schedule, illegal
from tests.unit.schedule.programs import dim, hold_law, softmax

SMALL = replace(baseline("x86_64", "v2"), l2_bytes=64 * 40)
"""Four lanes, and a second cache of which a quarter is a block of sixteen rows of ten keys."""


def attend(heads: int | Int, rows: int | Int, keys: int | Int, columns: int = 8) -> LoopFunction:
    """Scores from which what is greatest in a row is taken, and to which the sum of the row is added.

    Of small integers all of it is exact, where softmax is not.
    """
    q = te.placeholder((heads, rows, 4), F32, "q")
    k = te.placeholder((heads, 4, keys), F32, "k")
    v = te.placeholder((heads, keys, columns), F32, "v")
    c, n, m = te.reduce_axis("c", 4), te.reduce_axis("n", keys), te.reduce_axis("m", keys)
    j = te.reduce_axis("j", keys)
    shape = (to_int(heads), to_int(rows), to_int(keys))
    s = te.compute(shape, lambda h, i, o: te.sum_over(c, q[h, i, c] * k[h, c, o]), name="s")
    a = te.compute(shape, lambda h, i, o: s[h, i, o] * 2.0, name="a")
    top = te.compute(shape[:2], lambda h, i: te.max_over(n, a[h, i, n]), name="top")
    less = te.compute(
        shape, lambda h, i, o: te.maximum(a[h, i, o] - top[h, i], -3.0), name="less", stored=True
    )
    total = te.compute(shape[:2], lambda h, i: te.sum_over(m, less[h, i, m]), name="total")
    share = te.compute(shape, lambda h, i, o: less[h, i, o] + total[h, i], name="share", stored=True)
    y = te.compute(
        (*shape[:2], to_int(columns)), lambda h, i, o: te.sum_over(j, share[h, i, j] * v[h, j, o]), name="y"
    )
    return from_te("attend", [q, k, v], [y])


def taken(f: LoopFunction, *sizes: tuple[int, ...], target: Target = SMALL) -> tuple[Schedule, str]:
    """Schedule a function, and return the text of its lowered loops too."""
    s = schedule(f, target)
    assert s.rule == "attention"
    hold_law(f, s, *sizes)
    return s, print_function(lower(s.function, target))


def test_scores_of_a_head_are_a_workspace_and_are_replaced_in_place() -> None:
    s, text = taken(attend(5, 9, 10))
    (loop,) = outermost(s)
    assert loop.extent == 5
    assert scratch(s) == {"share": (5, 9, 10)}
    assert "[1, 9, 10]" in text


def test_many_rows_are_cut_into_blocks_that_divide_them() -> None:
    _, text = taken(attend(4, 32, 10))
    assert "[1, 16, 10]" in text
    assert "min(" not in text


@pytest.mark.slow
def test_the_last_block_has_fewer_rows() -> None:
    _, text = taken(attend(4, 29, 10))
    assert "min(24, " in text


def test_blocks_come_first_where_heads_are_few() -> None:
    """Threads share both together."""
    s, _ = taken(attend(2, 64, 6))
    assert [x.extent for x in outermost(s)] == [4 * 2]


def test_one_matrix_is_cut_as_well() -> None:
    s, _ = taken(attend(1, 40, 10))
    assert len(outermost(s)) == 1


def test_nothing_has_to_be_known() -> None:
    f = attend(dim("h"), dim("t"), dim("s"))
    s, _ = taken(f, (2, 3, 5), (1, 61, 9), (3, 0, 2))
    assert set(scratch(s)) == {"a", "share"}, "rows that are not whole vectors are not replaced in place"


def test_what_is_refused_half_way_stays_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise illegal("not-nested", "found a test that refuses, needed none")

    monkeypatch.setattr(rule, "merge_all", refuse)
    f = attend(3, 20, 10)
    s = schedule(f, SMALL)
    hold_law(f, s)
    assert s.rule == "plain_attention"
    assert len(outermost(s)) == 3


def test_other_functions_are_of_another_class() -> None:
    with pytest.raises(Illegal) as refused:
        attention(Schedule(softmax(3, 8)), SMALL)
    assert refused.value.diagnostics[0].id == "schedule.class"


def outermost(s: Schedule) -> list[For]:
    """The loops that threads share."""
    return [x for x in stmts_below(s.body) if isinstance(x, For) and x.kind is LoopKind.PARALLEL]


def scratch(s: Schedule) -> dict[str, tuple[int | None, ...]]:
    """The workspaces, by what they were named after, with their shapes before lowering."""
    found = [x.buffer for x in stmts_below(s.body) if isinstance(x, Alloc)]
    return {
        b.name.partition("_")[0]: tuple(e.value for e in b.shape) for b in found if b.scope == Scope.WORKSPACE
    }
