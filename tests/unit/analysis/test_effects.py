from __future__ import annotations

from inlay.analysis.call_graph import bottom_up, call_graph, recursive_functions
from inlay.analysis.effects import Effects, effect_table
from inlay.arith.dtype import F32
from inlay.ir import make
from inlay.ir.core_ops import CHECK_AT_LEAST
from inlay.ir.expr import Call, Function, If
from inlay.ir.loop_trace import Step
from inlay.ir.module import Module
from inlay.ir.walk import postorder, spine
from tests.unit.transforms.programs import OPS, Program, run

EXP = OPS.definition("exp").op


def vector(name="x"):
    return make.var(name, make.tensor_type((3,), F32))


def calling(*names):
    """A function that calls others one after the other."""
    p = Program()
    x = p.input("x", 3)
    type = make.function((vector(),), vector()).type
    for name in names:
        x = p.emit(make.global_var(name, type), (x,))
    return p.function(x)


def writing():
    """A function that writes a cell of its own."""
    p = Program()
    x = p.input("x", 3)
    cell = p.bind(make.ref_create(x))
    p.bind(make.ref_write(cell, x))
    return p.function(p.bind(make.ref_read(cell)))


def checking():
    p = Program()
    x = p.input("x", 3)
    return p.function(p.emit(CHECK_AT_LEAST, (x, make.int_const(3))))


def test_questions():
    assert Effects.NONE.is_movable
    assert Effects.READS.is_discardable
    assert not Effects.READS.is_movable
    assert not Effects.FAILS.is_discardable
    assert Effects.CREATES.is_discardable
    assert not Effects.UNKNOWN.is_discardable


def test_functions_do_what_they_call():
    module = Module(
        {
            "main": calling("quiet", "loud"),
            "loud": calling("writes"),
            "quiet": calling("checks"),
            "writes": writing(),
            "checks": checking(),
        }
    )
    table = effect_table(run("to-anf", module))
    assert table.functions["checks"] == Effects.FAILS
    assert table.functions["quiet"] == Effects.FAILS
    assert Effects.WRITES in table.functions["loud"]
    assert table.functions["main"] == table.functions["loud"] | Effects.FAILS


def test_recursive_groups_do_what_any_member_does():
    module = Module({"a": calling("b"), "b": calling("a", "c"), "c": checking()})
    table = effect_table(run("to-anf", module))
    assert table.functions["a"] == table.functions["b"] == Effects.FAILS


def test_loops_and_branches_do_what_is_in_them():
    p = Program()
    x, flag = p.input("x", 3), p.param("flag", make.bool_const(True).type)
    result = p.loop([x], lambda s, i, v: Step([s.emit(EXP, (v[0],))]), count=3)
    p.if_(flag, lambda s: s.emit(CHECK_AT_LEAST, (x, make.int_const(3))), lambda s: x)
    module = run("to-anf", p.module(result.carried[0]))
    table = effect_table(module)
    body = module.functions["main"].body
    (loop,) = (let.var for let in spine(body)[0] if isinstance(let.value, Function))
    assert table.locals[loop] == Effects.NONE
    (branch,) = (let.value for let in spine(body)[0] if isinstance(let.value, If))
    assert table.of(branch) == Effects.FAILS
    assert table.of_one(branch) == Effects.NONE


def test_function_values_from_elsewhere_may_do_anything():
    p = Program()
    x = p.input("x", 3)
    f = p.param("f", make.function((vector(),), vector()).type)
    module = run("to-anf", p.module(p.emit(f, (x,))))
    (call,) = (e for e in postorder(module.functions["main"].body) if isinstance(e, Call))
    assert effect_table(module).of(call) == Effects.UNKNOWN


def test_the_call_graph_knows_mentions_groups_and_recursion():
    module = run(
        "to-anf",
        Module(
            {
                "main": calling("a"),
                "a": calling("b"),
                "b": calling("a"),
                "self": calling("self"),
                "leaf": checking(),
            }
        ),
    )
    graph = call_graph(module)
    assert graph["main"] == ("a",)
    assert graph["leaf"] == ()
    groups = bottom_up(graph)
    assert groups.index(["leaf"]) >= 0
    assert sorted(next(g for g in groups if "a" in g)) == ["a", "b"]
    assert recursive_functions(graph) == {"a", "b", "self"}
