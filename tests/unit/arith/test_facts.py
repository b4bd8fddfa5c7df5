"""What facts remember costs nothing in what they answer, and bounds the work of asking."""

from __future__ import annotations

import pytest

from inlay.arith import solve
from inlay.arith.bounds import Range
from inlay.arith.expr import Int, floordiv, fresh, lit, maximum, minimum, to_int
from inlay.arith.solve import Facts


def halved(n: Int, times: int) -> Int:
    """A size that is padded and halved many times: the arguments of each extreme hold all before."""
    for i in range(times):
        n = floordiv(maximum(n + 3 + i, minimum(n, lit(64)) * 2 - n), lit(2))
    return n


def test_nested_extremes_are_simplified_in_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0
    compound = solve._simplify_compound

    def counted(atom, facts):
        nonlocal steps
        steps += 1
        assert steps < 1000, "the work multiplies with every level"
        return compound(atom, facts)

    monkeypatch.setattr(solve, "_simplify_compound", counted)
    facts = Facts()
    e = halved(to_int(fresh("n")), 7)
    assert facts.equal(solve.simplify(e, facts), e)
    assert steps > 7


def test_a_range_that_is_added_is_used() -> None:
    n = fresh("n")
    e = minimum(to_int(n), lit(8))
    facts = Facts()
    assert solve.simplify(e, facts) == e
    small = facts.assume_range(n, Range(0, 8))
    assert solve.simplify(e, small) == to_int(n)
