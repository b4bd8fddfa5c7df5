"""Commands that are whole layers: sums, factors and ends in one instruction, and what a pattern must not leave out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.accel.backend import backend_in_file
from inlay.accel.kit import Checked, checks

EXAMPLE = Path(__file__).parents[3] / "examples" / "accelerators"
SOURCE = (EXAMPLE / "dsp.py").read_text(encoding="utf-8")
BOARD = (
    (EXAMPLE / "dsp.toml")
    .read_text(encoding="utf-8")
    .replace('loader = "dsp.py"', 'loader = "dsp.py"\nparameters = { clock = 100000000000000 }')
)


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


def test_an_index_that_data_says_is_refused(tmp_path) -> None:
    (found,) = failures(tmp_path, "b[c])", "b[i32(w[c, 0, 0, 0])])")
    assert "found an index of 'b' that is an element of data" in found.failure


def test_a_stream_whose_operands_are_outside_says_what_to_write(tmp_path) -> None:
    given = SOURCE.replace("    drivers", "    emit = Stream('run', end=Word(8, 'op:8')(op=1))\n    drivers")
    given = given.replace("requantize,\n", "requantize, Stream, Word,\n", 1).replace("call(", "self.call(")
    (found,) = failures(tmp_path, SOURCE, given.replace("p.self.call(", "p.call("))
    assert found.section == "declarations"
    assert (
        "found 'y' of 'filter' in the memory of the board, needed a `Memory` that a `Copy` fills"
        in found.failure
    )
    assert "`emit = CCalls()` and p.call: the C function writes the words" in found.failure


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
