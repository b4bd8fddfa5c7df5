"""Sizes with two names: values are what they were, and sizes that do not fit are found where they come in."""

from __future__ import annotations

import io

import numpy as np
import pytest

import inlay
from inlay.base.diagnostics import RunError

pytestmark = pytest.mark.llvm

PROGRAM = """
fn main<n, past, total, half>(
  q: Tensor[n, 4, f32], old: Tensor[past, 4, f32], mask: Tensor[n, total, f32], halves: Tensor[half, 2, f32]
) -> (Tensor[n, 4, f32], Tensor[2 * half, f32]) {
  let keys = concat{axis=0}(old, q);
  let scores = matmul(q, transpose{perm=[1, 0]}(keys));
  let same = check_shape{why="columns"}(scores, shape(n, total));
  let p = softmax{axis=1}(add(same, mask));
  let values = check_shape{why="columns"}(keys, shape(total, 4));
  let pairs = check_shape{why="pairs"}(reshape(halves, shape(2 * half)), shape(total));
  (matmul(p, values), add(pairs, f32(1.5)))
}

entry main("q", "old", "mask", "halves") -> ("y", "z");
"""


def test_values_and_sizes_that_do_not_fit() -> None:
    exe = inlay.compile(io.StringIO(PROGRAM))
    rng = np.random.default_rng(0)

    def given(n: int, past: int, total: int, half: int) -> dict[str, np.ndarray]:
        shapes = {"q": (n, 4), "old": (past, 4), "mask": (n, total), "halves": (half, 2)}
        return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}

    for n, past in ((1, 5), (2, 0), (3, 7)):
        x = given(n, past, n + past, (n + past) // 2)
        keys = np.concatenate([x["old"], x["q"]])
        p = np.exp(x["q"] @ keys.T + x["mask"])
        y, z = exe.run(x).values()
        np.testing.assert_allclose(y, p / p.sum(1, keepdims=True) @ keys, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(z, x["halves"].reshape(-1) + np.float32(1.5))
    for sizes, why in (((2, 4, 5, 3), "columns"), ((2, 4, 6, 2), "pairs")):
        with pytest.raises(RunError) as caught:
            exe.run(given(*sizes))
        assert caught.value.ids == ("run.check-failed",)
        assert why in str(caught.value)
