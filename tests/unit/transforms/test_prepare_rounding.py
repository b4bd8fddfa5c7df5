"""Requantizations are prepared for a device as its sums allow, and results are the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from inlay.arith.dtype import F32, I8, I32
from inlay.interp.tensor import evaluate_expr
from inlay.ir import make
from inlay.ir.expr import Call, OpRef
from inlay.ir.module import Module
from inlay.ir.printer import print_module
from inlay.ir.walk import postorder
from inlay.machine.target import Target
from inlay.ops.requantization import Rounding, quantized_multiplier
from inlay.passes.contract import PassContext
from inlay.transforms import convert_layout, eliminate_dead, fold_constants, prepare_rounding, to_anf
from inlay.transforms._packings import PackOptions
from tests.unit.transforms.programs import OPS, Program, operators, same

FUSED = Target(vector_bytes=32, fma=True)
RNG = np.random.default_rng(5)


def prepared(module: Module, there: Target | None = FUSED) -> Module:
    """Return a program with layouts and prepared constants."""
    context = PassContext(OPS, evaluate=evaluate_expr, options={PackOptions: PackOptions(lambda _: there)})
    for p in (to_anf, convert_layout, fold_constants, prepare_rounding, eliminate_dead):
        module = p.PASS.run(module, context)
    return module


def calls(module: Module) -> list[Call]:
    """Return the calls of operators."""
    found = (e for f in module.functions.values() for e in postorder(f) if isinstance(e, Call))
    return [c for c in found if isinstance(c.callee, OpRef)]


def network(factors, zero: int = 3, bias: int = 0, rounding: Rounding = Rounding.TFLITE) -> Module:
    """A convolution of bytes with a bias, requantized by multipliers and shifts."""
    p = Program()
    w = RNG.integers(-127, 128, (6, 4, 3, 3)).astype(np.int8)
    s = p.op("conv_integer", p.input("x", 2, 4, 7, 8, dtype=I8), make.const(w))
    s = p.op("add", s, make.const((bias + RNG.integers(-3000, 3000, (6, 1, 1))).astype(np.int32)))
    constants = (make.const(e) for e in quantized_multiplier(factors))
    return p.module(p.op("requantize", s, *constants, dtype=I8, zero=zero, rounding=rounding))


@pytest.mark.parametrize("zero", [-128, 3])
@pytest.mark.parametrize("factors", [0.004, np.linspace(2e-3, 9e-3, 6)], ids=("one", "each"))
def test_convolutions_are_requantized_by_floats(factors, zero: int) -> None:
    before = network(factors, zero)
    after = prepared(before)
    assert operators(after)["requantize_by_floats"] == 1
    same(before, after, RNG.integers(-128, 128, (2, 4, 7, 8)).astype(np.int8), exact=True)


def test_what_the_sums_can_be_decides() -> None:
    near, far = (operators(prepared(network(np.full(6, 3e-6), 3, bias))) for bias in (0, 2**31 - 4000))
    assert near["requantize_by_floats"] == 1
    assert far["requantize_by_floats"] == 0 and far["requantize_prepared"] == 1


def test_devices_without_a_fused_multiplication_stay_with_integers() -> None:
    before = network(0.004)
    after = prepared(before, replace(FUSED, fma=False))
    assert operators(after)["requantize_prepared"] == 1
    same(before, after, RNG.integers(-128, 128, (2, 4, 7, 8)).astype(np.int8), exact=True)


def test_devices_that_read_no_prepared_constants_keep_what_importers_write() -> None:
    assert operators(prepared(network(0.004), None))["requantize"] == 1


def test_a_float_that_is_a_power_of_two_stays() -> None:
    p = Program()
    x = p.input("x", 4, 6, dtype=I32)
    module = p.module(p.op("requantize", x, make.const(np.float32(2.0**-7)), dtype=I8))
    assert operators(prepared(module))["requantize"] == 1


@pytest.mark.parametrize(("factors", "near"), [((0.011, -0.5, 3e-5), 1), ((0.011, 0.51, 3e-5), 0)])
@pytest.mark.parametrize("rounding", [Rounding.HALF_EVEN, Rounding.HALF_AWAY])
def test_near_products_by_floats_are_clamped_behind_rounding(factors, near: int, rounding: Rounding) -> None:
    p = Program()
    x = p.input("x", 40, 3, dtype=I32)
    scale = make.const(np.asarray(factors, np.float32))
    before = p.module(p.op("requantize", x, scale, dtype=I8, zero=-9, rounding=rounding))
    after = prepared(before)
    assert print_module(after).count("near=true") == near
    ends = np.array([-(2**31), 2**31 - 1, 0, -1])
    values = np.concatenate([RNG.integers(-30000, 30000, 112), ends, ends]).reshape(40, 3)
    same(before, after, values.astype(np.int32), exact=True)


def test_any_accumulators_have_the_results_that_a_multiplier_gives() -> None:
    p = Program()
    m, s = quantized_multiplier([0.011, 0.17, 0.02])
    x = p.input("x", 40, 3, dtype=I32)
    before = p.module(
        p.op("requantize", x, make.const(m), make.const(s), dtype=I8, zero=-9, rounding=Rounding.TFLITE)
    )
    after = prepared(before)
    assert operators(after)["requantize_by_floats"] == 1
    ends = np.array([-(2**31), 2**31 - 1, 0, -1])
    values = np.concatenate([RNG.integers(-30000, 30000, 112), ends, ends]).reshape(40, 3)
    same(before, after, values.astype(np.int32), exact=True)


def sum_of_bytes(
    scales: tuple[float, float, float], zeros: tuple[int, int, int], name: str = "add"
) -> Module:
    """The sum or difference of two tensors of 256 x 256 bytes, as it is read from a TFLite model."""
    p = Program()
    most = 2 * max(scales[:2])
    operands = []
    for which, scale, zero in zip("xy", scales, zeros, strict=False):
        wide = p.op("cast", p.input(which, 256, 256, dtype=I8), dtype=I32)
        moved = p.op("mul", p.op("sub", wide, make.const(np.int32(zero))), make.const(np.int32(1 << 20)))
        factor = (make.const(e) for e in quantized_multiplier(scale / most))
        operands.append(p.op("requantize", moved, *factor, dtype=I32, rounding=Rounding.TFLITE, axis=0))
    last = (make.const(e) for e in quantized_multiplier(most / (scales[2] * (1 << 20))))
    total = p.op(name, *operands)
    return p.module(p.op("requantize", total, *last, dtype=I8, zero=zeros[2], rounding=Rounding.TFLITE))


EVERY = np.meshgrid(*[np.arange(-128, 128, dtype=np.int8)] * 2)


@pytest.mark.parametrize("seed", range(12))
def test_sums_of_bytes_are_scaled_in_floats(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y, out = (float(e) for e in rng.uniform(0.005, 0.05, 3))
    zeros = tuple(int(e) for e in rng.integers(-128, 128, 3))
    before = sum_of_bytes((x, y, out), zeros, "sub" if seed % 3 == 0 else "add")
    after = prepared(before)
    assert operators(after)["add_by_floats"] == 1
    same(before, after, *EVERY, exact=True)


def test_sums_whose_ties_are_rounded_to_both_sides_stay() -> None:
    before = sum_of_bytes((0.25, 0.25, 0.5), (0, 0, 0))
    after = prepared(before)
    assert operators(after)["add_by_floats"] == 0
    same(before, after, *EVERY, exact=True)


def channels(largest: int) -> Module:
    """A convolution of each channel by itself, with a bias up to some number."""
    p = Program()
    w = RNG.integers(-127, 128, (6, 1, 3, 3)).astype(np.int8)
    s = p.op("conv_integer", p.input("x", 2, 6, 7, 8, dtype=I8), make.const(w), groups=6, pads=(1, 1, 1, 1))
    bias = np.linspace(-largest, largest, 6).astype(np.int32).reshape(6, 1, 1)
    s = p.op("add", s, make.const(bias))
    factors = (make.const(e) for e in quantized_multiplier(np.linspace(2e-3, 9e-3, 6)))
    return p.module(p.op("requantize", s, *factors, dtype=I8, zero=3, rounding=Rounding.TFLITE))


@pytest.mark.parametrize(
    ("features", "largest", "is_floats"),
    [
        (("avx2", "fma"), 3000, True),
        (("avx2", "fma"), 1 << 24, False),
        (("avx2",), 3000, False),
        (("avx2", "avxvnni", "fma"), 3000, False),
    ],
)
def test_sums_of_channels_are_floats_where_pairs_are_not_added(features, largest: int, is_floats) -> None:
    before = channels(largest)
    after = prepared(before, Target(arch="x86_64", features=features))
    found = [c for c in calls(after) if c.callee.op.name == "depthwise_conv_nhwc_integer"]
    assert [c.callee.attrs.sums is F32 for c in found] == [is_floats]
    same(before, after, RNG.integers(-128, 128, (2, 6, 7, 8)).astype(np.int8), exact=True)
