"""What the runtime counts: bytes that tensors of a call take, and what it asks of the process."""

from __future__ import annotations

import io

import numpy as np
import pytest

import inlay
from inlay.base.diagnostics import CompileError
from inlay.runtime.session import Executable, load_executable

pytestmark = pytest.mark.llvm

TENSOR = 16 * 64 * 4
# Of different sizes, so that none is written over the one before.
CHAIN = """
fn main(x: Tensor[16, 64, f32], u: Tensor[64, 96, f32], v: Tensor[96, 32, f32], w: Tensor[32, 64, f32])
    -> (Tensor[16, 64, f32], Tensor[16, 64, f32]) {
  let a = matmul(x, u);
  let b = matmul(a, v);
  (matmul(b, w), x)
}

entry main("x", "u", "v", "w") -> ("y", "same");
"""


def chain() -> tuple[Executable, dict[str, np.ndarray]]:
    made = inlay.compile(io.StringIO(CHAIN), threads=1, mode="sequential")
    shapes = {"x": (16, 64), "u": (64, 96), "v": (96, 32), "w": (32, 64)}
    return made, {name: np.ones(shape, np.float32) for name, shape in shapes.items()}


def test_a_call_takes_its_block_and_its_results_and_what_is_copied_out():
    exe, inputs = chain()
    exe.run(inputs)
    usage = exe.usage()
    # Two intermediates in the block, as large as two results, and the product; the input is copied out when the block is gone.
    assert (usage.peak_bytes, usage.storages) == (3 * TENSOR, 2)


def test_in_steady_state_nothing_is_asked_for_but_results():
    exe, inputs = chain()
    exe.run(inputs)
    before = exe.usage()
    for _ in range(3):
        exe.run(inputs)
    after = exe.usage()
    assert after.allocations - before.allocations == 3 * 2
    assert after.taken_bytes == before.taken_bytes
    assert after.most_taken_bytes > after.taken_bytes


def test_results_count_until_they_are_dropped():
    exe, inputs = chain()
    exe.run(inputs)
    idle = exe.usage().taken_bytes
    kept = exe.run(inputs)
    assert exe.usage().taken_bytes >= idle + 2 * TENSOR
    del kept
    assert exe.usage().taken_bytes == idle


def test_the_reference_interpreter_counts_nothing(tmp_path):
    exe, _ = chain()
    exe.save(tmp_path / "chain.inlay")
    with pytest.raises(CompileError) as found:
        load_executable(tmp_path / "chain.inlay", engine="python").usage()
    assert found.value.ids == ("option.no-effect",)
