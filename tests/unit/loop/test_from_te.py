"""Tensor expressions to loops: what is inlined, what is shared, and that the values are right."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.arith.dtype import F32, I64
from inlay.arith.expr import fresh, to_int
from inlay.interp import loop as interp
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.loop.parser import parse_function
from inlay.loop.printer import print_function
from inlay.loop.scalar import IntrinsicOp
from inlay.loop.verify import check
from inlay.loop.walk import blocks_of
from inlay.lower.lower import lower
from inlay.machine.target import Target


def blocks(f: LoopFunction) -> list[str]:
    return [b.name for b in blocks_of(f.body)]


def evaluate(f: LoopFunction, *inputs: np.ndarray, dims: tuple[int, ...] = ()) -> np.ndarray:
    """Check, print, parse and lower on the way; all forms give the same bits."""
    env = dict(zip(f.dims, dims, strict=True))
    check(f)
    (y,) = interp.run(f, inputs, env)
    again = parse_function(print_function(f))
    (z,) = interp.run(again, inputs, dict(zip(again.dims, dims, strict=True)))
    np.testing.assert_array_equal(y, z)
    lowered = lower(f, Target())
    check(lowered)
    (w,) = interp.run(lowered, inputs, env)
    np.testing.assert_array_equal(y, w)
    return y


def rand(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def exp(x: te.ScalarValue) -> te.ScalarValue:
    return te.intrinsic(IntrinsicOp.EXP, x)


def test_elementwise_chain_is_one_block() -> None:
    n = to_int(fresh("n"))
    x = te.placeholder((n, 4), F32, "x")
    a = te.compute((n, 4), lambda i, j: x[i, j] + 1.0, name="a")
    b = te.compute((n, 4), lambda i, j: exp(a[i, j]), name="b")
    y = te.compute((n, 4), lambda i, j: b[i, j] * a[i, j], name="y")
    f = from_te("f", [x], [y])
    assert blocks(f) == ["c_y"]
    v = rand(3, 4)
    expected = (np.exp((v + 1).astype(np.float64)).astype(np.float32)) * (v + np.float32(1))
    np.testing.assert_array_equal(evaluate(f, v, dims=(3,)), expected)
    # x + 1 has two users: it is computed once.
    assert print_function(f).count("1.0:f32") == 1


def test_sharing_stays_linear() -> None:
    x = te.placeholder((4,), F32, "x")
    t = x
    for _ in range(30):
        s = t
        t = te.compute((4,), lambda i, s=s: s[i] * 0.5 + s[i] * s[i], name="t")
    f = from_te("f", [x], [t])
    assert len(print_function(f)) < 6000
    v = np.full(4, 0.25, np.float32)
    w = v.copy()
    for _ in range(30):
        w = w * np.float32(0.5) + w * w
    np.testing.assert_array_equal(evaluate(f, v), w)


def test_long_chains_are_cut() -> None:
    x = te.placeholder((4,), F32, "x")
    t = x
    for _ in range(2000):
        s = t
        t = te.compute((4,), lambda i, s=s: s[i] + 1.0, name="t")
    f = from_te("f", [x], [t])
    assert 10 < len(blocks(f)) < 200
    np.testing.assert_array_equal(evaluate(f, np.zeros(4, np.float32)), np.full(4, 2000))


def softmax(x: te.Tensor) -> te.Tensor:
    m, n = x.shape
    k, k2 = te.reduce_axis("k", n), te.reduce_axis("k", n)
    top = te.compute((m,), lambda i: te.max_over(k, x[i, k]), name="top")
    e = te.compute((m, n), lambda i, j: exp(x[i, j] - top[i]), name="e")
    s = te.compute((m,), lambda i: te.sum_over(k2, e[i, k2]), name="s")
    return te.compute((m, n), lambda i, j: e[i, j] / s[i], name="y")


def test_softmax_computes_each_exponential_once() -> None:
    m, n = to_int(fresh("m")), to_int(fresh("n"))
    x = te.placeholder((m, n), F32, "x")
    f = from_te("softmax", [x], [softmax(x)])
    assert blocks(f) == ["c_top", "c_e", "c_s", "c_y"]
    v = rand(3, 5)
    e = np.exp(v - v.max(1, keepdims=True))
    np.testing.assert_allclose(evaluate(f, v, dims=(3, 5)), e / e.sum(1, keepdims=True), rtol=1e-6)


def test_costly_row_values_are_not_recomputed_in_each_column() -> None:
    x = te.placeholder((4, 8), F32, "x")
    v = te.placeholder((4,), F32, "v")
    r = te.compute((4,), lambda i: te.const(1.0, F32) / v[i], name="r")
    u = te.compute((4, 8), lambda i, j: r[i], name="u")
    y = te.compute((4, 8), lambda i, j: x[i, j] * u[i, j], name="y")
    assert blocks(from_te("f", [x, v], [y])) == ["c_r", "c_y"]


def matmul(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    k = te.reduce_axis("k", a.shape[1])
    return te.compute(
        (a.shape[0], b.shape[1]), lambda i, j: te.sum_over(k, a[i, k] * b[k, j]), name="c", tag="mm"
    )


def test_contraction_inlines_layout_only() -> None:
    a, b = te.placeholder((4, 3), F32, "a"), te.placeholder((5, 3), F32, "b")
    bt = te.compute((3, 5), lambda i, j: b[j, i], name="bt")
    sq = te.compute((4, 3), lambda i, j: a[i, j] * a[i, j], name="sq")
    f = from_te("f", [a, b], [matmul(sq, bt)])
    assert blocks(f) == ["c_sq", "mm"]
    x, w = rand(4, 3), rand(5, 3)
    np.testing.assert_allclose(evaluate(f, x, w), (x * x) @ w.T, rtol=1e-5)


def test_what_is_to_be_stored_has_a_nest_of_its_own() -> None:
    x = te.placeholder((4,), F32, "x")
    for stored in (False, True):
        t = te.compute((4,), lambda i: x[i] + 1.0, name="t", stored=stored)
        y = te.compute((4,), lambda i, t=t: t[i] * 2.0, name="y")
        assert blocks(from_te("f", [x], [y])) == (["c_t", "c_y"] if stored else ["c_y"])


def test_epilogue_is_a_block_of_its_own() -> None:
    a, b = te.placeholder((4, 3), F32, "a"), te.placeholder((3, 5), F32, "b")
    c = matmul(a, b)
    y = te.compute((4, 5), lambda i, j: te.maximum(c[i, j] + 1.0, 0.0), name="y")
    f = from_te("f", [a, b], [y])
    assert blocks(f) == ["mm", "c_y"]


def test_gather_inlined_at_two_places() -> None:
    n = to_int(fresh("n"))
    x = te.placeholder((n,), F32, "x")
    at = te.placeholder((4,), I64, "at")
    g = te.compute((4,), lambda i: x[at[i]] * 2.0, name="g")
    y = te.compute((3,), lambda i: g[i] + g[i + 1], name="y")
    f = from_te("f", [x, at], [y])
    assert blocks(f) == ["c_y"]
    v, k = rand(6), np.array([5, 0, 3, 3])
    expected = v[k] * np.float32(2)
    np.testing.assert_array_equal(evaluate(f, v, k, dims=(6,)), expected[:-1] + expected[1:])


def test_gather_behind_a_guard_stays_in_bounds() -> None:
    x = te.placeholder((4,), F32, "x")
    at = te.placeholder((2,), I64, "at")
    g = te.compute((2,), lambda i: x[at[i]], name="g")
    y = te.compute(
        (4,),
        lambda i: te.select(
            (te.index(i) >= 1) & (te.index(i) < 3), exp(g[i - 1]) + g[i - 1], te.const(0.0, F32)
        ),
        name="y",
    )
    f = from_te("f", [x, at], [y])
    assert blocks(f) == ["c_y"]
    v, k = rand(4), np.array([3, 1])
    inner = np.exp(v[k].astype(np.float64)).astype(np.float32) + v[k]
    np.testing.assert_array_equal(evaluate(f, v, k), [0, *inner, 0])


def test_output_that_is_read_again() -> None:
    x = te.placeholder((4,), F32, "x")
    a = te.compute((4,), lambda i: x[i] + 1.0, name="a")
    b = te.compute((4,), lambda i: a[i] * 2.0, name="b")
    f = from_te("f", [x], [b, a])
    v = rand(4)
    got = interp.run(lower(f, Target()), [v])
    np.testing.assert_array_equal(got[0], (v + 1) * 2)
    np.testing.assert_array_equal(got[1], v + 1)


@pytest.mark.parametrize("init", [None, 7.0])
def test_reduction_over_several_axes(init: float | None) -> None:
    x = te.placeholder((2, 3, 4), F32, "x")
    k, r = te.reduce_axis("k", 3), te.reduce_axis("r", 4)
    start = None if init is None else te.const(init, F32)
    from inlay.loop.scalar import ReduceOp

    y = te.compute((2,), lambda i: te.reduce_over(ReduceOp.MAX, [k, r], x[i, k, r], start), name="y")
    f = from_te("f", [x], [y])
    v = rand(2, 3, 4)
    expected = v.max((1, 2)) if init is None else np.full(2, init, np.float32)
    np.testing.assert_array_equal(evaluate(f, v), expected)


def test_empty_reduction_is_the_identity_only_when_a_point_runs() -> None:
    """An empty sum has no point at which to start, so its result must be given by its init."""
    n = to_int(fresh("n"))
    x = te.placeholder((2, n), F32, "x")
    k = te.reduce_axis("k", n)
    y = te.compute((2,), lambda i: te.sum_over(k, x[i, k]), name="y")
    f = from_te("f", [x], [y])
    np.testing.assert_array_equal(evaluate(f, np.zeros((2, 0), np.float32), dims=(0,)), [0, 0])


def test_rank_zero() -> None:
    x = te.placeholder((), F32, "x")
    y = te.compute((), lambda: x[()] + 1.0, name="y")
    np.testing.assert_array_equal(evaluate(from_te("f", [x], [y]), np.float32(2).reshape(())), 3)
