"""While an executable is written, each weight is computed into it once, and goes as it was read behind that."""

from __future__ import annotations

import gc
import mmap
import weakref
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import inlay
from inlay.api import compilation
from inlay.arith import deferred
from inlay.arith.deferred import DeferredArray
from inlay.base.pages import pages
from inlay.bytecode.writer import to_bytes
from inlay.importers.onnx import weights
from inlay.ir.printer import print_module

SIDE = 192


def _model(folder: Path) -> Path:
    """A convolution, a product with a matrix, one with a transposed matrix, and one of weights in f16."""
    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / 16).astype(np.float32)

    arrays = {
        "first": drawn(SIDE, 16, 3, 3),
        "second": drawn(SIDE, SIDE),
        "third": drawn(100, SIDE),
        "fourth": drawn(100, 2 * SIDE).astype(np.float16),
        "shape": np.array([-1, SIDE], np.int64),
    }
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["a"], ["b"]),
        helper.make_node("Reshape", ["b", "shape"], ["c"]),
        helper.make_node("MatMul", ["c", "second"], ["d"]),
        helper.make_node("Gemm", ["d", "third"], ["e"], transB=1),
        helper.make_node("Cast", ["fourth"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["e", "f"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 16, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2 * SIDE])
    tensors = [numpy_helper.from_array(a, n) for n, a in arrays.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def test_a_weight_goes_behind_what_is_computed_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[weakref.ref[mmap.mmap]] = []
    alive: list[int] = []

    def watched(size: int) -> mmap.mmap:
        memory = pages(size)
        read.append(weakref.ref(memory))
        return memory

    write = DeferredArray.write

    inside: list[DeferredArray] = []

    def counted(self: DeferredArray, out: np.ndarray) -> None:
        if not inside:  # and not of what another one comes from
            alive.append(sum(r() is not None for r in read))
        inside.append(self)
        write(self, out)
        inside.pop()

    monkeypatch.setattr(weights, "pages", watched)
    monkeypatch.setattr(DeferredArray, "write", counted)
    gc.disable()
    try:
        executable = inlay.compile(_model(tmp_path), threads=1, cache="none")
    finally:
        gc.enable()
    assert len(read) == 4
    assert sum(r() is not None for r in read) == 0
    # Before that, a pass looks whether 16 bits hold the weights that are converted to f32.
    assert alive[-4:] == [4, 3, 2, 1]
    assert len(alive) <= 5
    assert executable.outputs


def _program(path: Path) -> bytes:
    return to_bytes(compilation(path, threads=1, cache="none").program)


def test_the_executable_is_that_of_weights_computed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _model(tmp_path)
    late = _program(path)
    monkeypatch.setattr(deferred, "LEAST", 1 << 40)
    assert _program(path) == late


def test_a_module_is_the_same_text_with_weights_deferred_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _model(tmp_path)
    late = compilation(path, threads=1, cache="none").module
    monkeypatch.setattr(deferred, "LEAST", 1 << 40)
    now = compilation(path, threads=1, cache="none").module
    assert print_module(late) == print_module(now)
