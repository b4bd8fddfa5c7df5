"""Loops that operators wrote: what threads share are lines, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from inlay.arith.expr import to_int
from inlay.interp import loop as interp
from inlay.loop.func import LoopFunction
from inlay.loop.parser import parse_function
from inlay.loop.stmt import For, LoopKind, Stmt
from inlay.loop.verify import check
from inlay.loop.walk import Rewrite, map_children, stmts_below
from inlay.lower.ops_to_loops import ops_to_loops
from inlay.machine.target import Target
from inlay.ops._define import OpDef, Sample
from inlay.ops.table import table
from inlay.schedule.choose import decide
from inlay.schedule.rules import lines as rule
from tests.unit.lower.op_functions import function_of
from tests.unit.lower.test_ops_to_loops import small


def shared(f: LoopFunction) -> list[str]:
    """Return the loops that threads share."""
    return [x.var.name for x in stmts_below(f.body) if isinstance(x, For) and x.kind is LoopKind.PARALLEL]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule, "PARALLEL_WORK", 0)


HEAD = "lowered func f(x: f32[6, 20]) -> (y: f32[6, 20])"
ALONG = "for j in 1..20 { y[i, j] = y[i, j - 1] + x[i, j] }"
TOTAL = "alloc t: f32[1] @workspace"
BLOCKS = f"""{HEAD} {{{{ for i in 0..{{lines}} {{{{ for j in 0..6 {{{{ for l in 0..4 vector {{{{
    y[j, {{step}}*i + l] = x[j, {{step}}*i + l] }}}} }}}} }}}} }}}}"""
ADD = "t[0] = t[0] + x[i, j] y[i, j] = t[0]"


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"{HEAD} {{ for i in 0..6 {{ for j in 0..20 {{ y[i, j] = x[i, j] }} }} }}", ["j"]),
        (f"{HEAD} {{ for i in 0..6 {{ y[i, 0] = x[i, 0] {ALONG} }} }}", ["i"]),
        (f"{HEAD} {{ for i in 0..6 {{ {TOTAL} t[0] = x[i, 0] for j in 0..20 {{ {ADD} }} }} }}", ["i"]),
        (f"{HEAD} {{ for i in 0..6 {{ for j in 0..20 {{ y[5 - i, j] = x[i, j] }} }} }}", ["j"]),
        (BLOCKS.format(step=4, lines=5), ["i"]),
    ],
    ids=[
        "the wide one goes outside",
        "a sum along lines",
        "own temporaries",
        "lines from below",
        "some lines together",
    ],
)
def test_lines_are_shared(text: str, found: list[str]) -> None:
    f = parse_function(text)
    d = decide(f, Target())
    assert (d.rule, shared(d.function)) == ("lines", found)
    check(d.function)
    hold(f, d.function)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    "text",
    [
        f"{HEAD} {{ for j in 1..20 {{ for i in 0..6 {{ y[i, 0] = y[i, 0] + x[i, j] }} }} }}",
        f"{HEAD} {{ for i in 0..5 {{ for j in 0..20 {{ y[i, j] = x[i, j] y[i + 1, j] = x[i, j] }} }} }}",
        f"{HEAD} {{ {TOTAL} for i in 0..6 {{ t[0] = x[i, 0] for j in 0..20 {{ {ADD} }} }} }}",
        f"{HEAD} {{ for i in 0..5 {{ for j in 0..4 {{ y[(i % 3), j] = x[i, j] }} }} }}",
        f"{HEAD} {{ for i in 0..3 {{ for j in 0..4 {{ y[i + j, 0] = x[i, j] }} }} }}",
        f"{HEAD} {{ for i in 0..6 {{ y[i, 0] = x[i, 0] }} }}",
        f"{HEAD} {{ for i in 0..6 {{ let k = i64(x[i, 0]) y[k, 0] = x[i, 0] }} }}",
        BLOCKS.format(step=3, lines=5),
    ],
    ids=[
        "a sum",
        "two lines",
        "a common temporary",
        "twice the same",
        "of two loops",
        "elements",
        "where data says",
        "some lines twice",
    ],
)
def test_other_loops_stay_serial(text: str) -> None:
    f = parse_function(text)
    d = decide(f, Target())
    assert (d.rule, shared(d.function)) == ("", [])
    assert d.function is f


def test_a_few_short_lines_stay_on_one_thread() -> None:
    d = decide(
        parse_function(f"{HEAD} {{ for i in 0..6 {{ for j in 0..20 {{ y[i, j] = x[i, j] }} }} }}"), Target()
    )
    assert shared(d.function) == []
    assert [(step.args, "240 operations" in reason) for step, reason in d.declined] == [(("j",), True)]


def hold(f: LoopFunction, after: LoopFunction) -> None:
    """Require the same result in any order of what threads share."""
    random = np.random.default_rng(7)
    inputs = [random.standard_normal((6, 20)).astype(np.float32)]
    for made in (after, backwards(after)):
        for want, got in zip(interp.run(f, inputs, {}), interp.run(made, inputs, {}), strict=True):
            np.testing.assert_array_equal(got, want)


def backwards(f: LoopFunction) -> LoopFunction:
    """Return a function whose parallel loops run from the last iteration to the first."""

    def turned(s: Stmt) -> Stmt:
        if not isinstance(s, For) or s.kind is not LoopKind.PARALLEL:
            return map_children(s, turned)
        last = s.lo * 2 + s.extent - 1
        body = Rewrite(ints={s.var: last - to_int(s.var)}).stmt(s.body)
        return For(s.var, s.lo, s.extent, LoopKind.SERIAL, body, s.note)

    return replace(f, body=turned(f.body))


def written_by_operators() -> Iterator[object]:
    for d in table():
        if d.loops is not None:
            for s in filter(small, d.samples()):
                yield pytest.param(d, s, id=f"{d.name}-{s.name}")


@pytest.mark.usefixtures("eager")
@pytest.mark.sample(8)
@pytest.mark.parametrize(("d", "s"), list(written_by_operators()))
def test_lines_of_operators_in_any_order(d: OpDef, s: Sample) -> None:
    made = function_of(d, s, symbolic=bool(s.symbolic))
    if made is None:
        pytest.skip("an operand or result that kernels do not have")
    function, inputs, values = made
    f = ops_to_loops(function, table().definition)
    after = decide(f, Target()).function
    env = {dim: values[dim] for dim in f.dims}
    results = [interp.run(x, inputs, env) for x in (f, backwards(after))]
    for want, got in zip(*results, strict=True):
        np.testing.assert_array_equal(got, want)
