"""Laws of the passes over tensor IR, over generated programs: each keeps the meaning."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pytest
from hypothesis import given, settings

from inlay.analysis.blocks import anf_faults, values
from inlay.interp.tensor import evaluate_expr
from inlay.ir.expr import Expr
from inlay.ir.module import Module
from inlay.ir.printer import print_module
from inlay.ir.verify import verify
from inlay.ops.table import table
from inlay.passes.contract import Pass, PassContext, Property
from inlay.passes.discover import pass_table
from inlay.pipeline.route import TENSOR
from inlay.transforms.fold_constants import FoldOptions
from inlay.transforms.fuse_ops import FuseOptions
from inlay.transforms.inline_functions import InlineOptions
from inlay.transforms.split_batch import SplitBatchOptions
from inlay.transforms.unroll_loops import UnrollOptions
from tests.examples import examples
from tests.property.gen_ir import Program, assert_same, programs

PASSES = pass_table()


def context(*options) -> PassContext:
    return PassContext(table(), evaluate_expr, options={type(o): o for o in options})


def run_checked(p: Program, module: Module, step: Pass, ctx: PassContext) -> Module:
    """The result of a pass, which must be well formed and mean the same."""
    result = step.run(module, ctx)
    assert verify(result) == (), f"{p}\nafter {step.name}:\n{print_module(result)}"
    if Property.ANF in step.establishes or not (Property.ANF in step.loses or anf_faults(module)):
        assert anf_faults(result) == []
    assert_same(p, result)
    return result


@pytest.mark.parametrize("name", list(PASSES))
@given(p=programs())
@settings(max_examples=examples(3))
def test_a_pass_keeps_the_meaning(name: str, p: Program):
    ctx = context()
    module = PASSES["to-anf"].run(p.module, ctx)
    run_checked(p, module, PASSES[name], ctx)


@given(p=programs(max_statements=12))
@settings(max_examples=examples(4))
def test_all_passes_together_keep_the_meaning(p: Program):
    ctx, module = context(), p.module
    for step in TENSOR:
        module = run_checked(p, module, step, ctx)


@given(p=programs())
@settings(max_examples=examples(4))
def test_options_do_not_change_the_meaning(p: Program):
    ctx = context(
        FoldOptions(limit=0), FuseOptions(limit=2, operand_transposes=False), InlineOptions(small=100)
    )
    module = p.module
    for name in ("to-anf", "inline-functions", "fold-constants", "eliminate-dead", "fuse-ops"):
        module = run_checked(p, module, PASSES[name], ctx)


@given(p=programs(max_statements=12))
@settings(max_examples=examples(4))
def test_loops_made_straight_keep_the_meaning(p: Program):
    ctx = context(UnrollOptions(8, lambda module, _: frozenset(map(id, _values(module)))))
    module = PASSES["to-anf"].run(p.module, ctx)
    for name in ("unroll-loops", "eliminate-dead", "fold-constants", "unroll-loops"):
        module = run_checked(p, module, PASSES[name], ctx)


@given(p=programs(max_statements=12))
@settings(max_examples=examples(4))
def test_batches_in_parts_keep_the_meaning(p: Program):
    ctx = context(SplitBatchOptions(macs_per_byte=0, least_macs=0, least_inside=0))
    module = PASSES["to-anf"].run(p.module, ctx)
    for name in ("inline-functions", "fold-constants", "split-batch", "simplify-algebra", "fuse-ops"):
        module = run_checked(p, module, PASSES[name], ctx)


def _values(module: Module) -> Iterator[Expr]:
    return chain.from_iterable(values(f.body) for f in module.functions.values())


@given(p=programs())
@settings(max_examples=examples(4))
def test_nesting_and_naming_again_keep_the_meaning(p: Program):
    ctx = context()
    module = p.module
    for name in ("to-anf", "inline-lets", "to-anf", "eliminate-common", "inline-lets"):
        module = run_checked(p, module, PASSES[name], ctx)


@given(p=programs())
@settings(max_examples=examples(4))
def test_two_runs_give_the_same_text(p: Program):
    texts = []
    for _ in range(2):
        ctx, module = context(), p.module
        for step in TENSOR:
            module = step.run(module, ctx)
        texts.append(print_module(module))
    assert texts[0] == texts[1]
