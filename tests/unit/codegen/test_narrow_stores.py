"""Vectors that become narrower and are stored with one lane on: nothing behind that element changes."""

from __future__ import annotations

import numpy as np
import pytest

import inlay
from inlay.ir.parser import parse_module
from inlay.ops.table import table

pytestmark = pytest.mark.llvm

PROGRAM = """fn main(x: Tensor[2, 4, {wide}], w: Tensor[4, {columns}, {wide}]) -> Tensor[2, {columns}, {narrow}] {{
  let y: Tensor[2, {columns}, {wide}] = matmul(x, w);
  cast{{dtype={narrow}}}(y)
}}
entry main("x", "w") -> ("y");
"""


@pytest.mark.parametrize(
    ("columns", "wide", "narrow"), [(17, "i32", "i8"), (9, "i64", "i16"), (5, "i64", "i32")]
)
def test_rows_behind_a_row_stay(columns, wide, narrow):
    text = PROGRAM.format(columns=columns, wide=wide, narrow=narrow)
    kind = {"i32": np.int32, "i64": np.int64}[wide]
    rng = np.random.default_rng(1)
    x, w = rng.integers(-5, 6, (2, 4)).astype(kind), rng.integers(-5, 6, (4, columns)).astype(kind)
    found = inlay.compile(parse_module(text, table()), threads=1, cache=None).run({"x": x, "w": w})["y"]
    np.testing.assert_array_equal(found, x @ w)
