"""Programs that schedule tests share, and the law they all check."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable

import numpy as np

from inlay.arith.dtype import F32
from inlay.arith.expr import Int, evaluate, fresh, to_int
from inlay.base.diagnostics import Diagnostic
from inlay.interp import loop as interp
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.loop.scalar import IntrinsicOp
from inlay.loop.verify import check
from inlay.lower.lower import lower
from inlay.machine.target import Target
from inlay.schedule.choose import Decision
from inlay.schedule.state import Schedule, Step
from tests.loop_equal import equal


def gave_up(s: Schedule | Decision) -> list[tuple[str, Diagnostic]]:
    """Return the rules that began with a function and did not come to an end, with their reasons."""
    refusals = s.refusals if isinstance(s, Schedule) else s.refused
    return [found for found in refusals if found[1].id != "schedule.class"]


def small_integers(f: LoopFunction, dims: tuple[int, ...]) -> list[np.ndarray]:
    """Return inputs on which every order of summation gives the same bits."""
    env = dict(zip(f.dims, dims, strict=True))
    random = np.random.default_rng(7)
    return [
        random.integers(-4, 5, tuple(evaluate(e, env) for e in b.shape)).astype(b.dtype.numpy)
        for b in f.params[: f.n_reads]
    ]


def hold_law(before: LoopFunction, s: Schedule, *sizes: tuple[int, ...]) -> LoopFunction:
    """The scheduled function equals the unscheduled one, lowered too; its trace replays.

    No rule gave up half-way, so that it stays as it was.
    """
    assert s.rule or not gave_up(s), gave_up(s)
    after = s.function
    check(after)
    lowered = lower(after, Target())
    check(lowered)
    for dims in sizes or ((),):
        env = dict(zip(before.dims, dims, strict=True))
        inputs = small_integers(before, dims)
        expected = interp.run(before, inputs, env)
        for f in (after, lowered):
            for want, got in zip(expected, interp.run(f, inputs, env), strict=True):
                np.testing.assert_array_equal(got.reshape(want.shape), want)
    again = replay(before, s.trace)
    assert equal(again.function, after)
    return lowered


def find_primitive(name: str) -> Callable[..., object]:
    """Return a primitive by name: the function of that name in the file of that name."""
    return getattr(importlib.import_module(f"inlay.schedule.primitives.{name}"), name)


def replay(function: LoopFunction, trace: Iterable[Step]) -> Schedule:
    """Apply what was done to one function to another."""
    s = Schedule(function)
    for step in trace:
        find_primitive(step.primitive)(s, *step.args, **dict(step.keywords))
    return s


def dim(name: str) -> Int:
    return to_int(fresh(name))


def gemm(m: Int | int, n: Int | int, k: Int | int, *, bias: bool = False) -> LoopFunction:
    """`relu(A @ B + bias)`, or `A @ B`."""
    a, b = te.placeholder((m, k), F32, "A"), te.placeholder((k, n), F32, "B")
    r = te.reduce_axis("k", k)
    c = te.compute((m, n), lambda i, j: te.sum_over(r, a[i, r] * b[r, j]), name="C", tag="mm")
    if not bias:
        return from_te("gemm", [a, b], [c])
    d = te.placeholder((n,), F32, "d")
    y = te.compute((m, n), lambda i, j: te.maximum(c[i, j] + d[j], 0.0), name="y", tag="out")
    return from_te("gemm_bias", [a, b, d], [y])


def softmax(m: Int | int, n: Int | int) -> LoopFunction:
    x = te.placeholder((m, n), F32, "x")
    k, k2 = te.reduce_axis("k", n), te.reduce_axis("k", n)
    top = te.compute((m,), lambda i: te.max_over(k, x[i, k]), name="top")
    e = te.compute((m, n), lambda i, j: te.intrinsic(IntrinsicOp.EXP, x[i, j] - top[i]), name="e")
    s = te.compute((m,), lambda i: te.sum_over(k2, e[i, k2]), name="s")
    y = te.compute((m, n), lambda i, j: e[i, j] / s[i], name="y")
    return from_te("softmax", [x], [y])


def layer_norm(m: Int | int, n: Int | int) -> LoopFunction:
    x, g = te.placeholder((m, n), F32, "x"), te.placeholder((n,), F32, "g")
    k, k2 = te.reduce_axis("k", n), te.reduce_axis("k", n)
    count = te.index(n).cast(F32)
    s = te.compute((m,), lambda i: te.sum_over(k, x[i, k]), name="s")
    mean = te.compute((m,), lambda i: s[i] / count, name="mean")
    d = te.compute((m, n), lambda i, j: x[i, j] - mean[i], name="d")
    q = te.compute((m,), lambda i: te.sum_over(k2, d[i, k2] * d[i, k2]), name="q")
    r = te.compute((m,), lambda i: te.intrinsic(IntrinsicOp.RSQRT, q[i] / count + 1e-5), name="r")
    y = te.compute((m, n), lambda i, j: d[i, j] * r[i] * g[j], name="y")
    return from_te("layer_norm", [x, g], [y])


def elementwise(*shape: Int | int) -> LoopFunction:
    x, z = te.placeholder(shape, F32, "x"), te.placeholder(shape, F32, "z")
    t = te.compute(shape, lambda *i: x[i] * z[i], name="t")
    y = te.compute(shape, lambda *i: te.maximum(t[i] + t[i], 0.0), name="y", tag="b")
    return from_te("elementwise", [x, z], [y])


def stencil(n: Int | int) -> LoopFunction:
    """A padded row and a sum of three neighbors; the temporary is costly, so it is not inlined."""
    x = te.placeholder((n, 12), F32, "x")
    k = te.reduce_axis("k", 3)
    p = te.compute(
        (n, 14),
        lambda i, j: te.select((te.index(j) >= 1) & (te.index(j) < 13), x[i, j - 1] * x[i, j - 1] * 3.0, 0.0),
        name="p",
    )
    y = te.compute((n, 12), lambda i, j: te.sum_over(k, p[i, j + k] * p[i, j]), name="y")
    return from_te("stencil", [x], [y])
