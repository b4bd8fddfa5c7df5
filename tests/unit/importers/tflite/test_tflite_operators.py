"""Single operators of TFLite: against NumPy for floats, and against their reals for integers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from inlay.base.diagnostics import CompileError
from inlay.interp.tensor import evaluate_entry
from inlay.ops.table import table

pytest.importorskip("tflite", reason="the package 'tflite' is not installed")

from inlay.importers.tflite.graph import import_bytes
from tests.tflite_models import Op, T, constant, model

I8 = {"dtype": "int8", "scale": 0.05, "zero": 3}


def run(content: bytes, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    return {n: np.asarray(v) for n, v in evaluate_entry(import_bytes(content, table()), inputs).items()}


def unary(name: str, x: T, y: T, **options: float) -> bytes:
    kind = options.pop("table", "")
    return model({"x": x, "y": y}, [Op(name, ["x"], ["y"], str(kind), options)], ["x"], ["y"])


def reals(q: np.ndarray, t: T) -> np.ndarray:
    return (q.astype(np.float64) - t.zero) * np.float32(t.scale)


def normal(x: np.ndarray) -> np.ndarray:
    return np.vectorize(lambda v: 0.5 * (1 + math.erf(v * math.sqrt(0.5))))(x)


def normal_by_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


X = np.random.default_rng(0).uniform(-4, 4, (2, 6)).astype(np.float32)
Q = np.random.default_rng(1).integers(-128, 128, (2, 6)).astype(np.int8)


@pytest.mark.parametrize(
    ("name", "options", "meaning"),
    [
        ("LOGISTIC", {}, lambda x: 1 / (1 + np.exp(-x))),
        ("TANH", {}, np.tanh),
        ("RELU6", {}, lambda x: np.clip(x, 0, 6)),
        ("HARD_SWISH", {}, lambda x: x * np.clip(x + 3, 0, 6) / 6),
        ("LEAKY_RELU", {"table": "LeakyReluOptions", "Alpha": 0.25}, lambda x: np.where(x < 0, 0.25 * x, x)),
        ("ABS", {}, np.abs),
        ("GELU", {"table": "GeluOptions", "Approximate": False}, lambda x: x * normal(x)),
        ("GELU", {"table": "GeluOptions", "Approximate": True}, lambda x: x * normal_by_tanh(x)),
        ("FLOOR", {}, np.floor),
    ],
)
def test_functions_of_floats(name, options, meaning):
    found = run(unary(name, T((2, 6)), T((2, 6)), **options), x=X)["y"]
    np.testing.assert_allclose(found, meaning(X), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "scale", "zero", "options", "meaning"),
    [
        ("LOGISTIC", 1 / 256, -128, {}, lambda x: 1 / (1 + np.exp(-x))),
        ("TANH", 1 / 128, 0, {}, np.tanh),
        ("RELU", 0.04, -10, {}, lambda x: np.maximum(x, 0)),
        ("RELU6", 0.05, -128, {}, lambda x: np.clip(x, 0, 6)),
        (
            "LEAKY_RELU",
            0.05,
            3,
            {"table": "LeakyReluOptions", "Alpha": 0.25},
            lambda x: np.where(x < 0, x / 4, x),
        ),
        ("QUANTIZE", 0.11, 7, {}, lambda x: x),
    ],
)
def test_functions_of_integers_are_within_a_step(name, scale, zero, options, meaning):
    x, y = T((2, 6), **I8), T((2, 6), "int8", scale=scale, zero=zero)
    found = run(unary(name, x, y, **options), x=Q)["y"]
    wanted = np.clip(np.round(meaning(reals(Q, x)) / scale) + zero, -128, 127)
    assert np.abs(found - wanted).max() <= 1


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("ADD", np.add),
        ("SUB", np.subtract),
        ("MUL", np.multiply),
        ("MAXIMUM", np.maximum),
        ("DIV", np.divide),
    ],
)
def test_arithmetic_of_floats(name, meaning):
    kind = "" if name == "MAXIMUM" else f"{name.capitalize()}Options"
    tensors = {"x": T((2, 6)), "y": T((6,)), "z": T((2, 6))}
    found = run(model(tensors, [Op(name, ["x", "y"], ["z"], kind)], ["x", "y"], ["z"]), x=X, y=X[1])["z"]
    np.testing.assert_allclose(found, meaning(X, X[1]), rtol=1e-6)


@pytest.mark.parametrize(("name", "meaning"), [("ADD", np.add), ("SUB", np.subtract), ("MUL", np.multiply)])
@pytest.mark.parametrize("activation", [0, 1, 3])
def test_arithmetic_of_integers_is_within_a_step(name, meaning, activation):
    x, y = T((2, 6), **I8), T((2, 6), "int8", scale=0.02, zero=-7)
    z = T((2, 6), "int8", scale=0.08, zero=-1)
    options = {"FusedActivationFunction": activation}
    op = Op(name, ["x", "y"], ["z"], f"{name.capitalize()}Options", options)
    other = Q[::-1].copy()
    found = run(model({"x": x, "y": y, "z": z}, [op], ["x", "y"], ["z"]), x=Q, y=other)["z"]
    low, high = {0: (-1e9, 1e9), 1: (0, 1e9), 3: (0, 6)}[activation]
    real = np.clip(meaning(reals(Q, x), reals(other, y)), low, high)
    assert np.abs(found - np.clip(np.round(real / 0.08) - 1, -128, 127)).max() <= 1


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D"])
def test_convolutions_of_integers_are_within_a_step(kind, stride, padding):
    """Against the same convolution of floats, which is held against NumPy elsewhere."""
    rng = np.random.default_rng(2)
    w = rng.integers(-127, 128, (4, 3, 3, 4) if kind == "CONV_2D" else (1, 3, 3, 4)).astype(np.int8)
    axis, scales = (0 if kind == "CONV_2D" else 3), [0.01, 0.02, 0.005, 0.013]
    bias = rng.integers(-500, 500, 4).astype(np.int32)
    size = -(-6 // stride) if padding == 0 else (6 - 3) // stride + 1
    x, y = T((1, 6, 6, 4), **I8), T((1, size, size, 4), "int8", scale=0.2, zero=4)
    options = {
        "StrideW": stride,
        "StrideH": stride,
        "Padding": padding,
        "DilationHFactor": 1,
        "DilationWFactor": 1,
    }
    table_of = "Conv2DOptions" if kind == "CONV_2D" else "DepthwiseConv2DOptions"
    op = Op(kind, ["x", "w", "b"], ["y"], table_of, options)
    ints = {"x": x, "w": constant(w, scale=scales, axis=axis), "b": constant(bias), "y": y}
    q = rng.integers(-128, 128, (1, 6, 6, 4)).astype(np.int8)
    found = run(model(ints, [op], ["x"], ["y"]), x=q)["y"]
    along = np.reshape(np.float32(scales), (4, 1, 1, 1) if axis == 0 else (1, 1, 1, 4))
    floats = {
        "x": T((1, 6, 6, 4)),
        "w": constant((w * along).astype(np.float32)),
        "b": constant((bias * np.float32(0.05) * np.float32(scales)).astype(np.float32)),
        "y": T((1, size, size, 4)),
    }
    real = run(model(floats, [op], ["x"], ["y"]), x=reals(q, x).astype(np.float32))["y"]
    assert np.abs(found - np.clip(np.round(real / 0.2) + 4, -128, 127)).max() <= 1


def test_average_pool_of_integers_rounds_away_from_zero():
    x = T((1, 3, 3, 1), "int8", scale=0.1)
    y = T((1, 3, 3, 1), "int8", scale=0.1)
    options = {"StrideW": 1, "StrideH": 1, "FilterHeight": 2, "FilterWidth": 2, "Padding": 0}
    q = np.array([-3, -2, 0, 1, 2, 5, 7, -8, 9], np.int8).reshape(1, 3, 3, 1)
    found = run(unary("AVERAGE_POOL_2D", x, y, table="Pool2DOptions", **options), x=q)["y"][0, ..., 0]
    for i in range(3):
        for j in range(3):
            window = q[0, i : i + 2, j : j + 2, 0].astype(int)
            total, count = window.sum(), window.size
            half = count // 2
            wanted = int((total + half) / count) if total > 0 else int((total - half) / count)
            assert found[i, j] == wanted


def test_softmax_of_integers_is_within_a_step():
    x, y = T((2, 6), **I8), T((2, 6), "int8", scale=1 / 256, zero=-128)
    found = run(unary("SOFTMAX", x, y, table="SoftmaxOptions", Beta=1.0), x=Q)["y"]
    e = np.exp(reals(Q, x))
    assert np.abs(found - (np.round(256 * e / e.sum(-1, keepdims=True)) - 128)).max() <= 1


def test_sums_of_integers_begin_with_nothing():
    """More terms than 32 bits hold where sums are shifted as far as the kernels shift them."""
    x, y = T((2, 40), **I8), T((2, 40), "int8", scale=1.5, zero=-4)
    q = np.random.default_rng(3).integers(-128, 128, (2, 40)).astype(np.int8)
    tensors = {"x": x, "axis": constant(np.array(1, np.int32)), "y": y}
    op = Op("CUMSUM", ["x", "axis"], ["y"], "CumsumOptions", {"Exclusive": False, "Reverse": False})
    found = run(model(tensors, [op], ["x"], ["y"]), x=q)["y"]
    steps = np.clip(np.cumsum(reals(q, x), 1) / 1.5 - 4, -128, 127)
    assert np.abs(found - steps).max() <= 0.501


def test_slopes_of_16_bits_multiply_without_overflow():
    rng = np.random.default_rng(4)
    q, slope = (rng.integers(-32768, 32768, n).astype(np.int16) for n in ((3, 20), (20,)))
    x, y = T((3, 20), "int16", scale=4e-4), T((3, 20), "int16", scale=3e-4)
    tensors = {"x": x, "a": constant(slope, scale=5e-5), "y": y}
    found = run(model(tensors, [Op("PRELU", ["x", "a"], ["y"])], ["x"], ["y"]), x=q)["y"]
    real = reals(q, x) * np.where(q < 0, slope * np.float32(5e-5), 1)
    assert np.abs(found - np.clip(real / np.float32(3e-4), -32768, 32767)).max() <= 0.501


def test_integers_of_16_bits_are_compared_as_what_they_stand_for():
    x, y = T((3, 4), "int16", scale=3e-4), T((3, 4), "int16", scale=1e-4)
    a = np.arange(-600, 600, 100).astype(np.int16).reshape(3, 4)
    b = (3 * a + np.arange(-1, 2)[:, None]).astype(np.int16)
    tensors = {"x": x, "y": y, "z": T((3, 4), "bool")}
    found = run(model(tensors, [Op("LESS", ["x", "y"], ["z"], "LessOptions")], ["x", "y"], ["z"]), x=a, y=b)
    np.testing.assert_array_equal(found["z"], reals(a, x) < reals(b, y))


def test_bytes_without_a_sign_under_floats_have_one():
    """Weights of files of the first years: their element type has no sign, and their zero point is 0."""
    w = np.random.default_rng(5).integers(-127, 128, (3, 6)).astype(np.int8)
    op = Op("FULLY_CONNECTED", ["x", "w"], ["y"], "FullyConnectedOptions")
    tensors = {"x": T((2, 6)), "w": constant(w.view(np.uint8), scale=0.01), "y": T((2, 3))}
    found = run(model(tensors, [op], ["x"], ["y"]), x=X)["y"]
    np.testing.assert_allclose(found, X @ (w.T * np.float32(0.01)), rtol=1e-5)
    again = {"w": tensors["w"], "y": T((3, 6))}
    read = run(model(again, [Op("DEQUANTIZE", ["w"], ["y"])], [], ["y"]))["y"]
    np.testing.assert_allclose(read, w.view(np.uint8) * np.float32(0.01), rtol=1e-6)


def test_weights_have_the_shape_that_they_are_computed_with():
    w = np.random.default_rng(6).normal(0, 1, (3, 6)).astype(np.float32)
    tensors = {"x": T((2, 6)), "w": constant(w), "v": T(()), "y": T((2, 3))}
    ops = [Op("TANH", ["w"], ["v"]), Op("FULLY_CONNECTED", ["x", "v"], ["y"], "FullyConnectedOptions")]
    found = run(model(tensors, ops, ["x"], ["y"]), x=X)["y"]
    np.testing.assert_allclose(found, X @ np.tanh(w).T, rtol=1e-5)


def test_scales_that_differ_by_their_rounding_are_one():
    near = float(np.nextafter(np.float32(0.05), np.float32(1)))
    options = {"StrideW": 1, "StrideH": 1, "FilterHeight": 1, "FilterWidth": 1, "Padding": 0}
    q, x = Q.reshape(1, 2, 6, 1), T((1, 2, 6, 1), **I8)
    same = T((1, 2, 6, 1), "int8", scale=near, zero=3)
    np.testing.assert_array_equal(
        run(unary("MAX_POOL_2D", x, same, table="Pool2DOptions", **options), x=q)["y"], q
    )
    other = T((1, 2, 6, 1), "int8", scale=0.06, zero=3)
    with pytest.raises(CompileError, match="different scales"):
        run(unary("MAX_POOL_2D", x, other, table="Pool2DOptions", **options), x=q)


def test_variables_are_inputs_and_outputs():
    tensors = {"x": T((2, 6)), "s": T((2, 6), is_variable=True), "y": T((2, 6))}
    content = model(tensors, [Op("ADD", ["x", "s"], ["y"], "AddOptions")], ["x"], ["y"])
    found = run(content, x=X, s=X)
    np.testing.assert_array_equal(found["y"], X + X)
    np.testing.assert_array_equal(found["s:next"], X)


def test_a_size_that_is_known_at_run_time_is_a_symbol():
    x, y = T((1, 6), signature=(-1, 6)), T((1, 3, 2), signature=(-1, 3, 2))
    tensors = {"x": x, "s": constant(np.array([-1, 3, 2], np.int32)), "y": y}
    content = model(tensors, [Op("RESHAPE", ["x", "s"], ["y"])], ["x"], ["y"])
    assert run(content, x=X)["y"].shape == (2, 3, 2)


def test_what_is_refused_is_refused_at_once():
    tensors = {"x": T((2, 6)), "y": T((2, 6)), "z": T((2, 6), "int8", scale=0.1)}
    ops = [Op("SKIP_GRAM", ["x"], ["y"]), Op("TANH", ["x"], ["z"])]
    with pytest.raises(CompileError) as failure:
        run(model(tensors, ops, ["x"], ["y", "z"]), x=X)
    assert set(failure.value.ids) == {"import.unknown-operator", "import.unsupported"}


def test_a_file_that_says_another_shape_is_refused():
    with pytest.raises(CompileError, match=r"gives f32\[2, 6\], and the file says f32\[2, 5\]"):
        run(unary("TANH", T((2, 6)), T((2, 5))), x=X)
