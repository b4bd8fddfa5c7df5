"""Fused operators against onnxruntime, which made them."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import helper

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
    ("FusedConv", [IMAGE, real(3, 2, 2, 2)],
     {"activation": "LeakyRelu", "activation_params": [0.2]}),
    ("FusedConv", [IMAGE, real(3, 2, 2, 2)],
     {"activation": "Clip", "activation_params": [-0.5, 1.0]}),
    ("FusedConv", [IMAGE, real(3, 2, 2, 2)],
     {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]}),
    ("FusedGemm", [real(4, 3), real(5, 3), real(5)],
     {"activation": "LeakyRelu", "activation_alpha": 0.3, "transB": 1}),
    ("SkipLayerNormalization", [X, real(2, 5, 8), real(8), real(8), real(8)], {"epsilon": 1e-5}),
    ("SkipLayerNormalization", [X, real(2, 5, 8), real(8)], {}),
    ("SkipSimplifiedLayerNormalization", [X, real(2, 5, 8), real(8), real(8)], {"epsilon": 1e-6}),
    ("EmbedLayerNormalization",
     [np.array([[1, 3, 2]], np.int32), np.array([[0, 1, 1]], np.int32),
      real(6, 8), real(4, 8), real(2, 8), real(8), real(8)], {"epsilon": 1e-5}),
    ("QLinearGlobalAveragePool", [u8(1, 3, 4, 5), S, Z, S2, Z2], {"channels_last": 0}),
    ("QLinearAveragePool", [u8(1, 3, 4, 5), S, Z, S2, Z2],
     {"kernel_shape": [2, 3], "pads": [1, 1, 0, 0], "count_include_pad": 1}),
    ("QLinearSoftmax", [u8(3, 6), S, Z, np.array(1 / 256, np.float32), np.array(0, np.uint8)],
     {"axis": -1, "opset": 13}),
    ("QLinearConcat", [S3, Z3, u8(2, 3), S, Z, u8(2, 4), S2, Z2], {"axis": 1}),
    ("QGemm", [u8(3, 4), S, Z, u8(5, 4), S2, Z2, np.arange(5, dtype=np.int32), S3, Z3],
     {"transB": 1}),
    ("QGemm", [u8(3, 4), S, Z, u8(4, 5), S2, Z2], {"alpha": 0.5}),
    ("MatMulIntegerToFloat", [u8(3, 4), u8(4, 5), S, real(5) ** 2, Z, u8(5), real(5)], {}),
    ("DynamicQuantizeMatMul", [real(3, 4), u8(4, 5), S, Z, real(5)], {}),
    ("MatMulNBits", [real(3, 40), u8(5, 3, 8), real(5 * 3), u8(5 * 2)],
     {"K": 40, "N": 5, "bits": 4, "block_size": 16}),
    ("MatMulNBits", [real(3, 40), u8(5, 3, 8), real(5 * 3)],
     {"K": 40, "N": 5, "bits": 4, "block_size": 16}),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(CASES)))
def test_as_onnxruntime(case: int) -> None:
    op, arrays, attrs = CASES[case]
    names = ["" if a is None else f"x{i}" for i, a in enumerate(arrays)]
    outputs = ["y"]
    if "Skip" in op:
        outputs += ["", "", "total"]
    if "Embed" in op:
        outputs += [""]
    node = helper.make_node(op, names, outputs, domain="com.microsoft", **attrs)
    given = {n: a for n, a in zip(names, arrays, strict=True) if n}
    fixed = given if op == "MatMulNBits" else {}
    declared = [
        value(n, list(a.shape), helper.np_dtype_to_tensor_dtype(a.dtype))
        for n, a in given.items()
        if n == "x0" or n not in fixed
    ]
    fixed = {n: a for n, a in fixed.items() if n != "x0"}
    m = model([node], declared, [value(n, None) for n in outputs if n], fixed, ir_version=9)
    m.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    for out in m.graph.output:
        quantized = op.startswith("Q") and (op != "QGemm" or len(arrays) > 6)
        out.type.tensor_type.elem_type = 2 if quantized else 1
    inputs = {n: a for n, a in given.items() if n not in fixed}
    session = onnxruntime.InferenceSession(
        m.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found = run(load(m), inputs).values()
    for got, want in zip(found, session.run(None, inputs), strict=True):
        assert got.dtype == want.dtype
        step = 1 if want.dtype == np.uint8 else 1e-4
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), atol=step)
