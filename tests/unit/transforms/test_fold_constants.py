from __future__ import annotations

import numpy as np

from inlay.ir import make
from inlay.ir.core_ops import CHECK_AT_LEAST, LeastAttrs
from inlay.ir.expr import Match
from inlay.ir.module import Adt, Constructor
from inlay.ir.walk import postorder
from inlay.transforms.fold_constants import FoldOptions
from tests.unit.transforms.programs import OPS, Program, dims, noise, operators, run, same

EXP = OPS.definition("exp").op


def folded(module, *options):
    return run("to-anf,fold-constants,eliminate-dead", module, *options)


def test_a_result_much_larger_than_its_operands_is_left_to_the_program():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    big = p.op("broadcast_to", make.const(1.0), make.shape_const([1000, 100]))
    before = p.module(x, big)
    assert operators(folded(before)) == {"broadcast_to": 1}
    assert operators(folded(before, FoldOptions(limit=1 << 20))) == {}


def test_a_conversion_and_another_layout_always_fold():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    weights = make.const(noise(100, 1000, high=100.0, dtype=np.int8))
    scale = make.const(np.linspace(0.1, 0.2, 1000, dtype=np.float32))
    real = p.op("transpose", p.op("dequantize", weights, scale, axis=1), perm=(1, 0))
    before = p.module(x, real, p.op("concat", real, real, real, axis=0))
    after = folded(before, FoldOptions(limit=1 << 10, growth=0))
    assert operators(after) == {"concat": 1}


def test_what_fails_is_left_to_fail():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    p.emit(CHECK_AT_LEAST, (make.const(noise(3)), make.int_const(2)), LeastAttrs(4))
    assert operators(folded(p.module(x))) == {"check_at_least": 1}


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
