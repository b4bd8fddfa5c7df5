"""The builder: A-normal form, opened dims, branches, canonical loops, scans."""

from __future__ import annotations

import pytest

from inlay.arith.dtype import F32, I64
from inlay.arith.expr import Int, fresh, from_atom, to_int
from inlay.base.diagnostics import CompileError
from inlay.base.span import Span
from inlay.ir import make, walk
from inlay.ir.builder import Builder
from inlay.ir.core_ops import CHECK_SHAPE, INT_LESS, TO_CONTROL, ZEROS
from inlay.ir.expr import Call, Expr, Function, Let, OpRef, Var
from inlay.ir.loop_trace import Step
from inlay.ir.scope import ATOMS
from inlay.ir.type_printer import type_text
from inlay.ir.types import DimParam, FuncType, IntType
from tests.unit.ir.ops import ADD, CONCAT, NEG, NONZERO, RESHAPE


def is_anf(e: Expr) -> bool:
    return all(
        isinstance(a, (*ATOMS, Function)) for n in walk.postorder(e) if isinstance(n, Call) for a in n.args
    )


def text(e: Expr) -> str:
    return type_text(e.type)


def ops(e: Expr) -> list[str]:
    return [
        n.callee.op.name for n in walk.postorder(e) if isinstance(n, Call) and isinstance(n.callee, OpRef)
    ]


def test_operands_are_named():
    n = fresh("n")
    b = Builder()
    x = b.param("x", make.tensor_type((n, 4), F32))
    y = b.emit(ADD, (x, b.emit(NEG, (x,))))
    f = b.function(b.emit(ADD, (y, make.call(NEG, (y,)))))
    assert is_anf(f)
    assert text(f) == "fn<n>(Tensor[n, 4, f32]) -> Tensor[n, 4, f32]"
    assert not walk.free_vars(f)


def test_checks_are_named_too_and_known_afterwards():
    n, m = fresh("n"), fresh("m")
    b = Builder()
    x, y = b.param("x", make.tensor_type((n,), F32)), b.param("y", make.tensor_type((m,), F32))
    f = b.function(b.emit(ADD, (x, y)))
    assert is_anf(f)
    assert ops(f) == ["check_shape", "add"]


def test_a_checked_relation_of_numbers_is_not_checked_again_on_the_same_value():
    n, m, k = fresh("n"), fresh("m"), fresh("k")
    b = Builder()
    x = b.param("x", make.tensor_type((n, m), F32))
    c = b.param("k", IntType(from_atom(k)))
    first = b.emit(RESHAPE, (x, make.shape_const((k, 2))))
    checked = b._bindings[-2][0]
    second = b.emit(RESHAPE, (checked, make.shape_const((2, k))))
    f = b.function((first, second))
    assert ops(f).count("check_equal") == 1
    assert c in f.params


def test_opened_ints_are_dims():
    b = Builder()
    t = b.param("t", make.tensor_type((), I64))
    count = b.emit(TO_CONTROL, (t,), name="count")
    assert isinstance(count.type.value, Int)
    z = b.emit(ZEROS, (make.shape_const((count.type.value, 2)),))
    assert text(z) == "Tensor[count, 2, f32]"
    f = b.function(z)
    assert ops(f) == ["to_control", "check_at_least", "zeros"], "an int may be negative"
    assert text(f) == "fn(Tensor[i64]) -> some int count. Tensor[count, 2, f32]"


def test_spans_are_those_of_the_caller():
    b = Builder()
    x = b.param("x", make.tensor_type((4,), F32))
    b.span = Span.named("node 'a'")
    y = b.emit(NEG, (x,))
    z = b.emit(NEG, (y,), span=Span.named("node 'b'"))
    assert (y.span.name, z.span.name) == ("node 'a'", "node 'b'")
    with pytest.raises(CompileError) as caught:
        b.emit(ADD, (x, make.const([1.0, 2.0])))
    assert caught.value.diagnostics[0].span.name == "node 'a'"


def test_branches_with_several_outputs():
    n = fresh("n")
    b = Builder()
    flag = b.param("flag", make.BOOL_CONTROL)
    x = b.param("x", make.tensor_type((n,), F32))
    both = b.if_(flag, lambda s: (s.emit(NEG, (x,)), x), lambda s: (s.emit(CONCAT, (x, x)), x))
    first, second = b.unpack(both)
    assert text(first) == "Tensor[n, f32]"
    assert first.type.shape[0] != to_int(n)
    assert second.type.shape[0] == to_int(n)
    f = b.function(first)
    assert text(f) == "fn<n>(bool, Tensor[n, f32]) -> some n. Tensor[n, f32]"
    assert is_anf(f)


def test_a_counted_loop_keeps_what_the_body_keeps():
    n = fresh("n")
    b = Builder()
    x = b.param("x", make.tensor_type((n, 4), F32))
    done = b.loop([x], lambda s, i, c: Step([s.emit(ADD, (c[0], x))]), count=10)
    f = b.function(done.carried)
    assert text(f) == "fn<n>(Tensor[n, 4, f32]) -> (Tensor[n, 4, f32],)"
    loop = next(e for e in walk.postorder(f) if isinstance(e, Function))
    assert text(loop) == ("fn<i>(int[i], Tensor[n, 4, f32]) -> some i. (int[i], Tensor[n, 4, f32])")
    assert is_anf(f)


def test_a_growing_value_gets_a_dim_of_its_own():
    n = fresh("n")
    b = Builder()
    x = b.param("x", make.tensor_type((n, 4), F32))
    traces = []

    def body(s, i, c):
        traces.append(1)
        return Step([s.emit(CONCAT, (c[0], x)), c[1]])

    done = b.loop([x, x], body, count=10, names=("grow", "keep"))
    assert text(done.carried[0]) == "Tensor[n, 4, f32]"
    assert done.carried[0].type.shape[0] != to_int(n)
    assert done.carried[1].type.shape[0] == to_int(n)
    assert len(traces) == 2
    b.function(done.carried)


def test_values_that_change_alike_share_a_dim_and_others_do_not():
    n = fresh("n")
    b = Builder()
    x = b.param("x", make.tensor_type((n,), F32))

    def alike(s, i, c):
        return Step([s.emit(CONCAT, (c[0], x)), s.emit(CONCAT, (c[1], x))])

    a, c = b.loop([x, x], alike, count=3).carried
    assert a.type == c.type

    def unlike(s, i, c):
        return Step([s.emit(CONCAT, (c[0], x)), s.emit(CONCAT, (c[1], c[0]))])

    a, c = b.loop([x, x], unlike, count=3).carried
    assert a.type != c.type


def test_a_condition_and_stacked_rows_of_unknown_number():
    n = fresh("n")
    b = Builder()
    x = b.param("x", make.tensor_type((n, 4), F32))
    limit = b.param("limit", make.tensor_type((), I64))

    def going(s, i, c):
        top = s.emit(TO_CONTROL, (limit,))
        return s.emit(INT_LESS, (make.int_const(i), top))

    done = b.loop([x], lambda s, i, c: Step([c[0]], [s.emit(NEG, (c[0],))]), condition=going)
    (stacked,) = done.stacked
    assert text(stacked) == "Tensor[i, n, 4, f32]"
    assert stacked.type.shape[0] == done.count
    f = b.function((make.int_const(done.count), stacked))
    assert "push_row" in ops(f)
    assert "some" in text(f)


def test_a_scan_fills_one_buffer_of_its_length():
    n, m = fresh("n"), fresh("m")
    b = Builder()
    xs = b.param("xs", make.tensor_type((n, 4), F32))
    ys = b.param("ys", make.tensor_type((m, 4), F32))
    h = b.param("h", make.tensor_type((4,), F32))

    def step(s, c, rows):
        new = s.emit(ADD, (c[0], s.emit(ADD, rows)))
        return Step([new], [new])

    done = b.scan([h], [xs, ys], step, reverse_rows=[True])
    assert text(done.stacked[0]) == "Tensor[n, 4, f32]"
    f = b.function((*done.carried, *done.stacked))
    assert ops(f).count("get_row") == 2
    assert ops(f).count("set_row") == 1
    assert CHECK_SHAPE.name in ops(f)
    assert is_anf(f)


def test_rows_of_differing_sizes_are_refused():
    b = Builder()
    x = b.param("x", make.tensor_type((4,), F32))
    with pytest.raises(CompileError) as caught:
        b.loop([x], lambda s, i, c: Step(c, [s.emit(NONZERO, (x,))]), count=3)
    assert caught.value.ids == ("type.stacked-rows",)


def test_a_step_may_not_change_the_kind_of_a_value():
    b = Builder()
    x = b.param("x", make.tensor_type((4,), F32))
    with pytest.raises(CompileError) as caught:
        b.loop([x], lambda s, i, c: Step([make.const(1.0)]), count=3)
    assert caught.value.ids == ("type.loop-carried",)


def test_loops_nest():
    n = fresh("n")
    b = Builder()
    x = b.param("x", make.tensor_type((n, 4), F32))

    def outer(s, i, c):
        inner = s.loop([c[0]], lambda t, j, d: Step([t.emit(CONCAT, (d[0], x))]), count=i)
        return Step(inner.carried)

    f = b.function(b.loop([x], outer, count=5).carried)
    assert is_anf(f)
    assert not walk.free_vars(f)


def test_a_recursive_function():
    n = fresh("n")
    b = Builder()
    i = fresh("i")
    type = FuncType(
        (IntType(from_atom(i)), make.tensor_type((n,), F32)),
        make.tensor_type((n,), F32),
        (DimParam(i), DimParam(n)),
    )

    def body(s, f, p):
        go = s.emit(INT_LESS, (make.int_const(0), p[0]))
        return s.if_(
            go, lambda t: t.emit(NEG, (t.emit(f, (make.int_const(from_atom(i) - 1), p[1])),)), lambda t: p[1]
        )

    f = b.recursive("f", type, body)
    x = b.param("x", make.tensor_type((7,), F32))
    main = b.function(b.emit(f, (make.int_const(3), x)))
    assert text(main) == "fn(Tensor[7, f32]) -> Tensor[7, f32]"
    assert isinstance(main.body, Let)
    assert isinstance(f, Var)
