"""Who copies: an engine beside the devices, or a device, which does nothing else meanwhile."""

from __future__ import annotations

import io

import inlay
from inlay.machine.board_file import read_board

BOARD = """
summary = "a processor, and another one behind a copier"
[[memory]]
name = "ram"
[[memory]]
name = "far.mem"
owner = "far"
[[arch]]
name = "core"
macs_per_ns = 10
elements_per_ns = 10
[[device]]
name = "near"
arch = "core"
memories = ["ram"]
[[device]]
name = "far"
arch = "core"
memories = ["far.mem"]
[[engine]]
name = "copier"
memories = ["ram", "far.mem"]
DEVICE
[[link]]
from = "ram"
to = "far.mem"
engine = "copier"
bytes_per_ns = 1
[[link]]
from = "far.mem"
to = "ram"
engine = "copier"
bytes_per_ns = 1
"""
PROGRAM = """
fn main(a: Tensor[128, 128, f32], b: Tensor[128, 128, f32]) -> Tensor[128, 128, f32] {
  let left @near = matmul(a, a);
  let right @far = matmul(b, b);
  add(left, right)
}
entry main("a", "b") -> ("y");
"""


def predicted(device: str) -> float:
    board = read_board("drawn", BOARD.replace("DEVICE", device), place="drawn.toml")
    found = inlay.explain(io.StringIO(PROGRAM), board)
    assert {(c.source, c.target) for c in found.copies} == {("near", "far"), ("far", "near")}
    assert sum(c.ns for c in found.copies) > 0
    return found.total_ns


def test_a_device_that_copies_does_nothing_else_meanwhile() -> None:
    beside, itself = predicted(""), predicted('device = "near"')
    copies = 2 * 128 * 128 * 4  # a byte in a nanosecond
    assert itself >= beside + copies / 2
