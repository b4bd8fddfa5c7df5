"""Operators without code of their own."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.analysis.blocks import values
from inlay.analysis.infer_types import infer_types
from inlay.arith.dtype import F32
from inlay.arith.expr import fresh
from inlay.interp.tensor import evaluate
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.core_ops import CHECK_SHAPE
from inlay.ir.expr import Call, OpRef
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.ir.verify import check
from inlay.transforms import decompose_ops, to_anf
from tests.unit.transforms.programs import OPS, context


def test_nonzero_counts_and_fills():
    n = fresh("n")
    b = Builder()
    x = b.param("x", make.tensor_type((n, 3), F32))
    found = b.emit(OPS.definition("nonzero").op, (x,))
    m = Module({"main": b.function(b.emit(OPS.definition("add").op, (found, found)))})
    done = decompose_ops.PASS.run(m, context())
    check(done)
    names = [
        v.callee.op.name
        for v in values(done.functions["main"].body)
        if isinstance(v, Call) and isinstance(v.callee, OpRef)
    ]
    assert "nonzero" not in names
    assert "nonzero_fill" in names
    a = np.array([[0, 1, 2], [3, 0, 0]], np.float32)
    assert np.array_equal(evaluate(done, [a]), evaluate(m, [a]))
    assert decompose_ops.PASS.run(done, context()) is done


SLICED = """
  let v: Tensor[1, 0, i64] = slice{axes=[1]}(found, shape(max(0, -k)), shape(-1), shape(-1));
"""


@pytest.mark.parametrize(
    "body",
    [
        "let found: some k <= 1. Tensor[1, k, i64] = nonzero(y);" + SLICED + "v",
        """let found: some k <= 1. Tensor[1, k, i64] = nonzero(y);
           if (int_less(int(n), int(1))) {"""
        + SLICED
        + "v } else { zeros{dtype=i64}(shape(1, 0)) }",
        """if (int_less(int(n), int(1))) {
             let found: some k <= 1. Tensor[1, k, i64] = nonzero(y);"""
        + SLICED
        + """v
           } else { zeros{dtype=i64}(shape(1, 0)) }""",
    ],
)
def test_bounds_of_sizes_stay_known(body):
    """What was proved of a size that an operator named is still so where another names it."""
    module = infer_types(parse_module(f"fn main<int n>(y: Tensor[1, i64], n: int[n]) {{ {body} }}", OPS))
    module = to_anf.PASS.run(module, context())
    done = decompose_ops.PASS.run(module, context())
    check(done)
    assert not any(
        isinstance(v, Call) and isinstance(v.callee, OpRef) and v.callee.op is CHECK_SHAPE
        for v in values(done.functions["main"].body)
    )
    for y, n in ((0, 0), (5, 0), (5, 1)):
        args = [np.array([y]), n]
        assert np.array_equal(evaluate(done, args), evaluate(module, args))


def test_data_of_elements_of_a_size_that_gets_another_name():
    module = infer_types(
        parse_module(
            """
        data List<'a> { Nil, Cons('a, List['a]) }

        fn main<n>(y: Tensor[n, i64]) -> List[some k. Tensor[1, k, i64]] {
          let found: some k. Tensor[1, k, i64] = nonzero(y);
          Cons[Tensor[1, k, i64]](found, Nil[Tensor[1, k, i64]]())
        }
    """,
            OPS,
        )
    )
    module = to_anf.PASS.run(module, context())
    done = decompose_ops.PASS.run(module, context())
    check(done)
    y = np.array([0, 3, 4])
    first, expected = (evaluate(m, [y]).fields[0] for m in (done, module))
    assert np.array_equal(first, expected)
