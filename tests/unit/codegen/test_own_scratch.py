"""A device of another package whose kernels need an operand, or leave their result, in its scratch memory."""

from __future__ import annotations

import importlib.metadata
from types import SimpleNamespace

import numpy as np
import pytest

from inlay.api import compilation, explain
from inlay.base.diagnostics import CompileError, InternalError
from inlay.codegen import backend_table
from inlay.codegen.interface import Backend, DeviceCode, in_process
from inlay.ir.parser import parse_module
from inlay.machine.board_file import read_board
from inlay.ops.table import table
from inlay.pipeline import plan_again
from inlay.runtime.session import executable_of

NEEDS: dict[int, tuple[str, ...]] = {}
"""What the kernels need: operands by position, and results behind them."""


class Scratch(Backend):
    generators = ("scratch",)

    def unavailable(self, board, device) -> str:
        return ""

    def works_in(self, board, device) -> tuple[str, ...]:
        return device.memories

    def refuse(self, board, device, call, lowered) -> str:
        return ""

    def port_memories(self, board, device, function):
        return NEEDS

    def emit(self, job) -> DeviceCode:
        return in_process(job, lambda kernel, arrays, dims: kernel.body.evaluate(arrays, dims))


BACKEND = Scratch()
BOARD = """
memory = [{name = "ram"}, {name = "pad", kind = "static", bytes = "8KiB", owner = "mul0"}]
device = [{name = "cpu", arch = "native", memories = ["ram"]},
          {name = "mul0", arch = "scratch", memories = ["ram", "pad"]}]
engine = [{name = "dma", memories = ["ram", "pad"]}]
coherent = [{memory = "ram", parties = ["cpu", "mul0", "dma"]}]
link = [{from = "ram", to = "pad", engine = "dma"}, {from = "pad", to = "ram", engine = "dma"}]
[[arch]]
name = "scratch"
generator = "scratch"
loader = "scratch"
operators = ["matmul"]
"""
MODEL = """
fn main(x: Tensor[16, 16, f32], w: Tensor[16, 16, f32]) {
  tanh(matmul(matmul(tanh(x), w), w))
}
entry main("x", "w") -> ("y");
"""
ARRAYS = {
    n: np.random.default_rng(i).standard_normal((16, 16)).astype(np.float32) for i, n in enumerate("xw")
}


@pytest.fixture
def board(monkeypatch):
    """Install the back end, as the entry point of a package does."""
    found = {"inlay.backends": [SimpleNamespace(name="scratch", value=__name__)]}
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: found.get(group, []))
    backend_table.backends.cache_clear()
    yield read_board("own", BOARD, place="own.toml")
    NEEDS.clear()
    backend_table.backends.cache_clear()


def compiled(board):
    module = parse_module(MODEL, table())
    return compilation(module, board=board, pins=("matmul=mul0",), cache="none", verify=True)


def result(made, mode: str = "sequential"):
    return executable_of(made.program, mode=mode, callbacks=made.functions).run(ARRAYS)["y"]


def in_pad(made) -> list[int]:
    """Return the sizes of what is in the scratch memory."""
    parts = [p for plan in made.report.plans for p in plan.parts if p.memory == "pad"]
    return [stored.bytes.value for p in parts for stored in p.members]


@pytest.mark.llvm
@pytest.mark.parametrize("mode", ["sequential", "parallel"])
@pytest.mark.parametrize(
    ("needs", "copies", "values"),
    [
        ({}, 0, 0),  # all of them work in the memory of the host
        ({0: ("pad",)}, 1, 2),  # in once; the first product is left there
        ({0: ("pad",), 2: ("pad",)}, 2, 3),  # in once, on from there, and out once
        ({1: ("pad",)}, 1, 1),  # one copy of the weights for both
    ],
)
def test_operands_are_where_kernels_need_them(board, needs, copies, values, mode):
    NEEDS.update(needs)
    made = compiled(board)
    kernels = made.module.kernels.values()
    said = {(i, p.memories) for k in kernels if k.origin == "matmul" for i, p in enumerate(k.ports)}
    assert {(i, m) for i, m in said if m == ("pad",)} == set(needs.items())
    used = {k.name: k.calls for k in made.report.kernels}
    assert sum(n for name, n in used.items() if "copy" in name) == copies
    assert in_pad(made) == [1024] * values
    x, w = ARRAYS["x"], ARRAYS["w"]
    np.testing.assert_allclose(result(made, mode), np.tanh(np.tanh(x) @ w @ w), rtol=1e-4)


def test_explaining_plans_again_too(board):
    NEEDS[0] = ("pad",)
    plans = explain(parse_module(MODEL, table()), board, view="memory", pins=("matmul=mul0",)).plans
    assert [str(p.parts) for p in plans] == [str(p.parts) for p in compiled(board).report.plans]


def test_what_cannot_be_met_is_refused(board):
    NEEDS[0] = ("attic",)
    with pytest.raises(CompileError, match="attic"):
        compiled(board)


def test_a_third_planning_that_changes_something_is_our_fault(board, monkeypatch):
    NEEDS[0] = ("pad",)
    plans = iter([False, True])

    def plan(module, *args):
        made = PLAN(module, *args)
        return module.with_functions({}) if next(plans) else made

    PLAN = plan_again.plan
    monkeypatch.setattr(plan_again, "plan", plan)
    with pytest.raises(InternalError, match="third planning"):
        compiled(board)


def test_kernels_that_were_placed_again_are_told_once(board):
    NEEDS[0] = ("pad",)
    found = explain(parse_module(MODEL, table()), board=board, view="fusion", pins=("matmul=mul0",))
    used = {k.name: k.calls for k in compiled(board).report.kernels}
    assert found.kernels == used
