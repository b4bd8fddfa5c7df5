"""Attention as onnxruntime fuses it, against onnxruntime, over sizes that are not known."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import inlay
from tests.unit.importers.onnx.models import load, model, run, value

RNG = np.random.default_rng(5)
B, S, T, P, N, H = 2, 3, 4, 2, 2, 4
D = N * H


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def ints(*rows: Any) -> np.ndarray:
    return np.array(rows, np.int32)


X, W, BIAS = real(B, S, 5), real(5, 3 * D), real(3 * D)
MASK = ints([1, 1, 0], [1, 1, 1])
SCALE, ZERO = np.array(0.02, np.float32), np.array(128, np.uint8)
Q8 = RNG.integers(0, 256, (B, S, 5)).astype(np.uint8)
W8 = RNG.integers(-64, 64, (5, 3 * D)).astype(np.int8)
QUERY, KEY, VALUE = real(B, S, D), real(B, T, D), real(B, T, D)
COS, SIN = real(9, H // 2), real(9, H // 2)
CASES: dict[str, tuple[str, list[np.ndarray | None], dict[str, Any], int]] = {
    "plain": ("Attention", [X, W, BIAS], {}, 1),
    "keys": ("Attention", [X, W, BIAS, MASK], {"mask_filter_value": -1000.0}, 1),
    "ends": ("Attention", [X, W, BIAS, ints(2, 3)], {}, 1),
    "both ends": ("Attention", [X, W, BIAS, ints(2, 3, 1, 0)], {}, 1),
    "each query": ("Attention", [X, W, BIAS, (RNG.random((B, S, S)) > 0.4).astype(np.int32)], {}, 1),
    "causal": ("Attention", [X, W, BIAS], {"unidirectional": 1, "scale": 0.3}, 1),
    "past": ("Attention", [X, W, BIAS, None, real(2, B, N, P, H)], {"unidirectional": 1}, 2),
    "scores": ("Attention", [X, W, None, None, None, real(1, N, S, S)], {}, 1),
    "sizes": ("Attention", [X, real(5, 2 * D + 6), real(2 * D + 6)], {"qkv_hidden_sizes": [D, D, 6]}, 1),
    "quantized": ("QAttention", [Q8, W8, BIAS, SCALE, SCALE, None, ZERO, np.array(0, np.int8)], {}, 1),
    "quantized columns": (
        "QAttention",
        [Q8, W8, BIAS, SCALE, real(3 * D) ** 2 / 50, MASK, ZERO, np.zeros(3 * D, np.int8)],
        {"unidirectional": 1},
        1,
    ),
    "cross": ("MultiHeadAttention", [QUERY, KEY, VALUE], {}, 1),
    "cross bias": (
        "MultiHeadAttention",
        [QUERY, KEY, VALUE, real(3 * D), ints([1, 1, 0, 1], [1] * 4)],
        {},
        1,
    ),
    "heads": ("MultiHeadAttention", [QUERY, real(B, N, T, H), real(B, N, T, H)], {}, 1),
    "own past": (
        "MultiHeadAttention",
        [QUERY, real(B, S, D), real(B, S, D), None, None, None, real(B, N, P, H), real(B, N, P, H)],
        {"unidirectional": 1},
        3,
    ),
    "added": ("MultiHeadAttention", [QUERY, KEY, VALUE, None, None, real(1, N, S, T)], {}, 1),
    "turned": ("RotaryEmbedding", [QUERY, np.array([[0, 2, 5], [1, 7, 3]]), COS, SIN], {}, 1),
    "turned from": ("RotaryEmbedding", [real(B, N, S, H), np.array([4]), COS, SIN], {"interleaved": 1}, 1),
    "turned in part": (
        "RotaryEmbedding",
        [QUERY, np.array([0]), COS[:, :1], SIN[:, :1]],
        {"rotary_embedding_dim": 2, "num_heads": N},
        1,
    ),
}


def made(case: str) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the model of a case and its inputs; weights and parameters are constants."""
    op, arrays, attrs, outputs = CASES[case]
    names = ["" if a is None else f"x{i}" for i, a in enumerate(arrays)]
    if op != "RotaryEmbedding":
        attrs = {"num_heads": N, **attrs}
    made_of = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, made_of, domain="com.microsoft", **attrs)
    given = {n: a for n, a in zip(names, arrays, strict=True) if a is not None}
    is_known = op == "RotaryEmbedding" or case == "both ends"
    sizes = {} if is_known else {B: "batch", S: "steps"}
    fixed = {n: a for n, a in given.items() if n != "x0" and a.ndim < 3}
    declared = [
        value(
            n,
            [sizes.get(d, d) if i < 2 and n == "x0" else d for i, d in enumerate(a.shape)],
            helper.np_dtype_to_tensor_dtype(a.dtype),
        )
        for n, a in given.items()
        if n not in fixed
    ]
    ends = [helper.make_empty_tensor_value_info(n) for n in made_of]
    m = model([node], declared, ends, fixed, ir_version=9)
    m.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return m, {n: a for n, a in given.items() if n not in fixed}


@pytest.mark.sample(8)
@pytest.mark.parametrize("case", CASES)
def test_as_onnxruntime(case: str) -> None:
    m, inputs = made(case)
    session = onnxruntime.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
    found = run(load(m), inputs).values()
    for got, want in zip(found, session.run(None, inputs), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-4)


def test_compiled() -> None:
    m, inputs = made("past")
    found = inlay.compile(load(m), cache="none").run(inputs)
    for name, want in run(m, inputs).items():
        np.testing.assert_allclose(found[name], want, atol=1e-4)
