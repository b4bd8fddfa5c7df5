"""Networks that are drawn, on every board: bit for bit what the processor gives; and what is left has a reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.machine.board import Board
from inlay.machine.board_file import find_board
from tests.models.drawn_networks import drawn
from tests.qdq import Float, quantized

pytestmark = [pytest.mark.llvm, pytest.mark.sample(1)]
pytest.importorskip("onnxruntime")
quantization = pytest.importorskip("onnxruntime.quantization")
BOARDS = ("strawberry", "vanilla", "chocolate", "gemmini")


def fast(name: str) -> Board:
    """A board with a slow processor and fast devices: plans take these wherever they can."""
    board, slow = find_board(name), find_board("strawberry").arch_of("cpu")
    quick = (("clock", "1000000000000"),)
    archs = (slow if a.name == "native" else replace(a, parameters=quick) for a in board.archs)
    return replace(board, archs=tuple(archs))


def assert_same(seed: int, names: tuple[str, ...], folder: Path) -> None:
    """Assert that boards compute what the processor does, and that all that is left to it has a reason."""
    network = drawn(seed, folder)
    model = network.model.SerializeToString()
    here = inlay.compile(model, threads=1).run(network.inputs)
    for name in names:
        there = inlay.compile(model, board=fast(name), threads=1).run(network.inputs)
        for key, value in here.items():
            assert np.array_equal(there[key], value, equal_nan=True), (seed, name)
        plan = inlay.explain(model, board=fast(name), threads=1)
        assert all(o.device != "cpu" or all(o.others.values()) for o in plan.operations)


@pytest.mark.parametrize("seed", [11, 5])
def test_drawn_networks_on_a_board(seed: int, tmp_path: Path) -> None:
    assert_same(seed, ("strawberry",), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 124))
def test_drawn_networks_on_every_board(seed: int, tmp_path: Path) -> None:
    assert_same(seed, BOARDS, tmp_path)


def network() -> tuple[Float, str]:
    """Convolutions with and without a bias, of each channel by itself, dilated, with a sum; a product."""
    m = Float((1, 3, 12, 12))
    x = m.op("Relu", m.conv("x", 8, 3, strides=[2, 2]))
    y = m.op("Clip", m.conv(x, 8, 8, group=8), m.fixed(np.float32(0)), m.fixed(np.float32(6)))
    y = m.op("Conv", y, m.weights(8, 8, 3, 3), pads=[2] * 4, dilations=[2, 2])
    x = m.op("Relu", m.op("Add", x, y))
    x = m.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = m.op("Flatten", x)
    return m, m.op("Gemm", x, m.weights(5, 72), m.fixed(np.arange(5, dtype=np.float32) / 5), transB=1)


FORMS = {
    "bytes without a sign": {"activation_type": quantization.QuantType.QUInt8, "per_channel": True},
    "bytes with a sign": {"activation_type": quantization.QuantType.QInt8},
    "operators": {
        "activation_type": quantization.QuantType.QUInt8,
        "quant_format": quantization.QuantFormat.QOperator,
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_a_device_of_bytes_with_a_sign_takes_every_form_of_a_model(form: str, tmp_path: Path) -> None:
    m, out = network()
    options = {"weight_type": quantization.QuantType.QInt8, **FORMS[form]}
    model = quantized(m.model(out), m.samples(), tmp_path, **options).SerializeToString()
    plan = inlay.explain(model, board=fast("strawberry"), threads=1)
    taken = " ".join(o.operator for o in plan.operations if o.device == "npu0")
    left = " ".join(o.operator for o in plan.operations if o.device == "cpu")
    assert taken.count("conv_integer") + taken.count("matmul_integer") == 5
    assert taken.count("cast+add+mul") == 2 or taken.count("cast+mul") + taken.count("cast+add+mul") == 2
    assert "conv" not in left
    assert "matmul" not in left
    x = m.samples(1)[0]
    here = inlay.compile(model, threads=1).run(x)
    there = inlay.compile(model, board=fast("strawberry"), threads=1).run(x)
    assert all(np.array_equal(there[k], v) for k, v in here.items())
