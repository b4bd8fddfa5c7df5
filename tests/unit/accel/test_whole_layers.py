"""Commands that are whole layers: sums, factors and ends in one instruction, and what a pattern must not leave out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.accel.backend import backend_in_file
from inlay.accel.kit import Checked, checks

SOURCE = '''
"""dsp: convolutions of each channel by itself, with what brings their sums back to bytes, a C call each."""

from inlay.accel.api import (
    Accelerator, Dim, Imm, In, Local, Mock, Out, Queue, Shared, call, encodes, i8, i32, instruction, nest,
    pattern, requantize,
)


class Dsp(Accelerator):
    ram, run, clock = Shared(), Queue(), 10**14

    @pattern
    def depthwise(self, p):
        x, w, b = p.tensor("x", i8), p.const("w", i8), p.const("b", i32)
        mul, shift = p.const("mul", i32), p.const("shift", i32)
        a = p.conv2d(x, w, name="a")
        y = p.requantize(a + b, mul, shift, rounding="tflite", name="y")
        p.need(lambda m: set(m.a.dilations) <= {1}, "dilations {m.a.dilations}: there are none")
        p.need(lambda m: m.a.groups == m.x.shape[1], "groups {m.a.groups}: one for each channel")
        return p.call(
            y, self.filter, x=x, w=w, b=b, mul=mul, shift=shift, outside=lambda m: m.a.outside,
            down=lambda m: m.a.strides[0], right=lambda m: m.a.strides[1], top=lambda m: m.a.pads[0],
            left=lambda m: m.a.pads[1], zero=lambda m: m.y.zero, low=lambda m: m.y.low, high=lambda m: m.y.high,
        )

    N, C, H, W, P, Q, R, S = Dim(0), *(Dim(1, 4096) for _ in range(7))

    @instruction(
        run, y=Out(ram, i8, (N, C, P, Q)), x=In(ram, i8, (N, C, H, W)), w=In(ram, i8, (C, 1, R, S)),
        b=In(ram, i32, (C,)), mul=In(ram, i32, (C,)), shift=In(ram, i32, (C,)), down=Imm(1, 7), right=Imm(1, 7),
        top=Imm(0, 15), left=Imm(0, 15), outside=Imm(-128, 127), zero=Imm(-128, 127), low=Imm(-128, 127),
        high=Imm(-128, 127), cycles=N * C * P * Q * R * S // 128 + 100,
    )
    def filter(self, y, x, w, b, mul, shift, down, right, top, left, outside, zero, low, high):
        for n, c, p, q in nest(y.shape):
            a = Local(i32, b[c])
            for r, s in nest(w.shape[2:]):
                pixel = x.at(n, c, p * down + r - top, q * right + s - left, outside=outside)
                a.value += i32(pixel) * i32(w[c, 0, r, s])
            y[n, c, p, q] = i8(requantize(a.value, mul[c], shift[c], zero, low, high, rounding="tflite"))

    @encodes(filter)
    def filtering(self, c):
        return call("dsp_filter", c.y, c.x, c.w, c.b, c.mul, c.shift, c.N, c.C, c.H, c.W, c.P, c.Q, c.R, c.S,
                    c.down, c.right, c.top, c.left, c.outside, c.zero, c.low, c.high)

    drivers = (Mock(),)
'''

BOARD = """
[[arch]]
name = "dsp"
generator = "dsp"
loader = "dsp.py"
[[memory]]
name = "ram"
[[device]]
name = "cpu"
arch = "native"
memories = ["ram"]
[[device]]
name = "npu0"
arch = "dsp"
memories = ["ram"]
[[coherent]]
memory = "ram"
parties = ["cpu", "npu0"]
"""


def failures(folder: Path, old: str = "", new: str = "", trials: int = 4) -> list[Checked]:
    assert old in SOURCE
    path = folder / "dsp.py"
    path.write_text(SOURCE.replace(old, new, 1), encoding="utf-8")
    found = checks(backend_in_file(str(path)), trials, 0)
    return [c for c in found if isinstance(c, Checked) and c.failure]


def test_what_the_class_leaves_out_is_found(tmp_path) -> None:
    lost = failures(tmp_path, SOURCE, SOURCE.replace("Local(i32, b[c])", "b[c]").replace("a.value", "a"))
    assert [c.section for c in lost] == ["declarations"]
    assert "a number that is made inside of a `nest` is gone behind it" in lost[0].failure
    for given, message in (
        ("a + b, rounding", "found p.requantize without its factors"),
        ("a + b, mul, shift, b, rounding", "found 3 factors of p.requantize"),
    ):
        (found,) = failures(tmp_path, "a + b, mul, shift, rounding", given)
        assert found.section == "declarations"
        assert message in found.failure


@pytest.mark.llvm
@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "section", "message"),
    [
        ("", "", "", ""),
        ("a.value += i32", "a.value = i32", "pattern depthwise", "means something else"),
        ("right=lambda m: m.a.strides[1]", "right=1", "pattern depthwise", "means something else"),
        ('tflite", name', 'half_up", name', "pattern depthwise", "means something else"),
        # what nobody says and nobody reads is not taken
        ('rounding="tflite", name', "name", "pattern depthwise", "which the pattern neither says nor reads"),
        ("p.need(lambda m: set(m.a.dilations) <= {1}", "p.need(lambda m: True", "", ""),
    ],
)
def test_the_kit_on_a_whole_layer(tmp_path, old, new, section, message) -> None:
    found = failures(tmp_path, old, new, 20 if "half_up" in new else 4)
    assert len(found) == bool(section)
    assert all(section in c.section and message in c.failure for c in found), found


def test_an_attribute_that_a_pattern_neither_says_nor_reads_is_a_reason(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dsp.py").write_text(SOURCE.replace('rounding="tflite", name', "name"), encoding="utf-8")
    Path("dsp.toml").write_text(BOARD, encoding="utf-8")
    Path("net.inl").write_text(
        "fn main(x: Tensor[1, 1, 4, 4, i8]) {\n"
        "  let a = conv_integer{dilations=[2, 2]}(x, i8[1, 1, 2, 2](1, 2, 3, 4));\n"
        '  requantize{rounding="half_up"}(add(a, i32[1, 1, 1](5)), i32[1](1500000000), i32[1](-6))\n}\n'
        'entry main("x") -> ("y");\n',
        encoding="utf-8",
    )
    found = inlay.explain(inlay.load("net.inl"), board="dsp.toml")
    why = " ".join(o.others["npu0"] for o in found.operations if "npu0" in o.others)
    assert "rounding = half_up, which the pattern neither says nor reads" in why
    assert "dilations (2, 2): there are none" in why


@pytest.mark.llvm
@pytest.mark.parametrize(
    "factors", ["i32[3](1500000000, 1400000000, 1600000000), i32[3](-6, -7, -8)", "i32(1500000000), i32(-7)"]
)
def test_factors_are_one_for_each_channel_or_one_for_all(tmp_path, monkeypatch, factors) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dsp.py").write_text(SOURCE, encoding="utf-8")
    Path("dsp.toml").write_text(BOARD, encoding="utf-8")
    w = ", ".join(str(n * 7 % 200 - 99) for n in range(27))
    Path("net.inl").write_text(
        "fn main<n>(x: Tensor[n, 3, 9, 9, i8]) {\n"
        f"  let a = conv_integer{{groups=3, pads=[1, 1, 1, 1]}}(x, i8[3, 1, 3, 3]({w}));\n"
        "  let b = add(a, i32[3, 1, 1](100, -200, 300));\n"
        f'  requantize{{zero=3, low=-100, rounding="tflite"}}(b, {factors})\n}}\nentry main("x") -> ("y");\n',
        encoding="utf-8",
    )
    module = inlay.load("net.inl")
    x = np.random.default_rng(0).integers(-128, 128, (2, 3, 9, 9)).astype(np.int8)
    there = inlay.compile(module, board="dsp.toml", placement="first")
    assert np.array_equal(there(x), inlay.compile(module)(x))
