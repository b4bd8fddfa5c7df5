"""Requantization as it is compiled, on accumulators as far as they go, for near and far distances."""

from __future__ import annotations

import numpy as np
import pytest

import inlay
from inlay.arith.dtype import I8, I32
from inlay.ir import make
from inlay.ops.requantization import RequantizeAttrs, Rounding, requantized
from tests.unit.transforms.programs import Program

COUNT = 300
SHIFTS = {"left": (-3, 4), "near": (-2, 0), "far": (-31, -3)}
"""Shifts of channels: of all distances, from 31 on, and of those that are within the upper half."""


def accumulators(multipliers: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    """Return numbers of all sizes, and some close to where a result changes, for each channel."""
    rng = np.random.default_rng(5)
    any_size = rng.integers(-(2**31), 2**31, (COUNT, multipliers.size)) >> rng.integers(0, 31, (COUNT, 1))
    halves = (rng.integers(-300, 300, (COUNT, multipliers.size)) + 0.5) * 2.0 ** (31 - shifts) / multipliers
    near = np.clip(np.rint(halves), -(2**31), 2**31 - 1).astype(np.int64)
    ends = np.array([-(2**31), 2**31 - 1, 0, -1])[:, None].repeat(multipliers.size, 1)
    return np.concatenate([any_size, near, ends]).astype(np.int32)


@pytest.mark.slow
def test_compiled_factors_are_exact():
    rng = np.random.default_rng(4)
    p, inputs, wanted = Program(), {}, []
    results = []
    for name, (low, high) in SHIFTS.items():
        m = np.concatenate([rng.integers(2**30, 2**31, 15), 1 << np.arange(8, 31, 3)]).astype(np.int32)
        s = rng.integers(low, high, m.size).astype(np.int32)
        inputs[name] = accumulators(m, s)
        x = p.input(name, *inputs[name].shape, dtype=I32)
        for i, rounding in enumerate(Rounding):
            attrs = RequantizeAttrs((I8, I32)[i % 2], 5, rounding=rounding)
            made = {"dtype": attrs.dtype, "zero": attrs.zero, "rounding": rounding}
            results.append(p.op("requantize", x, make.const(m), make.const(s), **made))
            wanted.append(requantized(attrs, inputs[name], m, s))
    found = inlay.compile(p.module(*results), threads=1, cache="none").run(inputs)
    for got, want in zip(found.values(), wanted, strict=True):
        np.testing.assert_array_equal(got, want)
