from __future__ import annotations

import numpy as np
import pytest

from inlay.ir import make
from inlay.ir.core_ops import (
    BOOL_AND,
    CHECK_AT_LEAST,
    CHECK_SHAPE,
    INT_EQUAL,
    INT_LESS,
    TO_CONTROL,
    TO_TENSOR,
    CheckAttrs,
    LeastAttrs,
)
from inlay.ir.expr import Const, If, Match
from inlay.ir.module import Adt, Constructor
from inlay.ir.walk import postorder
from inlay.transforms.fold_constants import FoldOptions
from tests.unit.transforms.programs import OPS, Program, dims, noise, operators, run, same

EXP = OPS.definition("exp").op


def folded(module, *options):
    return run("to-anf,fold-constants,eliminate-dead", module, *options)


def test_operators_over_constants_are_computed():
    p, n = Program(), dims("n")
    x = p.input("x", n, 4)
    w = p.op("transpose", make.const(noise(4, 4)), perm=(1, 0))
    before = p.module(p.op("matmul", x, p.op("mul", w, make.const(2.0))))
    after = folded(before)
    assert operators(after) == {"matmul": 1}
    same(before, after, noise(3, 4), exact=True)


def test_a_result_much_larger_than_its_operands_is_left_to_the_program():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    big = p.op("broadcast_to", make.const(1.0), make.shape_const([1000, 100]))
    before = p.module(x, big)
    assert operators(folded(before)) == {"broadcast_to": 1}
    assert operators(folded(before, FoldOptions(limit=1 << 20))) == {}


def test_what_fails_is_left_to_fail():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    p.emit(CHECK_AT_LEAST, (make.const(noise(3)), make.int_const(2)), LeastAttrs(4))
    assert operators(folded(p.module(x))) == {"check_at_least": 1}


def test_shapes_are_known_from_types():
    p, n = Program(), dims("n")
    x = p.input("x", n, 4)
    length = p.emit(TO_TENSOR, (make.int_const(6),))
    m = p.emit(TO_CONTROL, (p.op("add", length, length),))
    before = p.module(
        p.op("broadcast_to", p.op("reduce_sum", x, axes=(0, 1)), make.shape_const([m.type.value]))
    )
    after = folded(before)
    assert operators(after) == {"reduce_sum": 1, "broadcast_to": 1}
    (shape,) = (
        e.value
        for e in postorder(after.functions["main"])
        if isinstance(e, Const) and isinstance(e.value, tuple)
    )
    assert [d.value for d in shape] == [12]
    same(before, after, noise(3, 4))


@pytest.mark.parametrize(
    ("op", "right", "taken"), [(INT_LESS, 1, "then"), (INT_EQUAL, 1, "otherwise"), (INT_EQUAL, 0, "then")]
)
def test_comparisons_are_decided_by_what_is_known_of_dims(op, right, taken):
    p, n = Program(), dims("n")
    x = p.input("x", n)
    k = make.to_int(n)
    flag = p.emit(op, (make.int_const(k), make.int_const(k + right)))
    before = p.module(p.if_(flag, lambda s: s.emit(EXP, (x,)), lambda s: x))
    after = folded(before)
    assert not any(isinstance(e, If) for e in postorder(after.functions["main"]))
    assert operators(after) == ({"exp": 1} if taken == "then" else {})
    same(before, after, noise(3), exact=True)


def test_an_undecided_branch_stays():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    flag = p.emit(INT_LESS, (make.int_const(n), make.int_const(4)))
    after = folded(p.module(p.if_(flag, lambda s: s.emit(EXP, (x,)), lambda s: x)))
    assert any(isinstance(e, If) for e in postorder(after.functions["main"]))


def test_a_known_half_of_a_condition_is_dropped_or_decides():
    p, n = Program(), dims("n")
    x, flag = p.input("x", n), p.param("flag", make.bool_const(True).type)
    both = p.emit(BOOL_AND, (make.bool_const(True), flag))
    never = p.emit(BOOL_AND, (flag, make.bool_const(False)))
    y = p.if_(both, lambda s: s.emit(EXP, (x,)), lambda s: x)
    before = p.module(p.if_(never, lambda s: x, lambda s: y))
    after = folded(before)
    assert operators(after) == {"exp": 1}
    for value in (True, False):
        same(before, after, noise(3), value, exact=True)


def test_checks_that_hold_become_their_operand():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    y = p.emit(CHECK_SHAPE, (x, make.shape_const([n])), CheckAttrs("nothing new"))
    z = p.emit(CHECK_AT_LEAST, (y, make.int_const(make.to_int(n) + 1)), LeastAttrs(1))
    after = folded(p.module(p.op("exp", z)))
    assert operators(after) == {"exp": 1}


def test_a_field_of_a_tuple_is_the_field():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    pair = p.tuple([x, p.op("exp", x)])
    before = p.module(p.op("relu", p.project(pair, 1)))
    after = folded(before)
    assert operators(after) == {"exp": 1, "relu": 1}
    same(before, after, noise(3), exact=True)


def test_a_match_on_a_known_constructor_is_its_arm():
    n = dims("n")
    p = Program()
    x = p.input("x", n)
    option = Adt("Maybe", (), (Constructor("No", 0, ()), Constructor("Yes", 1, (x.type,))))
    made = p.bind(make.construct(option, "Yes", [p.op("exp", x)]))
    y = p.match(made, option, {"No": lambda s: x, "Yes": lambda s, v: s.emit(EXP, (v,))})
    before = p.module(p.op("relu", y))
    before = type(before)(before.functions, adts={"Maybe": option}, entries=before.entries)
    after = folded(before)
    assert not any(isinstance(e, Match) for e in postorder(after.functions["main"]))
    assert operators(after) == {"exp": 2, "relu": 1}
    same(before, after, noise(3), exact=True)


def test_an_exact_result_makes_types_below_exact():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    k = p.emit(TO_CONTROL, (make.const(np.int64(4)),))
    wide = p.op("broadcast_to", p.op("reduce_sum", x, axes=(0,)), make.shape_const([k.type.value]))
    before = p.module(p.op("exp", wide))
    after = folded(before)
    result = after.functions["main"].body.type
    assert [d.value for d in result.shape] == [4]
    same(before, after, noise(3))
