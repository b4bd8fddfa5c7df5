"""Clamped integers as bytes: packed, and with the same meaning."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.codegen.llvm import emit_module
from inlay.codegen.llvm_compile import assembly
from inlay.interp.loop import run
from inlay.machine.target import baseline, host
from tests.unit.codegen.support import parsed, run_native

RNG = np.random.default_rng(4)


def program(lanes: int, to: str, value: str) -> str:
    return f"""\
lowered func f(x: i32[{lanes}]) -> (y: {to}[{lanes}]) {{
  for l in 0..{lanes} vector {{ y[l] = {to}({value}) }}
}}
"""


FORMS = [
    ("u8", "min(max(x[l], 0:i32), 255:i32)"),
    ("u8", "min(max(x[l], 0:i32), 255:i32) + 0:i32"),
    ("u8", "max(min(x[l], 127:i32), -128:i32) + 128:i32"),
    ("u8", "min(max(x[l], 3:i32), 77:i32)"),
    ("i8", "min(max(x[l], -128:i32), 127:i32)"),
    ("i8", "min(max(x[l], -100:i32), 155:i32) + -28:i32"),
    ("i8", "min(max(x[l], 28:i32), 100:i32) + -28:i32"),
]
OTHERS = [
    ("u8", "min(max(x[l], -5:i32), 255:i32)"),
    ("i8", "min(max(x[l], -100:i32), 128:i32)"),
    ("u8", "min(max(x[l], -40000:i32), -39800:i32) + 40000:i32"),
    ("u8", "max(x[l], 0:i32)"),
    ("u8", "x[l]"),
]


def numbers(count: int) -> np.ndarray:
    ends = RNG.choice([-(2**31), 2**31 - 1, -32769, 32767, 32768, -1, 0, 255, 256], count)
    drawn = RNG.integers(-300, 300, count)
    return np.where(RNG.random(count) < 0.4, ends, drawn).astype(np.int32)


@pytest.mark.sample(20)
@pytest.mark.parametrize(("to", "value"), FORMS + OTHERS)
@pytest.mark.parametrize("lanes", [8, 12, 16, 24, 32, 48, 64, 96, 128])
def test_compiled_is_what_it_means(to: str, value: str, lanes: int) -> None:
    f = parsed(program(lanes, to, value))
    inputs = [numbers(lanes)]
    want = run(f, inputs, {})[0]
    for target in (host(), baseline("x86_64", "v2"), baseline("x86_64", "v3"), baseline("x86_64", "v4")):
        if set(target.features) <= set(host().features):
            np.testing.assert_array_equal(run_native(f, inputs, target=target)[0], want, target.cpu)


@pytest.mark.parametrize(("level", "lanes"), [("v2", 16), ("v3", 32), ("v4", 64)])
def test_four_vectors_are_packed_in_three_steps_and_put_in_order(level: str, lanes: int) -> None:
    target = baseline("x86_64", level)
    text = assembly(emit_module(parsed(program(lanes, *FORMS[0])), target).text, target, optimize=False)
    assert text.count("packssdw") == 2, text
    assert text.count("packuswb") == 1
    assert text.count("perm") == (level != "v2")
    assert "pmaxs" not in text
    assert "pmovus" not in text


@pytest.mark.parametrize(("to", "value"), OTHERS)
def test_what_wraps_or_is_far_is_not_packed(to: str, value: str) -> None:
    text = emit_module(parsed(program(64, to, value)), baseline("x86_64", "v4")).text
    assert "packs" not in text


def test_other_machines_narrow_themselves() -> None:
    text = emit_module(parsed(program(64, *FORMS[0])), baseline("aarch64")).text
    assert "x86" not in text
    assert "trunc <64 x i32>" in text
