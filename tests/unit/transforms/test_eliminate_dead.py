from __future__ import annotations

from dataclasses import replace

import numpy as np

from inlay.arith.dtype import F32
from inlay.ir import make
from inlay.ir.core_ops import CHECK_AT_LEAST, INT_LESS
from inlay.ir.expr import Function, RefWrite
from inlay.ir.loop_trace import Step
from inlay.ir.module import Adt, Constructor, Module
from inlay.ir.types import AdtType
from inlay.ir.walk import postorder
from tests.unit.transforms.programs import OPS, Program, dims, noise, operators, run, same

EXP = OPS.definition("exp").op


def test_unused_values_go_and_so_does_what_only_they_read():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    p.op("add", p.op("exp", x), x)
    before = p.module(p.op("relu", x))
    after = run("to-anf,eliminate-dead", before)
    assert operators(after) == {"relu": 1}
    same(before, after, noise(3), exact=True)


def test_a_module_without_dead_code_stays_as_it_is():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    before = run("to-anf", p.module(p.op("relu", x)))
    after = run("eliminate-dead", before)
    assert after.functions["main"] is before.functions["main"]


def test_checks_and_writes_stay():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    p.emit(CHECK_AT_LEAST, (x, make.int_const(n)))
    cell = p.bind(make.ref_create(x))
    p.bind(make.ref_write(cell, p.op("exp", x)))
    p.bind(make.ref_read(cell))
    before = p.module(p.op("relu", x))
    after = run("to-anf,eliminate-dead", before)
    assert operators(after) == {"check_at_least": 1, "exp": 1, "relu": 1}
    assert any(isinstance(e, RefWrite) for e in postorder(after.functions["main"]))
    same(before, after, noise(3), exact=True)


def test_a_call_stays_if_what_it_calls_writes():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    cell = p.bind(make.ref_create(x))
    inner = p.scope()
    y = inner.param("y", x.type)
    inner.bind(make.ref_write(cell, y))
    f = p.bind(inner.function(y, outer=(n,)), "f")
    p.emit(f, (p.op("exp", x),))
    before = p.module(p.bind(make.ref_read(cell)))
    after = run("to-anf,eliminate-dead", before)
    assert operators(after)["call"] == 1
    same(before, after, noise(3), exact=True)


def test_a_local_function_that_only_calls_itself_is_dead():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    p.loop([x], lambda s, i, v: Step([s.emit(EXP, (v[0],))]), count=3)
    before = p.module(p.op("relu", x))
    after = run("to-anf,eliminate-dead", before)
    assert not any(isinstance(e, Function) for e in postorder(after.functions["main"].body))
    same(before, after, noise(3), exact=True)


def test_dead_code_in_branches_goes_and_live_code_before_them_stays():
    p, n = Program(), dims("n")
    x, flag = p.input("x", n), p.param("flag", make.bool_const(True).type)
    used = p.op("exp", x)

    def arm(s):
        s.emit(EXP, (s.emit(EXP, (x,)),))
        return used

    before = p.module(p.if_(flag, arm, lambda s: x))
    after = run("to-anf,eliminate-dead", before)
    assert operators(after) == {"exp": 1}
    same(before, after, noise(3), True, exact=True)


def test_functions_and_data_types_that_nothing_reaches_go():
    box = Adt("Box", (), (Constructor("Wrap", 0, (AdtType("Inner"),)),))
    inner = Adt("Inner", (), (Constructor("Leaf", 0, ()),))
    unused = Adt("Unused", (), (Constructor("None", 0, ()),))
    n = dims("n")
    x = make.var("x", make.tensor_type((n,), F32))
    y = make.var("y", make.tensor_type((dims("n"),), F32))
    z = make.var("z", AdtType("Box"))
    module = Module(
        {"main": make.function((x, z), x), "helper": make.function((y,), y)},
        adts={a.name: a for a in (box, inner, unused)},
    )
    after = run("eliminate-dead", module)
    assert list(after.functions) == ["main"]
    assert list(after.adts) == ["Box", "Inner"]
    library = replace(module, entry="other")
    assert list(run("eliminate-dead", library).functions) == ["main", "helper"]


def test_a_value_that_names_a_dim_stays_while_the_dim_is_mentioned():
    p = Program()
    x = p.input("x", dims("n"))
    k = p.op("nonzero", x).type.shape[1]
    flag = p.emit(INT_LESS, (make.int_const(k), make.int_const(2)))
    before = p.module(p.if_(flag, lambda s: s.emit(EXP, (x,)), lambda s: x))
    after = run("to-anf,eliminate-dead", before)
    assert operators(after)["nonzero"] == 1
    same(before, after, np.array([0, 1, 2], np.float32))
    same(before, after, np.array([0, 0, 2], np.float32))
