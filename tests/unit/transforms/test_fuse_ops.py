from __future__ import annotations

import numpy as np
import pytest

import inlay
from inlay.arith.dtype import F16, I8
from inlay.ir import make
from inlay.transforms._groups import Reason
from inlay.transforms.fuse_ops import FuseOptions
from tests.unit.transforms.programs import OPS, Program, context, dims, kernels, noise, operators, run, same

EXP = OPS.definition("exp").op


def fused(module, *options):
    return run("to-anf,fuse-ops,eliminate-dead", module, *options)


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


def test_a_matrix_for_all_rows_is_read_transposed():
    p, m = Program(), dims("m")
    x, w = p.input("x", m, 9), p.input("w", 20, 9)
    before = p.module(p.op("matmul", x, p.op("transpose", w, perm=(1, 0))))
    after = fused(before)
    assert kernels(after) == ["transpose+matmul"]
    same(before, after, noise(5, 9), noise(20, 9))
    elsewhere = FuseOptions(joins_attention=lambda _: False)
    assert kernels(fused(before, elsewhere)) == ["matmul", "transpose"]


@pytest.mark.parametrize("place", ["left", "open", "narrow"])
def test_what_is_not_packed_is_transposed_before(place):
    """Rows, a matrix of a size that nobody knows, and numbers that are widened."""
    p, n = Program(), dims("n")
    if place == "left":
        y = p.op("matmul", p.op("transpose", p.input("x", 9, 5), perm=(1, 0)), p.input("w", 9, 20))
    elif place == "open":
        y = p.op("matmul", p.input("x", 5, 9), p.op("transpose", p.input("w", n, 9), perm=(1, 0)))
    else:
        x, w = p.input("x", 5, 9, dtype=F16), p.input("w", 20, 9, dtype=F16)
        y = p.op("matmul", x, p.op("transpose", w, perm=(1, 0)))
    assert kernels(fused(p.module(y))) == ["matmul", "transpose"]


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


def test_sums_are_rounded_where_they_are_computed():
    """Of two convolutions that are added, each ends with its own requantize: sums have four bytes."""
    p = Program()
    x = p.input("x", 1, 4, 4, 8, dtype=I8)
    scale = make.const(np.full(8, 1e-2, np.float32))
    ends = []
    for seed in range(2):
        w = make.const(np.full((1, 1, 8, 8), seed + 1, np.int8))
        ends.append(p.op("requantize", p.op("conv_nhwc_integer", x, w), scale, dtype=I8, axis=3))
    before = p.module(p.op("add", *ends))
    after = fused(before)
    assert kernels(after) == ["conv_nhwc_integer+requantize", "conv_nhwc_integer+requantize+add"]
    same(before, after, np.arange(-64, 64, dtype=np.int8).reshape(1, 4, 4, 8), exact=True)
