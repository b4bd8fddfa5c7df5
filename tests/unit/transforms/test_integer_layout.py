"""Integer products get layouts and packed weights as those of floats do, for what multiplies there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from inlay.arith.dtype import I8, I16, U8, DType
from inlay.interp.tensor import evaluate_expr
from inlay.ir import make
from inlay.ir.expr import Call, OpRef
from inlay.ir.module import Module
from inlay.ir.walk import postorder
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.machine.dot_products import KINDS, DotProduct
from inlay.machine.target import Target
from inlay.passes.contract import PassContext
from inlay.schedule.choose import schedule
from inlay.transforms import convert_layout, eliminate_dead, fold_constants, pack_weights, to_anf
from inlay.transforms._packings import PackOptions
from tests.unit.transforms.programs import OPS, Program, operators, same

PAIRS, QUADS = KINDS["i16"], KINDS["u8i8"]


def target(*kinds: DotProduct) -> Target:
    """A processor whose vectors have four numbers, and some instructions that multiply."""
    return Target(vector_bytes=16, dot=tuple(k.name for k in kinds))


def converted(module: Module, there: Target, **options: Any) -> Module:
    """Return a program with layouts and packed weights."""
    packing = PackOptions(lambda _: there, **options)
    context = PassContext(OPS, evaluate=evaluate_expr, options={PackOptions: packing})
    for p in (to_anf, convert_layout, fold_constants, pack_weights, eliminate_dead):
        module = p.PASS.run(module, context)
    return module


def calls(module: Module) -> list[Call]:
    """Return the calls of operators."""
    found = (e for f in module.functions.values() for e in postorder(f) if isinstance(e, Call))
    return [c for c in found if isinstance(c.callee, OpRef)]


def integers(dtype: DType, *shape: int) -> np.ndarray:
    """Return numbers of the whole range."""
    info = np.iinfo(dtype.numpy)
    return np.random.default_rng(len(shape)).integers(info.min, info.max + 1, shape).astype(dtype.numpy)


def network(x: DType = U8, w: DType = I8, groups: int = 1, zero: bool = False) -> Module:
    """Two convolutions in the canonical form with what stands between them, as exporters order axes."""
    p = Program()
    v = p.input("x", 2, 4, 9, 8, dtype=x)
    zeros = [make.const(np.zeros((), x.numpy)), make.const(integers(w, 8))] if zero else []
    s = p.op("conv_integer", v, make.const(integers(w, 8, 4 // groups, 3, 3)), *zeros, groups=groups)
    s = p.op("add", s, make.const(integers(I16, 8, 1, 1).astype(np.int32)))
    scale = make.const(np.linspace(1e-3, 2e-3, 8, dtype=np.float32))
    q = p.op("requantize", s, scale, dtype=x, zero=3, low=3)
    q = p.op("max_pool", q, kernel=(2, 2), strides=(2, 2))
    q = p.op("pad", q, make.shape_const((0, 0, 1, 1, 0, 0, 1, 1)), make.const(np.asarray(3, x.numpy)))
    taps = make.const(integers(I8, 8, 1, 3, 3))
    s = p.op("conv_integer", q, taps, groups=8, pads=(1, 1, 1, 1))
    return p.module(p.op("requantize", s, scale, dtype=x))


@pytest.mark.parametrize("there", [target(), target(PAIRS), target(QUADS, PAIRS)], ids=("plain", "2", "4"))
@pytest.mark.parametrize("x", [U8, I8], ids=str)
def test_no_transpose_is_left_between_integer_convolutions(there: Target, x: DType):
    before = network(x)
    after = converted(before, there)
    found = operators(after)
    assert found["conv_nhwc_integer_packed"] == found["depthwise_conv_nhwc_integer"] == 1
    assert found["transpose"] == 2  # of the input and of the output
    assert found["conv_integer"] == found["conv_nhwc_integer"] == 0
    same(before, after, integers(x, 2, 4, 9, 8), exact=True)


def packed(module: Module) -> Call:
    return next(c for c in calls(module) if c.callee.op.name.endswith("_packed"))


@pytest.mark.parametrize(
    ("x", "kinds", "form"),
    [
        (U8, (QUADS, PAIRS), (4, U8, np.int8)),
        (I8, (QUADS, PAIRS), (4, U8, np.int8)),
        (I8, (PAIRS,), (2, I16, np.int8)),
        (U8, (PAIRS,), (2, I16, np.int8)),
        (I8, (), (1, I8, np.int8)),
    ],
)
def test_the_instruction_says_how_weights_are_packed(x: DType, kinds: tuple, form: tuple):
    call = packed(converted(network(x), target(*kinds)))
    assert (call.callee.attrs.group, call.callee.attrs.operand, call.args[1].value.dtype) == form
    assert call.args[1].value.shape[-2:] == (call.callee.attrs.panel, call.callee.attrs.group)


def test_what_an_operand_is_shifted_by_is_taken_off_with_the_bias():
    before = network(I8)
    after = converted(before, target(QUADS, PAIRS))
    assert packed(after).callee.attrs.shift == 128
    assert operators(after)["add"] == operators(before)["add"] == 1
    same(before, after, integers(I8, 2, 4, 9, 8), exact=True)


def test_a_sum_that_wraps_keeps_its_bits_with_a_shift():
    p = Program()
    v = p.input("x", 1, 4, 3, 3, dtype=I8)
    s = p.op("conv_integer", v, make.const(integers(I8, 8, 4, 3, 3)), pads=(1, 1, 1, 1))
    bias = make.const(np.full((8, 1, 1), 2**31 - 1, np.int32))
    before = p.module(p.op("add", s, bias), s)
    after = converted(before, target(QUADS, PAIRS))
    same(before, after, integers(I8, 1, 4, 3, 3), exact=True)


def test_zero_points_of_weights_are_taken_off_before_packing():
    before = network(U8, U8, zero=True)
    after = converted(before, target(QUADS, PAIRS))
    assert len(packed(after).args) == 2
    assert packed(after).args[1].value.dtype == np.int16
    same(before, after, integers(U8, 2, 4, 9, 8), exact=True)


def test_panels_are_within_groups_of_channels():
    before = network(groups=2)
    after = converted(before, target(PAIRS))
    assert 4 % packed(after).callee.attrs.panel == 0
    same(before, after, integers(U8, 2, 4, 9, 8), exact=True)
    narrow = converted(before, replace(target(PAIRS), vector_bytes=32))
    assert operators(narrow)["conv_nhwc_integer"] == 1
    same(before, narrow, integers(U8, 2, 4, 9, 8), exact=True)


def test_a_zero_point_of_the_input_stays():
    p = Program()
    v = p.input("x", 1, 4, 5, 5, dtype=U8)
    zero = make.const(np.asarray(7, np.uint8))
    before = p.module(p.op("conv_integer", v, make.const(integers(I8, 8, 4, 3, 3)), zero, pads=(1, 1, 1, 1)))
    after = converted(before, target(PAIRS))
    assert operators(after)["conv_nhwc_integer"] == 1
    same(before, after, integers(U8, 1, 4, 5, 5), exact=True)


def test_products_share_packed_weights():
    p = Program()
    w = make.const(integers(I8, 9, 13))
    x, y = p.input("x", 3, 5, 9, dtype=U8), p.input("y", 5, 9, dtype=I8)
    before = p.module(p.op("add", p.op("matmul_integer", x, w), p.op("matmul_integer", y, w)))
    after = converted(before, target(PAIRS))
    one, two = (c.args[1] for c in calls(after) if c.callee.op.name == "matmul_integer_packed")
    assert one.value is two.value
    same(before, after, integers(U8, 3, 5, 9), integers(I8, 5, 9), exact=True)


def test_factors_of_an_axis_follow_it():
    p = Program()
    x = p.input("x", 1, 3, 4, 4, dtype=U8)
    s = p.op("conv_integer", x, make.const(integers(I8, 6, 3, 1, 1)))
    scale = make.const(np.linspace(0.01, 0.02, 6, dtype=np.float32))
    real = p.op("dequantize", s, scale, axis=1)
    q = p.op("quantize", p.op("relu", real), scale, make.const(integers(I8, 6)), axis=-3, dtype=I8)
    codes = make.const(np.arange(256, dtype=np.int8))
    before = p.module(p.op("gather", codes, p.op("cast", q, dtype=U8)))
    after = converted(before, target(PAIRS))
    assert operators(after)["transpose"] == 2
    same(before, after, integers(U8, 1, 3, 4, 4), exact=True)


@pytest.mark.parametrize("twin", [False, True])
def test_padding_with_a_number_becomes_that_of_the_convolution(twin: bool):
    p = Program()
    v = p.input("x", 1, 4, 6, 5, dtype=U8)
    if twin:
        v = p.op("cast", p.op("conv_integer", v, make.const(integers(I8, 4, 4, 1, 1))), dtype=U8)
    pads = make.shape_const((0, 0, 1, 0, 0, 0, 2, 1))
    v = p.op("pad", v, pads, make.const(np.asarray(77, np.uint8)))
    a = p.op("conv_integer", v, make.const(integers(I8, 8, 4, 3, 3)))
    b = p.op("conv_integer", v, make.const(integers(I8, 4, 1, 3, 3)), groups=4)
    before = p.module(a, b)
    after = converted(before, target(PAIRS))
    assert operators(after)["pad"] == 0
    same(before, after, integers(U8, 1, 4, 6, 5), exact=True)


@pytest.mark.parametrize(("channels", "width"), [(3, 3), (1, 4), (3, 7)])
def test_few_channels_are_summed_along_lines(channels: int, width: int):
    p = Program()
    v = p.input("x", 2, channels, 9, 11, dtype=U8)
    w = make.const(integers(I8, 8, channels, 3, width))
    before = p.module(p.op("conv_integer", v, w, pads=(1, 2, 1, 3), strides=(1, 2), dilations=(2, 1)))
    after = converted(before, target(PAIRS))
    assert operators(after)["conv_lines_integer_packed"] == 1
    same(before, after, integers(U8, 2, channels, 9, 11), exact=True)


def test_lines_are_shifted_with_what_is_around_them():
    p = Program()
    v = p.input("x", 2, 3, 9, 11, dtype=I8)
    v = p.op("pad", v, make.shape_const((0, 0, 1, 2, 0, 0, 2, 1)), make.const(np.asarray(-77, np.int8)))
    before = p.module(p.op("conv_integer", v, make.const(integers(I8, 8, 3, 3, 4))))
    after = converted(before, target(QUADS, PAIRS))
    assert operators(after)["conv_lines_integer_packed"] == 1
    same(before, after, integers(I8, 2, 3, 9, 11), exact=True)


@pytest.mark.parametrize(
    ("shape", "is_matrix"),
    [((1, 32, 6, 40), True), ((1, 32, 9, 9), True), ((1, 68, 4, 16), False), ((1, 4, 4, 16), False)],
)
@pytest.mark.parametrize("x", [U8, I8], ids=str)
def test_what_is_packed_for_a_matrix_unit_is_scheduled_on_it(
    shape: tuple[int, ...], x: DType, *, is_matrix: bool
):
    """Both ask the same question: only on the unit are i8 multiplied as they are."""
    there = Target(arch="x86_64", vector_bytes=64, dot=("u8i8",), matrix=("u8i8", "i8"))
    p = Program()
    v = p.input("x", *shape, dtype=x)
    sums = p.op("conv_integer", v, make.const(integers(I8, 48, shape[1], 2, 3)), pads=(1, 1, 0, 1))
    module = p.module(p.op("requantize", sums, make.const(np.full(48, 1e-4, np.float32)), dtype=x))
    call = packed(converted(module, there))
    assert (call.callee.attrs.group == 4 and call.callee.attrs.operand is x) is (is_matrix or x is U8)
    tensors = [te.placeholder(a.type.shape, a.type.dtype, n) for a, n in zip(call.args, "xw", strict=True)]
    result = OPS.definition(call.callee.op.name).compute(call.callee.attrs, tensors, call.type)
    s = schedule(from_te("conv", tensors, [result]), there)
    assert ("use_matrix_unit" in {step.primitive for step in s.trace}) is is_matrix
