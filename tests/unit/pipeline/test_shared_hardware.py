"""Devices that are one piece of hardware: programs never run kernels of two of them at once."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from inlay.analysis.infer_types import infer_types
from inlay.api import compilation
from inlay.bytecode import container, writer
from inlay.bytecode.program import DeviceBody, Program
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from inlay.runtime.native import Settings
from inlay.runtime.session import executable_of
from inlay.runtime.trace import EventKind
from tests.unit.bytecode import assembler, disasm

pytestmark = pytest.mark.llvm

DEPTH, SIZE = 4, 320
UNITS = {"a": "unit0", "b": "unit1"}
STEPS = "\n".join(
    f'  let {side}{i + 1} = on_device{{device="{unit}"}}(matmul({side}{i}, w));'
    for i in range(DEPTH)
    for side, unit in UNITS.items()
)
TENSOR = f"Tensor[{SIZE}, {SIZE}, f32]"
HALVES = f"""
fn main(a0: {TENSOR}, b0: {TENSOR}, w: {TENSOR}) {{
{STEPS}
  (a{DEPTH}, b{DEPTH})
}}

entry main("a", "b", "w") -> ("c", "d");
"""
BOARD = """
summary = "the host and two devices{how}"
[[memory]]
name = "host"
[[device]]
name = "cpu"
arch = "native"
memories = ["host"]
[[engine]]
name = "copier"
memories = ["host", "unit0.mem", "unit1.mem"]
"""
DEVICE = """
[[memory]]
name = "{name}.mem"
owner = "{name}"
[[device]]
name = "{name}"
arch = "native"
memories = ["{name}.mem"]
{shares}
[[link]]
from = "host"
to = "{name}.mem"
engine = "copier"
[[link]]
from = "{name}.mem"
to = "host"
engine = "copier"
"""


def halves(folder, *, shared: bool) -> Program:
    line = 'shares = "fabric0"' if shared else ""
    parts = [DEVICE.format(name=f"unit{i}", shares=line) for i in range(2)]
    path = folder / f"{'one' if shared else 'two'}.toml"
    path.write_text(BOARD.format(how=" that are one fabric" if shared else "") + "".join(parts))
    module = infer_types(parse_module(HALVES, table()))
    program = compilation(module, board=str(path), plan="parallel", cache="none").program
    assert sum(isinstance(k.body, DeviceBody) for k in program.kernels) >= 2
    return program


def beside(program: Program, *, calls: int = 1) -> int:
    """Run a few times, `calls` at once; return how often a kernel began while another device worked."""
    exe = executable_of(program, settings=Settings(threads=2, mode="parallel", trace=True))
    x = np.linspace(-1, 1, SIZE * SIZE, dtype=np.float32).reshape(SIZE, SIZE)
    w = np.eye(SIZE, dtype=np.float32)

    def work() -> None:
        for _ in range(5):
            found = exe.run({"a": x, "b": -x, "w": w})
            np.testing.assert_array_equal(found["c"], x)
            np.testing.assert_array_equal(found["d"], -x)

    threads = [threading.Thread(target=work) for _ in range(calls)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    events = [e for e in exe.events() if e.kind is EventKind.RUN and e.device and e.queue % 2 == 0]
    assert {e.device for e in events} == {"unit0", "unit1"}
    ones, others = ([e for e in events if e.device == f"unit{i}"] for i in range(2))
    return sum(a.begin < b.end and b.begin < a.end for a in ones for b in others)


def test_devices_of_one_fabric_take_turns(tmp_path):
    assert beside(halves(tmp_path, shared=True)) == 0
    assert any(beside(halves(tmp_path, shared=False)) for _ in range(40))


def test_calls_of_one_program_take_turns_too(tmp_path):
    assert beside(halves(tmp_path, shared=True), calls=3) == 0


def test_shared_hardware_is_written_and_checked(tmp_path):
    program = halves(tmp_path, shared=True)
    assert [d.hardware for d in program.devices] == [(1,), (1,)]
    read = container.read(writer.to_bytes(program))
    assert [d.hardware for d in read.devices] == [(1,), (1,)]
    again = assembler.parse(disasm.listing(program), disasm.resources(program))
    assert [d.hardware for d in again.devices] == [(1,), (1,)]
    assert [d.hardware for d in halves(tmp_path, shared=False).devices] == [(), ()]
