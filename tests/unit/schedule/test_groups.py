"""Random groups of tensor expressions through inlining, the default schedules and lowering."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest

from inlay.arith.dtype import F32
from inlay.arith.expr import Int, Sym, fresh, to_int
from inlay.interp import loop as interp
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.loop.scalar import ReduceOp
from inlay.machine.target import Target
from inlay.schedule.choose import schedule
from tests.unit.schedule.programs import gave_up, hold_law, small_integers

TARGET = Target()
SIZES = {"m": (3, 1, 0), "n": (11, 5, 2)}


@dataclass(frozen=True)
class Group:
    function: LoopFunction
    inputs: list[te.Tensor]
    outputs: list[te.Tensor]
    sizes: list[tuple[int, ...]]


def group(seed: int) -> Group:
    """Return a function of two to seven tensors over rows, columns, matrices and batches of them."""
    r = random.Random(seed)
    symbols = {name: fresh(name) for name in SIZES}
    extent: dict[str, Int] = {
        "b": to_int(2),
        "m": to_int(symbols["m"]) if r.random() < 0.5 else to_int(3),
        "n": to_int(symbols["n"]) if r.random() < 0.5 else to_int(r.choice([4, 9, 16, 37])),
    }
    x = te.placeholder(tuple(extent.values()), F32, "x")
    w = te.placeholder((extent["n"],), F32, "w")
    named: list[tuple[te.Tensor, tuple[str, ...]]] = [(x, ("b", "m", "n")), (w, ("n",))]
    for i in range(r.randint(2, 7)):
        named.append(_step(r, named, extent, f"t{i}"))
    outputs = [named[-1][0]]
    if r.random() < 0.3 and named[-2][0].body is not None:
        outputs.append(named[-2][0])
    f = from_te("group", [x, w], outputs)
    names = {s: name for name, s in symbols.items()}
    sizes = [tuple(SIZES[names[d]][k] for d in f.dims) for k in range(3 if f.dims else 1)]
    return Group(f, [x, w], outputs, sizes)


def _step(
    r: random.Random, named: list[tuple[te.Tensor, tuple[str, ...]]], extent: dict[str, Int], name: str
) -> tuple[te.Tensor, tuple[str, ...]]:
    t, axes = r.choice(named[-3:])
    kind = r.choice(["map", "map", "join", "join", "reduce", "reduce", "transpose", "shift"])
    if kind == "reduce" and axes:
        gone = r.sample(axes, r.randint(1, len(axes)))
        kept = tuple(a for a in axes if a not in gone)
        over = {a: te.reduce_axis(a, extent[a]) for a in gone}
        op = r.choice([ReduceOp.SUM, ReduceOp.MAX, ReduceOp.MIN, ReduceOp.MAX_NUMBER])
        return te.compute(
            [extent[a] for a in kept],
            lambda *i: te.reduce_over(
                op, list(over.values()), _at(t, axes, dict(zip(kept, i, strict=True)) | over)
            ),
            name=name,
        ), kept
    if kind == "join":
        u, others = r.choice(named)
        result = tuple(a for a in ("b", "m", "n") if a in axes or a in others)
        return te.compute(
            [extent[a] for a in result],
            lambda *i: te.maximum(
                _at(t, axes, dict(zip(result, i, strict=True))),
                _at(u, others, dict(zip(result, i, strict=True))) * 0.5,
            ),
            name=name,
        ), result
    if kind == "transpose" and len(axes) > 1:
        # The last two axes change places, and back again in what follows: layout inside a group.
        result = (*axes[:-2], axes[-1], axes[-2])
        turned = te.compute(
            [extent[a] for a in result],
            lambda *i: _at(t, axes, dict(zip(result, i, strict=True))) + 1.0,
            name=f"{name}_turned",
        )
        return te.compute(
            [extent[a] for a in axes],
            lambda *i: _at(turned, result, dict(zip(axes, i, strict=True))) * 2.0,
            name=name,
        ), axes
    if kind == "shift" and axes:

        def shifted(*i: Int) -> te.ScalarValue:
            *before, last = i
            return te.select(te.index(last) >= 1, t[(*before, last - 1)], te.const(0.0, F32))

        return te.compute([extent[a] for a in axes], shifted, name=name), axes
    return te.compute(
        [extent[a] for a in axes],
        lambda *i: te.maximum(_at(t, axes, dict(zip(axes, i, strict=True))) * 2.0 - 1.0, 0.0),
        name=name,
    ), axes


def _at(t: te.Tensor, axes: tuple[str, ...], index: dict[str, Int]) -> te.ScalarValue:
    return t[tuple(index[a] for a in axes)]


def one_by_one(g: Group, dims: tuple[int, ...]) -> list[np.ndarray]:
    """Evaluate each tensor by a function of its own: nothing is inlined."""
    env = dict(zip(g.function.dims, dims, strict=True))
    inputs = small_integers(g.function, dims)
    known = {t.buffer: a for t, a in zip(g.inputs, inputs, strict=True)}

    def value(t: te.Tensor) -> np.ndarray:
        if t.buffer not in known:
            arrays = [value(x) for x in t.inputs]
            given = tuple(te.Tensor(x.buffer) for x in t.inputs)
            computed = te.Tensor(t.buffer, t.axes, t.body, given, t.tag)
            alone = from_te("alone", given, [computed], tuple(env))
            (known[t.buffer],) = interp.run(alone, arrays, env)
        return known[t.buffer]

    return [value(t) for t in g.outputs]


def check_group(seed: int) -> None:
    g = group(seed)
    s = schedule(g.function, TARGET)
    assert gave_up(s) == [], (seed, gave_up(s))
    hold_law(g.function, s, *g.sizes)
    dims = g.sizes[0]
    env = dict(zip(g.function.dims, dims, strict=True))
    together = interp.run(g.function, small_integers(g.function, dims), env)
    for got, want in zip(together, one_by_one(g, dims), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.sample(8)
@pytest.mark.parametrize("seed", range(40))
def test_groups(seed: int) -> None:
    check_group(seed)


def test_symbols_are_dims() -> None:
    assert all(isinstance(d, Sym) for d in group(3).function.dims)
