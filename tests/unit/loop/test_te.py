from __future__ import annotations

import pytest

from inlay.arith.dtype import BOOL, F32, I32, I64
from inlay.arith.expr import fresh, to_int
from inlay.loop import te
from inlay.loop.scalar import (
    Binary,
    BinaryOp,
    Bind,
    Cast,
    Index,
    Lit,
    Load,
    Reduce,
    ReduceOp,
    Select,
    Unary,
    UnaryOp,
)


def test_a_compute_knows_its_shape_axes_and_inputs():
    n = to_int(fresh("n"))
    a, b = te.placeholder((n, 4), F32, "a"), te.placeholder((4, 5), F32, "b")
    k = te.reduce_axis("k", 4)
    c = te.compute((n, 5), lambda i, j: te.sum_over(k, a[i, k] * b[k, j]), name="c", tag="matmul")
    assert c.shape == (n, to_int(5))
    assert c.dtype is F32
    assert c.inputs == (a, b)
    assert c.tag == "matmul"
    assert isinstance(c.body, Reduce)
    assert c.body.op is ReduceOp.SUM
    assert c.body.axes == (k.axis,)
    product = c.body.body
    assert isinstance(product, Binary)
    assert isinstance(product.lhs, Load)
    assert product.lhs.indices == (to_int(c.axes[0]), to_int(k.axis.sym))


def test_a_tensor_of_rank_0_has_one_element():
    x = te.placeholder((), F32)
    y = te.compute((), lambda: x[()] + 1)
    assert y.axes == ()
    assert isinstance(y.body, Binary)
    assert isinstance(y.body.rhs, Lit)
    assert y.body.rhs.value == 1.0
    assert y.body.rhs.dtype is F32


def test_indices_are_integer_arithmetic():
    x = te.placeholder((10,), F32)
    y = te.compute((3,), lambda i: x[i * 3 + 1])
    assert isinstance(y.body, Load)
    assert y.body.indices == (to_int(y.axes[0]) * 3 + 1,)


def test_a_loaded_index_is_bound_around_the_load():
    x, at = te.placeholder((9, 4), F32, "x"), te.placeholder((3,), I64, "at")
    y = te.compute((3, 4), lambda i, j: x[at[i], j])
    assert isinstance(y.body, Bind)
    assert isinstance(y.body.value, Load)
    assert y.body.value.buffer is at.buffer
    assert isinstance(y.body.body, Load)
    assert y.body.body.indices[0] == to_int(y.body.sym)
    assert set(y.inputs) == {x, at}


def test_an_index_of_another_dtype_is_refused():
    x, at = te.placeholder((9,), F32), te.placeholder((3,), I32)
    with pytest.raises(AssertionError, match="i64"):
        te.compute((3,), lambda i: x[at[i]])
    with pytest.raises(AssertionError, match="rank"):
        te.compute((3,), lambda i: x[i, i])


def test_numbers_take_the_dtype_of_the_other_operand():
    x = te.placeholder((2,), I32)
    i = to_int(0)
    for value in (x[i] + 1, 1 + x[i], 2 - x[i], x[i] * 3, x[i] // 2, x[i] % 2, x[i] & 1, x[i] << 1):
        assert value.dtype is I32
    left = 7 - x[i]
    assert isinstance(left.scalar, Binary)
    assert isinstance(left.scalar.lhs, Lit)
    assert isinstance(left.scalar.lhs.value, int)


def test_integers_of_indices_become_scalars():
    n = to_int(fresh("n"))
    value = te.const(1.0, F32) * n
    assert isinstance(value.scalar, Binary)
    assert isinstance(value.scalar.rhs, Cast)
    assert isinstance(value.scalar.rhs.operand, Index)


def test_comparisons_give_bool_and_greater_swaps():
    x = te.placeholder((2,), F32)
    v = x[to_int(0)]
    for c in (v < 1, v <= 1, v > 1, v >= 1, v.equals(1), v.differs(1)):
        assert c.dtype is BOOL
    greater = v > 1
    assert isinstance(greater.scalar, Binary)
    assert greater.scalar.op is BinaryOp.LT
    assert isinstance(greater.scalar.lhs, Lit)


def test_a_value_has_no_truth():
    x = te.placeholder((2,), F32)
    with pytest.raises(TypeError, match="select"):
        bool(x[to_int(0)] < 1)


def test_mixed_dtypes_are_refused():
    x, y = te.placeholder((2,), F32), te.placeholder((2,), I32)
    with pytest.raises(AssertionError, match="f32 and i32"):
        x[to_int(0)] + y[to_int(0)]
    with pytest.raises(AssertionError, match="trunc_div"):
        y[to_int(0)] / 2


def test_not_of_bits_and_of_truth_differ():
    x, y = te.placeholder((2,), BOOL), te.placeholder((2,), I32)
    for t, op in ((x, UnaryOp.NOT), (y, UnaryOp.BITNOT)):
        inverted = ~t[to_int(0)]
        assert isinstance(inverted.scalar, Unary)
        assert inverted.scalar.op is op


def test_select_and_guard_collect_what_they_load():
    x, y, c = (te.placeholder((2,), d, n) for d, n in ((F32, "x"), (F32, "y"), (BOOL, "c")))
    i = to_int(0)
    chosen = te.select(c[i], x[i], y[i])
    assert isinstance(chosen.scalar, Select)
    assert chosen.tensors == (c, x, y)
    assert te.guarded(None, x[i], 0).tensors == (x,)
    assert te.all_of(None, None) is None
    both = te.all_of(c[i], None, c[i])
    assert both is not None
    assert both.dtype is BOOL


def test_casting_to_the_same_dtype_adds_nothing():
    x = te.placeholder((2,), F32)
    v = x[to_int(0)]
    assert v.cast(F32) is v
    assert isinstance(v.cast(I32).scalar, Cast)
