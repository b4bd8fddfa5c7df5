"""What is predicted as one kernel becomes one kernel, apart from what layouts and devices change."""

from __future__ import annotations

import numpy as np
import pytest

import inlay
from inlay.analysis.blocks import values
from inlay.analysis.infer_types import infer_types
from inlay.interp.tensor import evaluate_expr
from inlay.ir import make
from inlay.ir.expr import Call, GlobalVar
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.ir.walk import substitute_vars
from inlay.ops.table import table
from inlay.passes.contract import PassContext
from inlay.passes.manager import make_pipeline, run_pipeline
from inlay.pipeline.planning import meanings_of
from inlay.pipeline.route import TENSOR
from inlay.placement import plan_places
from inlay.placement.choose.costs import Step, kernel_key
from inlay.transforms import fuse_ops
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


def context_of(fusing: FuseOptions) -> PassContext:
    """Return the context of a compilation for this machine."""
    meanings = meanings_of(OPS)
    return PassContext(
        OPS,
        lambda expression: evaluate_expr(expression, meanings),
        options={FuseOptions: fusing, plan_places.PlanOptions: plan_places.PlanOptions("host")},
    )


def both(module: Module, fusing: FuseOptions) -> tuple[int, int]:
    """Return how many kernels the planner counts on, and how many fusion makes."""
    context = context_of(fusing)
    at = TENSOR.index(plan_places.PASS)
    planned = run_pipeline(make_pipeline(TENSOR[: at + 1]), module, context)
    counted = len(set(groups_of(planned, OPS, fusing).values()))
    return counted, launches(fuse_ops.run(planned, context))


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


def test_a_kernel_that_was_measured_has_the_key_of_its_unit() -> None:
    """Plans are made before layouts are chosen and weights are packed; kernels are measured after it."""
    weights = np.ones((8, 4, 3, 3), np.float32)
    params = "x: Tensor[1, 4, 16, 16, f32], w: Tensor[8, 4, 3, 3, f32]"
    module = infer_types(parse_module(f"fn main({params}) {{ relu(conv(x, w)) }}", OPS))
    main = module.functions["main"]
    body = substitute_vars(main.body, {main.params[1]: make.const(weights)})
    module = module.with_functions({"main": make.function(main.params[:1], body)})
    context = context_of(FuseOptions())
    planned = run_pipeline(make_pipeline(TENSOR[: TENSOR.index(plan_places.PASS) + 1]), module, context)
    calls: list[Step] = [(None, v) for v in values(planned.functions["main"].body) if isinstance(v, Call)]
    made = run_pipeline(make_pipeline(TENSOR), module, context)
    kernels = [
        [(None, v) for v in values(f.body) if isinstance(v, Call)]
        for f in made.functions.values()
        if f.primitive is not None
    ]
    assert kernel_key(calls, OPS) == "conv+relu of 56448 macs -> f32 1568"
    assert kernel_key(calls, OPS) in [kernel_key(k, OPS) for k in kernels]
