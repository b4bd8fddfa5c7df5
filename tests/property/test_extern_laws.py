"""Operators of the user in any program: a program whose operators are replaced by externs that do the
same means the same, in every mode of running."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.api import compilation
from inlay.interp.tensor import evaluate
from inlay.ir import walk
from inlay.ir.expr import Expr, Function, OpRef
from inlay.ir.module import Module
from inlay.ir.op import NoAttrs, Op
from inlay.ops.table import table
from inlay.pipeline.externs import definition_of
from inlay.runtime.extern import Extern, extern
from inlay.runtime.session import executable_of
from tests.examples import examples
from tests.property.gen_ir import Program, programs, run, same_value
from tests.property.test_compiled_laws import assert_equal, outputs_of

REPLACED = ("neg", "relu", "add", "mul", "maximum", "matmul", "nonzero")


@functools.cache
def same_as(name: str) -> tuple[Op, Extern]:
    """An extern with the type rule and the meaning of an operator."""
    own = table().definition(name)
    made = extern(
        f"user.{name}",
        lambda *types, ctx: own.op.type_rule(ctx, NoAttrs(), types),
        python=lambda *args: own.evaluate(NoAttrs(), *args),
    )
    return definition_of(made).op, made


def with_externs_for(module: Module, names: frozenset[str]) -> Module:
    """The module with these operators replaced."""

    def step(e: Expr) -> Expr:
        if not isinstance(e, OpRef) or e.op.name not in names:
            return e
        op = same_as(e.op.name)[0]
        return OpRef(op, op.attrs_type(), e.type, e.span)

    functions: dict[str, Function] = {}
    for name, f in module.functions.items():
        made = walk.rewrite(f, step)
        assert isinstance(made, Function)
        functions[name] = made
    return module.with_functions(functions)


@pytest.mark.llvm
@settings(max_examples=examples(5))
@given(programs(max_statements=6), st.frozensets(st.sampled_from(REPLACED), min_size=1), st.integers(0, 99))
def test_externs_mean_what_they_stand_for(p: Program, names: frozenset[str], seed: int):
    module = with_externs_for(p.module, names)
    assert same_value(evaluate(module, p.args), run(p)), p
    made = compilation(module, cache="none", verify=True)
    needed = outputs_of(p)
    for settings_ in (
        {"threads": 1},
        {"threads": 2, "mode": "parallel"},
        {"mode": "replay", "seed": seed},
        {"engine": "python"},
    ):
        executable = executable_of(made.program, externs=made.externs, **settings_)
        found = executable(*p.args)
        arrays = [np.asarray(a) for a in (found if isinstance(found, tuple) else (found,))]
        assert_equal(arrays, needed, p)
        assert executable.live_objects() == 0
