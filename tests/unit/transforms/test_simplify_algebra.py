from __future__ import annotations

import math

import numpy as np
import pytest

from inlay.analysis.infer_types import infer_types
from inlay.arith.dtype import BOOL, F16, F32, F64, I8, I32, I64, U8
from inlay.ir import make
from inlay.ir.parser import parse_module
from inlay.ir.place import Place
from inlay.ops.table import table
from inlay.passes.contract import PassContext
from tests.unit.transforms.programs import OPS, Program, dims, noise, operators, run, same


def simplified(module, ctx: PassContext | None = None):
    return run("to-anf,simplify-algebra,eliminate-dead", module, ctx=ctx)


def check_unary(build, expected, *, dtype=F32, exact=True, x=None):
    """A program of one vector becomes these operators and keeps its meaning."""
    p, n = Program(), dims("n")
    v = p.input("x", n, dtype=dtype)
    before = p.module(build(p, v))
    after = simplified(before)
    assert dict(operators(after)) == expected
    if x is None:
        x = np.array([-3.5, -0.5, 0.25, 1.0, 7.0, 300.0]).astype(dtype.numpy)
    same(before, after, x, exact=exact)


def number(value, dtype=F32):
    return make.const(np.asarray(value), dtype)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda p, x: p.op("add", x, number(0.0)), {}),
        (lambda p, x: p.op("add", number(0.0), x), {}),
        (lambda p, x: p.op("sub", x, number(0.0)), {}),
        (lambda p, x: p.op("mul", number(1.0), x), {}),
        (lambda p, x: p.op("div", x, number(1.0)), {}),
        (lambda p, x: p.op("div", x, number(8.0)), {"mul": 1}),
        (lambda p, x: p.op("div", x, number(3.0)), {"div": 1}),
        (lambda p, x: p.op("div", number(1.0), x), {"reciprocal": 1}),
        (lambda p, x: p.op("pow", x, number(1.0)), {}),
        (lambda p, x: p.op("pow", x, number(2.0)), {"mul": 1}),
        (lambda p, x: p.op("pow", x, number(-1.0)), {"reciprocal": 1}),
        (lambda p, x: p.op("pow", x, number(0.5)), {"pow": 1}),
        (lambda p, x: p.op("neg", p.op("neg", x)), {}),
        (lambda p, x: p.op("relu", p.op("relu", x)), {"relu": 1}),
        (lambda p, x: p.op("floor", p.op("floor", x)), {"floor": 1}),
        (lambda p, x: p.op("clip", x, low=0.0), {"relu": 1}),
        (lambda p, x: p.op("relu", p.op("clip", x, low=-1.0, high=2.0)), {"clip": 1}),
        (lambda p, x: p.op("clip", p.op("clip", x, low=0.0, high=5.0), low=1.0), {"clip": 1}),
        (lambda p, x: p.op("maximum", number(0.0), x), {"relu": 1}),
        (lambda p, x: p.op("maximum", number(-math.inf), x), {}),
        (lambda p, x: p.op("minimum", x, number(math.inf)), {}),
    ],
)
def test_identities(build, expected):
    # NumPy's own pow(x, -1) is off by an ulp.
    check_unary(build, expected, exact="pow" not in build.__code__.co_consts)


def test_an_identity_that_broadcasts_is_none():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    before = p.module(p.op("add", x, number(np.zeros((2, 1)))))
    after = simplified(before)
    assert operators(after) == {"add": 1}
    same(before, after, noise(3), exact=True)


@pytest.mark.parametrize(
    ("first", "second", "through", "expected"),
    [
        (F32, F32, None, {}),
        (I32, I64, F32, {"cast": 1}),
        (I8, I32, I8, {}),
        (U8, I8, I32, {"cast": 2}),
        (F32, F64, F32, {}),
        (F32, F16, F32, {"cast": 2}),
        (I32, F32, I32, {"cast": 2}),
        (I32, F64, I32, {}),
        (BOOL, I64, F32, {"cast": 1}),
    ],
)
def test_casts_over_a_format_that_holds_everything(first, second, through, expected):
    def build(p, x):
        y = p.op("cast", x, dtype=second)
        return y if through is None else p.op("cast", y, dtype=through)

    x = np.array([0, 1, 100, 127]).astype(first.numpy)
    check_unary(build, expected, dtype=first, x=x)


# --------------------------------------------------------------------------- layout


def test_transposes_meet_and_cancel():
    p, (a, b, c) = Program(), dims("a", "b", "c")
    x = p.input("x", a, b, c)
    back = p.op("transpose", p.op("transpose", x, perm=(1, 2, 0)), perm=(2, 0, 1))
    once = p.op("transpose", p.op("transpose", x, perm=(1, 2, 0)), perm=(0, 2, 1))
    before = p.module(p.op("exp", back), p.op("exp", once))
    after = simplified(before)
    assert operators(after) == {"exp": 2, "transpose": 1}
    same(before, after, noise(2, 3, 4), exact=True)


def test_a_transpose_that_moves_only_axes_of_length_one_is_a_view():
    p, (n, h) = Program(), dims("n", "h")
    x = p.input("x", n, 1, h, 5)
    before = p.module(p.op("transpose", x, perm=(0, 2, 3, 1)))
    after = simplified(before)
    assert operators(after) == {"reshape": 1}
    same(before, after, noise(2, 1, 3, 5), exact=True)


def test_transposes_meet_over_a_reshape_that_splits_axes():
    p, (n, h, w) = Program(), dims("n", "h", "w")
    x = p.input("x", n, h, w, 12)
    first = p.op("transpose", x, perm=(0, 3, 1, 2))
    shape = make.shape_const([n, 3, 2, 2, h, w])
    split = p.op("reshape", first, shape)
    before = p.module(p.op("transpose", split, perm=(0, 1, 4, 2, 5, 3)))
    after = simplified(before)
    assert operators(after) == {"reshape": 1, "transpose": 1}
    same(before, after, noise(2, 4, 5, 12), exact=True)


def test_a_reshape_that_merges_axes_is_no_bridge():
    p, (n, h) = Program(), dims("n", "h")
    x = p.input("x", n, h, 4, 6)
    first = p.op("transpose", x, perm=(0, 3, 1, 2))
    merged = p.op("reshape", first, make.shape_const([n, 6, make.to_int(h) * 4]))
    before = p.module(p.op("transpose", merged, perm=(0, 2, 1)))
    after = simplified(before)
    assert operators(after) == {"transpose": 2, "reshape": 1}
    same(before, after, noise(2, 3, 4, 6), exact=True)


def test_reshapes_meet_and_disappear():
    p, n = Program(), dims("n")
    x = p.input("x", n, 6)
    y = p.op("reshape", p.op("reshape", x, make.shape_const([n, 2, 3])), make.shape_const([n, 6]))
    before = p.module(p.op("exp", y))
    after = simplified(before)
    assert operators(after) == {"exp": 1}
    same(before, after, noise(2, 6), exact=True)


def test_axes_given_back_to_a_reduction_were_kept():
    p, n = Program(), dims("n")
    x = p.input("x", n, 6)
    total = p.op("reduce_sum", x, axes=(1,))
    before = p.module(p.op("div", x, p.op("reshape", total, make.shape_const([n, 1]))))
    after = simplified(before)
    assert operators(after) == {"reduce_sum": 1, "div": 1}
    same(before, after, noise(2, 6), exact=True)


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


def test_operators_that_broadcast_need_no_broadcast_operand():
    p, (m, n) = Program(), dims("m", "n")
    x, y = p.input("x", m, n), p.input("y", n)
    wide = p.op("broadcast_to", y, make.shape_const([m, n]))
    before = p.module(p.op("add", x, wide), p.op("exp", wide))
    after = simplified(before)
    assert operators(after) == {"add": 1, "broadcast_to": 1, "exp": 1}
    same(before, after, noise(2, 3), noise(3), exact=True)


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


def test_batch_normalization_of_anything_else_is_a_factor_and_an_offset():
    p, n = Program(), dims("n")
    x = p.input("x", n, 4, 5)
    statistics = [make.const(noise(4, seed=i, low=0.5, high=2.0)) for i in range(4)]
    before = p.module(p.op("batch_norm", x, *statistics))
    after = simplified(before)
    assert operators(after) == {"mul": 1, "add": 1}
    same(before, after, noise(2, 4, 5))


def test_weights_are_not_scaled_for_a_result_that_others_read():
    p, n = Program(), dims("n")
    x = p.input("x", n, 3)
    y = p.op("matmul", x, make.const(noise(3, 4)))
    before = p.module(p.op("mul", y, number(2.0)), y)
    assert operators(simplified(before)) == {"matmul": 1, "mul": 1}


def test_readers_of_a_value_that_did_nothing_count():
    # add(y, 0) is y, so y is read by what read the sum: scaling its weights would compute it twice.
    p, n = Program(), dims("n")
    x = p.input("x", n, 3)
    y = p.op("add", p.op("matmul", x, make.const(noise(3, 4))), number(0.0))
    before = p.module(p.op("select", p.op("less", y, number(0.0)), p.op("mul", y, number(0.1)), y))
    after = simplified(before)
    assert operators(after) == {"matmul": 1, "less": 1, "mul": 1, "select": 1}
    same(before, after, noise(2, 3))


def test_factors_that_vary_beside_the_channels_stay_outside():
    p, n = Program(), dims("n")
    x = p.input("x", n, 3, 5, 5)
    y = p.op("conv", x, make.const(noise(4, 3, 3, 3)))
    before = p.module(p.op("mul", y, make.const(noise(3))))
    assert operators(simplified(before)) == {"conv": 1, "mul": 1}


def test_constants_meet():
    p, n = Program(), dims("n")
    x = p.input("x", n, 4)
    y = p.op("sub", p.op("add", x, make.const(noise(4))), make.const(noise(4, seed=1)))
    before = p.module(p.op("mul", p.op("mul", y, number(0.3)), make.const(noise(4, seed=2))))
    after = simplified(before)
    assert operators(after) == {"add": 1, "mul": 1}
    same(before, after, noise(2, 4))


# --------------------------------------------------------------------------- idioms


def layer_norm(p, x, *, power=True, scale=None, bias=None):
    centered = p.op("sub", x, p.op("reduce_mean", x, axes=(-1,), keepdims=True))
    square = p.op("pow", centered, number(2.0)) if power else p.op("mul", centered, centered)
    variance = p.op("reduce_mean", square, axes=(-1,), keepdims=True)
    y = p.op("div", centered, p.op("sqrt", p.op("add", variance, number(1e-5))))
    y = y if scale is None else p.op("mul", y, scale)
    return y if bias is None else p.op("add", bias, y)


@pytest.mark.parametrize("power", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_spelled_out_layer_norm(power, affine):
    p, n = Program(), dims("n")
    x = p.input("x", n, 8)
    parameters = {"scale": make.const(noise(8)), "bias": make.const(noise(8, seed=1))}
    before = p.module(layer_norm(p, x, power=power, **(parameters if affine else {})))
    after = simplified(before)
    assert operators(after) == {"layer_norm": 1}
    same(before, after, noise(3, 8))


def test_a_scale_of_another_shape_stays_outside():
    p, n = Program(), dims("n")
    x = p.input("x", n, 8)
    before = p.module(layer_norm(p, x, scale=number(np.ones((1, 1)) * 2)))
    assert operators(simplified(before)) == {"layer_norm": 1, "mul": 1}


def test_rms_norm():
    p, n = Program(), dims("n")
    x = p.input("x", n, 8)
    mean = p.op("reduce_mean", p.op("mul", x, x), axes=(1,), keepdims=True)
    root = p.op("sqrt", p.op("add", mean, number(1e-6)))
    y = p.op("mul", make.const(noise(8)), p.op("mul", x, p.op("reciprocal", root)))
    before = p.module(y)
    after = simplified(before)
    assert operators(after) == {"rms_norm": 1}
    same(before, after, noise(3, 8))


@pytest.mark.parametrize("order", range(4))
def test_gelu_by_erf(order):
    def build(p, x):
        argument = (
            p.op("div", x, number(math.sqrt(2))) if order % 2 else p.op("mul", number(math.sqrt(0.5)), x)
        )
        gate = p.op("add", p.op("erf", argument), number(1.0))
        half = number(0.5)
        return [
            p.op("mul", p.op("mul", x, gate), half),
            p.op("mul", half, p.op("mul", gate, x)),
            p.op("mul", p.op("mul", x, half), gate),
            p.op("mul", x, p.op("mul", gate, half)),
        ][order]

    check_unary(build, {"gelu": 1}, exact=False)


@pytest.mark.parametrize("cube", ["pow", "mul"])
def test_gelu_by_tanh(cube):
    def build(p, x):
        third = p.op("pow", x, number(3.0)) if cube == "pow" else p.op("mul", p.op("mul", x, x), x)
        inner = p.op("add", x, p.op("mul", number(0.044715), third))
        scaled = p.op("mul", number(math.sqrt(2 / math.pi)), inner)
        gate = p.op("add", number(1.0), p.op("tanh", scaled))
        return p.op("mul", p.op("mul", number(0.5), x), gate)

    check_unary(build, {"gelu": 1}, exact=False)


def test_almost_gelu_is_none():
    def build(p, x):
        gate = p.op("add", p.op("erf", p.op("div", x, number(1.5))), number(1.0))
        return p.op("mul", p.op("mul", x, gate), number(0.5))

    check_unary(build, {"div": 1, "erf": 1, "add": 1, "mul": 2}, exact=False)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda p, x: p.op("mul", x, p.op("sigmoid", x)), {"silu": 1}),
        (lambda p, x: p.op("mul", x, p.op("sigmoid", p.op("abs", x))), {"abs": 1, "sigmoid": 1, "mul": 1}),
        (lambda p, x: p.op("mul", p.op("hard_sigmoid", x, alpha=1 / 6, beta=0.5), x), {"hard_swish": 1}),
        (
            lambda p, x: p.op(
                "div",
                p.op("mul", x, p.op("clip", p.op("add", x, number(3.0)), low=0.0, high=6.0)),
                number(6.0),
            ),
            {"hard_swish": 1},
        ),
        (
            lambda p, x: p.op(
                "mul",
                x,
                p.op("div", p.op("clip", p.op("add", x, number(3.0)), low=0.0, high=6.0), number(6.0)),
            ),
            {"hard_swish": 1},
        ),
        (
            lambda p, x: p.op("reciprocal", p.op("add", number(1.0), p.op("exp", p.op("neg", x)))),
            {"sigmoid": 1},
        ),
    ],
)
def test_activations(build, expected):
    check_unary(build, expected, exact=False, x=np.linspace(-8, 8, 33).astype(np.float32))


@pytest.mark.parametrize("log", [False, True])
def test_softmax(log):
    p, (m, n) = Program(), dims("m", "n")
    x = p.input("x", m, n)
    e = p.op("exp", p.op("sub", x, p.op("reduce_max", x, axes=(1,), keepdims=True)))
    y = p.op("div", e, p.op("reduce_sum", e, axes=(-1,), keepdims=True))
    before = p.module(p.op("log", y) if log else y)
    after = simplified(before)
    assert operators(after) == {"log_softmax" if log else "softmax": 1}
    same(before, after, noise(3, 7, low=-5, high=5))


def test_a_sum_over_other_axes_is_no_softmax():
    p, (m, n) = Program(), dims("m", "n")
    x = p.input("x", m, n)
    e = p.op("exp", p.op("sub", x, p.op("reduce_max", x, axes=(1,), keepdims=True)))
    before = p.module(p.op("div", e, p.op("reduce_sum", e, axes=(0,), keepdims=True)))
    assert operators(simplified(before))["softmax"] == 0


# --------------------------------------------------------------------------- conduct


def test_rules_do_not_look_across_places():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    neg = OPS.definition("neg").op
    inner = p.emit(neg, (x,), place=Place("npu"))
    before = p.module(p.emit(neg, (inner,), place=Place("cpu")))
    assert operators(simplified(before)) == {"neg": 2}


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


def test_adding_a_large_number_and_taking_it_off_again_rounds_on_purpose():
    magic = np.float32(1.5 * 2**23)
    p, n = Program(), dims("n")
    x = p.input("x", n)
    before = p.module(p.op("sub", p.op("add", x, number(magic)), number(magic)))
    after = simplified(before)
    same(before, after, np.array([0.4, 0.6, 2.5, 1e5], np.float32), exact=True)


@pytest.mark.parametrize("factors", [(1e-30, 1e-30), (1e30, 1e30)])
def test_factors_whose_product_is_no_normal_number_do_not_meet(factors):
    p, n = Program(), dims("n")
    x = p.input("x", n)
    y = p.op("mul", p.op("mul", x, number(factors[0])), number(factors[1]))
    before = p.module(y)
    after = simplified(before)
    assert operators(after) == {"mul": 2}
    same(before, after, np.array([1.0, 1 / factors[0]], np.float32), exact=True)


def test_weights_that_a_factor_takes_out_of_range_are_left_alone():
    p, n = Program(), dims("n")
    x = p.input("x", n, 2)
    y = p.op("matmul", x, make.const(np.full((2, 2), 1e30, np.float32)))
    before = p.module(p.op("mul", y, number(1e20)))
    assert operators(simplified(before)) == {"matmul": 1, "mul": 1}


def test_narrow_formats_are_not_reassociated():
    p, n = Program(), dims("n")
    x = p.input("x", n, dtype=F16)
    one = number(0.1, F16)
    before = p.module(p.op("add", p.op("add", x, one), one))
    assert operators(simplified(before)) == {"add": 2}


def test_integers_wrap_in_any_order():
    p, n = Program(), dims("n")
    x = p.input("x", n, dtype=I32)
    big = number(2**31 - 1, I32)
    before = p.module(p.op("add", p.op("add", x, big), big))
    after = simplified(before)
    assert operators(after) == {"add": 1}
    same(before, after, np.array([-5, 0, 7], np.int32), exact=True)


def test_statistics_that_divide_by_zero_are_left_to_the_program():
    p, n = Program(), dims("n")
    x = p.input("x", n, 2)
    one, zero = make.const(np.ones(2, np.float32)), make.const(np.zeros(2, np.float32))
    before = p.module(p.op("batch_norm", x, one, zero, zero, zero, epsilon=0.0))
    assert operators(simplified(before)) == {"batch_norm": 1}


@pytest.mark.parametrize(
    "value",
    [
        "gather{axis=0}(f32[3, 2](1, 2, 3, 4, 5, 6), to_tensor(int(i)))",
        "get_row(f32[3, 2](1, 2, 3, 4, 5, 6), int(i))",
        "sum{axes=[0], keepdims=false}(broadcast_to(f32(2), shape(i, 2)))",
        "mul(cast{dtype=f32}(to_tensor(int(i))), f32[2](3, 4))",
    ],
)
def test_a_constant_at_a_counter_has_no_value_yet(value):
    value = value.replace("sum{", "reduce_sum{")
    module = infer_types(
        parse_module(
            f"""
        fn main(x: Tensor[2, f32]) -> Tensor[2, f32] {{
          let go = fn<i>(i: int[i], h: Tensor[2, f32]) -> Tensor[2, f32] {{
            if (int_less(int(i), int(3))) {{ go(int(i + 1), add(h, {value})) }} else {{ h }}
          }};
          go(int(0), x)
        }}
    """,
            table(),
        )
    )
    same(module, simplified(module), np.array([1, 2], np.float32))
