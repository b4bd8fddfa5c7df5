from __future__ import annotations

import numpy as np

from inlay.ir import make
from inlay.ir.core_ops import CHECK_AT_LEAST
from inlay.ir.place import Place
from tests.unit.transforms.programs import OPS, Program, dims, noise, operators, run, same

EXP = OPS.definition("exp").op


def shared(module):
    return run("to-anf,eliminate-common,eliminate-dead", module)


def test_equal_operations_are_done_once_in_any_order_of_commuting_operands():
    p, n = Program(), dims("n")
    x, y = p.input("x", n), p.input("y", n)
    a, b = p.op("add", x, y), p.op("add", y, x)
    before = p.module(p.op("mul", p.op("exp", a), p.op("exp", b)))
    after = shared(before)
    assert operators(after) == {"add": 1, "exp": 1, "mul": 1}
    same(before, after, noise(3), noise(3, seed=1), exact=True)


def test_operands_that_do_not_commute_and_attributes_matter():
    p, n = Program(), dims("n")
    x, y = p.input("x", n, 3), p.input("y", n, 3)
    results = [p.op("sub", x, y), p.op("sub", y, x), p.op("softmax", x, axis=0), p.op("softmax", x, axis=1)]
    assert sum(operators(shared(p.module(*results))).values()) == 4


def test_doubling_is_not_the_same_as_adding_another():
    p, n = Program(), dims("n")
    x, y = p.input("x", n), p.input("y", n)
    after = shared(p.module(p.op("add", x, x), p.op("add", x, y), p.op("add", x, x)))
    assert operators(after) == {"add": 2}


def test_constants_are_equal_by_content_if_small_and_by_place_in_memory_if_large():
    p, n = Program(), dims("n")
    x = p.input("x", n, 64)
    large = noise(64)
    results = [
        p.op("add", x, make.const(np.float32(2.0))),
        p.op("add", x, make.const(np.float32(2.0))),
        p.op("mul", x, make.const(large)),
        p.op("mul", x, make.const(large)),
        p.op("mul", x, make.const(large.copy())),
    ]
    assert operators(shared(p.module(*results))) == {"add": 1, "mul": 2}


def test_views_of_one_buffer_at_other_offsets_are_other_constants():
    p, n = Program(), dims("n")
    x = p.input("x", n, 32)
    whole = noise(2, 32)
    before = p.module(p.op("add", x, make.const(whole[0])), p.op("add", x, make.const(whole[1])))
    after = shared(before)
    assert operators(after) == {"add": 2}
    same(before, after, noise(3, 32), exact=True)


def test_an_outer_value_serves_in_a_branch_but_not_the_other_way_round():
    p, n = Program(), dims("n")
    x, flag = p.input("x", n), p.param("flag", make.bool_const(True).type)
    outer = p.op("exp", x)
    y = p.if_(flag, lambda s: s.emit(EXP, (x,)), lambda s: outer)
    z = p.if_(flag, lambda s: s.emit(EXP, (outer,)), lambda s: s.emit(EXP, (s.emit(EXP, (x,)),)))
    before = p.module(y, z, p.op("exp", outer))
    after = shared(before)
    assert operators(after) == {"exp": 4}
    for flag_value in (True, False):
        same(before, after, noise(3), flag_value, exact=True)


def test_cells_are_not_shared_and_reads_stay_where_they_are():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    a, b = p.bind(make.ref_create(x)), p.bind(make.ref_create(x))
    first = p.bind(make.ref_read(a))
    p.bind(make.ref_write(a, p.op("exp", x)))
    before = p.module(first, p.bind(make.ref_read(a)), p.bind(make.ref_read(b)))
    same(before, shared(before), noise(3), exact=True)


def test_a_check_is_made_once():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    attrs = CHECK_AT_LEAST.attrs_type(2)
    a = p.emit(CHECK_AT_LEAST, (x, make.int_const(n)), attrs)
    b = p.emit(CHECK_AT_LEAST, (x, make.int_const(n)), attrs)
    after = shared(p.module(p.op("add", a, b)))
    assert operators(after) == {"check_at_least": 1, "add": 1}


def test_devices_compute_their_own():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    results = [p.emit(EXP, (x,), place=Place(d)) for d in ("cpu", "npu", "cpu")]
    assert operators(shared(p.module(*results))) == {"exp": 2}


def test_sizes_that_the_data_decide_are_equal_where_the_data_are():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    first, second = (p.op("nonzero", x) for _ in range(2))
    before = p.module(p.op("add", first, p.op("add", first, first)), second)
    after = shared(before)
    assert operators(after)["nonzero"] == 1
    same(before, after, np.array([0, 1, 2], np.float32), exact=True)
