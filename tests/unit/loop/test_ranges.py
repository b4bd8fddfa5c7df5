"""What is proved holds: ranges, simplification and hulls against brute force."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from inlay.arith.expr import Int, Sym, ceildiv, evaluate, fresh, lit, maximum, minimum, to_int
from inlay.loop.deps import hull
from inlay.loop.ranges import Bounds

N, M = fresh("n"), fresh("m")
ROW, COL = fresh("i"), fresh("j")
LOOPS: list[dict[Sym, tuple[Int, Int]]] = [
    {ROW: (lit(0), lit(4)), COL: (lit(0), lit(3))},
    {ROW: (lit(0), to_int(N)), COL: (lit(0), lit(4))},
    {ROW: (lit(0), to_int(N) // 4), COL: (lit(0), lit(4))},
    {ROW: (to_int(N) // 4, lit(2)), COL: (to_int(ROW), to_int(M))},
    {ROW: (lit(0), lit(3)), COL: (lit(0), minimum(lit(4), 10 - 4 * to_int(ROW)))},
]


def integers() -> st.SearchStrategy[Int]:
    leaf = st.one_of(st.integers(-9, 9).map(lit), st.sampled_from([to_int(s) for s in (N, M, ROW, COL)]))
    return st.recursive(
        leaf,
        lambda e: st.one_of(
            st.tuples(e, e).map(lambda p: p[0] + p[1]),
            st.tuples(e, e).map(lambda p: p[0] - p[1]),
            st.tuples(e, st.integers(-4, 4)).map(lambda p: p[0] * p[1]),
            st.tuples(e, e).map(lambda p: p[0] * p[1]),
            st.tuples(e, st.integers(1, 5)).map(lambda p: p[0] // p[1]),
            st.tuples(e, st.integers(1, 5)).map(lambda p: p[0] % p[1]),
            st.tuples(e, e).map(lambda p: minimum(*p)),
            st.tuples(e, e).map(lambda p: maximum(*p)),
        ),
        max_leaves=7,
    )


def points(loops: dict[Sym, tuple[Int, Int]]) -> list[dict[Sym, int]]:
    """Return all iterations for some values of the dims."""
    found: list[dict[Sym, int]] = []
    for n, m in itertools.product((0, 1, 3, 7), (0, 2)):
        envs = [{N: n, M: m}]
        for var, (lo, extent) in loops.items():
            envs = [{**env, var: evaluate(lo, env) + k} for env in envs for k in range(evaluate(extent, env))]
        found += envs
    return found


@given(integers(), st.sampled_from(LOOPS), st.integers(-6, 6))
def test_what_is_proved_holds(e: Int, loops: dict[Sym, tuple[Int, Int]], low: int) -> None:
    bounds = Bounds(loops)
    simple = bounds.simplify(e)
    proved = bounds.at_least(e, low)
    for env in points(loops):
        assert evaluate(simple, env) == evaluate(e, env)
        assert not proved or evaluate(e, env) >= low


def test_what_tiles_need_is_proved() -> None:
    n, i, j = to_int(N), to_int(ROW), to_int(COL)
    full = Bounds({ROW: (lit(0), n // 16), COL: (lit(0), lit(16))})
    assert full.less(16 * i + j, n)
    assert full.simplify((16 * i + j) // 16) == i
    assert full.simplify((16 * i + j) % 16) == j
    assert full.at_least(n - 16 * (n // 16), 0)
    assert full.at_least(16 * ((n + 15) // 16) - n, 0)
    assert not Bounds({ROW: (lit(0), (n + 15) // 16), COL: (lit(0), lit(16))}).less(16 * i + j, n)


@given(integers(), st.sampled_from(LOOPS))
def test_hull_is_what_the_inner_loops_sweep(e: Int, loops: dict[Sym, tuple[Int, Int]]) -> None:
    inner = {COL: loops[COL]}
    found = hull(e, inner)
    if found is None:
        return
    groups: dict[tuple[int, ...], set[int]] = {}
    for env in points(loops):
        groups.setdefault((env[N], env[M], env[ROW]), set()).add(evaluate(e, env))
    for (n, m, i), values in groups.items():
        env = {N: n, M: m, ROW: i}
        low = evaluate(found.lo, env)
        swept = range(low, low + evaluate(found.extent, env))
        assert values <= set(swept)
        if found.dense:
            assert values == set(swept)


def test_a_loop_that_was_split_and_clipped_sweeps_what_it_did_as_one():
    n, row = to_int(N), to_int(ROW)
    loops = {ROW: (lit(0), ceildiv(n, 4)), COL: (lit(0), minimum(lit(4), n - 4 * row))}
    assert hull(8 * row + 2 * to_int(COL) + 1, loops) == (lit(1), 2 * n - 1, False)
    assert hull(4 * row + to_int(COL), loops) == (lit(0), n, True)
    assert hull(3 * row + to_int(COL), loops) != (lit(0), n, True)
