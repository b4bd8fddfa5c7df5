"""Placed programs compute what they did, and what cannot be compiled for is refused."""

from __future__ import annotations

import numpy as np
import pytest

import inlay
from inlay.base.diagnostics import CompileError
from tests.unit.placement.cases import read

SOURCE = """
fn main<n>(x: Tensor[n, 8, f32], w: Tensor[8, 8, f32]) -> (Tensor[n, 8, f32], Tensor[n, 8, f32]) {
  let a = on(DEVICE, matmul(x, w));
  let loop = fn<i>(i: int[i], h: Tensor[n, 8, f32]) -> Tensor[n, 8, f32] {
    if (int_less(int(i), int(3))) { loop(int(i + 1), on(DEVICE, matmul(h, w))) } else { h }
  };
  (add(relu(loop(int(0), a)), x), neg(a))
}
entry main("x", "w") -> ("y", "z");
"""


@pytest.mark.llvm
def test_two_devices_give_what_one_gives():
    rng = np.random.default_rng(0)
    inputs = {
        "x": rng.standard_normal((5, 8)).astype(np.float32),
        "w": rng.standard_normal((8, 8)).astype(np.float32),
    }
    text = SOURCE.replace("DEVICE", "cpu1")
    plain = text.replace("on(cpu1, ", "(")
    one = inlay.compile(read(plain), cache="none").run(inputs)
    two = inlay.compile(read(text), board="host_two", verify=True, cache="none").run(inputs)
    for name, expected in one.items():
        np.testing.assert_array_equal(two[name], expected)


def test_a_device_without_a_code_generator_is_refused():
    with pytest.raises(CompileError, match="no code generator here makes code for") as failure:
        inlay.compile(read(SOURCE.replace("DEVICE", "cl0")), board="opencl", cache="none")
    assert set(failure.value.ids) == {"placement.unsupported-op"}
    assert failure.value.diagnostics[0].hint == "put it on cpu"
    with pytest.raises(CompileError) as failure:
        inlay.compile(read("fn main(x @cl0!: T) { x }"), board="opencl", cache="none")
    assert set(failure.value.ids) == {"target.no-generator"}
