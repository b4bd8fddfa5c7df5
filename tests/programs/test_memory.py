"""Memory stays where it is, however many calls of however many shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from inlay.analysis.infer_types import infer_types
from inlay.api import compilation
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from inlay.runtime.native import Settings
from inlay.runtime.session import executable_of

TEXT = """
fn main<n, k, m>(x: Tensor[n, k, f32], w: Tensor[k, m, f32]) {
  let y = relu(matmul(x, w));
  let z = softmax(concat{axis=0}(y, y));
  let loop = fn<i, p>(i: int[i], past: Tensor[p, m, f32]) {
    if (int_less(int(i), int(3))) { loop(int(i + 1), concat{axis=0}(past, y)) } else { past }
  };
  (loop(int(0), z), reduce_sum{axes=[0], keepdims=false}(z))
}
"""


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.slow
@pytest.mark.llvm
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_ten_thousand_calls_of_varying_shapes_end_where_the_first_thousand_did():
    module = infer_types(parse_module(TEXT, table()))
    program = compilation(module).program
    executable = executable_of(program, settings=Settings(cache_bytes=32 << 20))
    rng = np.random.default_rng(4)
    x, w = (rng.standard_normal((256, 256)).astype(np.float32) for _ in range(2))
    after: dict[int, int] = {}
    for call in range(1, 10_001):
        n, k, m = (int(v) for v in rng.integers(1, 257, 3))
        rows, _ = executable(x[:n, :k].copy(), w[:k, :m].copy())
        assert rows.shape == (5 * n, m)
        if call in (1000, 10_000):
            after[call] = resident()
    assert after[10_000] - after[1000] < 8 << 20
    assert executable.live_objects() == 0
