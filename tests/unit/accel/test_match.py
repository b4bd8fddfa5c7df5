"""What patterns take in a program, and the reason for what they do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import inlay
from inlay.accel.api import i8, i32, pattern
from inlay.accel.backend import AcceleratorBackend, backend_in
from inlay.accelerators import vanilla as vanilla_file
from inlay.accelerators.strawberry import Strawberry
from inlay.accelerators.vanilla import Vanilla
from inlay.analysis.candidates import Candidate, Miss
from inlay.ir.expr import Call, OpRef
from inlay.ir.parser import parse_module
from inlay.machine.board import Board
from inlay.machine.board_file import find_board
from inlay.ops.table import table

FAST = ("clock", "1000000000000")
BOARD = find_board("vanilla")
SLOW = replace(
    BOARD,
    archs=tuple(
        find_board("strawberry").arch_of("cpu") if a.name == "native" else replace(a, parameters=(FAST,))
        for a in BOARD.archs
    ),
)
"""The same with a slow processor, and a fast device: plans take that wherever they can."""


def conv(
    bias: str = "i32[4, 1, 1](1, 2, 3, 4)",
    attrs: str = "strides=[1, 1], dilations=[1, 1]",
    x: str = "x",
    more: str = "",
) -> str:
    ones = ", ".join(["1"] * 4 * 3 * 2 * 2)
    return f"""
fn main<n>(x: Tensor[n, 3, 5, 5, i8], c: Tensor[4, 1, 1, i32]) {{
  {"let p = pad(x, shape(0, 0, 1, 1, 0, 0, 0, 1), i8(-3));" if x == "p" else ""}
  let a = conv_integer{{{attrs}}}({x}, i8[4, 3, 2, 2]({ones}));
  let s = add(a, {bias});
  {more or "s"}
}}
entry main;
"""


def offered(
    text: str, backend: AcceleratorBackend | None = None, board: Board = BOARD
) -> tuple[list[Candidate], dict[str, str]]:
    module = parse_module(text, table())
    found = (backend or backend_in(vanilla_file)).candidates(module, board, "npu0")
    misses = {name(m.call): m.reason for m in found if isinstance(m, Miss)}
    return [c for c in found if isinstance(c, Candidate)], misses


def name(call: Call) -> str:
    assert isinstance(call.callee, OpRef)
    return call.callee.op.name


def test_a_convolution_with_its_bias_and_padding_is_taken() -> None:
    (*_, whole), misses = offered(conv(x="p"))
    assert [name(c) for c in whole.calls] == ["pad", "conv_integer", "add"]
    assert (whole.name, whole.device, misses) == ("conv", "npu0", {})
    (*_, alone), _ = offered(conv())
    assert [name(c) for c in alone.calls] == ["conv_integer", "add"]


def test_operands_of_a_sum_are_taken_in_either_order() -> None:
    (*_, found), _ = offered(
        conv().replace("add(a, i32[4, 1, 1](1, 2, 3, 4))", "add(i32[4, 1, 1](1, 2, 3, 4), a)")
    )
    assert len(found.calls) == 2


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (conv("c"), "b is no constant"),
        (conv("i32[4](1, 2, 3, 4)"), "conv: b is added along other axes than those of convolve"),
        (conv("i32[1, 1, 4](1, 2, 3, 4)"), "conv: b is added along other axes than those of convolve"),
        (conv(attrs="strides=[1, 1], dilations=[2, 2]"), "conv: dilations (2, 2): there are none"),
        (conv(attrs="strides=[1, 300], dilations=[1, 1]", x="p"), "conv: right = 300: 1 to 255"),
        (conv(more="(s, a)"), "the result of conv_integer is read elsewhere, too"),
    ],
)
def test_what_is_not_taken_has_a_reason(program, reason) -> None:
    found, misses = offered(program)
    # At most the product alone, whose sum is then left to the host.
    assert all(name(c) in ("pad", "conv_integer") for x in found for c in x.calls)
    assert misses["add"] == reason


def test_a_bias_of_one_number_is_for_all_channels() -> None:
    found, _ = offered(conv("i32(7)"))
    assert [len(c.calls) for c in found] == [1, 2]


PRODUCT = "fn main(x: Tensor[2, 3, i8]) { let y = matmul_integer(x, i8[3, 1](1, 2, 3)); y } entry main;"


def test_a_product_without_a_bias_has_one_of_0() -> None:
    (found,), misses = offered(PRODUCT)
    assert ([name(c) for c in found.calls], misses) == (["matmul_integer"], {})
    exe = inlay.compile(parse_module(PRODUCT, table()), board=BOARD, pins=("*=npu0",))
    assert exe(np.asarray([[1, -2, 3], [4, 5, 6]], np.int8)).tolist() == [[6], [32]]


def test_a_product_without_what_follows_it_is_missed() -> None:
    found, misses = offered(PRODUCT, AcceleratorBackend("strawberry", Strawberry), find_board("strawberry"))
    why = "dense takes matmul_integer with requantize behind it: matmul_integer is read by no operator"
    assert (found, misses) == ([], {"matmul_integer": why})


LINES = """fn main(x: Tensor[2, 3, 9, i8]) {
  let p = pad(x, shape(0, 0, 2, 0, 0, 1), i8(4));
  let a = conv_integer{strides=[2], dilations=[1]}(p, i8[2, 3, 2](1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12));
  let b = add(a, i32[2, 1](5, 6));
  b } entry main;"""
ROWS = """fn main(x: Tensor[2, 3, 4, i8]) {
  let a = matmul_integer(x, i8[4, 2](1, 2, 3, 4, 5, 6, 7, 8));
  let b = add(a, i32[1, 1, 2](5, 6));
  b } entry main;"""


@pytest.mark.parametrize(("text", "shape"), [(LINES, (2, 3, 9)), (ROWS, (2, 3, 4))])
def test_lines_are_images_of_one_row_and_all_axes_but_the_last_are_rows(text: str, shape) -> None:
    module = parse_module(text, table())
    (*_, whole), _ = offered(text)
    x = np.arange(np.prod(shape), dtype=np.int8).reshape(shape)
    exe = inlay.compile(module, board=SLOW, required=("npu0",))
    assert np.array_equal(exe(x), inlay.compile(module)(x))
    assert name(whole.calls[-1]) == "add"


def test_products_over_more_axes_than_two_are_refused() -> None:
    text = (
        "fn main(x: Tensor[1, 1, 2, 2, 2, i8]) { let y = conv_integer(x, "
        "i8[1, 1, 1, 1, 1](3)); let z = add(y, i32(1)); z } entry main;"
    )
    why = "a convolution over 3 axes: over one or two"
    assert offered(text) == ([], {"conv_integer": why, "add": why})


STARTS = """fn main(x: Tensor[2, 3, i8]) {{
  let a = matmul_integer(x, i8[3, 1](1, 2, 3)); let b = add(a, {bias});
  let c = cast{{dtype=i8}}({other}); let y = {end}; (y, c) }} entry main;"""


@pytest.mark.parametrize(
    ("bias", "other", "end", "reason"),
    [
        ("i32(1)", "x", "abs(b)", "abs is behind add, not requantize"),
        ("i32(1)", "b", "requantize(b, f32(0.5))", "add is read by cast and requantize"),
        ("a", "x", "requantize(b, f32(0.5))", "matmul_integer is read 2 times"),
        ("i32(1)", "x", "requantize{dtype=u8}(b, f32(0.5))", "no instruction computes"),
    ],
)
def test_what_begins_as_a_pattern_is_followed_to_where_it_ends(
    bias: str, other: str, end: str, reason: str
) -> None:
    backend = AcceleratorBackend("strawberry", Strawberry)
    found, misses = offered(STARTS.format(bias=bias, other=other, end=end), backend, find_board("strawberry"))
    assert found == []
    assert reason in misses["matmul_integer"]


def test_limits_of_dims_are_reasons(monkeypatch) -> None:
    monkeypatch.setattr(Vanilla.H, "high", 4)
    monkeypatch.setattr(Vanilla.N, "high", 8)
    found, misses = offered(conv())
    assert found == []
    assert misses["add"] == "conv: N = n, 0 to any: 0 to 8; H = 5: 1 to 4"


def test_a_fault_in_a_pattern_is_a_reason() -> None:
    class Faulty(Vanilla):
        @pattern
        def conv(self, p):
            x, w, b = p.tensor("x", i8), p.const("w", i8), p.const("b", i32)
            a = p.conv2d(x, w, name="a")
            p.need(lambda m: m.a.colour == 1, "colour")
            names = ("groups", "outside", "down", "right", "top", "left")
            return p.call(a + b, self.convolve, x=x, w=w, b=b, **dict.fromkeys(names, 1))

    found, misses = offered(conv(), AcceleratorBackend("vanilla", Faulty))
    assert found == []
    assert misses["add"].startswith("conv: AttributeError at test_match.py:")
    assert "it has no 'colour'" in misses["add"]


def test_what_it_costs_is_its_cycles() -> None:
    (*_, found), _ = offered(conv())
    macs = 4 * 4 * 4 * 3 * 2 * 2  # of an image; 256 in a cycle of 2 ns, and 100 cycles besides
    assert found.picoseconds is not None
    assert str(found.picoseconds) == f"{macs // 256 * 2000}*n + 200000"
