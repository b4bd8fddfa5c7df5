"""Programs that use the whole language mean the same in the evaluator, on the machine, and compiled.

Each program of `text/` runs in the evaluator, on the reference machine with evaluated kernels, and as
native code on the C runtime with one and two threads.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from inlay.api import compilation, load
from inlay.arith.dtype import BOOL, I64
from inlay.base.diagnostics import RunError
from inlay.interp.tensor import evaluate
from inlay.ir.module import Module
from inlay.ops.table import table
from inlay.passes.contract import PassContext
from inlay.runtime.native import Settings
from inlay.runtime.session import Executable, executable_of
from inlay.transforms import eta_expand, infer_types, to_anf
from tests.boards import PARTED
from tests.python_kernels import compile_with_python_kernels, run_program

TEXT = Path(__file__).parent / "text"


def program(name: str) -> Module:
    """Return a program with its types."""
    return infer_types.PASS.run(load(TEXT / f"{name}.inl"), PassContext(table()))


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def meaning(module: Module, args: list[np.ndarray]) -> list[np.ndarray]:
    """Return what the evaluator computes, as tensors."""
    given = [int(a) if a.dtype == np.int64 and a.ndim == 0 else a for a in args]
    found = evaluate(module, given)
    return [as_tensor(x) for x in (found if isinstance(found, tuple) else (found,))]


def as_tensor(x: object) -> np.ndarray:
    if isinstance(x, bool):
        return np.array(x, BOOL.numpy)
    return np.array(x, I64.numpy) if isinstance(x, int) else np.asarray(x)


def assert_equal(found: object, expected: list[np.ndarray]) -> None:
    arrays = found if isinstance(found, (tuple, list)) else (found,)
    assert len(arrays) == len(expected)
    for a, b in zip(arrays, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=2e-6)


SCORES = (np.random.default_rng(3).standard_normal((7, 7)) - 3 * np.eye(7)).astype(np.float32)
N = np.array
CASES = [
    *(
        ("closures_from_branches", [N(up), f32(*v), f32(*reversed(v))])
        for up in (True, False)
        for v in ((1, 2), (1, 2, 3))
    ),
    *(("beam_search", [SCORES, N(width), N(steps)]) for width, steps in ((1, 3), (4, 6), (3, 0))),
    ("deep_recursion", [N(300), f32(1, 2)]),
    *(("long_loop", [N(n), f32(1, 2, -3, 4)]) for n in (0, 1, 300)),
    *(("mutual_recursion", [N(n), f32(1, 0.5, 2)]) for n in (0, 5, 14)),
    *(("cells_in_closures", [N(n), f32(1, 0.5, 2)]) for n in (0, 3)),
    ("nested_patterns", [N(2.5, np.float32), N(-1.5, np.float32)]),
    *(("higher_order", [N(n), f32(1, 0.5, 2)]) for n in (0, 4)),
]


@pytest.mark.llvm
@pytest.mark.sample(5)
@pytest.mark.parametrize(("name", "args"), CASES)
def test_all_executors_agree(name: str, args: list[np.ndarray]):
    module = program(name)
    expected = meaning(module, args)
    lowered = module
    for step in (to_anf.PASS, eta_expand.PASS):
        lowered = step.run(lowered, PassContext(table()))
    for plan in (False, True):
        assert_equal(run_program(*compile_with_python_kernels(lowered, plan=plan), args), expected)
    executable = compiled(name)
    for _ in range(2):
        assert_equal(executable(*args), expected)
    assert executable.live_objects() == 0


@pytest.mark.llvm
@pytest.mark.sample(4)
@pytest.mark.parametrize("name", sorted({name for name, _ in CASES}))
def test_all_modes_agree(name: str):
    """With kernels issued as commands, in an order that a seed picks, and on two threads."""
    settings = [Settings(mode="replay", seed=s) for s in (1, 2, 3)]
    settings.append(Settings(mode="parallel", threads=2))
    program_ = compilation(program(name), board=PARTED, verify=True).program
    plain = executable_of(program_, settings=Settings(mode="sequential"))
    for case in settings:
        executable = executable_of(program_, settings=case)
        for _, args in (c for c in CASES if c[0] == name):
            expected = plain(*args)
            assert_equal(executable(*args), list(expected) if isinstance(expected, tuple) else [expected])
        assert executable.live_objects() == 0


def compiled(name: str, settings: Settings | None = None) -> Executable:
    compiled = compilation(program(name), verify=True)
    return executable_of(compiled.program, settings=settings or Settings())


def test_beam_search_of_full_width_finds_the_best_path():
    module, steps = program("beam_search"), 3
    total = {0: 0.0}  # the best path to each token
    for _ in range(steps):
        total = {b: max(t + SCORES[a, b] for a, t in total.items()) for b in range(7)}
    score, tokens, _ = meaning(module, [SCORES, N(7), N(steps)])
    assert np.isclose(score, max(total.values()))
    path = [0, *tokens.tolist()]
    assert np.isclose(sum(SCORES[a, b] for a, b in pairwise(path)), score)


@pytest.mark.llvm
def test_recursion_a_million_deep_needs_less_than_256_mib():
    executable = compiled("deep_recursion", Settings(stack_bytes=256 << 20))
    count, total = executable(N(1_000_000), f32(1, 2))
    assert count == 1_000_000
    assert np.array_equal(total, f32(11, 22))
    assert executable.live_objects() == 0


@pytest.mark.llvm
def test_recursion_beyond_the_limit_says_so_and_leaves_nothing():
    executable = compiled("deep_recursion", Settings(stack_bytes=1 << 20))
    with pytest.raises(RunError, match="stack") as caught:
        executable(N(1_000_000), f32(1, 2))
    assert caught.value.ids == ("run.stack-limit",)
    assert executable.live_objects() == 0
    count, _ = executable(N(100), f32(1, 2))
    assert count == 100


@pytest.mark.llvm
@pytest.mark.parametrize(
    ("name", "turns"),
    [("long_loop", 100_000), ("mutual_recursion", 1_000_000), ("cells_in_closures", 100_000)],
)
def test_loops_and_tail_calls_take_no_stack(name: str, turns: int):
    """However long they run: the stack here has room for a few frames."""
    executable = compiled(name, Settings(stack_bytes=1 << 16))
    executable(N(turns), f32(1, 0.5, 2, 1))
    assert executable.live_objects() == 0
