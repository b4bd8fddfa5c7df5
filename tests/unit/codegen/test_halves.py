"""Numbers of 4 bits become floats: by a table in a register, or by arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.codegen.llvm import emit_module
from inlay.codegen.llvm_compile import assembly
from inlay.machine.target import baseline, host
from tests.unit.codegen.support import parsed, run_native


def program(number: str, lanes: int) -> str:
    return f"""\
lowered func f(w: u32[{lanes}]) -> (y: f32[{lanes}]) {{
  for l in 0..{lanes} vector {{ y[l] = f32({number}) }}
}}
"""


NUMBERS = {
    "(i32(w[l]) & 15:i32)": (0, 0),
    "(shr(i32(w[l]), 8:i32) & 15:i32)": (8, 0),
    "((shr(i32(w[l]), 28:i32) & 15:i32) - 8:i32)": (28, 8),
}


@pytest.mark.parametrize("level", ["v3", "v4", ""])
@pytest.mark.parametrize("lanes", [8, 16, 12])
@pytest.mark.parametrize("number", NUMBERS)
def test_floats_are_the_numbers(number: str, lanes: int, level: str) -> None:
    f = parsed(program(number, lanes))
    w = np.random.default_rng(lanes).integers(0, 2**32, lanes, np.uint32)
    by, zero = NUMBERS[number]
    target = baseline("x86_64", level) if level else host()
    if set(target.features) <= set(host().features):
        [y] = run_native(f, [w], {}, target=target)
        np.testing.assert_array_equal(y, ((w >> by & 15).astype(np.int64) - zero).astype(np.float32))


def test_a_table_takes_no_mask_and_no_conversion() -> None:
    target = baseline("x86_64", "v4")
    for number in NUMBERS:
        code = assembly(emit_module(parsed(program(number, 16)), target).text, target, optimize=False)
        assert "vperm" in code
        assert "vcvt" not in code
        assert "vpand" not in code


@pytest.mark.parametrize("number", ["(i32(w[l]) & 7:i32)", "(i32(w[l]) & 31:i32)", "i32(w[l])"])
def test_other_numbers_are_converted(number: str) -> None:
    target = baseline("x86_64", "v4")
    code = assembly(emit_module(parsed(program(number, 16)), target).text, target, optimize=False)
    assert "vperm" not in code
    w = np.random.default_rng(1).integers(0, 2**31, 16, np.uint32)
    mask = int(number.split("& ")[1].split(":")[0]) if "&" in number else 2**31 - 1
    [y] = run_native(parsed(program(number, 16)), [w], {})
    np.testing.assert_array_equal(y, (w & mask).astype(np.float32))
