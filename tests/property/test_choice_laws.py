"""Whatever is answered to what rules leave open, the program computes the same: on drawn programs and answers.

Loops of rules are compared with the evaluator to the bit, over integers; whole programs compiled with a file of
answers, for the forms of products too, with the evaluator within the table of tolerances.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.analysis.choices import Choice, Question
from inlay.api import compilation
from inlay.base.instrument import SILENT
from inlay.interp.tensor import evaluate
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.loop.func import LoopFunction
from inlay.machine.target import Target, baseline
from inlay.ops.table import table
from inlay.pipeline.build_kernels import LoopBody
from inlay.pipeline.options import CompileOptions
from inlay.pipeline.planning import place_of, setting_of
from inlay.pipeline.tuning import subjects_of
from inlay.runtime.session import executable_of
from inlay.schedule.choose import schedule
from inlay.tune.database import Database
from inlay.tune.trial import Kind, Outcome, Trial
from tests.examples import examples
from tests.tolerance import assert_close
from tests.unit.schedule.programs import elementwise, gemm, hold_law, layer_norm, softmax

SIZES = (1, 2, 3, 5, 8, 13, 17, 32, 33, 48)
FUNCTIONS: tuple[Callable[[random.Random], LoopFunction], ...] = (
    lambda r: gemm(r.choice(SIZES), r.choice(SIZES), r.choice(SIZES), bias=r.random() < 0.5),
    lambda r: gemm(r.choice((24, 32, 48)), r.choice((40, 48, 33)), r.choice((8, 30))),
    lambda r: elementwise(r.choice(SIZES), r.choice(SIZES)),
)
FLOAT_FUNCTIONS: tuple[Callable[[random.Random], LoopFunction], ...] = (
    lambda r: softmax(r.choice(SIZES), r.choice((*SIZES, 200))),
    lambda r: layer_norm(r.choice(SIZES), r.choice((*SIZES, 200))),
)
TARGETS = (baseline("x86_64", "v2"), baseline("x86_64", "v3"), baseline("x86_64", "v4"), baseline("aarch64"))


def drawn(rng: random.Random, questions: Iterable[Question]) -> Choice:
    """Return answers to some questions, each one that is offered."""
    return Choice.of({q.name: rng.choice(q.options) for q in questions if rng.random() < 0.8})


@settings(max_examples=examples(2))
@given(st.integers(0, 1 << 30))
def test_loops_mean_the_same_whatever_is_answered(seed: int) -> None:
    rng = random.Random(seed)
    before, target = rng.choice(FUNCTIONS)(rng), rng.choice(TARGETS)
    choice = drawn(rng, asked_by(before, target))
    after = schedule(before, target, choice=choice)
    assert after.rule
    hold_law(before, after)


def asked_by(f: LoopFunction, target: Target) -> list[Question]:
    return list(schedule(f, target).asked.questions.values())


@pytest.mark.parametrize("made", FLOAT_FUNCTIONS)
def test_rules_of_rows_leave_something_open(made: Callable[[random.Random], LoopFunction]) -> None:
    assert asked_by(made(random.Random(1)), TARGETS[1])


def weights(rng: random.Random, dtype: str, *shape: int) -> str:
    count = int(np.prod(shape))
    if dtype == "f32":
        return f"f32{list(shape)}({', '.join(f'{rng.uniform(-1, 1):.3f}' for _ in range(count))})"
    return f"{dtype}{list(shape)}({', '.join(str(rng.randint(-9, 9)) for _ in range(count))})"


def matmul(rng: random.Random) -> str:
    m, k, n = rng.choice((1, 7, 24, 30)), rng.choice((5, 16, 40)), rng.choice((3, 16, 40, 100))
    rows = rng.choice((str(m), "n"))
    head = "fn main<n>" if rows == "n" else "fn main"
    return f"""{head}(x: Tensor[{rows}, {k}, f32]) {{ relu(add(matmul(x, {weights(rng, "f32", k, n)}),
        {weights(rng, "f32", n)})) }}"""


def computed(rng: random.Random) -> str:
    m, k, n = rng.choice((6, 30, 48)), rng.choice((8, 40)), rng.choice((5, 16, 70))
    return f"fn main(x: Tensor[2, {m}, {k}, f32], w: Tensor[2, {k}, {n}, f32]) {{ matmul(x, w) }}"


def convolution(rng: random.Random) -> str:
    c, o, size = rng.choice((3, 16, 20)), rng.choice((16, 20, 33)), rng.choice((4, 7, 9))
    kernel, pads = rng.choice(((3, "[1, 1, 1, 1]"), (1, "[0, 0, 0, 0]")))
    return f"""fn main(x: Tensor[1, {c}, {size}, {size}, f32]) {{
        relu(conv{{pads={pads}}}(x, {weights(rng, "f32", o, c, kernel, kernel)})) }}"""


def integers(rng: random.Random) -> str:
    m, k, n = rng.choice((1, 9, 24)), rng.choice((7, 16, 40)), rng.choice((8, 33, 64))
    return f"""fn main(x: Tensor[{m}, {k}, i8]) {{
        requantize(add(matmul_integer(x, {weights(rng, "i8", k, n)}), {weights(rng, "i32", n)}), f32(0.05)) }}"""


def rows(rng: random.Random) -> str:
    m, n = rng.choice((1, 5, 33)), rng.choice((6, 64, 300))
    body = rng.choice(
        ("softmax{axis=1}(x)", "reduce_sum{axes=[1]}(x)", "tanh(mul(x, x))", "transpose{perm=[1, 0]}(x)")
    )
    return f"fn main(x: Tensor[{m}, {n}, f32]) {{ {body} }}"


PROGRAMS = (matmul, computed, convolution, integers, rows)


def answered(module: Module, rng: random.Random, file: Path) -> None:
    """Write drawn answers for the forms of products, then for the kernels that come of them."""
    settings = setting_of(CompileOptions(), SILENT, 1)
    place, database = place_of(settings.board, settings.targets, 1), Database(file)

    def write(kind: Kind, key: str, questions: Iterable[Question]) -> None:
        if choice := drawn(rng, questions):
            trial = Trial(choice, Outcome.MEASURED, 1.0, 2.0, 0.0, 1, kept=True)
            database.record(place, kind, key, "drawn", [trial])

    plain = compilation(module, threads=1, cache="none")
    subjects = subjects_of(module, settings, dict.fromkeys(plain.module.kernels, 1.0), {"n": 5})
    for s in subjects.found:
        if s.product is not None:
            write(Kind.PRODUCT, s.product[0].key, s.product[0].questions)
    formed = compilation(module, threads=1, cache="none", tuned=str(file))
    for kernel in formed.module.kernels.values():
        if isinstance(kernel.body, LoopBody):
            write(Kind.KERNEL, kernel.body.key, kernel.body.schedule().questions)
    database.close()


@pytest.mark.llvm
@settings(max_examples=examples(2))
@given(seed=st.integers(0, 1 << 30))
def test_programs_mean_the_same_whatever_is_answered(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = random.Random(seed)
    module = parse_module(rng.choice(PROGRAMS)(rng), table())
    file = tmp_path_factory.mktemp("choices") / "t.db"
    answered(module, rng, file)
    made = compilation(module, threads=1, cache="none", tuned=str(file), verify=True)
    random_ = np.random.default_rng(seed)
    args: list[np.ndarray] = []
    for p in module.functions["main"].params:
        shape = tuple(d.value or 5 for d in p.type.shape)
        dtype = p.type.dtype.numpy
        args.append(
            random_.integers(-100, 100, shape).astype(dtype)
            if dtype.kind in "iu"
            else random_.uniform(-1, 1, shape).astype(dtype)
        )
    expected = np.asarray(evaluate(module, args))
    used = made.report.to_json()["tuned"]
    assert used["others"] == {}
    for threads in (1, 2):
        assert_close(np.asarray(executable_of(made.program, threads=threads)(*args)), expected, length=300)
