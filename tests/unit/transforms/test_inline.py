from __future__ import annotations

from inlay.analysis.blocks import anf_faults
from inlay.ir import make
from inlay.ir.expr import Call, Function, Let
from inlay.ir.loop_trace import Step
from inlay.ir.walk import postorder, spine
from inlay.transforms.inline_functions import InlineOptions
from tests.unit.transforms.programs import OPS, Program, close, dims, noise, operators, run, same, value_of

ADD, EXP = (OPS.definition(n).op for n in ("add", "exp"))


def helper(count):
    """A function of `count` operators."""
    p = Program()
    x = p.input("x", dims("n"))
    for _ in range(count):
        x = p.op("exp", x)
    return p.function(x)


def program(count, calls):
    p, f = Program(), helper(count)
    x = p.input("x", dims("n"))
    results = [p.emit(make.global_var("f", f.type), (x,)) for _ in range(calls)]
    module = p.module(*results)
    return module.with_functions({**module.functions, "f": f})


def test_large_functions_are_not_unless_they_are_called_once():
    many = run("to-anf,inline-functions", program(20, 2))
    assert operators(many) == {"@f": 2}
    once = run("to-anf,inline-functions", program(20, 1))
    assert operators(once) == {"exp": 20}
    assert operators(run("to-anf,inline-functions", program(20, 2), InlineOptions(20))) == {"exp": 40}


def test_recursive_functions_stay():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    result = p.loop([x], lambda s, i, v: Step([s.emit(EXP, (v[0],))]), count=3)
    before = p.module(result.carried[0])
    after = run("to-anf,inline-functions", before)
    assert any(isinstance(e, Function) for e in postorder(after.functions["main"].body))
    same(before, after, noise(3, low=-3, high=-2), exact=True)


def test_primitive_functions_are_kernels_and_stay():
    before = program(2, 1)
    fused = run("to-anf,fuse-ops", before)
    after = run("inline-functions", fused)
    assert any(f.primitive for f in after.functions.values())
    same(before, after, noise(3), exact=True)


def test_values_that_are_read_once_are_nested():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    before = p.module(p.op("exp", p.op("relu", p.op("neg", x))))
    after = run("to-anf,inline-lets", before)
    body = after.functions["main"].body
    assert isinstance(body, Call)
    assert not any(isinstance(e, Let) for e in postorder(body))
    assert close(value_of(before, noise(3)), value_of(after, noise(3)))


def test_values_that_are_read_twice_or_in_a_function_that_may_run_twice_keep_their_name():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    twice = p.op("exp", x)
    once = p.op("relu", x)
    inner = p.scope()
    y = inner.param("y", x.type)
    f = p.bind(inner.function(inner.emit(ADD, (y, once)), outer=(n,)), "f")
    before = p.module(p.emit(f, (p.emit(f, (p.emit(ADD, (twice, twice)),)),)))
    after = run("to-anf,inline-lets", before)
    names = [let.value for let in spine(after.functions["main"].body)[0]]
    assert len(names) == 3
    assert close(value_of(before, noise(3)), value_of(after, noise(3)))


def test_effects_stay_in_order():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    cell = p.bind(make.ref_create(x))
    first = p.bind(make.ref_read(cell))
    p.bind(make.ref_write(cell, p.op("exp", x)))
    before = p.module(first, p.bind(make.ref_read(cell)))
    after = run("to-anf,inline-lets", before)
    assert close(value_of(before, noise(3)), value_of(after, noise(3)))


def test_nesting_and_naming_are_inverse():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    y = p.op("exp", p.op("add", p.op("relu", x), p.op("neg", x)))
    before = run("to-anf", p.module(p.op("mul", y, y)))
    nested = run("to-anf,inline-lets", before)
    after = run("to-anf", nested)
    assert operators(before) == operators(after)
    assert anf_faults(after) == []
