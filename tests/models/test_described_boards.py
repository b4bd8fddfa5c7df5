"""On boards with devices that are only described, compiling obeys what explaining says.

A plan that uses such a device is refused with the name of each one that it uses; the same plan without
them compiles. No device is dropped in silence, and nothing that fits no scratch memory is put there.
"""

from __future__ import annotations

import pytest

import inlay
from inlay.base.diagnostics import CompileError
from inlay.machine.board import Board
from inlay.machine.board_file import read_board
from inlay.placement.explain.reasons import Explanation
from tests.data import cases, model_case

pytestmark = [pytest.mark.llvm, pytest.mark.data]

MODELS = [case.id for case in cases("onnx")]
HOST = """
default = "cpu"
[[arch]]
name = "engine"
operators = ["conv", "matmul", "relu", "add", "max_pool"]
dtypes = ["f32", "i8", "u8", "i32"]
macs_per_ns = 512
elements_per_ns = 32
launch_ns = 500
[[memory]]
name = "ram"
bytes_per_ns = 12
[[device]]
name = "cpu"
arch = "native"
memories = ["ram"]
"""
SCRATCH = """
[[memory]]
name = "{npu}.spad"
kind = "static"
bytes = "{size}"
owner = "{npu}"
bytes_per_ns = 64
[[device]]
name = "{npu}"
arch = "engine"
memories = ["{npu}.spad"]
[[link]]
from = "ram"
to = "{npu}.spad"
engine = "dma"
bytes_per_ns = 16
latency_ns = 200
[[link]]
from = "{npu}.spad"
to = "ram"
engine = "dma"
bytes_per_ns = 16
latency_ns = 200
"""
DSP = """
[[arch]]
name = "dsp_cpu"
dtypes = ["bool", "i8", "u8", "i32", "f32"]
macs_per_ns = 48
elements_per_ns = 64
transcendentals_per_ns = 16
launch_ns = 200
[[arch]]
name = "dsp_tensor"
operators = ["conv", "matmul", "relu"]
macs_per_ns = 256
launch_ns = 800
[[device]]
name = "dsp"
arch = "dsp_cpu"
memories = ["ram"]
[[device]]
name = "dsp_matrix"
arch = "dsp_tensor"
shares = "dsp"
memories = ["ram"]
[[coherent]]
memory = "ram"
parties = ["cpu", "dsp", "dsp_matrix"]
"""


def engine(*names: str) -> str:
    return f'[[engine]]\nname = "dma"\nmemories = {["ram", *(f"{n}.spad" for n in names)]}\n'


BOARDS = {
    "npu_64k": 'summary = "a small NPU"\n' + HOST + engine("npu0") + SCRATCH.format(npu="npu0", size="64KiB"),
    "two_npus_and_dsp": 'summary = "two NPUs and a DSP of two modes"\n'
    + HOST
    + engine("npu0", "npu1")
    + SCRATCH.format(npu="npu0", size="2MiB")
    + SCRATCH.format(npu="npu1", size="2MiB")
    + DSP,
}


def board_of(name: str) -> Board:
    return read_board(name, BOARDS[name], place="a test")


def used(found: Explanation) -> set[str]:
    """Return the devices that run something or in whose memories something is put on its way."""
    on_the_way = {d for copy in found.copies for d in (copy.source, copy.target)}
    return {o.device for o in found.operations} | on_the_way


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("board", BOARDS)
def test_compiling_obeys_what_explaining_says(board: str, name: str) -> None:
    machine = board_of(board)
    path = next(c.model for c in cases("onnx") if c.id == name)
    found = inlay.explain(path, board=machine, threads=1)
    described = used(found) & set(found.without_code)
    if not described:
        inlay.compile(path, board=machine, threads=1, cache="none")
        return
    with pytest.raises(CompileError) as failure:
        inlay.compile(path, board=machine, threads=1, cache="none")
    assert set(failure.value.ids) == {"target.no-generator"}
    said = {d.message.split("uses '")[1].split("'")[0] for d in failure.value.diagnostics}
    assert said == described


@pytest.mark.parametrize("board", BOARDS)
def test_some_plan_uses_what_is_described(board: str) -> None:
    """Else the test above would show nothing."""
    found = inlay.explain(model_case("mnist8").model, board=board_of(board), threads=1)
    assert used(found) - {"cpu"}
