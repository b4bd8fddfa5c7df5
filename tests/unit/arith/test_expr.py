"""Laws of symbolic integers: the normal form means what Python's integers mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.arith.bounds import Range, bounds
from inlay.arith.expr import (
    Int,
    ceildiv,
    coefficient,
    evaluate,
    fresh,
    lit,
    maximum,
    minimum,
    substitute,
    symbols,
    to_int,
)
from inlay.arith.solve import NO_FACTS, Facts, simplify, solve_for

SYMS = [fresh("n"), fresh("m"), fresh("k")]
N, M, K = map(to_int, SYMS)

numbers = st.integers(-40, 40)
divisors = st.integers(1, 24)


@st.composite
def trees(draw: st.DrawFn, depth: int = 4):
    """A pair (Int, function of an environment) built side by side."""
    if depth == 0 or draw(st.booleans()):
        if draw(st.booleans()):
            c = draw(numbers)
            return lit(c), lambda env, c=c: c
        i = draw(st.integers(0, 2))
        return to_int(SYMS[i]), lambda env, i=i: env[SYMS[i]]
    a, fa = draw(trees(depth=depth - 1))
    op = draw(st.sampled_from(["+", "-", "*", "//", "%", "min", "max"]))
    if op in ("//", "%"):
        d = draw(divisors)
        if op == "//":
            return a // d, lambda env: fa(env) // d
        return a % d, lambda env: fa(env) % d
    b, fb = draw(trees(depth=depth - 1))
    match op:
        case "+":
            return a + b, lambda env: fa(env) + fb(env)
        case "-":
            return a - b, lambda env: fa(env) - fb(env)
        case "*":
            return a * b, lambda env: fa(env) * fb(env)
        case "min":
            return minimum(a, b), lambda env: min(fa(env), fb(env))
        case _:
            return maximum(a, b), lambda env: max(fa(env), fb(env))


envs = st.fixed_dictionaries({s: st.integers(0, 60) for s in SYMS})


@given(trees(), envs)
def test_normal_form_keeps_value(tree, env):
    e, f = tree
    assert evaluate(e, env) == f(env)


@given(trees(), envs)
def test_bounds_contain_value(tree, env):
    e, f = tree
    ranges = {s: Range(low=0, high=60) for s in SYMS}
    assert bounds(e, ranges).contains(f(env))


@given(trees(), envs, st.integers(1, 12))
def test_bounds_with_congruence_contain_value(tree, env, step):
    e, f = tree
    env = {s: v // step * step for s, v in env.items()}
    ranges = {s: Range(0, None, step, 0) for s in SYMS}
    assert bounds(e, ranges).contains(f(env))


@given(trees(), envs)
def test_simplify_keeps_value_where_facts_hold(tree, env):
    e, f = tree
    facts = Facts({s: Range(low=0, high=60) for s in SYMS})
    assert evaluate(simplify(e, facts), env) == f(env)


@given(trees(), trees(), envs)
def test_substitution_commutes_with_evaluation(tree, inner, env):
    e, f = tree
    r, g = inner
    value = evaluate(substitute(e, {SYMS[0]: r}), env)
    assert value == f({**env, SYMS[0]: g(env)})


@given(trees(), trees(), envs)
def test_three_valued_answers_are_sound(a, b, env):
    ea, fa = a
    eb, fb = b
    answer = NO_FACTS.equal(ea, eb)
    if answer is not None:
        assert answer == (fa(env) == fb(env))
    low = NO_FACTS.at_least(ea, eb)
    if low is not None:
        assert low == (fa(env) >= fb(env))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((N + 2) * 2 - 4, 2 * N),
        ((N + 17) // 16, (N + 1) // 16 + 1),
        ((N * M) // M, N),
        ((N * M * 2) // (2 * N), M),
        ((4 * N + 8) // 6, (2 * N + 4) // 3),
        ((16 * N + 3) % 16, lit(3)),
        ((N // 4) // 8, N // 32),
        (minimum(N, N + 3), N),
        (maximum(minimum(N, M), minimum(M, N)), minimum(N, M)),
        (ceildiv(16 * N, 16), N),
    ],
)
def test_known_identities(left: Int, right: Int):
    assert left == right
    assert hash(left) == hash(right)
    assert str(left) == str(right)


@given(trees(depth=3), trees(depth=2), st.tuples(*[st.integers(0, 9)] * 3))
def test_what_is_a_product_is_divided_by_its_factors(a, b, values):
    env = dict(zip(SYMS, values, strict=True))
    (left, fa), (right, fb) = a, b
    if fb(env) == 0:
        return
    total = left * right
    assert evaluate(total // right, env) == fa(env)
    assert evaluate(total % right, env) == 0
    assert evaluate((total + 1) // right, env) == (fa(env) * fb(env) + 1) // fb(env)


def test_sums_are_divided_by_sums():
    assert (512 * N + 512 * M) // (64 * N + 64 * M) == 8
    assert ((N + M) * (N + K + 3)) // (N + K + 3) == N + M
    assert (N * N * N - 1) // (N - 1) == N * N + N + 1
    assert (512 * N + 512 * M) % (64 * N + 64 * M) == 0
    for a, b in ((N * N + M, N + M), (3 * N + 3 * M, 2 * N + 2 * M), (N, N + M), (N + M, N)):
        assert (a // b).atom is not None, "no polynomial is that quotient"


def test_symbols_have_identity():
    assert to_int(fresh("n")) != to_int(fresh("n"))
    assert symbols(N * M + N) == (SYMS[0], SYMS[1])


def test_coefficient():
    assert coefficient(3 * N + M, SYMS[0]) == lit(3)
    assert coefficient(N * M + 1, SYMS[0]) == M
    assert coefficient(N * N, SYMS[0]) is None
    assert coefficient(N // 2 * M + N, SYMS[0]) is None


def test_solving():
    assert solve_for(2 * N - 4 * M, SYMS[0]) == 2 * M
    assert solve_for(2 * N - M, SYMS[0]) is None


def test_facts_prove_and_simplify():
    assert NO_FACTS.equal(M + N, N + M) is True
    assert NO_FACTS.equal(M, M + 1) is False
    assert NO_FACTS.equal(M, K) is None
    facts = NO_FACTS.assume_range(SYMS[2], Range(0, 15))
    assert simplify((16 * N + K) // 16, facts) == N
    assert simplify((16 * N + K) % 16, facts) == K
    assert facts.less(K, 16) is True


def test_facts_know_congruence():
    facts = NO_FACTS.assume_range(SYMS[0], Range(0, None, 8, 0))
    assert facts.equal(N, lit(12)) is False
