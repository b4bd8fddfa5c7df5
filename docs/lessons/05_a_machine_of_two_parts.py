"""A machine of two parts: describe it, let the program find its places, overrule it, run it on both.

A board says which devices a machine has, which memory each addresses, and who copies between them.
Programs do not mention any of that: where operations run follows from predicted times, and from what
you ask for. This lesson makes two devices of the processor that you have, with a memory for each and a
thread that copies, so that everything here really happens.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np

import inlay

# What this lesson writes goes to a folder that it throws away.
temporary = tempfile.TemporaryDirectory()
before = Path.cwd()
os.chdir(temporary.name)

# ---------------------------------------------------------------------- 1. a board
# The device that addresses the first memory is the host, where a program begins and ends. `native` is the
# processor of this machine. Figures are for predictions: bytes a nanosecond, and what a copy costs before
# its first byte.

BOARD = """
summary = "a processor, and another one behind a copier"

[[memory]]
name = "ram"
[[memory]]
name = "far.mem"
owner = "far"

[[device]]
name = "near"
arch = "native"
memories = ["ram"]
[[device]]
name = "far"
arch = "native"
memories = ["far.mem"]

[[engine]]
name = "copier"
memories = ["ram", "far.mem"]
[[link]]
from = "ram"
to = "far.mem"
engine = "copier"
bytes_per_ns = 8
latency_ns = 2000
[[link]]
from = "far.mem"
to = "ram"
engine = "copier"
bytes_per_ns = 8
latency_ns = 2000
"""
Path("two_parts.toml").write_text(BOARD)  # inlay targets check two_parts.toml

# ---------------------------------------------------------------------- 2. a program
# Two halves that do not need each other.


def half(x: str, depth: int) -> str:
    """Return a chain of matrix products."""
    for _ in range(depth):
        x = f"tanh(matmul({x}, w))"
    return x


Path("halves.inl").write_text(f"""
fn main(a: Tensor[256, 256, f32], b: Tensor[256, 256, f32], w: Tensor[256, 256, f32]) {{
  let left = {half("a", 4)};
  let right = {half("b", 4)};
  add(left, right)
}}
entry main("a", "b", "w") -> ("y");
""")
module = inlay.load("halves.inl")

# ---------------------------------------------------------------------- 3. where, and why
# From the command line: `inlay explain halves.inl --board two_parts.toml --threads 1`. Each operation
# has a device, a reason, and for the other device the first thing that speaks against it.

found = inlay.explain(module, "two_parts.toml", threads=1)  # what runs below: a thread of each
for operation in found.operations:
    print(f"{operation.device:5} {operation.operator:7} {operation.ns / 1e3:6.0f} us", operation.others)
print(f"{found.total_ns / 1e3:.0f} us predicted, {found.first_fit_ns / 1e3:.0f} on one device")
assert {operation.device for operation in found.operations} == {"near", "far"}
assert found.total_ns < found.first_fit_ns
assert all(copy.engine == "copier" for copy in found.copies)

# ---------------------------------------------------------------------- 4. run it
# The same numbers come out as from one device. Each device has a thread and a memory of its own here,
# so the halves run at once, and what one computes is copied to where the other reads it.

random = np.random.default_rng(0)
a, b, w = (random.normal(size=(256, 256)).astype(np.float32) / 16 for _ in range(3))
expected = inlay.compile(module, threads=1)(a, b, w)
two = inlay.compile(module, board="two_parts.toml", threads=1)
assert np.allclose(two(a, b, w), expected, rtol=1e-5, atol=1e-6)

# ---------------------------------------------------------------------- 5. overrule it
# `on_device` asks for an operation there, `@far!` on a name that its value is there, and a pin says it
# without touching the program. What you say is never traded for time.

pinned = inlay.explain(module, "two_parts.toml", pins=["matmul=far"])
assert all(o.device == "far" for o in pinned.operations if o.operator == "matmul")

# ---------------------------------------------------------------------- 6. contradict yourself
# `result=true` forbids a copy between an operation and what reads it. Both operands of this sum do so,
# on two devices: it cannot be had, and the refusal says what each of the two asked for, and where.

Path("contradiction.inl").write_text("""
fn main(x: Tensor[8, f32]) {
  add(
    on_device{device="near", result=true}(relu(x)),
    on_device{device="far", result=true}(tanh(x)))
}
""")
ids: tuple[str, ...] = ()
try:
    inlay.compile("contradiction.inl", board="two_parts.toml")
except inlay.CompileError as refusal:
    ids = refusal.ids
    print(refusal)
assert ids == ("placement.contradiction",)

os.chdir(before)
temporary.cleanup()
