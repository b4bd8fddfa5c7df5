"""Programs with independent parts, compiled to run them at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from inlay.analysis.infer_types import infer_types
from inlay.api import compilation
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from inlay.runtime.native import MODES, Settings
from inlay.runtime.session import executable_of
from inlay.runtime.trace import EventKind

pytestmark = pytest.mark.llvm

DEPTH = 6
# Wide and narrow in turns, so that no result has the size of its operand and is written over it.
STEPS = "\n".join(
    f"  let {side}{i + 1} = tanh(matmul({side}{i}, {'vw'[i % 2]}));" for i in range(DEPTH) for side in "ab"
)
HALVES = f"""
fn main(
  a0: Tensor[8, 8, f32], b0: Tensor[8, 8, f32], v: Tensor[8, 16, f32], w: Tensor[16, 8, f32]
) -> Tensor[8, 8, f32] {{
{STEPS}
  add(a{DEPTH}, b{DEPTH})
}}

entry main("a", "b", "v", "w") -> ("y");
"""


def longest_chain(plan: str) -> int:
    """Return how many kernels follow each other at least, where each is put off as long as it can."""
    module = infer_types(parse_module(HALVES, table()))
    program = compilation(module, plan=plan, cache="none").program
    shapes = ((8, 8), (8, 8), (8, 16), (16, 8))
    inputs = [np.eye(*s, dtype=np.float32) * k for s, k in zip(shapes, (0.5, 0.25, 0.75, 1.0), strict=True)]
    found = []
    for mode in MODES:
        settings = Settings(mode=mode, threads=2, hand_off_ns=0, trace=True)
        executable = executable_of(program, settings=settings)
        found.append(executable(*inputs).tobytes())
    assert len(set(found)) == 1
    events = executable.events()
    chain = {e.number: 1 for e in events if e.kind is EventKind.RUN}
    for number in sorted(chain):
        before = [chain[e.other] for e in events if e.kind is EventKind.NEEDS and e.number == number]
        chain[number] = 1 + max(before, default=0)
    return max(chain.values())


def test_halves_do_not_wait_for_the_bytes_of_each_other():
    assert longest_chain("parallel") <= DEPTH + 1
    assert longest_chain("serial") > DEPTH + 1


def test_devices_are_started_before_threads_do_their_own():
    """One thread has a chain of long kernels to run, and a device waits for the first of them.

    The driver does nothing, at once, so that the order of events is that of starts.
    """
    wide = "Tensor[192, 192, f32]"
    steps = "\n".join(
        f"  let a{i + 1} = {where}(matmul(a{i}, w));\n  let b{i + 1} = matmul(b{i}, w);"
        for i, where in enumerate(["", *['on_device{device="cpu1"}'] * 4])
    )
    text = f"""
    fn main(a0: {wide}, b0: {wide}, w: {wide}) -> ({wide}, {wide}) {{
    {steps}
      (a5, b5)
    }}
    entry main("a", "b", "w") -> ("y", "z");
    """
    module = infer_types(parse_module(text, table()))
    program = compilation(module, board="host_two", cache="none", threads=1).program
    nothing = tuple(replace(d, driver="null", options="") for d in program.devices)
    settings = Settings(mode="parallel", threads=1, trace=True)
    executable = executable_of(replace(program, devices=nothing), settings=settings)
    executable(*[np.eye(192, dtype=np.float32)] * 3)
    runs = sorted((e.begin, e.device) for e in executable.events() if e.kind is EventKind.RUN)
    devices = [device for _, device in runs]
    last = max(i for i, device in enumerate(devices) if device)
    assert devices[last:].count("") >= 3, devices
