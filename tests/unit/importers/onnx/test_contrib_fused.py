"""Fused operators against onnxruntime, which made them."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from inlay.base.diagnostics import UnsupportedError
from tests.unit.importers.onnx.models import load, model, run, value

RNG = np.random.default_rng(3)


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def u8(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape).astype(np.uint8)


S, S2, S3 = (np.array(v, np.float32) for v in (0.02, 0.013, 0.03))
Z, Z2, Z3 = (np.array(v, np.uint8) for v in (120, 131, 7))
X = real(2, 5, 8)
IMAGE = real(1, 2, 5, 6)
CASES = [
    ("FusedConv", [IMAGE, real(3, 2, 2, 2), real(3)], {"activation": "Relu"}),
    ("FusedConv", [IMAGE, real(3, 2, 2, 2), None, real(1, 3, 4, 5)], {"activation": "Sigmoid"}),
    ("FusedConv", [IMAGE, real(3, 2, 2, 2)], {"activation": "LeakyRelu", "activation_params": [0.2]}),
    ("FusedConv", [IMAGE, real(3, 2, 2, 2)], {"activation": "Clip", "activation_params": [-0.5, 1.0]}),
    ("FusedConv", [IMAGE, real(3, 2, 2, 2)], {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]}),
    (
        "FusedGemm",
        [real(4, 3), real(5, 3), real(5)],
        {"activation": "LeakyRelu", "activation_alpha": 0.3, "transB": 1},
    ),
    ("SkipLayerNormalization", [X, real(2, 5, 8), real(8), real(8), real(8)], {"epsilon": 1e-5}),
    ("SkipLayerNormalization", [X, real(2, 5, 8), real(8)], {}),
    ("SkipSimplifiedLayerNormalization", [X, real(2, 5, 8), real(8), real(8)], {"epsilon": 1e-6}),
    (
        "EmbedLayerNormalization",
        [
            np.array([[1, 3, 2]], np.int32),
            np.array([[0, 1, 1]], np.int32),
            real(6, 8),
            real(4, 8),
            real(2, 8),
            real(8),
            real(8),
        ],
        {"epsilon": 1e-5},
    ),
    ("QLinearGlobalAveragePool", [u8(1, 3, 4, 5), S, Z, S2, Z2], {"channels_last": 0}),
    (
        "QLinearAveragePool",
        [u8(1, 3, 4, 5), S, Z, S2, Z2],
        {"kernel_shape": [2, 3], "pads": [1, 1, 0, 0], "count_include_pad": 1},
    ),
    (
        "QLinearSoftmax",
        [u8(3, 6), S, Z, np.array(1 / 256, np.float32), np.array(0, np.uint8)],
        {"axis": -1, "opset": 13},
    ),
    ("QLinearConcat", [S3, Z3, u8(2, 3), S, Z, u8(2, 4), S2, Z2], {"axis": 1}),
    ("QGemm", [u8(3, 4), S, Z, u8(5, 4), S2, Z2, np.arange(5, dtype=np.int32), S3, Z3], {"transB": 1}),
    ("QGemm", [u8(3, 4), S, Z, u8(4, 5), S2, Z2], {"alpha": 0.5}),
    ("MatMulIntegerToFloat", [u8(3, 4), u8(4, 5), S, real(5) ** 2, Z, u8(5), real(5)], {}),
    ("DynamicQuantizeMatMul", [real(3, 4), u8(4, 5), S, Z, real(5)], {}),
    (
        "MatMulNBits",
        [real(3, 40), u8(5, 3, 8), real(5 * 3), u8(5 * 2)],
        {"K": 40, "N": 5, "bits": 4, "block_size": 16},
    ),
    ("MatMulNBits", [real(3, 40), u8(5, 3, 8), real(5 * 3)], {"K": 40, "N": 5, "bits": 4, "block_size": 16}),
    (
        "EmbedLayerNormalization",
        [
            np.array([[1, 3, 2], [4, 0, 5]], np.int32),
            None,
            real(6, 8),
            real(4, 8),
            None,
            real(8),
            real(8),
            np.array([[1, 1, 0], [1, 1, 1]], np.int32),
        ],
        {},
    ),
    (
        "QEmbedLayerNormalization",
        [
            np.array([[1, 3, 2]], np.int32),
            np.array([[0, 1, 1]], np.int32),
            u8(6, 8),
            u8(4, 8),
            u8(2, 8),
            u8(8),
            u8(8),
            None,
            S,
            S2,
            S3,
            S,
            S2,
            Z,
            Z2,
            Z3,
            Z,
            Z2,
        ],
        {},
    ),
    ("QLinearWhere", [np.array([[True, False, True]]), u8(2, 3), S, Z, u8(2, 1), S2, Z2, S3, Z3], {}),
    (
        "QLinearConv",
        [u8(1, 5, 6, 2), S, Z, u8(3, 2, 2, 2), S2, Z2, S3, Z3],
        {"channels_last": 1, "strides": [2, 1]},
    ),
    ("QLinearConv", [u8(1, 2, 5, 6), S, Z, u8(3, 2, 2, 2), S2, Z2, S3, Z3], {}),
    ("NhwcMaxPool", [u8(1, 5, 6, 3)], {"kernel_shape": [2, 3], "pads": [1, 0, 0, 1]}),
    ("QLinearAveragePool", [u8(1, 4, 5, 3), S, Z, S2, Z2], {"kernel_shape": [2, 3], "channels_last": 1}),
    ("QLinearGlobalAveragePool", [u8(1, 4, 5, 3), S, Z, S2, Z2], {"channels_last": 1}),
    ("FusedMatMul", [real(3, 2, 4), real(2, 4, 5)], {"transBatchA": 1, "alpha": 0.5}),
    ("FusedMatMul", [real(2, 3, 4), real(5, 2, 4)], {"transBatchB": 1, "transB": 1}),
    ("FusedMatMul", [real(2, 4, 3), real(4, 5)], {"transA": 1}),
]

WITH_CONSTANTS = ("MatMulNBits", "QEmbedLayerNormalization", "QLinearConv")
"""Operators whose weights and parameters must be constants here or there."""


@pytest.mark.parametrize("case", range(len(CASES)))
def test_as_onnxruntime(case: int) -> None:
    op, arrays, attrs = CASES[case]
    names = ["" if a is None else f"x{i}" for i, a in enumerate(arrays)]
    outputs = ["y"]
    if "Skip" in op:
        outputs += ["", "", "total"]
    if "Embed" in op:
        outputs += ["counts"]
    node = helper.make_node(op, names, outputs, domain="com.microsoft", **attrs)
    given = {n: a for n, a in zip(names, arrays, strict=True) if n}
    fixed = given if op in WITH_CONSTANTS else {}
    declared = [
        value(n, list(a.shape), helper.np_dtype_to_tensor_dtype(a.dtype))
        for n, a in given.items()
        if n == "x0" or n not in fixed
    ]
    fixed = {n: a for n, a in fixed.items() if n != "x0"}
    made = [helper.make_empty_tensor_value_info(n) for n in outputs if n]
    m = model([node], declared, made, fixed, ir_version=9)
    m.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    inputs = {n: a for n, a in given.items() if n not in fixed}
    session = onnxruntime.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
    found = run(load(m), inputs).values()
    for got, want in zip(found, session.run(None, inputs), strict=True):
        assert got.dtype == want.dtype
        step = 1 if want.dtype == np.uint8 else 1e-4
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), atol=step)


@pytest.mark.parametrize(
    ("attrs", "axes", "keep"),
    [
        ({"axes": [1], "keepdims": 0}, (1,), False),
        ({"axes": [0, -1]}, (0, 2), True),
        ({}, (0, 1, 2), True),
        ({"keepdims": 0}, (0, 1, 2), False),
    ],
)
def test_means_of_whole_numbers(attrs, axes, keep) -> None:
    """By their definition: onnxruntime has the operator and no kernel for it."""
    x = u8(2, 3, 5)
    names = ["x", "s", "z", "s2", "z2"]
    node = helper.make_node("QLinearReduceMean", names, ["y"], domain="com.microsoft", **attrs)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    fixed = {"s": S, "z": Z, "s2": S2, "z2": Z2}
    m = model([node], [value("x", list(x.shape), kind)], [value("y", None, kind)], fixed)
    m.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    [found] = run(load(m), {"x": x}).values()
    mean = ((x.astype(np.float32) - np.float32(Z)) * S).mean(axes, keepdims=keep)
    want = np.clip(np.rint(mean / S2) + np.float32(Z2), 0, 255).astype(np.uint8)
    assert found.shape == want.shape
    np.testing.assert_allclose(found.astype(int), want.astype(int), atol=1)


def test_a_model_optimized_for_one_machine_says_so() -> None:
    x = helper.make_node("ReorderInput", ["x"], ["y"], domain="com.microsoft.nchwc")
    m = model([x], [value("x", [1, 8, 4, 4])], [value("y", None)])
    m.opset_import.append(helper.make_opsetid("com.microsoft.nchwc", 1))
    with pytest.raises(UnsupportedError, match="ORT_ENABLE_EXTENDED"):
        load(m)
