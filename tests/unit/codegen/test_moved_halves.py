"""Floats of 16 bits that are only moved keep their bits: they are not widened and narrowed again."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.codegen.llvm import emit_module
from inlay.codegen.llvm_compile import assembly
from inlay.loop.func import LoopFunction
from inlay.machine.target import baseline, host
from tests.unit.codegen.support import parsed, run_native

PROGRAM = """\
lowered func f(c: i64[64], x: {dtype}[64], w: {dtype}[64]) -> (y: {dtype}[64]) {{
  for o in 0..4 {{ for l in 0..16 vector {{ y[16*o + l] = {value} }} }}
}}
"""
MOVES = {
    "x[16*o + l]": lambda c, o, x, w: x,
    "select(c[16*o + l] < 3:i64, x[16*o + l], w[16*o + l])": lambda c, o, x, w: np.where(c < 3, x, w),
    "select(c[16*o + l] < 3:i64, x[16*o + l], w[o])": lambda c, o, x, w: np.where(c < 3, x, w[o]),
    "select([o] < [2], x[16*o + l], w[16*o + l])": lambda c, o, x, w: np.where(o < 2, x, w),
    "select([o] < [2], select(c[16*o + l] < 3:i64, x[16*o + l], 0.0:{dtype}), w[16*o + l])": (
        lambda c, o, x, w: np.where(o < 2, np.where(c < 3, x, 0), w)
    ),
}


def program(value: str, dtype: str) -> LoopFunction:
    return parsed(PROGRAM.format(dtype=dtype, value=value.format(dtype=dtype)))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("value", MOVES)
def test_all_bits_are_kept(value: str, dtype: str) -> None:
    """Those of numbers that are none, too."""
    f, rng = program(value, dtype), np.random.default_rng(5)
    c, (x, w) = rng.integers(0, 6, 64), rng.integers(0, 1 << 16, (2, 64), np.uint16)
    given = [c, *(bits.view(f.params[1].dtype.numpy) for bits in (x, w))]
    for level in ("v2", "v3", "v4", ""):
        target = baseline("x86_64", level) if level else host()
        if set(target.features) <= set(host().features):
            [y] = run_native(f, given, {}, target=target)
            np.testing.assert_array_equal(y.view(np.uint16), MOVES[value](c, np.arange(64) // 16, x, w))


@pytest.mark.parametrize("level", ["v3", "v4"])
@pytest.mark.parametrize("value", MOVES)
def test_nothing_is_converted(value: str, level: str) -> None:
    target = baseline("x86_64", level)
    code = assembly(emit_module(program(value, "f16"), target).text, target, optimize=False)
    assert "vcvt" not in code


@pytest.mark.parametrize(
    "value", ["select([o] < [2], x[16*o + l], w[16*o + l]) + x[l]", "f16(f32(x[l]) * 2.0:f32)"]
)
def test_what_is_computed_is_rounded(value: str) -> None:
    target = baseline("x86_64", "v3")
    code = assembly(emit_module(program(value, "f16"), target).text, target, optimize=False)
    assert "vcvtph2ps" in code and "vcvtps2ph" in code
