from __future__ import annotations

from inlay.analysis.blocks import (
    anf_faults,
    binders,
    count_uses,
    definitions,
    is_anf,
    is_tail_form,
    nested,
    operands,
    values,
)
from inlay.arith.dtype import F32
from inlay.ir import make
from inlay.ir.expr import Call, Function, If
from inlay.ir.module import Module
from inlay.ir.walk import spine
from tests.unit.transforms.programs import OPS, Program, dims

EXP, ADD = OPS.definition("exp").op, OPS.definition("add").op


def branching():
    """A program with a branch and a local function, in A-normal form."""
    p, n = Program(), dims("n")
    x, flag = p.input("x", n), p.param("flag", make.bool_const(True).type)
    a = p.op("exp", x)
    y = p.if_(flag, lambda s: s.bind(make.call(ADD, (a, a))), lambda s: x)
    inner = p.scope()
    v = inner.param("v", x.type)
    f = p.bind(inner.function(inner.emit(ADD, (v, a)), outer=(n,)), "f")
    z = p.emit(f, (y,), name="z")
    w = p.emit(EXP, (z,))
    function = p.function(make.let(make.var("r", w.type), make.call(EXP, (w,)), x))
    return function, a, f


def test_operands_and_blocks_of_every_kind_of_value():
    x, flag = make.var("x", make.tensor_type((2,), F32)), make.var("c", make.bool_const(True).type)
    call = make.call(ADD, (x, x))
    assert operands(call) == (call.callee, x, x)
    assert operands(make.tuple_([x, x])) == (x, x)
    assert operands(make.project(make.tuple_([x]), 0))[0].fields == (x,)
    branch = make.if_(flag, x, x)
    assert (operands(branch), nested(branch)) == ((flag,), (x, x))
    function = make.function((x,), x)
    assert (operands(function), nested(function), binders(function)) == ((), (x,), (x,))
    cell = make.ref_create(x)
    assert operands(cell) == (x,)
    assert operands(make.ref_read(cell)) == (cell,)
    assert operands(make.ref_write(cell, x)) == (cell, x)


def test_values_come_in_order_and_before_what_is_inside_them():
    function, _, _ = branching()
    kinds = [type(v).__name__ for v in values(function.body)]
    assert kinds[0] == "Call"
    assert kinds.index("If") < len(kinds) - 1
    assert kinds.count("Function") == 1
    assert sum(isinstance(v, Call) for v in values(function.body)) == 6


def test_uses_and_definitions_reach_into_nested_blocks():
    function, a, f = branching()
    uses = count_uses(function.body)
    assert uses[a] == 3
    assert uses[f] == 1
    defined = definitions(function.body)
    assert isinstance(defined[f], Function)
    assert isinstance(defined[a], Call)


def test_what_may_stand_at_the_end_of_a_block():
    x = make.var("x", make.tensor_type((2,), F32))
    f = make.var("f", make.function((x,), x).type)
    assert is_tail_form(x)
    assert is_tail_form(make.call(f, (x,)))
    assert not is_tail_form(make.call(EXP, (x,)))
    assert not is_tail_form(make.tuple_([x]))


def test_faults_name_what_is_wrong():
    def faults(body, *params):
        return [text for text, _ in anf_faults(Module({"main": make.function(params, body)}))]

    x = make.var("x", make.tensor_type((2,), F32))
    y = make.var("y", x.type)
    inner = make.call(EXP, (x,))
    named = make.let(y, inner, y)
    assert faults(named, x) == []
    assert faults(inner, x) == ["the result of an operation has no name"]
    assert "an operand has no name" in faults(make.let(y, make.call(EXP, (inner,)), y), x)
    z = make.var("z", x.type)
    assert faults(make.let(z, inner, make.let(y, inner, y)), x) == ["an operation is reached twice"]
    assert "a let stands where a value is needed" in faults(make.let(z, named, z), x)
    assert faults(make.let(x, inner, x), x) == ["'x' is bound twice"]


def test_builders_make_nearly_normal_form_and_branches_count():
    function, _, _ = branching()
    lets, _ = spine(function.body)
    assert any(isinstance(let.value, If) for let in lets)
    assert not is_anf(Module({"main": function}))  # the builder leaves ends of arms unnamed
