"""What is predicted as one kernel becomes one kernel."""

from __future__ import annotations

import pytest

import inlay
from inlay.analysis.blocks import values
from inlay.analysis.infer_types import infer_types
from inlay.interp.tensor import evaluate_expr
from inlay.ir.expr import Call, GlobalVar
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from inlay.passes.contract import PassContext
from inlay.passes.manager import make_pipeline, run_pipeline
from inlay.pipeline.planning import meanings_of
from inlay.pipeline.route import TENSOR
from inlay.placement import plan_places
from inlay.transforms.fuse_ops import FuseOptions, groups_of
from tests.data import model_case

OPS = table()
CELL = """
fn turn(i: Tensor[i64], x: Tensor[1, 8, f32], w: Tensor[16, 8, f32]) -> Tensor[1, 8, f32] {
  if (to_control(less(i, i64(5)))) {
    @turn(add(i, i64(1)), tanh(matmul(concat{axis=1}(x, neg(x)), w)), w)
  } else { x }
}
fn main(i: Tensor[i64], x: Tensor[1, 8, f32], w: Tensor[16, 8, f32]) -> Tensor[1, 8, f32] {
  @turn(i, x, w)
}
entry main("i", "x", "w") -> ("y");
"""


def launches(module: Module) -> int:
    """Return how many calls of kernels stand in a fused program."""
    return sum(
        isinstance(v, Call)
        and isinstance(v.callee, GlobalVar)
        and v.callee.name in module.functions
        and module.functions[v.callee.name].primitive is not None
        for f in module.functions.values()
        if f.primitive is None
        for v in values(f)
    )


def both(module: Module, fusing: FuseOptions) -> tuple[int, int]:
    """Return how many kernels the planner counts on, and how many fusion makes."""
    meanings = meanings_of(OPS)
    context = PassContext(
        OPS,
        lambda expression: evaluate_expr(expression, meanings),
        options={FuseOptions: fusing, plan_places.PlanOptions: plan_places.PlanOptions("host")},
    )
    at = TENSOR.index(plan_places.PASS)
    before = run_pipeline(make_pipeline(TENSOR[:at]), module, context)
    counted = len(set(groups_of(before, OPS, fusing).values()))
    return counted, launches(run_pipeline(make_pipeline(TENSOR), module, context))


@pytest.mark.parametrize("name", ["mnist8", "silero_vad_16k", "deeploy_cct_16"])
def test_units_are_kernels(name: str) -> None:
    counted, made = both(inlay.load(model_case(name).model), FuseOptions())
    assert counted == made > 0


def test_units_follow_the_options_of_fusion() -> None:
    model = inlay.load(model_case("mnist8").model)
    counted, made = both(model, FuseOptions(limit=1))
    assert counted == made > both(model, FuseOptions())[1]


def test_what_is_joined_in_a_loop_is_counted_as_one() -> None:
    """A turn is a negation, a product of what is put together and its tanh, and a count."""
    counted, made = both(infer_types(parse_module(CELL, OPS)), FuseOptions())
    assert counted == made == 3
