"""What a code generator refuses is known when places are planned: nothing fails behind that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import inlay
from inlay.base.diagnostics import CompileError
from inlay.codegen.opencl import DeviceFacts
from inlay.ir.parser import parse_module
from inlay.machine.board_file import read_board
from inlay.ops.table import table
from inlay.pipeline import generators
from inlay.pipeline.explain import explanation

PROGRAM = """
fn main(x: Tensor[8, 64, f32], y: Tensor[8, f64]) {
  (softmax(matmul(x, transpose{perm=[1, 0]}(x))), exp(y)) }
"""


def test_element_types_that_a_device_lacks():
    found = explanation(parse_module(PROGRAM, table()), "remote_opencl")
    (exp,) = [o for o in found.operations if o.operator == "exp"]
    assert exp.device == "cpu"
    assert exp.others == {"far0": "opencl-remote does not handle f64"}
    with pytest.raises(CompileError) as failure:
        inlay.compile(parse_module(PROGRAM, table()), board="remote_opencl", pins=("exp=far0",))
    assert failure.value.ids == ("placement.unsupported-op",)
    assert "opencl-remote does not handle f64" in str(failure.value)


def test_what_the_generator_says_of_lowered_code_keeps_operations_off_the_device(monkeypatch):
    """A device that has no room for temporaries gets nothing that needs one, even where it is fast."""
    monkeypatch.setattr(generators, "facts_of", lambda arch: DeviceFacts(private_bytes=1))
    program = parse_module("fn main(x: Tensor[64, 512, f32]) { softmax(x) }", table())
    found = explanation(program, "opencl")
    (softmax,) = found.operations
    assert softmax.device == "cpu"
    assert softmax.others["cl0"].startswith("a temporary of ")
    with pytest.raises(CompileError) as failure:
        explanation(program, "opencl", pins=("softmax=cl0",))
    assert failure.value.ids == ("placement.unsupported-op",)
    assert "a temporary of " in str(failure.value)


HALVES = """
[[memory]]
name = "ram"
[[memory]]
name = "far.mem"
[[device]]
name = "near"
arch = "native"
memories = ["ram"]
ARCH
[[device]]
name = "far"
arch = "NAME"
memories = [MEMORIES]
[[engine]]
name = "dma"
memories = ["ram", "far.mem"]
[[link]]
from = "ram"
to = "far.mem"
engine = "dma"
[[link]]
from = "far.mem"
to = "ram"
engine = "dma"
COHERENT
"""
COHERENT = '[[coherent]]\nmemory = "ram"\nparties = ["near", "far"]'
CHAIN = """
fn main(a: Tensor[16, 16, f32], b: Tensor[16, 16, f32]) {
  let x = on_device{device="far"}(tanh(matmul(a, b)));
  on_device{device="far"}(add(x, sigmoid(matmul(x, a))))
}
entry main("a", "b") -> ("y");
"""


def halves(memories: str, coherent: str = "", arch: str = "native", lines: str = ""):
    text = HALVES.replace("MEMORIES", memories).replace("COHERENT", coherent)
    if arch != "native":
        lines = f'[[arch]]\nname = "{arch}"\n{lines}'
    return read_board("halves", text.replace("NAME", arch).replace("ARCH", lines), place="halves")


@pytest.mark.llvm
@pytest.mark.parametrize(
    ("memories", "coherent", "copies"),
    [
        ('"far.mem"', "", 3),
        ('"far.mem", "ram"', COHERENT, 3),  # a driver has memory of its own, so that is where it works
        ('"far.mem", "ram"', "", 3),
        ('"ram", "far.mem"', "", 3),  # not where it does not see what the host writes
        ('"ram", "far.mem"', COHERENT, 0),
        ('"ram"', COHERENT, 0),
        ('"ram"', "", 6),  # there and back through the other memory: the engine sees all writes
    ],
)
def test_a_device_of_several_memories_works_in_one(memories, coherent, copies):
    board, program = halves(memories, coherent), parse_module(CHAIN, table())
    arrays = np.random.default_rng(0).standard_normal((2, 16, 16)).astype(np.float32)
    pins = ("sigmoid=near", "matmul=near")
    assert len(inlay.explain(program, board, pins=("sigmoid=far", "matmul=far")).copies) == copies
    expected = inlay.compile(program, cache="none")(*arrays)
    for said in ((), pins):
        found = inlay.compile(program, board=board, pins=said, cache="none")(*arrays)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_who_shares_memory_without_seeing_what_is_written_is_told_what_to_say():
    with pytest.raises(CompileError, match="both address ram") as failure:
        inlay.explain(parse_module(CHAIN, table()), replace(halves('"ram"'), links=()))
    assert set(failure.value.ids) == {"device.no-path"}
    hint = 'if the hardware sees to that: [[coherent]] memory = "ram", parties = ["near", "far"]'
    assert hint in failure.value.diagnostics[0].hint


@pytest.mark.parametrize(
    ("lines", "memories", "reason"),
    [
        ('generator = "opencl"\nloader = "opencl"', '"ram"', "it needs one of its own"),
        ('generator = "opencl"', '"far.mem"', "has the loader '', needed opencl or remote"),
        ('generator = "llvm"\nloader = "jtag"', '"far.mem"', "needed remote or native"),
        ('generator = "llvm"\nloader = "remote"', '"far.mem"', "no parameter 'endpoint'"),
        ('generator = "cuda"', '"far.mem"', "no code generator here makes code for npu"),
    ],
)
def test_what_no_code_is_made_for_gets_nothing_unless_somebody_says_so(lines, memories, reason):
    board = halves(memories, COHERENT if "ram" in memories else "", "npu", lines)
    free = parse_module(CHAIN.replace('on_device{device="far"}', ""), table())
    assert inlay.compile(free, board=board, cache="none").program.devices == ()
    with pytest.raises(CompileError) as failure:
        inlay.compile(free, board=board, pins=("tanh=far",))
    assert set(failure.value.ids) == {"placement.unsupported-op"}
    assert reason in str(failure.value)
