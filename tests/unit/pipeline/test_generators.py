"""What a code generator refuses is known when places are planned: nothing fails behind that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import inlay
from inlay.api import compilation
from inlay.base.diagnostics import CompileError
from inlay.bytecode.program import CopyBody
from inlay.cli.main import main
from inlay.codegen.backends.opencl import OpenCl
from inlay.ir.parser import parse_module
from inlay.machine.board_file import read_board
from inlay.ops.table import table
from inlay.placement.explain.report import describe

PROGRAM = """
fn main(x: Tensor[8, 64, f32], y: Tensor[8, f64]) {
  (softmax(matmul(x, transpose{perm=[1, 0]}(x))), exp(y)) }
"""


def test_element_types_that_a_device_lacks():
    found = inlay.explain(parse_module(PROGRAM, table()), "remote_opencl")
    (exp,) = [o for o in found.operations if o.operator == "exp"]
    assert exp.device == "cpu"
    assert exp.others == {"far0": "opencl-remote does not handle f64"}
    with pytest.raises(CompileError) as failure:
        inlay.compile(parse_module(PROGRAM, table()), board="remote_opencl", pins=("exp=far0",))
    assert failure.value.ids == ("placement.unsupported-op",)
    assert "opencl-remote does not handle f64" in str(failure.value)


def test_what_the_generator_says_of_lowered_code_keeps_operations_off_the_device(monkeypatch):
    """A device that has no room for a kernel does not get it, even where it is fast."""

    def refuse(self, board, device, call, lowered) -> str:
        return f"a temporary of 9 bytes in {lowered().name}"

    monkeypatch.setattr(OpenCl, "refuse", refuse)
    program = parse_module("fn main(x: Tensor[64, 512, f32]) { softmax(x) }", table())
    found = inlay.explain(program, "opencl")
    (softmax,) = found.operations
    assert softmax.device == "cpu"
    assert softmax.others["cl0"].startswith("a temporary of ")
    with pytest.raises(CompileError) as failure:
        inlay.explain(program, "opencl", pins=("softmax=cl0",))
    assert failure.value.ids == ("placement.unsupported-op",)
    assert "a temporary of " in str(failure.value)


LARGE = """
fn main(a: Tensor[512, 512, f32], b: Tensor[512, 512, f32]) -> Tensor[512, 512, f32] {
  let x = tanh(matmul(a, b));
  add(x, sigmoid(matmul(x, a)))
}
entry main("a", "b") -> ("y");
"""
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


@pytest.mark.sample(3)
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
def test_a_device_of_several_memories_works_in_one(memories, coherent, copies, kernels):
    board, program = halves(memories, coherent), parse_module(CHAIN, table())
    arrays = np.random.default_rng(0).standard_normal((2, 16, 16)).astype(np.float32)
    pins = ("sigmoid=near", "matmul=near")
    assert len(inlay.explain(program, board, pins=("sigmoid=far", "matmul=far")).copies) == copies
    expected = inlay.compile(program, cache=kernels)(*arrays)
    for said in ((), pins):
        found = inlay.compile(program, board=board, pins=said, cache=kernels)(*arrays)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_who_shares_memory_without_seeing_what_is_written_is_told_what_to_say():
    with pytest.raises(CompileError, match="both address 'ram'") as failure:
        inlay.explain(parse_module(CHAIN, table()), replace(halves('"ram"'), links=()))
    assert set(failure.value.ids) == {"board.invalid"}
    hint = 'if the hardware sees to that: [[coherent]] memory = "ram", parties = ["near", "far"]'
    assert hint in failure.value.diagnostics[0].hint


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("lines", "memories", "reason"),
    [
        ('generator = "opencl"\nloader = "opencl"', '"ram"', "it needs one of its own"),
        ('generator = "opencl"', '"far.mem"', "has the loader '', needed opencl or remote"),
        ('generator = "llvm"\nloader = "jtag"', '"far.mem"', "needed native or remote"),
        ('generator = "llvm"\nloader = "remote"', '"far.mem"', "no parameter 'endpoint'"),
        ('generator = "cuda"', '"far.mem"', "no code generator here makes code for npu"),
    ],
)
@pytest.mark.parametrize("fast", [False, True])
def test_what_no_code_is_made_for_is_planned_with_and_refused_by_name(lines, memories, reason, fast):
    """Who asks and who compiles has one plan: none is made behind the back of who compiles."""
    if fast:
        lines += "\nmacs_per_ns = 1e6\nelements_per_ns = 1e6\ntranscendentals_per_ns = 1e6"
    board = halves(memories, COHERENT if "ram" in memories else "", "npu", lines)
    free = parse_module(LARGE, table())
    plan = inlay.explain(free, board)
    assert any(o.device == "far" for o in plan.operations) == fast
    assert reason in plan.without_code["far"]
    said = "\n".join(describe(plan))
    assert ("no code is made here for 'far'" in said) and reason in said
    pins = ("*=near",) if fast else ()
    assert inlay.compile(free, board=board, pins=pins, cache="none").program.devices == ()
    with pytest.raises(CompileError) as failure:
        inlay.compile(free, board=board, pins=() if fast else ("tanh=far",), cache="none")
    assert failure.value.ids == ("target.no-generator",)
    assert reason in str(failure.value)
    assert "--pin '*=near'" in str(failure.value)


TWINS = """
[[arch]]
name = "dsp"
macs_per_ns = 4000
elements_per_ns = 400
transcendentals_per_ns = 100
[[memory]]
name = "ram"
[[memory]]
name = "cpu.stack"
kind = "stack"
owner = "cpu"
[[memory]]
name = "tcm0"
[[memory]]
name = "tcm1"
[[device]]
name = "cpu"
arch = "native"
memories = ["ram", "cpu.stack"]
[[device]]
name = "dsp0"
arch = "dsp"
memories = ["ram", "tcm0"]
[[device]]
name = "dsp1"
arch = "dsp"
memories = ["ram", "tcm1"]
[[engine]]
name = "dma"
memories = ["ram", "tcm0", "tcm1"]
""" + "".join(
    f'[[link]]\nfrom = "{a}"\nto = "{b}"\nengine = "dma"\nbytes_per_ns = 64\n'
    for d in "01"
    for a, b in (("ram", f"tcm{d}"), (f"tcm{d}", "ram"))
)
"""Two processors that see the memory of the host, not its writes, and each have one of their own."""


def test_one_check_of_boards_for_all_who_use_them(tmp_path, capsys):
    """Links lead to where the planner's routes lead, whichever memories the two have in common."""
    path, program = tmp_path / "twins.toml", tmp_path / "p.inl"
    program.write_text(LARGE)
    path.write_text(TWINS)
    assert main(["targets", "check", str(path)]) == 0
    found = inlay.explain(program, str(path))
    assert "dsp0" in {o.device for o in found.operations}
    with pytest.raises(CompileError) as failure:
        inlay.compile(program, board=str(path), cache="none")
    assert set(failure.value.ids) == {"target.no-generator"}
    one_way = 'from = "ram"\nto = "tcm1"', 'from = "tcm1"\nto = "tcm0"'
    path.write_text(TWINS.replace(*one_way).replace('["ram", "tcm1"]', '["tcm1"]'))
    said: list[str] = []
    capsys.readouterr()
    for command in (
        ["targets", "check", str(path)],
        ["explain", str(program), "--board", str(path)],
        ["run", str(program), "--board", str(path)],
    ):
        assert main(command) == 1
        said.append(capsys.readouterr().err)
    assert said[0] == said[1] == said[2]
    assert "no links lead from 'cpu' to 'dsp1'" in said[0]


@pytest.mark.parametrize("pins", [(), ("matmul*=cpu1",)])
@pytest.mark.parametrize("placement", ["best", "first"])
def test_what_is_explained_is_what_is_compiled(pins, placement):
    options = {"pins": pins, "placement": placement}
    program = parse_module(LARGE, table())
    plan = inlay.explain(program, "host_two", **options)
    made = compilation(program, board="host_two", cache="none", **options)
    assert {o.device for o in plan.operations} == {k["device"] for k in made.report.to_json()["kernels"]}
    copies = [k.name for k in made.program.kernels if isinstance(k.body, CopyBody)]
    assert bool(copies) == bool(plan.copies)
