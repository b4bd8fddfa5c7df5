"""The backend tests of ONNX: making those of nodes takes 10 s, so they are made once and kept."""

from __future__ import annotations

import functools
import pickle
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

from tests.data import REPOSITORY

KEPT = REPOSITORY / "build" / "onnx_tests" / f"{onnx.__version__}-{np.__version__}.pickle"


def load(kind: str) -> list[TestCase]:
    """Return the tests of a kind, as `load_model_tests` does."""
    return list(_of_nodes()) if kind == "node" else load_model_tests(kind=kind)


@functools.cache
def _of_nodes() -> tuple[TestCase, ...]:
    """Return the tests of nodes, which `build` keeps: the references of poolings are slow."""
    if not KEPT.exists():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some divide by zero
            made = tuple(load_model_tests(kind="node"))
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=KEPT.parent) as folder:
            whole = Path(folder) / "tests"
            whole.write_bytes(pickle.dumps(made))
            whole.replace(KEPT)
    return pickle.loads(KEPT.read_bytes())
