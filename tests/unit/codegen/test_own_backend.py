"""A back end of another package, in one file: a device that multiplies matrices by a function of Python.

It works in the memory of the host, takes single products, and everything else stays on the processor.
"""

from __future__ import annotations

import importlib.metadata
from types import SimpleNamespace

import numpy as np
import pytest

import inlay
from inlay.api import compilation
from inlay.base.diagnostics import CompileError
from inlay.codegen import backend_table
from inlay.codegen.interface import Backend, DeviceCode, DeviceJob
from inlay.ir.kernel import Kernel
from inlay.ir.parser import parse_module
from inlay.machine.board_file import read_board
from inlay.ops.table import table
from inlay.runtime.session import executable_of

CALLS: list[str] = []


class Multiplier(Backend):
    generators = ("multiplier",)

    def unavailable(self, board, device) -> str:
        return "" if board.arch_of(device).operators else "what it multiplies is not said"

    def works_in(self, board, device) -> tuple[str, ...]:
        return board.host.memories[:1]

    def refuse(self, board, device, call, lowered) -> str:
        columns = call.type.shape[-1].value
        return "" if columns is None or columns >= 8 else f"{columns} columns: at least 8"

    def cost(self, arch):
        return lambda call, dims: 1.0  # ns

    def emit(self, job: DeviceJob) -> DeviceCode:
        functions = {r.name: function_of(job.kernels[r.name]) for r in job.requests}
        return DeviceCode("", functions=functions)


def function_of(kernel: Kernel):
    reads = len(kernel.type.params)

    def run(arrays, ints) -> None:
        CALLS.append(kernel.origin)
        dims = {d.sym: n for d, n in zip(kernel.type.dims, ints, strict=True)}
        arrays[reads][...] = kernel.body.evaluate(arrays[:reads], dims)[0]

    return run


BACKEND = Multiplier()
BOARD = """
[[arch]]
name = "multiplier"
generator = "multiplier"
loader = "multiplier"
operators = ["matmul"]
[[memory]]
name = "ram"
[[device]]
name = "cpu"
arch = "native"
memories = ["ram"]
[[device]]
name = "mul0"
arch = "multiplier"
memories = ["ram"]
[[coherent]]
memory = "ram"
parties = ["cpu", "mul0"]
"""
MODEL = """
fn main<n>(x: Tensor[n, 64, f32], u: Tensor[64, 32, f32], v: Tensor[32, 4, f32]) {
  softmax(matmul(relu(matmul(tanh(x), u)), v))
}
entry main("x", "u", "v") -> ("y");
"""


@pytest.fixture
def board(monkeypatch):
    """Install the back end, as the entry point of a package does."""
    found = {"inlay.backends": [SimpleNamespace(name="multiplier", value=__name__)]}
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: found.get(group, []))
    backend_table.backends.cache_clear()
    yield read_board("own", BOARD, place="own.toml")
    backend_table.backends.cache_clear()


@pytest.mark.llvm
@pytest.mark.parametrize("mode", ["sequential", "parallel"])
@pytest.mark.parametrize(("pins", "columns", "taken"), [((), 4, 1), (("matmul=mul0",), 8, 2)])
def test_a_device_in_one_file(board, pins, columns, taken, mode):
    rng, shapes = np.random.default_rng(0), ((5, 64), (64, 32), (32, columns))
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    module = parse_module(MODEL.replace("32, 4,", f"32, {columns},"), table())
    made, before = compilation(module, board=board, pins=pins, cache="none"), len(CALLS)
    exe = executable_of(made.program, mode=mode, callbacks=made.functions)
    np.testing.assert_allclose(exe(*arrays), inlay.compile(module, cache="none")(*arrays), rtol=1e-5)
    assert len(CALLS) - before == taken
    assert made.program.devices == ()


def test_what_it_refuses_is_said(board):
    module = parse_module(MODEL, table())
    plan = inlay.explain(module, board)
    first, last = (o for o in plan.operations if o.operator == "matmul")
    assert (first.device, last.device) == ("mul0", "cpu")
    assert last.others == {"mul0": "4 columns: at least 8"}
    with pytest.raises(CompileError, match="4 columns: at least 8"):
        inlay.compile(module, board=board, pins=("matmul=mul0",))
