"""Upper halves of products: taken apart into even and odd lanes, and with the same meaning."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.codegen.llvm import emit_module
from inlay.codegen.llvm_compile import assembly
from inlay.interp.loop import run
from inlay.machine.target import baseline, host
from tests.unit.codegen.support import parsed, run_native

RNG = np.random.default_rng(3)


def program(lanes: int, value: str) -> str:
    return f"""\
lowered func f(x: i32[{lanes}], m: i32[{lanes}], s: i32[1]) -> (y: i32[{lanes}]) {{
  for l in 0..{lanes} vector {{ y[l] = {value} }}
}}
"""


ROUNDED = "i32(shr((i64(x[l]) * i64(m[l])) + 1073741824:i64, {by}:i64))"
FORMS = [
    *(ROUNDED.format(by=by) for by in (1, 31, 32)),
    "i32(shr(i64(x[l]) * i64(s[0]), 32:i64))",
    "i32(shr((i64(x[l] + m[l]) * i64(m[l])) - (i64(x[l]) * -77:i64), 30:i64))",
    "i32(shr(i64(x[l]) * i64(m[l]), 40:i64))",
    "i32(shr(i64(s[0]) * i64(s[0]), 32:i64))",
]


def numbers(count: int) -> np.ndarray:
    ends = RNG.choice([-(2**31), 2**31 - 1, -1, 0, 1], count)
    drawn = RNG.integers(-(2**31), 2**31, count)
    return np.where(RNG.random(count) < 0.3, ends, drawn).astype(np.int32)


@pytest.mark.sample(12)
@pytest.mark.parametrize("value", FORMS)
@pytest.mark.parametrize("lanes", [2, 4, 6, 16])
def test_compiled_is_what_it_means(value: str, lanes: int) -> None:
    f = parsed(program(lanes, value))
    inputs = [numbers(lanes), numbers(lanes), numbers(1)]
    want = run(f, inputs, {})[0]
    for target in (host(), baseline("x86_64", "v2"), baseline("x86_64", "v3")):
        if set(target.features) <= set(host().features):
            np.testing.assert_array_equal(run_native(f, inputs, target=target)[0], want, target.cpu)


@pytest.mark.parametrize(("level", "lanes"), [("v2", 4), ("v3", 8), ("v4", 16)])
def test_two_products_are_enough(level: str, lanes: int) -> None:
    target = baseline("x86_64", level)
    text = assembly(emit_module(parsed(program(lanes, FORMS[2])), target).text, target, optimize=False)
    assert text.count("pmuldq") == 2, text
    assert "pmovsxdq" not in text


def test_other_machines_widen() -> None:
    text = emit_module(parsed(program(4, FORMS[2])), baseline("aarch64")).text
    assert "sext <4 x i32>" in text
