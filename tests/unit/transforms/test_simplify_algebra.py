from __future__ import annotations

import numpy as np
import pytest

from inlay.arith.dtype import F16, F32, F64
from inlay.ir import make
from inlay.passes.contract import PassContext
from tests.unit.transforms.programs import OPS, Program, dims, noise, operators, run, same, value_of


def simplified(module, ctx: PassContext | None = None):
    return run("to-anf,simplify-algebra,eliminate-dead", module, ctx=ctx)


def number(value, dtype=F32):
    return make.const(np.asarray(value), dtype)


# --------------------------------------------------------------------------- layout


def test_zeros_around_the_input_are_pads_of_the_convolution():
    p, n = Program(), dims("n")
    x = p.input("x", n, 2, 6, 6)
    wide = p.op("pad", x, make.shape_const([0, 0, 1, 2, 0, 0, 3, 0]))
    w = make.const(noise(3, 2, 3, 3))
    before = p.module(p.op("conv", wide, w, pads=(1, 0, 0, 0)))
    after = simplified(before)
    assert operators(after) == {"conv": 1}
    same(before, after, noise(2, 2, 6, 6))


def test_pads_that_are_no_zeros_or_on_channels_stay():
    for pads, value in (([0, 0, 1, 1, 0, 0, 1, 1], 1.0), ([0, 1, 0, 0, 0, 0, 0, 0], 0.0)):
        p, n = Program(), dims("n")
        x = p.input("x", n, 2, 6, 6)
        wide = p.op("pad", x, make.shape_const(pads), number(value))
        w = make.const(noise(3, 3 if pads[1] else 2, 3, 3))
        before = p.module(p.op("conv", wide, w))
        after = simplified(before)
        assert operators(after) == {"pad": 1, "conv": 1}
        same(before, after, noise(2, 2, 6, 6))


# --------------------------------------------------------------------------- weights


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("name", "x", "w", "axis", "c"),
    [
        ("conv", (2, 3, 5, 5), (4, 3, 3, 3), 1, 4),
        ("conv_nhwc", (2, 5, 5, 3), (3, 3, 3, 4), 3, 4),
        ("depthwise_conv_nhwc", (2, 5, 5, 3), (3, 3, 3), 3, 3),
        ("matmul", (2, 5, 3), (3, 4), 2, 4),
    ],
)
def test_batch_normalization_moves_into_the_weights(name, x, w, axis, c, bias):
    p = Program()
    v = p.input("x", dims("n"), *x[1:])
    y = p.op(name, v, make.const(noise(*w)))
    if bias:
        y = p.op("add", y, make.const(noise(c, *(1,) * (len(y.type.shape) - 1 - axis), seed=9)))
    statistics = [make.const(noise(c, seed=i, low=0.5, high=2.0)) for i in range(4)]
    before = p.module(p.op("relu", p.op("batch_norm", y, *statistics, axis=axis)))
    after = simplified(before)
    assert operators(after) == {name: 1, "add": 1, "relu": 1}
    same(before, after, noise(*x))


def test_factors_that_vary_beside_the_channels_stay_outside():
    p, n = Program(), dims("n")
    x = p.input("x", n, 3, 5, 5)
    y = p.op("conv", x, make.const(noise(4, 3, 3, 3)))
    before = p.module(p.op("mul", y, make.const(noise(3))))
    assert operators(simplified(before)) == {"conv": 1, "mul": 1}


# --------------------------------------------------------------------------- idioms


# --------------------------------------------------------------------------- conduct


def test_without_an_evaluator_nothing_is_computed_and_nothing_is_wrong():
    p, n = Program(), dims("n")
    x = p.input("x", n, 3)
    y = p.op("matmul", x, make.const(noise(3, 4)))
    statistics = [make.const(noise(4, seed=i, low=0.5, high=2.0)) for i in range(4)]
    before = p.module(p.op("batch_norm", y, *statistics, axis=1))
    after = simplified(before, ctx=PassContext(OPS))
    same(before, after, noise(2, 3))


def test_what_no_rule_is_about_stays_the_same_object():
    p, n = Program(), dims("n")
    before = run("to-anf", p.module(p.op("tanh", p.input("x", n))))
    assert run("simplify-algebra", before) is before


# --------------------------------------------------------------------------- restraint


# --------------------------------------------------------------------------- powers


@pytest.mark.parametrize(
    ("exponent", "found"),
    [
        (1.0, {}),
        (2.0, {"mul": 1}),
        (3.0, {"mul": 2}),
        (-1.0, {"reciprocal": 1}),
        (0.5, {"sqrt": 1, "abs": 1, "equal": 1, "select": 1}),
        (1.5, {"pow": 1}),
    ],
)
@pytest.mark.parametrize("dtype", [F32, F64, F16], ids=str)
def test_powers_that_are_products_or_roots(exponent, found, dtype):
    """Of numbers that have none, of both zeros, and of infinities."""
    p, n = Program(), dims("n")
    x = p.input("x", n, dtype=dtype)
    before = p.module(p.op("pow", x, number(exponent, dtype)))
    after = simplified(before)
    assert operators(after) == found
    values = [0.0, -0.0, 1.0, -2.0, 3.7, 1e-3, np.inf, -np.inf, np.nan]
    same(before, after, np.array(values, dtype.numpy))
    if exponent == 0.5:
        assert not np.signbit(value_of(after, np.array(values, dtype.numpy))[:2]).any()
