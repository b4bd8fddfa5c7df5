"""A back end of another package, in one file: a device that multiplies matrices by a function of Python.

It works in the memory of the host, takes single products, and everything else stays on the processor.
"""

from __future__ import annotations

import numpy as np
import pytest

import inlay
from inlay.api import compilation
from inlay.base.diagnostics import CompileError
from inlay.codegen.interface import Backend, DeviceCode, DeviceJob, in_process
from inlay.ir.kernel import Kernel
from inlay.ir.parser import parse_module
from inlay.machine.board_file import read_board
from inlay.ops.table import table
from inlay.runtime.session import executable_of
from tests.backends import installed

CALLS: list[str] = []


class Multiplier(Backend):
    generators = ("multiplier",)
    in_host_memory = True

    def unavailable(self, board, device) -> str:
        return "" if board.arch_of(device).operators else "what it multiplies is not said"

    def refuse(self, board, device, call, lowered) -> str:
        columns = call.type.shape[-1].value
        return "" if columns is None or columns >= 8 else f"{columns} columns: at least 8"

    def cost(self, arch):
        return lambda call, dims: 1.0  # ns

    def emit(self, job: DeviceJob) -> DeviceCode:
        return in_process(job, compute)


def compute(kernel: Kernel, operands, dims):
    assert kernel.origin == "matmul"
    CALLS.append(kernel.origin)
    return kernel.body.evaluate(operands, dims)


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
def board():
    with installed("multiplier", __name__):
        yield read_board("own", BOARD, place="own.toml")


@pytest.mark.sample(2)
@pytest.mark.llvm
@pytest.mark.parametrize("mode", ["sequential", "parallel"])
@pytest.mark.parametrize(("pins", "columns", "taken"), [((), 4, 1), (("matmul=mul0",), 8, 2)])
def test_a_device_in_one_file(board, pins, columns, taken, mode):
    rng, shapes = np.random.default_rng(0), ((5, 64), (64, 32), (32, columns))
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    module = parse_module(MODEL.replace("32, 4,", f"32, {columns},"), table())
    made, before = compilation(module, board=board, pins=pins, cache="none"), len(CALLS)
    exe = executable_of(made.program, mode=mode, callbacks=made.functions)
    # Probabilities: the smallest of them are subnormal numbers, which have few digits.
    want = inlay.compile(module, cache="none")(*arrays)
    np.testing.assert_allclose(exe(*arrays), want, rtol=1e-5, atol=1e-12)
    assert len(CALLS) - before == taken
    assert made.program.devices == ()


@pytest.mark.llvm
def test_constants_are_given_as_they_are(board):
    """Who makes no loops reads no panels."""
    text = f"fn main(x: Tensor[1, 2, f32]) {{ matmul(x, f32[2, 8]({', '.join(['1.5'] * 16)})) }}"
    made, before = compilation(parse_module(text, table()), board=board, pins=("matmul=mul0",)), len(CALLS)
    exe = executable_of(made.program, callbacks=made.functions)
    np.testing.assert_array_equal(exe(np.ones((1, 2), np.float32)), np.full((1, 8), 3, np.float32))
    assert len(CALLS) - before == 1


def test_what_it_refuses_is_said(board):
    module = parse_module(MODEL, table())
    plan = inlay.explain(module, board)
    first, last = (o for o in plan.operations if o.operator == "matmul")
    assert (first.device, last.device) == ("mul0", "cpu")
    assert last.others == {"mul0": "4 columns: at least 8"}
    with pytest.raises(CompileError, match="4 columns: at least 8"):
        inlay.compile(module, board=board, pins=("matmul=mul0",))
