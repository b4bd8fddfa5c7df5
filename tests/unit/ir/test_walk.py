"""Walks: order, sharing, retyping, copies; and programs far deeper than Python's stack."""

from __future__ import annotations

import sys

import pytest

from inlay.arith.dtype import F32
from inlay.arith.expr import fresh, from_atom, to_int
from inlay.base import garbage
from inlay.base.span import Span
from inlay.ir import make, walk
from inlay.ir.dims import free_symbols
from inlay.ir.expr import Call, Expr, Function, Let, OpRef, Var
from inlay.ir.place import Place
from inlay.ir.type_printer import type_text
from tests.unit.ir.ops import ADD, CONCAT, NEG, NONZERO, AxisAttrs

N = 30_000


def tensor(name: str, *dims: object) -> Var:
    return make.var(name, make.tensor_type(dims, F32))


def is_op(e: Expr, op: object) -> bool:
    return isinstance(e, Call) and isinstance(e.callee, OpRef) and e.callee.op is op


def neg_to_double(e: Expr) -> Expr:
    return make.call(ADD, (e.args[0], e.args[0])) if is_op(e, NEG) else e


def long_spine(n: int) -> tuple[Var, Expr]:
    x = tensor("x", 4)
    variables = [x, *(tensor(f"v{i}", 4) for i in range(n))]
    body: Expr = variables[-1]
    for i in range(n, 0, -1):
        body = make.let(variables[i], make.call(NEG, (variables[i - 1],)), body)
    return x, body


def deep_calls(n: int) -> tuple[Var, Expr]:
    x = tensor("x", 4)
    e: Expr = x
    for _ in range(n):
        e = make.call(NEG, (e,))
    return x, e


def test_postorder_is_evaluation_order_and_once():
    x, y = tensor("x", 4), tensor("y", 4)
    shared = make.call(NEG, (x,))
    total = make.call(ADD, (shared, make.call(ADD, (shared, y))))
    calls = [e for e in walk.postorder(total) if isinstance(e, Call)]
    assert calls == [shared, total.args[1], total]
    assert walk.use_counts(total)[id(shared)] == 2


def test_identity_rewrite_gives_the_same_object():
    _, body = long_spine(5)
    assert walk.rewrite(body, lambda e: e) is body


def test_sharing_is_kept():
    x = tensor("x", 4)
    shared = make.call(NEG, (x,))
    made = walk.rewrite(make.call(ADD, (shared, shared)), neg_to_double)
    assert made.args[0] is made.args[1]


def test_a_rewrite_inherits_span_and_place():
    x = tensor("x", 4)
    place = Place("cpu")
    old = make.call(NEG, (x,), span=Span.named("node 'n1'"), place=place)
    new = walk.rewrite(old, neg_to_double)
    assert (new.span, new.place) == (old.span, place)
    assert x.place is None


def test_types_follow_a_rewrite():
    x = tensor("x", 4)
    v = tensor("v", 4)
    y = make.let(v, make.call(NEG, (x,)), make.call(CONCAT, (v, make.call(NEG, (x,)))))
    wider = walk.rewrite(y, lambda e: make.call(CONCAT, (e.args[0], x)) if is_op(e, CONCAT) else e)
    assert type_text(wider.type) == "Tensor[8, f32]"
    grown = walk.rewrite(wider.body, lambda e: make.call(CONCAT, (x, x)) if e is v else e)
    assert type_text(grown.type) == "Tensor[12, f32]"


def test_a_rewrite_that_breaks_a_type_is_refused():
    x = tensor("x", 4)
    sum_ = make.call(ADD, (x, make.call(NEG, (x,))))
    with pytest.raises(Exception, match="8 and 4|4 and 8"):
        walk.rewrite(sum_, lambda e: make.call(CONCAT, (x, x)) if is_op(e, NEG) else e)


def test_a_more_exact_value_keeps_the_scope_of_its_dims():
    x = tensor("x", 7)
    rows = make.call(NONZERO, (x,))
    k = fresh("k")
    v = make.var("v", make.tensor_type((k,), rows.type.body.dtype))
    let = make.let(v, rows, make.call(ADD, (v, v)))
    exact = make.const([1, 2, 3])
    made = walk.rewrite(let, lambda e: exact if e is rows else e)
    assert k not in free_symbols(made.type)


def test_free_variables():
    x, y = tensor("x", 4), tensor("y", 4)
    v, p = tensor("v", 4), tensor("p", 4)
    f = make.function((p,), make.call(ADD, (p, y)), dims=())
    e = make.let(v, make.call(f, (x,)), make.call(ADD, (v, y)))
    assert walk.free_vars(e) == (y, x)
    assert set(walk.all_vars(e)) == {p, v}


def test_copy_renames_binders_and_dims():
    n = fresh("n")
    x, v = tensor("x", n), tensor("v", n)
    f = make.function((x,), make.let(v, make.call(NEG, (x,)), make.call(ADD, (v, x))))
    g = walk.copy(f)
    assert isinstance(g, Function)
    assert g.params[0] is not x
    assert g.dims[0].sym != n
    assert free_symbols(g.body.type) == (g.dims[0].sym,)
    assert not walk.free_vars(g)


def test_copy_substitutes_for_inlining():
    n = fresh("n")
    x, v = tensor("x", n), tensor("v", n)
    f = make.function((x,), make.let(v, make.call(NEG, (x,)), make.call(CONCAT, (v, x))))
    argument = tensor("a", 8)
    inlined = walk.copy(f.body, {x: argument}, {n: to_int(8)})
    assert type_text(inlined.type) == "Tensor[16, f32]"
    assert walk.free_vars(inlined) == (argument,)
    assert isinstance(inlined, Let)
    assert inlined.var is not v


def test_copy_of_a_recursive_call_under_its_own_dims():
    n = fresh("n")
    x = tensor("x", n)
    f_type = make.function((x,), x).type
    f = make.global_var("f", f_type)
    doubled = make.call(f, (make.call(CONCAT, (x, x), AxisAttrs(0)),))
    copied = walk.copy(doubled, {x: tensor("a", 3)}, {n: to_int(3)})
    assert type_text(copied.type) == "Tensor[6, f32]"
    assert type_text(copied.callee.type) == "fn<n>(Tensor[n, f32]) -> Tensor[n, f32]"


@pytest.mark.parametrize("build", [long_spine, deep_calls])
def test_programs_deeper_than_the_stack(build):
    assert sys.getrecursionlimit() < N
    with garbage.paused():
        x, body = build(N)
        assert walk.free_vars(body) == (x,)
        made = walk.rewrite(body, neg_to_double)
        assert sum(1 for e in walk.postorder(made) if is_op(e, ADD)) == N


@pytest.mark.parametrize("build", [long_spine, deep_calls])
def test_deep_programs_are_walked_down_and_copied(build):
    x, body = build(N // 5)
    copied = walk.copy(body, {x: tensor("y", 4)})
    assert copied is not body
    assert not walk.bound_symbols(copied)


def test_copy_of_opened_dims_is_fresh():
    x = tensor("x", 7)
    rows = make.call(NONZERO, (x,))
    k = fresh("k")
    v = make.var("v", make.tensor_type((k,), rows.type.body.dtype))
    let = make.let(v, rows, make.shape_const((k, from_atom(k) + 1)))
    assert walk.bound_symbols(let) == (k,)
    copied = walk.copy(let)
    assert k not in {s for t in copied.body.value for s in free_symbols(make.int_const(t).type)}
