"""Operators of StableHLO in TFLite files, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.interp.tensor import evaluate_entry
from inlay.ops.table import table

pytest.importorskip("tflite", reason="the package 'tflite' is not installed")

from inlay.base.diagnostics import CompileError
from inlay.importers.tflite.graph import import_bytes
from tests.tflite_models import Op, T, constant, model

RNG = np.random.default_rng(8)
X, Y = RNG.uniform(0.1, 2, (2, 3, 4)).astype(np.float32), RNG.uniform(0.1, 2, (2, 3, 4)).astype(np.float32)
M, N = RNG.integers(1, 9, (2, 3, 4), np.int32), RNG.integers(1, 9, (2, 3, 4), np.int32)
P = X > Y


def long(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


CASES = [
    ("ABS", [-X], X, {}),
    ("ADD", [X, Y], X + Y, {}),
    ("AND", [M, N], M & N, {}),
    ("AND", [P, ~P], np.zeros_like(P), {}),
    ("BROADCAST_IN_DIM", [X[0, :, 0], constant(long(1))], np.tile(X[0, :, :1], (2, 1, 4)), {}),
    ("CLAMP", [np.float32(0.5), X, np.float32(1)], np.clip(X, 0.5, 1), {}),
    ("COMPARE", [X, Y], X >= Y, {"ComparisonDirection": 2}),
    ("CONCATENATE", [X, Y], np.concatenate([X, Y], 1), {"Dimension": 1}),
    ("CONVERT", [M], M.astype(np.float32), {}),
    ("IOTA", [], np.tile(np.arange(3, dtype=np.int32)[:, None], (2, 1, 4)), {"IotaDimension": 1}),
    (
        "PAD",
        [X, constant(np.float32(7))],
        np.pad(X, ((0, 1), (2, 0), (0, 0)), constant_values=7),
        {"EdgePaddingLow": long(0, 2, 0), "EdgePaddingHigh": long(1, 0, 0), "InteriorPadding": long(0, 0, 0)},
    ),
    ("RESHAPE", [X], X.reshape(4, 6), {}),
    ("SELECT", [P, X, Y], np.where(P, X, Y), {}),
    ("SHIFT_LEFT", [M, N], M << N, {}),
    (
        "SLICE",
        [X],
        X[:, 1:3, ::2],
        {"StartIndices": long(0, 1, 0), "LimitIndices": long(2, 3, 4), "Strides": long(1, 1, 2)},
    ),
    ("TRANSPOSE", [X], X.transpose(2, 0, 1), {"Permutation": long(2, 0, 1)}),
]
TABLES = {"BROADCAST_IN_DIM": "BroadcastInDim"}


def written(name: str, inputs: list[np.ndarray | T], y: np.ndarray, options: dict[str, object]) -> bytes:
    operands = {f"x{i}": x for i, x in enumerate(inputs)}
    tensors = {n: x if isinstance(x, T) else T(x.shape, x.dtype.name) for n, x in operands.items()}
    kind = f"Stablehlo{TABLES.get(name, name.capitalize())}Options" if options else ""
    op = Op(f"STABLEHLO_{name}", list(operands), ["y"], kind, options)
    given = [n for n, x in operands.items() if not isinstance(x, T)]
    return model({**tensors, "y": T(y.shape, y.dtype.name)}, [op], given, ["y"])


@pytest.mark.parametrize("case", CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_operators_give_what_they_mean(case):
    name, inputs, y, options = case
    module = import_bytes(written(name, inputs, y, options), table())
    given = {f"x{i}": np.asarray(x) for i, x in enumerate(inputs) if not isinstance(x, T)}
    found = np.asarray(evaluate_entry(module, given)["y"])
    assert found.dtype == y.dtype
    np.testing.assert_allclose(found, y, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("TRANSPOSE", {"Permutation": long(0, 1)}),
        ("SLICE", {"StartIndices": long(0), "LimitIndices": long(2), "Strides": long(1)}),
        ("PAD", {"EdgePaddingLow": long(0), "EdgePaddingHigh": long(1), "InteriorPadding": long(1)}),
        ("IOTA", {"IotaDimension": 5}),
    ],
)
def test_options_that_do_not_fit_are_refused(name, options):
    with pytest.raises(CompileError):
        import_bytes(written(name, [X, constant(np.float32(0))][: 1 + (name == "PAD")], X, options), table())


def test_quantized_integers_are_refused():
    x = T((2,), "int8", scale=0.1)
    content = model({"x": x, "y": x}, [Op("STABLEHLO_ABS", ["x"], ["y"])], ["x"], ["y"])
    with pytest.raises(CompileError, match="takes quantized integers"):
        import_bytes(content, table())
