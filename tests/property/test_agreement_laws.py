"""What `explain` says is what a compilation does: drawn programs, options and machines.

A refusal of one is that of the other, in the same words. Who explains may go on where devices are only
described: then the compilation names each of them that the plan uses. What is compiled has the kernels, the
places and the plans of memory that were shown, gives what the host alone gives, and takes the bytes that
the account says.
"""

from __future__ import annotations

import io
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from inlay.api import compilation, explain, load
from inlay.base.diagnostics import CompileError, RunError
from inlay.ir.module import Module
from inlay.ir.types import TensorType
from inlay.machine.board import Board
from inlay.machine.board_file import read_board
from inlay.machine.memory import PoolKind
from inlay.pipeline.compile import Compilation
from inlay.pipeline.detect import find_usable
from inlay.pipeline.explain.memory import MemoryExplanation
from inlay.pipeline.explain.views import View
from inlay.pipeline.report import KernelUse
from inlay.placement.explain.reasons import Explanation
from inlay.runtime.session import executable_of
from tests.examples import examples
from tests.models.ops_models import evaluator
from tests.property.draw_boards import draw_board

pytestmark = pytest.mark.llvm

FLOATS = """
fn main<n>(x: Tensor[n, 16, f32], w: Tensor[16, 32, f32], v: Tensor[32, 16, f32])
    -> (Tensor[n, 16, f32], Tensor[n, 32, f32]) {
  let a = matmul(x, w);
  let c = matmul(tanh(a), v);
  (softmax{axis=1}(add(c, x)), relu(a))
}
entry main("x", "w", "v") -> ("y", "z");
"""


def listed(dtype: str, *shape: int) -> str:
    """Return a constant of small numbers."""
    count = np.prod(shape)
    return f"{dtype}{list(shape)}({', '.join(str(i % 19 - 9) for i in range(int(count)))})"


INTEGERS = f"""
fn main<n>(x: Tensor[n, 16, i8]) -> (Tensor[n, 16, i32], Tensor[n, 8, i8]) {{
  let a = add(matmul_integer(x, {listed("i8", 16, 8)}), {listed("i32", 8)});
  let b = requantize{{zero=3}}(a, f32(0.05));
  (add(matmul_integer(b, {listed("i8", 8, 16)}), {listed("i32", 16)}), b)
}}
entry main("x") -> ("y", "z");
"""
OPERATORS = ("matmul", "add", "tanh", "softmax", "requantize", "*")


def draw_options(rng: random.Random, board: Board, *, is_open: bool) -> dict[str, Any]:
    """Return what a person may say, of which some means nothing on this board or in this program."""
    found: dict[str, Any] = {
        "pins": (f"{rng.choice(OPERATORS)}={rng.choice(board.devices).name}",),
        "placement": "first",
        "plan": "parallel",
        "budget": (f"{rng.choice(board.memories).name}={rng.choice(['512B', '4KiB', '100KiB', '10MiB'])}",),
        "outputs": (rng.choice("yz"),),
        "numerics": "saturating",
        "exact_qdq": True,
        "precision": "bf16",
        "batch": True,
    }
    if is_open:
        found |= {"typical": (f"n={rng.choice([1, 8, 512])}",), "dims": (f"n={rng.choice([1, 8, 64])}",)}
    return {name: value for name, value in found.items() if rng.random() < 0.25}


def said(failure: CompileError | RunError) -> list[tuple[str, str]]:
    return [(d.id, d.message) for d in failure.diagnostics]


def used(found: Explanation) -> set[str]:
    on_the_way = {d for copy in found.copies for d in (copy.source, copy.target)}
    return {o.device for o in found.operations} | on_the_way


def agrees(seed: int) -> str:
    """Check a drawn case; return what came of it.

    Raises:
        AssertionError: two who decide the same thing disagree.
    """
    rng = random.Random(seed)
    text = draw_board(rng)
    try:
        board = find_usable(read_board("drawn", text, place="drawn.toml"))
    except CompileError as refusal:
        assert set(refusal.ids) == {"board.invalid"}  # noqa: PT017
        return "board.invalid"
    is_open, program = rng.random() < 0.5, rng.choice([FLOATS, INTEGERS])
    program = program if is_open else program.replace("<n>", "").replace("[n,", "[8,")
    options = draw_options(rng, board, is_open=is_open)
    options["threads"] = rng.choice([1, 2])
    try:
        return _checked(load(io.StringIO(program)), board, options, seed)
    except AssertionError as failure:
        raise AssertionError(f"{failure}\nseed {seed}, {options}\n{text}\n{program}") from None


def _checked(module: Module, board: Board, options: dict[str, Any], seed: int) -> str:
    views: dict[View, Any] = {}
    refusals: dict[View, list[tuple[str, str]]] = {}
    for view in View:
        try:
            views[view] = explain(module, board, view=view, **options)
        except CompileError as refusal:
            refusals[view] = said(refusal)
    try:
        made = compilation(module, board=board, cache="none", **options)
    except CompileError as refusal:
        _refused(refusal, views, refusals)
        return refusal.ids[0]
    assert not refusals, f"it is compiled, and refused to who asks: {refusals}"
    _same(made, views[View.PLACEMENT], views[View.MEMORY])
    _run(made, module, board, options, seed)
    return "ran"


def _refused(refusal: CompileError, views: dict[View, Any], refusals: dict[View, Any]) -> None:
    if set(refusal.ids) != {"target.no-generator"}:
        assert refusals, f"a compilation alone says {said(refusal)}"
        assert all(r == said(refusal) for r in refusals.values()), f"{said(refusal)} and {refusals}"
    elif View.PLACEMENT in views:
        found = views[View.PLACEMENT]
        named = {d.message.split("uses '")[1].split("'")[0] for d in refusal.diagnostics}
        assert named == used(found) & set(found.without_code)


def _same(made: Compilation, places: Explanation, memory: MemoryExplanation) -> None:
    assert not used(places) & set(places.without_code)
    plans = [p for p in made.report.plans if p.parts or p.counted]
    assert [str(p) for p in plans] == [str(p) for p in memory.plans], "plans of memory"
    kernels = [k.origin for k in made.module.kernels.values()]
    assert sorted(kernels) == sorted(k.origin for k in memory.module.kernels.values()), "kernels"
    by_device: Counter[str] = Counter()
    for k in made.report.kernels:
        assert isinstance(k, KernelUse)
        by_device[k.device] += k.calls
    assert set(by_device) - used(places) <= {"", "cpu"}, f"{by_device} and {used(places)}"


def _run(made: Compilation, module: Module, board: Board, options: dict[str, Any], seed: int) -> None:
    names = {s.name for s in made.program.entries[0].inputs}
    n = int((options.get("dims") or options.get("typical") or ("n=8",))[0].partition("=")[2])
    rng = np.random.default_rng(seed)
    inputs: dict[str, np.ndarray] = {}
    for param in module.functions["main"].params:
        assert isinstance(param.type, TensorType)
        drawn = rng.integers(-9, 9, [d.value or n for d in param.type.shape])
        inputs[param.name] = drawn.astype(param.type.dtype.numpy)
    exe = executable_of(
        made.program, threads=options["threads"], externs=made.externs, callbacks=made.functions
    )
    outputs = exe.run({k: v for k, v in inputs.items() if k in names})
    want = evaluator(module)(inputs)
    error = 0.3 if "precision" in options else 1e-5
    for name, got in outputs.items():
        np.testing.assert_allclose(got, want[name], rtol=error, atol=error)
    seen = explain(module, board, view="memory", **options)
    if seen.dims.unbounded:
        return
    elsewhere = sum(a.copies for a in seen.accounts if a.kind is not PoolKind.HEAP)
    most, taken = sum(a.peak for a in seen.accounts) + elsewhere, exe.usage().peak_bytes
    assert taken <= most, f"a call took {taken} bytes, the account says {seen.accounts}"
    if len(seen.accounts) == 1 and seen.accounts[0].is_exact:
        assert taken == most, f"a call took {taken} bytes, the account says just {seen.accounts}"


def test_who_explains_and_who_runs_agree() -> None:
    found = Counter(agrees(seed) for seed in range(18, 18 + examples(2)))
    assert found["ran"]


@pytest.mark.slow
@pytest.mark.parametrize("block", range(8))  # each of twenty seconds, so that processes share them
def test_who_explains_and_who_runs_agree_long(block: int) -> None:
    for seed in range(1000 * (block + 1), 1000 * (block + 1) + 30):
        agrees(seed)
