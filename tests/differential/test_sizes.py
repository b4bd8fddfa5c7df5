"""One program with a product and a sum for each of many sizes: schedules differ by how tiles fit."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import inlay
from inlay.importers.onnx.graph import import_model
from inlay.ops.table import table

WIDTHS = (1, 2, 3, 7, 8, 9, 15, 16, 17, 20, 24, 31, 32, 33, 40, 47, 48, 49, 63, 64, 65, 72, 96, 100)


@pytest.mark.llvm
@pytest.mark.sample(1)
@pytest.mark.parametrize("rows", [1, 4, 9])
def test_products_and_sums_of_every_width(rows: int) -> None:
    products = {f"p{n}": n for n in WIDTHS}
    lines = [f"p{n} = MatMul (x, w{n})\n s{n} = ReduceSum <keepdims = 0> (p{n}, first)" for n in WIDTHS]
    inputs = ", ".join(f"float[10, {n}] w{n}" for n in WIDTHS)
    outputs = ", ".join(f"p{n}, s{n}" for n in WIDTHS)
    text = (
        f'<ir_version: 9, opset_import: ["" : 18]>\n'
        f"widths (float[{rows}, 10] x, {inputs}) => ({outputs})\n"
        f"<int64[1] first = {{0}}>\n{{\n" + "\n".join(lines) + "\n}"
    )
    random = np.random.default_rng(rows)
    x = random.integers(-3, 4, (rows, 10)).astype(np.float32)
    weights = {f"w{n}": random.integers(-3, 4, (10, n)).astype(np.float32) for n in WIDTHS}
    executable = inlay.compile(import_model(onnx.parser.parse_model(text), table()), threads=1)
    found = executable.run({"x": x, **weights})
    for name, n in products.items():
        np.testing.assert_array_equal(found[name], x @ weights[f"w{n}"], err_msg=name)
        np.testing.assert_array_equal(found[f"s{n}"], (x @ weights[f"w{n}"]).sum(0), err_msg=name)


@pytest.mark.llvm
def test_softmax_of_nothing_with_sizes_unknown() -> None:
    """Loops that never run are gone; what only they touched must not be left over."""
    text = """
    <ir_version: 9, opset_import: ["" : 18]>
    empty (float[n, 2, m, 0] x) => (y) { y = Softmax <axis = -1> (x) }
    """
    executable = inlay.compile(import_model(onnx.parser.parse_model(text), table()), threads=1)
    found = executable.run({"x": np.zeros((3, 2, 4, 0), np.float32)})
    assert found["y"].shape == (3, 2, 4, 0)
