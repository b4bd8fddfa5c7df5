from __future__ import annotations

import pytest

from inlay.analysis.blocks import anf_faults, values
from inlay.arith.dtype import F32
from inlay.base.span import Span
from inlay.ir import make
from inlay.ir.core_ops import CHECK_AT_LEAST, LeastAttrs
from inlay.ir.expr import Call, If
from inlay.ir.module import Module
from inlay.ir.place import Place
from inlay.ir.types import BOOL_CONTROL, ExistsType, TensorType
from inlay.ir.walk import spine
from tests.unit.transforms.programs import OPS, dims, noise, operators, run, same

ADD, EXP, RELU = (OPS.definition(n).op for n in ("add", "exp", "relu"))


def vector(name="x", n=None):
    return make.var(name, make.tensor_type((n or dims("n"),), F32))


def module_of(params, body) -> Module:
    return Module({"main": make.function(params, body)})


def test_nested_calls_get_names_in_order_of_evaluation():
    x = vector()
    before = module_of((x,), make.call(ADD, (make.call(EXP, (x,)), make.call(RELU, (x,)))))
    after = run("to-anf", before)
    lets, tail = spine(after.functions["main"].body)
    assert [let.value.callee.op.name for let in lets] == ["exp", "relu", "add"]
    assert tail is lets[-1].var
    same(before, after, noise(3), exact=True)


def test_a_program_in_normal_form_is_the_same_object():
    x = vector()
    after = run("to-anf", module_of((x,), make.call(EXP, (x,))))
    assert run("to-anf", after) is after


def test_a_node_that_is_reached_twice_is_computed_once():
    x = vector()
    shared = make.call(EXP, (x,))
    before = module_of((x,), make.call(ADD, (shared, make.call(ADD, (shared, shared)))))
    after = run("to-anf", before)
    assert operators(after) == {"exp": 1, "add": 2}
    same(before, after, noise(3), exact=True)


def test_what_both_arms_reach_is_bound_before_the_branch():
    x, flag = vector(), make.var("flag", BOOL_CONTROL)
    shared = make.call(EXP, (x,))
    branch = make.if_(flag, make.call(RELU, (shared,)), make.call(ADD, (shared, shared)))
    before = module_of((x, flag), branch)
    after = run("to-anf", before)
    lets, tail = spine(after.functions["main"].body)
    assert len(lets) == 1
    assert isinstance(tail, If)
    assert operators(after)["exp"] == 1
    for value in (True, False):
        same(before, after, noise(3), value, exact=True)


def test_what_one_arm_reaches_stays_in_it():
    x, flag = vector(), make.var("flag", BOOL_CONTROL)
    only = make.call(EXP, (x,))
    before = module_of((x, flag), make.if_(flag, make.call(ADD, (only, only)), x))
    after = run("to-anf", before)
    lets, _ = spine(after.functions["main"].body)
    assert lets == []
    same(before, after, noise(3), True, exact=True)


def test_a_check_that_both_arms_reach_is_not_moved_before_the_branch():
    n = dims("n")
    x, flag = vector(n=n), make.var("flag", BOOL_CONTROL)
    checked = make.call(CHECK_AT_LEAST, (x, make.int_const(n)), LeastAttrs(4))
    third = make.if_(flag, make.call(EXP, (checked,)), make.call(RELU, (checked,)))
    before = module_of((x, flag), make.if_(flag, third, x))
    after = run("to-anf", before)
    assert operators(after)["check_at_least"] == 2
    same(before, after, noise(3), False, exact=True)


def test_lets_inside_operands_come_out_in_front():
    x = vector()
    t = vector("t", x.type.shape[0])
    inner = make.let(t, make.call(EXP, (x,)), make.call(RELU, (t,)))
    before = module_of((x,), make.call(ADD, (inner, x)))
    after = run("to-anf", before)
    assert operators(after) == {"exp": 1, "relu": 1, "add": 1}
    same(before, after, noise(3), exact=True)


def test_naming_an_operand_of_unknown_size_makes_the_rest_exact():
    nonzero, cast = OPS.definition("nonzero").op, OPS.definition("cast").op
    x = vector()
    found = make.call(nonzero, (x,))
    nested = make.call(cast, (found,), cast.attrs_type(x.type.dtype))
    assert isinstance(nested.type, ExistsType)
    before = module_of((x,), make.call(EXP, (nested,)))
    after = run("to-anf", before)
    lets, _ = spine(after.functions["main"].body)
    assert [isinstance(let.value.type, ExistsType) for let in lets] == [True, False, False]
    assert all(isinstance(let.var.type, TensorType) for let in lets)
    same(before, after, noise(3), exact=True)


def test_tail_calls_stay_in_tail_position():
    x = vector()
    f = make.function((vector("y"),), x)
    g = make.function((x,), make.call(make.global_var("f", f.type), (x,)))
    y = vector("y")
    before = Module({"main": g, "f": make.function((y,), make.call(EXP, (y,)))})
    after = run("to-anf", before)
    assert isinstance(after.functions["main"].body, Call)
    assert anf_faults(after) == []


def test_spans_and_places_are_kept():
    x, span, place = vector(), Span.named("node 'a'"), Place("npu")
    inner = make.call(EXP, (x,), span=span, place=place)
    after = run("to-anf", module_of((x,), make.call(RELU, (inner,))))
    lets, _ = spine(after.functions["main"].body)
    assert (lets[0].value.span, lets[0].value.place) == (span, place)
    assert (lets[0].var.span, lets[0].var.place) == (span, place)


@pytest.mark.parametrize("depth", [10_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_deep_nests_and_long_spines_need_no_stack(depth):
    x = vector()
    deep = x
    for i in range(depth):
        deep = make.call(ADD, (deep, x)) if i % 2 else make.call(EXP, (deep,))
    t = vector("t", x.type.shape[0])
    after = run("to-anf", module_of((x,), make.let(t, deep, t)))
    assert anf_faults(after) == []
    assert sum(1 for _ in values(after.functions["main"].body)) == depth + 1
