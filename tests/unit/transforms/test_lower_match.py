from __future__ import annotations

import numpy as np
import pytest

from inlay.analysis.blocks import anf_faults
from inlay.analysis.matches import is_flat
from inlay.arith.dtype import F32
from inlay.arith.expr import to_int
from inlay.interp.tensor import evaluate
from inlay.interp.values import Data
from inlay.ir import make
from inlay.ir.core_ops import ZEROS
from inlay.ir.expr import (
    Arm,
    Function,
    Match,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    Project,
)
from inlay.ir.module import Adt, Constructor, Module
from inlay.ir.types import AdtType, DimParam, ExistsType, TensorType, TupleType
from inlay.ir.verify import check
from inlay.ir.walk import postorder
from tests.unit.transforms.programs import dims, run

SCALAR = make.tensor_type((), F32)
LIST_TYPE = AdtType("List")
LIST = Adt("List", (), (Constructor("Nil", 0, ()), Constructor("Cons", 1, (SCALAR, LIST_TYPE))))
COLOR = Adt(
    "Color", (), tuple(Constructor(n, i, ()) for i, n in enumerate(("Red", "Green", "Blue")))
)
ADTS = {"List": LIST, "Color": COLOR}
WILD = PatternWildcard()


def number(value):
    return make.const(np.float32(value))


def cons(head, tail):
    return PatternConstructor("List", "Cons", 1, (head, tail))


NIL = PatternConstructor("List", "Nil", 0, ())


def color(tag):
    return PatternConstructor("Color", COLOR.constructors[tag].name, tag, ())


def items(*values):
    result = Data("List", "Nil", 0, ())
    for v in reversed(values):
        result = Data("List", "Cons", 1, (np.asarray(v, np.float32), result))
    return result


def flat(scrutinee_type, *arms):
    """A function that matches its parameter, and the same after the pass."""
    x = make.var("x", scrutinee_type)
    body = make.match(x, [Arm(p, b) for p, b in arms])
    before = Module({"main": make.function((x,), body)}, ADTS)
    after = run("to-anf,lower-match", before)
    check(after)
    assert anf_faults(after) == []
    matches = [e for e in postorder(after.functions["main"]) if isinstance(e, Match)]
    assert all(is_flat(m) for m in matches)
    return before, after, matches


def agree(before, after, *values):
    for value in values:
        np.testing.assert_equal(evaluate(before, (value,)), evaluate(after, (value,)))


def test_a_flat_match_stays_as_it_is():
    x = make.var("x", LIST_TYPE)
    h = make.var("h", SCALAR)
    body = make.match(x, [Arm(NIL, number(0)), Arm(cons(PatternVar(h), WILD), h)])
    module = run("to-anf", Module({"main": make.function((x,), body)}, ADTS))
    assert run("lower-match", module) is module


def test_nested_constructors_become_nested_matches():
    h, u = make.var("h", SCALAR), make.var("u", SCALAR)
    before, after, matches = flat(
        LIST_TYPE,
        (cons(WILD, cons(PatternVar(u), NIL)), u),
        (cons(PatternVar(h), NIL), h),
        (WILD, number(-1)),
    )
    assert len(matches) == 3
    agree(before, after, items(), items(1), items(1, 2), items(1, 2, 3))


def test_an_arm_that_several_places_reach_is_written_once():
    v, w = make.var("v", LIST_TYPE), make.var("w", SCALAR)
    rest = make.match(v, [Arm(cons(PatternVar(w), WILD), w), Arm(WILD, number(9))])
    before, after, _ = flat(
        LIST_TYPE,
        (cons(WILD, cons(WILD, NIL)), number(2)),
        (PatternVar(v), rest),
    )
    functions = [e for e in postorder(after.functions["main"].body) if isinstance(e, Function)]
    assert len(functions) == 1
    agree(before, after, items(), items(7), items(7, 8), items(7, 8, 9))


def test_tuples_are_taken_apart_by_projections_of_what_is_read():
    a = make.var("a", SCALAR)
    pair = TupleType((AdtType("Color"), SCALAR, SCALAR))
    before, after, matches = flat(
        pair,
        (PatternTuple((color(0), PatternVar(a), WILD)), a),
        (PatternTuple((color(2), WILD, WILD)), number(2)),
        (WILD, number(3)),
    )
    assert len(matches) == 1
    projections = [e.index for e in postorder(after.functions["main"]) if isinstance(e, Project)]
    assert sorted(projections) == [0, 1]
    for tag in range(3):
        value = (Data("Color", COLOR.constructors[tag].name, tag, ()), np.float32(5), np.float32(6))
        agree(before, after, value)


def test_tags_that_no_arm_names_share_a_wildcard():
    _, after, (match,) = flat(
        TupleType((AdtType("Color"),)),
        (PatternTuple((color(1),)), number(1)),
        (WILD, number(0)),
    )
    assert [type(arm.pattern) for arm in match.arms] == [PatternConstructor, PatternWildcard]
    assert after.functions


def test_the_first_of_overlapping_arms_wins():
    before, after, _ = flat(
        TupleType((AdtType("Color"), AdtType("Color"))),
        (PatternTuple((color(0), WILD)), number(1)),
        (PatternTuple((WILD, color(0))), number(2)),
        (PatternTuple((WILD, WILD)), number(3)),
    )
    colors = [Data("Color", c.name, c.tag, ()) for c in COLOR.constructors]
    agree(before, after, *[(a, b) for a in colors for b in colors])


def test_a_single_variable_is_a_name():
    v = make.var("v", LIST_TYPE)
    before, after, matches = flat(LIST_TYPE, (PatternVar(v), make.tuple_([v, v])))
    assert matches == []
    assert after.functions["main"].params[0].name == "x"
    assert evaluate(before, (items(1),))[0].tag == evaluate(after, (items(1),))[0].tag == 1


@pytest.mark.parametrize("shared", [False, True])
def test_dims_that_elements_name_follow_their_variables(shared):
    k = dims("k")
    element = ExistsType((DimParam(k),), TensorType((to_int(k),), F32))
    row = Adt("Rows", (), (Constructor("End", 0, ()),
                           Constructor("Row", 1, (element, AdtType("Rows")))))  # fmt: skip
    j = dims("j")
    v = make.var("v", make.tensor_type((j,), F32))
    ones = make.call(ZEROS, (make.shape_const([j]),))
    end = PatternConstructor("Rows", "End", 0, ())

    def rows(head, tail):
        return PatternConstructor("Rows", "Row", 1, (head, tail))

    x = make.var("x", AdtType("Rows"))
    empty = make.call(ZEROS, (make.shape_const([0]),))
    if shared:
        arms = [
            Arm(rows(WILD, rows(WILD, end)), empty),
            Arm(rows(PatternVar(v), WILD), ones),
            Arm(WILD, empty),
        ]
    else:
        arms = [Arm(rows(PatternVar(v), end), ones), Arm(WILD, empty)]
    before = Module({"main": make.function((x,), make.match(x, arms))}, {"Rows": row})
    after = run("to-anf,lower-match", before)
    check(after)
    value = Data("Rows", "End", 0, ())
    for n in (3, 4, 5):
        value = Data("Rows", "Row", 1, (np.ones(n, np.float32), value))
        agree(before, after, value)
