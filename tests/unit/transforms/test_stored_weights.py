"""Constants of f32 that 16 bits hold exactly are packed in 16 bits, and widened where they are read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import inlay
from inlay.api import compilation
from inlay.arith.dtype import BF16
from inlay.codegen.backends import native
from inlay.machine.target import Target, baseline, host

TERMS, COLUMNS = 96, 64
X = np.random.default_rng(1).standard_normal((5, TERMS)).astype(np.float32)
W = np.random.default_rng(2).standard_normal((TERMS, COLUMNS)).astype(np.float32)
HALF = W.astype(np.float16)
BRAIN = (W * np.where(W > 1, 2.0**-30, 1)).astype(BF16.numpy).astype(np.float32)
"""With numbers that f16 does not have."""


def product(w: np.ndarray, *, kind: str = "MatMul") -> bytes:
    """A product with a constant, which is cast to f32 if it is f16, as exporters write it."""
    nodes = [helper.make_node("Cast", ["w"], ["wide"], to=TensorProto.FLOAT)] if w.dtype == np.float16 else []
    nodes.append(helper.make_node(kind, ["x", "wide" if nodes else "w"], ["y"]))
    shape = X.shape if kind == "MatMul" else (1, w.shape[1], 9, 9)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


def largest(model: bytes, **choices: object) -> int:
    """Bytes of the largest constant of an executable."""
    program = compilation(inlay.load(model), cache="none", **choices).program
    return max(len(c.bytes()) for c in program.constants)


@pytest.fixture
def without_f16c(monkeypatch: pytest.MonkeyPatch) -> Target:
    """This processor as if it had no instruction that widens f16."""
    plain = baseline("x86_64", "v3")
    if not set(plain.features) <= set(host().features):
        pytest.skip("needs a processor with AVX2")
    less = replace(plain, features=tuple(f for f in plain.features if f != "f16c"))
    monkeypatch.setattr(native, "host", lambda: less)
    return less


@pytest.mark.llvm
@pytest.mark.parametrize(("w", "dtype"), [(HALF, "f16"), (HALF.astype(np.float32), "f16"), (BRAIN, "bf16")])
def test_they_take_half_and_give_the_same(w: np.ndarray, dtype: str) -> None:
    if dtype == "f16" and not host().has_half:
        pytest.skip("needs a processor that widens f16")
    model = product(w)
    assert largest(model) == TERMS * COLUMNS * 2
    found = inlay.compile(model, cache="none").run({"x": X})["y"]
    np.testing.assert_allclose(found, X.astype(np.float64) @ w.astype(np.float64), atol=2e-5)
    [stored] = inlay.explain(model, view="numerics").stored
    assert (str(stored.dtype), stored.bytes, stored.is_kept) == (dtype, TERMS * COLUMNS * 2, True)


@pytest.mark.llvm
def test_weights_of_a_convolution() -> None:
    w = np.random.default_rng(3).standard_normal((32, 24, 3, 3)).astype(BF16.numpy).astype(np.float32)
    x = np.random.default_rng(4).standard_normal((1, 24, 9, 9)).astype(np.float32)
    model = product(w, kind="Conv")
    assert largest(model) < w.size * 4  # panels are padded
    reference = inlay.compile(product(w * np.float32(1 + 2**-20), kind="Conv"), cache="none").run({"x": x})[
        "y"
    ]
    np.testing.assert_allclose(inlay.compile(model, cache="none").run({"x": x})["y"], reference, atol=1e-3)


def test_others_stay_as_they_are() -> None:
    nearly = BRAIN.copy()
    nearly[-1, -1] = 1 + 2**-20
    for w in (W, nearly, BRAIN[:16, :16]):
        assert (
            inlay.explain(
                product(w[: X.shape[1]]) if w.shape[0] == TERMS else small(w), view="numerics"
            ).stored
            == ()
        )


def small(w: np.ndarray) -> bytes:
    """A product with a constant of few bytes."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, w.shape[0]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


@pytest.mark.llvm
def test_without_f16c_f32_is_kept_and_the_explanation_says_so(without_f16c: Target) -> None:
    del without_f16c
    [stored] = inlay.explain(product(HALF), view="numerics").stored
    assert (str(stored.dtype), stored.is_kept) == ("f16", False)
    assert largest(product(HALF)) == TERMS * COLUMNS * 4
    assert largest(product(BRAIN)) == TERMS * COLUMNS * 2


@pytest.mark.llvm
def test_tables_are_read_in_16_bits() -> None:
    nodes = [
        helper.make_node("Cast", ["w"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Gather", ["wide", "x"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", COLUMNS])],
        [numpy_helper.from_array(BRAIN.astype(np.float16), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    index = np.array([3, 0, TERMS - 1], np.int64)
    found = inlay.compile(model, cache="none").run({"x": index})["y"]
    np.testing.assert_array_equal(found, BRAIN.astype(np.float16).astype(np.float32)[index])
    assert largest(model) == TERMS * COLUMNS * (2 if host().has_half else 4)
