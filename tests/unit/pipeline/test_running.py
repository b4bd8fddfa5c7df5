"""Places are planned again where memory turns out to be too small, for compiling and explaining alike."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.analysis.infer_types import infer_types
from inlay.api import compilation, explain
from inlay.base.diagnostics import CompileError
from inlay.ir.parser import parse_module
from inlay.machine.board_file import read_board
from inlay.ops.table import table
from inlay.runtime.session import executable_of

BOARD = """
summary = "a slow host, and a fast device with few and large pieces of memory"
[[arch]]
name = "native"
macs_per_ns = 0.001
elements_per_ns = 0.001
[[arch]]
name = "quick"
generator = "llvm"
loader = "native"
macs_per_ns = 100
elements_per_ns = 100
[[memory]]
name = "ram"
[[memory]]
name = "npu.mem"
kind = "static"
bytes = "16KiB"
alignment = 4096
owner = "npu"
[[device]]
name = "cpu"
arch = "native"
memories = ["ram"]
[[device]]
name = "npu"
arch = "quick"
memories = ["npu.mem"]
[[engine]]
name = "dma"
memories = ["ram", "npu.mem"]
[[link]]
from = "ram"
to = "npu.mem"
engine = "dma"
bytes_per_ns = 8
[[link]]
from = "npu.mem"
to = "ram"
engine = "dma"
bytes_per_ns = 8
"""
NAMES = "abcde"
# A kernel of five operands: by their bytes they fit, and each of them takes a piece of 4096.
PROGRAM = f"""
fn main({", ".join(f"{n}: Tensor[64, f32]" for n in NAMES)}) -> Tensor[64, f32] {{
  tanh(add(mul(a, b), mul(add(c, d), e)))
}}
entry main({", ".join(f'"{n}"' for n in NAMES)}) -> ("y");
"""


def module():
    return infer_types(parse_module(PROGRAM, table()))


def board():
    return read_board("pieces", BOARD, place="pieces.toml")


def test_places_are_planned_again_where_values_find_no_room():
    compiled = compilation(module(), board=board(), cache="none")
    said = [r.message for r in compiled.report.remarks if r.decision == "planned-again"]
    assert len(said) == 1
    assert "places are for 0.0% of memories of a fixed size: found no memory for" in said[0]
    assert {k.device for k in compiled.report.kernels} == {"cpu"}
    inputs = {n: np.full(64, 0.25, np.float32) for n in NAMES}
    expected = np.tanh(np.float32(0.25 * 0.25 + 0.5 * 0.25))
    np.testing.assert_allclose(executable_of(compiled.program).run(inputs)["y"], expected, rtol=1e-5)


def test_who_explains_sees_the_places_that_are_run():
    shown = explain(module(), board(), view="placement")
    assert {o.device for o in shown.operations} == {"cpu"}
    assert explain(module(), board(), view="memory").board.name == "pieces"


def test_what_is_pinned_is_refused_for_the_first_reason():
    with pytest.raises(CompileError, match="npu.mem: it has 16384 bytes left") as caught:
        compilation(module(), board=board(), pins=("*=npu",), cache="none")
    assert caught.value.ids == ("memory.no-room",)
