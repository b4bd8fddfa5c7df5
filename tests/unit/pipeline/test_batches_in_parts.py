"""Executables whose batches are computed in parts give what those give that compute layer by layer."""

from __future__ import annotations

import numpy as np
import pytest

import inlay
from inlay.api import compilation
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from inlay.placement.explain.report import describe
from tests.unit.transforms.programs import noise

TEXT = """
fn main(x: Tensor[6, 16, 64, 64, f32], v: Tensor[64, 16, 3, 3, f32], w: Tensor[64, 64, 3, 3, f32])
    -> (Tensor[6, 64, f32], Tensor[64, f32]) {
  let h = relu(conv{pads=[1, 1, 1, 1]}(x, v));
  let y = relu(conv{strides=[2, 2], pads=[1, 1, 1, 1]}(h, w));
  let z = reduce_mean{axes=[2, 3]}(y);
  (z, reduce_max{axes=[0]}(z))
}
"""
INPUTS = (noise(6, 16, 64, 64), noise(64, 16, 3, 3, seed=1), noise(64, 64, 3, 3, seed=2))


def program() -> inlay.Module:
    return parse_module(TEXT, table())


def is_split(**options) -> bool:
    return "main_part" in compilation(program(), **{"threads": 2} | options).module.functions


@pytest.mark.sample(2)
@pytest.mark.parametrize("mode", ["sequential", "parallel"])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_values(mode: str, threads: int):
    whole = inlay.compile(program(), threads=threads, whole_batches=True)(*INPUTS)
    executable = inlay.compile(program(), threads=threads, mode=mode)
    for _ in range(3):
        for found, expected in zip(executable(*INPUTS), whole, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_where_batches_are_split():
    assert is_split()
    assert not is_split(threads=4), "there would be three parts"
    assert not is_split(whole_batches=True)
    assert not is_split(budget=("host=300MB",)), "what calls take at once is promised"
    assert not is_split(batch=True), "the machine makes batches"


def test_explain_says_it():
    batch = "the 6 samples of 'main' are computed in parts of 2"
    found = inlay.explain(program(), threads=2)
    assert found.batches == (batch,)
    assert found.to_json()["batches"] == [batch]
    assert f"  {batch}; --whole-batches computes layer by layer" in describe(found)
    assert inlay.explain(program(), threads=2, whole_batches=True).batches == ()
