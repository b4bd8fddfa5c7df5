"""The single-operator models of the shared data: archives of models, runs and tolerances."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from inlay.interp.tensor import evaluate_entry
from inlay.ir.module import Module
from inlay.ir.op import Op
from inlay.ops.table import table
from tests.data import find_data

ARCHIVES = ("burn_onnx", "onnx2c_local_ops")

Executor = Callable[[Module], Callable[[Mapping[str, Any]], Mapping[str, Any]]]
"""From a program to a function from inputs to outputs, both by name."""


@dataclass(frozen=True)
class OpModel:
    """One model of an archive."""

    archive: Path
    name: str
    rtol: float
    atol: float

    def model(self) -> onnx.ModelProto:
        """Read the model."""
        with zipfile.ZipFile(self.archive) as files:
            return onnx.load_model_from_string(files.read(f"{self.name}.onnx"))

    def runs(self) -> list[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]:
        """Read the stored runs: inputs and outputs by name."""
        found: dict[str, tuple[dict[str, np.ndarray], dict[str, np.ndarray]]] = {}
        with zipfile.ZipFile(self.archive) as files:
            arrays = np.load(io.BytesIO(files.read(f"{self.name}.npz")), allow_pickle=False)
            for key in arrays.files:
                run, side, name = key.split("/", 2)
                found.setdefault(run, ({}, {}))[side != "in"][name] = arrays[key]
        return [found[k] for k in sorted(found)]

    def check(self, got: Mapping[str, Any], want: Mapping[str, np.ndarray]) -> None:
        """Assert that outputs agree within the tolerance of the archive; NaN equals NaN."""
        assert set(got) == set(want), f"outputs {sorted(got)}, expected {sorted(want)}"
        for name, expected in want.items():
            actual = np.asarray(got[name])
            assert actual.shape == expected.shape, f"{name}: {actual.shape} for {expected.shape}"
            assert actual.dtype == expected.dtype, f"{name}: {actual.dtype} for {expected.dtype}"
            np.testing.assert_allclose(
                actual.astype(np.float64),
                expected.astype(np.float64),
                rtol=self.rtol,
                atol=self.atol,
                equal_nan=True,
                err_msg=name,
            )


def op_models() -> Iterator[OpModel]:
    """Yield all models; none where the data is absent (safe while collecting)."""
    root = find_data()
    for archive in ARCHIVES if root is not None else ():
        path = root / "ops" / f"{archive}.zip"
        with zipfile.ZipFile(path) as files:
            index = json.loads(files.read("index.json"))
        tolerance = index["tol"]
        for case in index["cases"]:
            yield OpModel(path, case["name"], tolerance["rtol"], tolerance["atol"])


def evaluator(module: Module) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """Run programs by their meaning."""

    def meaning(op: Op, attrs: object, args: Sequence[Any]) -> Any:
        return table().definition(op).evaluate(attrs, *args)

    return lambda inputs: evaluate_entry(module, inputs, meaning)
