"""The driver of passes: what it does where a step answers with less than was known."""

from __future__ import annotations

import numpy as np

from inlay.analysis.blocks import values
from inlay.analysis.infer_types import infer_types
from inlay.interp.tensor import evaluate
from inlay.ir.core_ops import CHECK_SHAPE
from inlay.ir.expr import Call, OpRef, Var
from inlay.ir.parser import parse_module
from inlay.ir.verify import check
from inlay.transforms import to_anf
from inlay.transforms._blocks import rewrite_module
from tests.unit.transforms.programs import OPS, context

TEXT = """
fn main(y: Tensor[1, i64], n: Tensor[i64]) -> Tensor[1, 0, i64] {
  let c: some int c. int[c] = to_control(n);
  let w = zeros{dtype=i64}(shape(1, c));
  if (int_less(int(c), int(5))) {
    let found: some k <= 1. Tensor[1, k, i64] = nonzero(y);
    let v: Tensor[1, 0, i64] = slice{axes=[1]}(found, shape(max(0, -k)), shape(-1), shape(-1));
    v
  } else { zeros{dtype=i64}(shape(1, 0)) }
}
"""


def _called(value, name):
    return isinstance(value, Call) and isinstance(value.callee, OpRef) and value.callee.op.name == name


def test_a_size_of_which_less_is_known_is_checked():
    module = to_anf.PASS.run(infer_types(parse_module(TEXT, OPS)), context())
    outer: list[Var] = []

    def step(block, value):
        if _called(value, "zeros") and not outer:
            outer.append(block.bind(value, "w"))
            return outer[0]
        return outer[0] if _called(value, "nonzero") else None

    done = rewrite_module(module, step)
    check(done)
    checks = [v for v in values(done.functions["main"].body) if _called(v, "check_shape")]
    assert [v.callee.op for v in checks] == [CHECK_SHAPE]
    assert evaluate(done, [np.array([0]), np.array(1)]).shape == (1, 0)
