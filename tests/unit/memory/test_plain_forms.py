"""Kernels take forms that need fewer bytes where a budget asks for it, and only then."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest

import inlay
from inlay.api import compilation
from inlay.base.diagnostics import CompileError
from inlay.ir import make
from inlay.ir.module import Module
from inlay.runtime.session import executable_of
from tests.unit.transforms.programs import Program, noise

pytestmark = pytest.mark.llvm

SIZE = 16
CHANNELS = (32, 48, 64)
FAST = "Winograd's form F(2, 3) of a convolution"


def network() -> Module:
    """Convolutions of 3 x 3 whose weights become more; Winograd's form pays for both."""
    p = Program()
    x = p.input("x", 1, CHANNELS[0], SIZE, SIZE)
    for i, (c, oc) in enumerate(pairwise(CHANNELS)):
        w = make.const(noise(oc, c, 3, 3, seed=i, low=-0.1, high=0.1))
        x = p.op("conv", x, w, pads=(1, 1, 1, 1))
    return p.module(x)


def kernels(made) -> list[str]:
    return [k.origin for k in made.module.kernels.values() if "conv" in k.origin]


def takes(**options) -> int:
    (host, *_) = inlay.explain(network(), view="memory", threads=1, **options).accounts
    return host.total


@pytest.fixture(scope="module")
def plainest() -> tuple[int, int]:
    """What the program takes as it is, and at least."""
    with pytest.raises(CompileError) as found:
        compilation(network(), threads=1, budget={"host": 1000})
    (note,) = [n for n in found.value.diagnostics[0].notes if FAST in n]
    assert note.startswith(f"price: plain forms in place of 2 x {FAST} (done where it is enough): saves ")
    assert "adds" in note
    assert note.endswith("not enough alone")
    saved = int(note.split("saves ")[1].split(" bytes")[0].replace(",", ""))
    whole = takes()
    return whole, whole - saved


def test_forms_are_given_up_one_by_one_for_a_budget(plainest):
    whole, least = plainest
    x = noise(1, CHANNELS[0], SIZE, SIZE, seed=9)
    plain = compilation(network(), threads=1, budget={"host": whole})
    assert [k.count("winograd") for k in kernels(plain)] == [1, 1]
    assert not [f for f in plain.run.forms if not f.is_taken]
    expected = executable_of(plain.program).run({"x": x})["y0"]
    fast = []
    for budget in ((whole + least) // 2, least):
        made = compilation(network(), threads=1, budget={"host": budget})
        exe = executable_of(made.program)
        np.testing.assert_allclose(exe.run({"x": x})["y0"], expected, rtol=1e-4, atol=1e-4)
        assert made.run.promise is not None
        assert made.run.promise.takes["host"] <= budget
        seen = inlay.explain(network(), view="memory", threads=1, budget={"host": budget}).accounts[0]
        assert exe.usage().peak_bytes == seen.peak <= budget - seen.constants
        left = [f for f in made.run.forms if not f.is_taken]
        assert all(f.saves_ns > 0 for f in left)
        assert any(FAST in r.message and "for the budget" in r.message for r in made.report.remarks)
        fast.append(sum("winograd" in k for k in kernels(made)))
    assert fast == [1, 0]


def kept_and_read_late() -> Module:
    """A value that is cheap to make again beside a chain of products, and a convolution."""
    p = Program()
    x, w = p.input("x", 192, 192), p.input("w", 192, 192)
    image = p.input("image", 1, 32, SIZE, SIZE)
    weights = make.const(noise(48, 32, 3, 3, low=-0.1, high=0.1))
    big = y = p.op("softmax", x, axis=1)
    for _ in range(3):
        y = p.op("softmax", p.op("matmul", y, w), axis=1)
    late = p.op("matmul", p.op("reduce_sum", y, axes=(0,), keepdims=True), big)
    seen = p.op("conv", image, weights, pads=(1, 1, 1, 1))
    return p.module(late, p.op("reduce_sum", seen, axes=(2, 3), keepdims=False))


def prices_of(budget: int) -> dict[str, tuple[int, float]]:
    """What is saved and added by what is done where it is enough, and whether that is said."""
    with pytest.raises(CompileError) as found:
        compilation(kept_and_read_late(), threads=1, budget={"host": budget})
    text = str(found.value)
    rows = re.findall(r"price: (.*?) \(done.*?saves ([\d,]+) bytes, adds ([\d.,]+) us", text)
    return {name: (int(a.replace(",", "")), float(b.replace(",", ""))) for name, a, b in rows}


def test_the_fastest_of_what_is_enough_is_taken_and_all_of_it_where_it_must():
    whole = inlay.explain(kept_and_read_late(), view="memory", threads=1).accounts[0].total
    prices = prices_of(1000)
    again = prices["making values again"]
    form = prices[f"plain forms in place of 1 x {FAST}"]
    either = compilation(kept_and_read_late(), threads=1, budget={"host": whole - min(again[0], form[0])})
    chosen = [bool(either.run.spills), any(not f.is_taken for f in either.run.forms)]
    assert chosen == [again[1] <= form[1], again[1] > form[1]]
    both = compilation(kept_and_read_late(), threads=1, budget={"host": whole - again[0] - form[0]})
    assert [m.name for plan in both.run.spills for m in plan.moved] == ["softmax"]
    assert [f.is_taken for f in both.run.forms] == [False]
    exe, least = executable_of(both.program), executable_of(either.program)
    x, w = noise(192, 192, seed=1), noise(192, 192, seed=2)
    inputs = {"x": x, "w": w, "image": noise(1, 32, SIZE, SIZE, seed=3)}
    found, expected = exe.run(inputs), least.run(inputs)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-4)
    assert exe.usage().peak_bytes < least.usage().peak_bytes


def test_explaining_sees_what_compiling_does(plainest):
    _, least = plainest
    seen = inlay.explain(network(), view="memory", threads=1, budget={"host": least})
    assert seen.accounts[0].total == least
    assert [f.name for f in seen.plain] == [FAST, FAST]
    text = inlay.explain(network(), view="fusion", threads=1, budget={"host": least})
    assert "winograd" not in str(text)
