"""Dataflow patterns, their refusals, and rules."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.arith.dtype import F32
from inlay.base.diagnostics import InternalError
from inlay.base.span import Span
from inlay.ir import make, walk
from inlay.ir.equal import equal
from inlay.ir.expr import Expr, Let, Var
from inlay.ir.parser import parse_module
from inlay.ir.pattern import Found, Refusal, any_, constant, either, match, op, where
from inlay.ir.rewrite import Applied, Rule, apply
from tests.unit.ir.ops import ADD, MUL, NEG, TABLE

DOUBLE_NEG = Rule("drop double negation", op("neg", op("neg", any_("x"))), lambda m: m["x"])
ADD_SELF = Rule(
    "double",
    op("add", any_("x"), any_("x")),
    lambda m: make.call(MUL, (m["x"], make.const(np.full(4, 2.0, np.float32)))),
)


def body(text: str) -> Expr:
    m = parse_module(f"fn main(x: Tensor[4, f32], y: Tensor[4, f32]) {{ {text} }}", TABLE)
    return m.functions["main"].body


def same(a: Expr, text: str) -> bool:
    """Whether a body is this text, whose parameters are other variables."""
    b = body(text)
    names = {v.name: v for v in walk.free_vars(a)}
    return equal(a, walk.substitute_vars(b, {v: names[v.name] for v in walk.free_vars(b)}))


def refusal(pattern: object, e: Expr) -> str:
    found = match(pattern, e)
    assert isinstance(found, Refusal)
    return found.reason


def test_names_are_bound():
    e = body("add(neg(x), y)")
    found = match(op("add", op("neg", any_("a"), name="n"), any_("b")), e)
    assert isinstance(found, Found)
    assert (found["a"].name, found["b"].name) == ("x", "y")
    assert found["n"] is e.args[0]
    assert found.nodes == (e, e.args[0])


def test_refusals_have_reasons():
    assert refusal(op("mul"), body("add(x, y)")) == "found add, needed mul"
    assert refusal(op("add", op("neg"), any_()), body("add(x, y)")) == (
        "found x of type Tensor[4, f32], needed neg"
    )
    assert refusal(op("concat", attrs={"axis": 1}), body("concat(x, y)")) == ("concat has axis=0, needed 1")
    assert refusal(op("add", any_("v"), any_("v")), body("add(x, y)")) == (
        "needed one value for v and found two"
    )
    small = where(any_(), lambda e: e.type.shape[0] == 3, "three rows")
    assert refusal(op("neg", small), body("neg(x)")) == "needed three rows"


def test_the_deepest_refusal_counts():
    p = either(op("mul"), op("add", op("neg", constant()), any_()))
    assert refusal(p, body("add(neg(x), y)")) == "needed a constant tensor"


def test_commuting_operands():
    p = op("add", constant("c"), any_("x"), commutes=True)
    found = match(p, body("add(x, f32[4](1.0, 2.0, 3.0, 4.0))"))
    assert isinstance(found, Found)
    assert found.array("c").tolist() == [1, 2, 3, 4]


def test_lets_are_looked_through_but_not_effects():
    e = body("let a = neg(x); let b = check_shape(a, shape(4)); add(a, b)")
    definitions = {}
    while isinstance(e, Let):
        definitions[e.var] = e.value
        e = e.body
    assert isinstance(match(op("add", op("neg"), any_()), e, definitions.get), Found)
    assert isinstance(match(op("add", any_(), op("check_shape")), e, definitions.get), Refusal)


def test_rules_apply_until_none_does():
    applied: list[Applied] = []
    e = apply(body("neg(neg(neg(neg(neg(x)))))"), [DOUBLE_NEG], applied=applied)
    assert same(e, "neg(x)")
    assert len(applied) == 2
    assert {a.rule for a in applied} == {DOUBLE_NEG.name}


def test_rules_apply_through_lets_and_leave_them():
    e = apply(body("let a = neg(x); let b = neg(a); add(b, y)"), [DOUBLE_NEG])
    assert same(e, "let a = neg(x); let b = x; add(b, y)")


def test_operands_are_rewritten_first():
    e = apply(body("add(neg(neg(x)), x)"), [DOUBLE_NEG, ADD_SELF])
    assert same(e, "mul(x, f32[4](2.0, 2.0, 2.0, 2.0))")


def test_spans_cover_what_was_replaced():
    x = make.var("x", make.tensor_type((4,), F32))
    inner = make.call(ADD, (x, x), span=Span.named("node 'a'"))
    made = apply(make.call(NEG, (inner,)), [ADD_SELF])
    assert made.args[0].span == Span.named("node 'a'")
    text = body("add(x, x)")
    assert apply(text, [ADD_SELF]).span == text.span


def test_rules_that_undo_each_other_are_an_error():
    swap = Rule("swap", op("add", any_("a"), any_("b")), lambda m: make.call(ADD, (m["b"], m["a"])))
    with pytest.raises(InternalError, match="never come to rest"):
        apply(body("add(x, y)"), [swap])


def test_a_long_program():
    x = make.var("x", make.tensor_type((4,), F32))
    vs = [x, *(Var(f"v{i}", x.type) for i in range(10_000))]
    e: Expr = vs[-1]
    for i in range(10_000, 0, -1):
        e = make.let(vs[i], make.call(NEG, (vs[i - 1],)), e)
    made = apply(e, [DOUBLE_NEG])
    lets, _ = walk.spine(made)
    assert sum(isinstance(let.value, Var) for let in lets) >= 5000
