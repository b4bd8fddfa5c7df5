from __future__ import annotations

import numpy as np
import pytest

import inlay
from inlay.arith.dtype import I64
from inlay.arith.expr import to_int
from inlay.ir import make
from inlay.ir.place import Place
from inlay.transforms._groups import Reason
from inlay.transforms.fuse_ops import FuseOptions
from tests.unit.transforms.programs import OPS, Program, context, dims, kernels, noise, operators, run, same

EXP = OPS.definition("exp").op


def fused(module, *options):
    return run("to-anf,fuse-ops,eliminate-dead", module, *options)


def test_a_product_takes_its_bias_activation_and_residual():
    p, m = Program(), dims("m")
    x, r = p.input("x", m, 8), p.input("r", m, 6)
    w, b = make.const(noise(8, 6)), make.const(noise(6))
    y = p.op("relu", p.op("add", p.op("add", p.op("matmul", x, w), b), r))
    before = p.module(y)
    after = fused(before)
    assert kernels(after) == ["matmul+add+add+relu"]
    assert operators(after) == {"@matmul_add_add_relu": 1}
    same(before, after, noise(5, 8), noise(5, 6))


def test_equal_groups_with_other_weights_and_dims_are_one_kernel():
    p, (m, n) = Program(), dims("m", "n")
    x, y = p.input("x", m, 8), p.input("y", n, 8)
    results = []
    for i, v in enumerate((x, y)):
        w, b = make.const(noise(8, 8, seed=i)), make.const(noise(8, seed=i + 9))
        results.append(p.op("add", p.op("matmul", v, w), b))
    before = p.module(*results)
    after = fused(before)
    assert kernels(after) == ["matmul+add"]
    assert operators(after) == {"@matmul_add": 2}
    same(before, after, noise(5, 8), noise(3, 8))


def test_numbers_are_written_into_a_kernel_and_tell_kernels_apart():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    y = p.op("mul", x, make.const(2.0))
    z = p.op("mul", x, make.const(3.0))
    after = fused(p.module(y, z))
    assert len(kernels(after)) == 2
    assert all(len(f.params) == 1 for f in after.functions.values() if f.primitive)


def test_work_before_a_contraction_is_not_repeated_in_it():
    p, n = Program(), dims("n")
    x = p.input("x", n, 8)
    before = p.module(p.op("matmul", p.op("relu", x), make.const(noise(8, 4))))
    assert kernels(fused(before)) == ["matmul", "relu"]


def test_what_a_contraction_reads_is_not_taken_into_its_epilogue():
    p, n = Program(), dims("n")
    x = p.input("x", n, 8)
    t = p.op("relu", x)
    y = p.op("add", p.op("matmul", t, make.const(noise(8, 8))), t)
    before = p.module(y)
    after = fused(before)
    assert kernels(after) == ["matmul+add", "relu"]
    same(before, after, noise(3, 8))


def test_a_transposed_operand_is_read_in_place_if_its_rows_stay():
    p, (b, s) = Program(), dims("b", "s")
    q, v = p.input("q", b, s, 2, 4), p.input("v", b, s, 2, 4)
    rows = p.op("transpose", q, perm=(0, 2, 1, 3))
    columns = p.op("transpose", v, perm=(0, 2, 3, 1))
    before = p.module(p.op("matmul", rows, columns))
    after = fused(before)
    assert kernels(after) == ["transpose", "transpose+matmul"]
    same(before, after, noise(2, 5, 2, 4), noise(2, 5, 2, 4))
    assert kernels(fused(before, FuseOptions(operand_transposes=False))) == [
        "matmul",
        "transpose",
        "transpose",
    ]


def test_of_two_contractions_that_meet_the_later_takes_the_sum():
    p, n = Program(), dims("n")
    x = p.input("x", n, 8)
    a = p.op("matmul", x, make.const(noise(8, 8)))
    b = p.op("matmul", x, make.const(noise(8, 8, seed=1)))
    before = p.module(p.op("relu", p.op("add", a, b)))
    after = fused(before)
    assert kernels(after) == ["matmul", "matmul+add+relu"]
    same(before, after, noise(3, 8))


def test_a_diamond_behind_a_contraction_is_taken_whole():
    p, n = Program(), dims("n")
    x = p.input("x", n, 8)
    y = p.op("matmul", x, make.const(noise(8, 8)))
    before = p.module(p.op("mul", p.op("tanh", y), p.op("exp", y)))
    after = fused(before)
    assert kernels(after) == ["matmul+tanh+exp+mul"]
    same(before, after, noise(3, 8))


def test_a_result_that_is_read_outside_ends_its_group():
    p, n = Program(), dims("n")
    x = p.input("x", n, 8)
    y = p.op("add", p.op("matmul", x, make.const(noise(8, 8))), make.const(noise(8)))
    z = p.op("relu", y)
    before = p.module(y, z)
    after = fused(before)
    assert kernels(after) == ["matmul+add", "relu"]
    same(before, after, noise(3, 8))


def test_a_path_through_an_outsider_is_not_closed():
    # y -> softmax -> add and y -> add: taking the sum with the product would make a cycle.
    p, n = Program(), dims("n")
    x = p.input("x", n, 8)
    y = p.op("matmul", x, make.const(noise(8, 8)))
    before = p.module(p.op("add", y, p.op("softmax", y)))
    after = fused(before)
    assert kernels(after) == ["matmul", "softmax+add"]
    same(before, after, noise(3, 8))


def test_rows_take_what_is_before_between_and_after_their_reductions():
    p, (m, n) = Program(), dims("m", "n")
    x, mask = p.input("x", m, n), p.input("mask", n)
    masked = p.op("add", p.op("mul", x, make.const(0.5)), mask)
    before = p.module(p.op("mul", p.op("softmax", masked), make.const(2.0)))
    after = fused(before)
    assert kernels(after) == ["mul+add+softmax+mul"]
    same(before, after, noise(4, 7), noise(7))


def test_several_reductions_over_the_same_rows_are_one_kernel():
    p, (m, n) = Program(), dims("m", "n")
    x = p.input("x", m, n)
    mean = p.op("reduce_mean", x, axes=(1,), keepdims=True)
    centered = p.op("sub", x, mean)
    variance = p.op("reduce_mean", p.op("mul", centered, centered), axes=(1,), keepdims=True)
    before = p.module(p.op("div", centered, p.op("sqrt", variance)))
    after = fused(before)
    assert len(kernels(after)) == 1
    same(before, after, noise(4, 7))


def test_a_contraction_does_not_join_rows():
    p, n = Program(), dims("n")
    x = p.input("x", n, 8)
    y = p.op("add", p.op("matmul", x, make.const(noise(8, 8))), make.const(noise(8)))
    before = p.module(p.op("softmax", y))
    assert kernels(fused(before)) == ["matmul+add", "softmax"]


def test_a_reduction_over_other_axes_reads_its_input_as_it_is_made():
    p, (m, n) = Program(), dims("m", "n")
    x, y = p.input("x", m, n, 3), p.input("y", m, n, 1)
    total = p.op("reduce_sum", p.op("mul", x, y), axes=(1,))
    before = p.module(p.op("sqrt", p.op("abs", total)))
    after = fused(before)
    assert kernels(after) == ["mul+reduce_sum+abs+sqrt"]
    same(before, after, noise(2, 4, 3), noise(2, 4, 1))


def test_pools_take_nothing_before_them():
    p, n = Program(), dims("n")
    x = p.input("x", n, 2, 6, 6)
    y = p.op("max_pool", p.op("exp", x), kernel=(3, 3))
    before = p.module(p.op("relu", y))
    after = fused(before)
    assert kernels(after) == ["exp", "max_pool+relu"]
    same(before, after, noise(2, 2, 6, 6))


def test_costly_work_on_a_small_operand_is_not_repeated_but_cheap_work_is():
    p, (m, n) = Program(), dims("m", "n")
    x, b = p.input("x", m, n), p.input("b", n)
    before = p.module(p.op("add", x, p.op("exp", b)), p.op("add", x, p.op("neg", b)))
    assert kernels(fused(before)) == ["add", "exp", "neg+add"]


def test_rows_of_a_table_are_gathered_where_they_are_used():
    p, (m, n) = Program(), dims("m", "n")
    table = p.input("table", 9, 4)
    ids, x = p.input("ids", m, n, dtype=I64), p.input("x", m, n, 4)
    before = p.module(p.op("add", p.op("gather", table, ids, axis=0), x))
    after = fused(before)
    assert kernels(after) == ["gather+add"]
    same(before, after, noise(9, 4), np.array([[1, 8, 3]]), noise(1, 3, 4))


def test_concatenation_stands_alone():
    p, (m, n) = Program(), dims("m", "n")
    x, y = p.input("x", m, 4), p.input("y", n, 4)
    joined = p.op("concat", p.op("exp", x), y, axis=0)
    before = p.module(p.op("relu", joined))
    after = fused(before)
    assert kernels(after) == ["concat", "exp", "relu"]
    same(before, after, noise(2, 4), noise(3, 4))


def test_views_checks_and_control_stay_outside():
    p, (m, n) = Program(), dims("m", "n")
    x = p.input("x", m, n)
    y = p.op("reshape", p.op("relu", x), make.shape_const([to_int(m) * n]))
    before = p.module(p.op("exp", y))
    after = fused(before)
    assert kernels(after) == ["exp", "relu"]
    assert operators(after)["reshape"] == 1
    same(before, after, noise(2, 3))


def test_dims_that_no_shape_tells_are_passed_as_integers():
    p, n = Program(), dims("n")
    x = p.input("x", n, 2)
    k = to_int(n)
    big = p.op("broadcast_to", make.const(noise(1, 2)), make.shape_const([k * 2, 2]))
    before = p.module(p.op("exp", big), x)
    after = fused(before)
    (kernel,) = (f for f in after.functions.values() if f.primitive)
    assert len(kernel.params) == 2
    same(before, after, noise(3, 2))


def test_branches_and_loops_are_fused_inside_and_never_across():
    p, n = Program(), dims("n")
    x, flag = p.input("x", n), p.param("flag", make.bool_const(True).type)
    t = p.op("exp", x)
    y = p.if_(flag, lambda s: s.emit(EXP, (s.emit(EXP, (t,)),)), lambda s: t)
    before = p.module(p.op("relu", y))
    after = fused(before)
    assert kernels(after) == ["exp", "exp+exp", "relu"]
    same(before, after, noise(3), True)
    same(before, after, noise(3), False)


def test_places_are_not_mixed_and_are_kept():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    cpu, npu = Place("cpu"), Place("npu")
    a = p.emit(EXP, (x,), place=cpu)
    b = p.emit(EXP, (a,), place=cpu)
    c = p.emit(EXP, (b,), place=npu)
    before = p.module(c)
    after = fused(before)
    assert kernels(after) == ["exp", "exp+exp"]
    places = {f.primitive: f.place for f in after.functions.values() if f.primitive}
    assert places == {"exp": npu, "exp+exp": cpu}


def test_no_group_is_larger_than_the_limit():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    for _ in range(10):
        x = p.op("exp", x)
    after = fused(p.module(x), FuseOptions(limit=4))
    assert sorted(len(k.split("+")) for k in kernels(after)) == [2, 4]
    assert sum(operators(after).values()) == 3


def test_reasons_are_data():
    p, n = Program(), dims("n")
    x = p.input("x", n, 8)
    y = p.op("matmul", p.op("relu", x), make.const(noise(8, 8)))
    ctx = context()
    run("to-anf,fuse-ops", p.module(y, p.op("softmax", y)), ctx=ctx)
    found = {r.reason for r in ctx.remarks.of("fuse-ops")}
    assert found == {Reason.REPEATED_WORK, Reason.SEVERAL_READERS}


@pytest.mark.parametrize("readers", [3, 2000])
def test_a_value_that_many_read_is_no_trouble(readers):
    p, n = Program(), dims("n")
    x = p.input("x", n)
    t = p.op("exp", x)
    before = p.module(*[p.op("mul", t, make.const(float(i))) for i in range(readers)])
    after = fused(before)
    assert sum(operators(after).values()) == readers + 1


def test_numbers_that_a_loop_body_reads_are_operands():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    at, one = make.const(np.array([0])), make.const(np.ones(1, np.float32))
    before = p.module(p.op("scatter_elements", x, at, one))
    (f,) = (f for f in fused(before).functions.values() if f.primitive)
    assert len(f.params) == 3
    exe = inlay.compile(before, cache="none", threads=1)
    np.testing.assert_array_equal(exe(np.zeros(3, np.float32)), [1, 0, 0])
