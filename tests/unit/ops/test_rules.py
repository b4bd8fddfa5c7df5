"""Type rules with symbols: what they prove, ask, simplify and refuse."""

from __future__ import annotations

import pytest

from inlay.arith.dtype import F16, F32, I64
from inlay.arith.expr import Int, fresh, lit, to_int
from inlay.base.diagnostics import CompileError
from inlay.ir.context import Context
from inlay.ir.types import IntType, ShapeType, TensorType, TupleType
from inlay.ops.table import op_ref, table

N, M = to_int(fresh("n")), to_int(fresh("m"))


def t(*shape: Int | int, dtype=F32) -> TensorType:
    return TensorType(tuple(map(to_int, shape)), dtype)


def s(*values: Int | int) -> ShapeType:
    return ShapeType(tuple(map(to_int, values)))


def infer(name: str, *args, **attrs):
    ctx = Context(name)
    result = table().definition(name).op.type_rule(ctx, op_ref(name, **attrs).attrs, args)
    return result, ctx.checks


def refused(name: str, *args, **attrs) -> str:
    with pytest.raises(CompileError) as failure:
        infer(name, *args, **attrs)
    return failure.value.ids[0]


def test_equal_symbols_need_no_check():
    result, checks = infer("add", t(N, 4), t(N, 4))
    assert result == t(N, 4)
    assert not checks


def test_ones_broadcast_and_a_symbol_meets_a_number_with_a_check():
    assert infer("add", t(N, 1), t(1, 4)) == (t(N, 4), [])
    assert infer("add", t(4), t(N, 2, 1))[0] == t(N, 2, 4)
    result, checks = infer("add", t(N), t(3))
    assert result == t(3)
    assert len(checks) == 1


def test_what_is_never_equal_is_refused():
    assert refused("add", t(3), t(4)) == "type.dim-mismatch"
    assert refused("matmul", t(2, 3), t(4, 5)) == "type.dim-mismatch"
    assert refused("reshape", t(2, 3), s(2, 4)) == "type.dim-mismatch"


def test_dtypes_must_agree_and_be_taken():
    assert refused("add", t(3), t(3, dtype=F16)) == "type.dtype-mismatch"
    assert refused("exp", t(3, dtype=I64)) == "type.dtype-mismatch"
    assert refused("gather", t(3), t(2)) == "type.dtype-mismatch"


def test_axes_count_from_both_ends_once():
    assert infer("reduce_sum", t(N, 3, 4), axes=(-1, 0))[0] == t(3)
    assert infer("reduce_sum", t(N, 3, 4), axes=(-1, 0), keepdims=True)[0] == t(1, 3, 1)
    assert refused("reduce_sum", t(N, 3), axes=(2,)) == "type.bad-axis"
    assert refused("reduce_sum", t(N, 3), axes=(1, -1)) == "type.bad-axis"
    assert refused("transpose", t(N, 3), perm=(0, 0)) == "type.bad-axis"


def test_matmul_broadcasts_batches_and_takes_vectors():
    assert infer("matmul", t(N, 1, 2, 3), t(5, 3, M))[0] == t(N, 5, 2, M)
    assert infer("matmul", t(3), t(5, 3, M))[0] == t(5, M)
    assert infer("matmul", t(N, 3), t(3))[0] == t(N)
    assert infer("matmul", t(3), t(3))[0] == t()


def test_convolution_sizes():
    assert infer("conv", t(N, 3, 224, 224), t(8, 3, 3, 3), strides=(2, 2), pads=(1, 1, 1, 1))[0] == t(
        N, 8, 112, 112
    )
    h = to_int(fresh("h"))
    result, checks = infer("conv", t(1, 3, h, 32), t(8, 3, 3, 3))
    assert result == t(1, 8, h - 2, 30)
    assert len(checks) == 1  # a window fits
    assert refused("conv", t(1, 3, 2, 2), t(8, 3, 3, 3)) == "type.dim-too-small"
    assert refused("conv", t(1, 3, 8, 8), t(8, 2, 3, 3)) == "type.dim-mismatch"
    assert infer("conv", t(1, 4, 8, 8), t(6, 2, 3, 3), groups=2)[0] == t(1, 6, 6, 6)
    assert refused("conv", t(1, 4, 8, 8), t(5, 2, 3, 3), groups=2) == "type.dim-mismatch"


def test_packed_forms_agree_with_what_packing_gives():
    packed, _ = infer("pack_weights", t(7, 10), panel=4)
    assert packed == t(3, 7, 4)
    assert infer("matmul_packed", t(N, 7), packed, panel=4, n=10)[0] == t(N, 10)
    assert refused("matmul_packed", t(N, 7), packed, panel=4, n=13) == "type.dim-mismatch"
    packed, _ = infer("pack_conv_weights", t(3, 3, 2, 10), panel=4)
    assert packed == t(3, 3, 3, 2, 4)
    x = t(N, 8, 8, 2)
    assert infer("conv_nhwc_packed", x, packed, panel=4, channels=10)[0] == t(N, 6, 6, 10)


def test_pools_round_down_or_up():
    x = t(1, 2, 7, 7)
    assert infer("max_pool", x, kernel=(2, 2), strides=(2, 2))[0] == t(1, 2, 3, 3)
    assert infer("max_pool", x, kernel=(2, 2), strides=(2, 2), ceil_mode=True)[0] == t(1, 2, 4, 4)
    # A window that would begin behind the end is left out.
    assert infer("max_pool", t(1, 1, 4), kernel=(1,), strides=(3,), pads=(0, 2), ceil_mode=True)[0] == t(
        1, 1, 2
    )


def test_slices_of_numbers_and_symbols():
    def cut(x, begin, end, step=1):
        return infer("slice", x, s(begin), s(end), s(step), axes=(0,))[0]

    assert cut(t(10), 2, 7) == t(5)
    assert cut(t(10), -3, 2**31) == t(3)
    assert cut(t(10), -1, -(2**31), -1) == t(10)
    assert cut(t(10), 8, 0, -3) == t(3)
    assert cut(t(N), 0, 2**63 - 1) == t(N)
    assert cut(t(N + 3), 2, 2**31 - 1) == t(N + 1)
    assert cut(t(N), -1, -(2**63), -1) == t(N)
    assert refused("slice", t(4), s(0), s(4), s(0), axes=(0,)) == "type.op-argument"


def test_concat_adds_and_split_takes_apart():
    assert infer("concat", t(N, 3), t(M, 3))[0] == t(N + M, 3)
    result, checks = infer("split", t(N + 4, 3), s(N, 4))
    assert result == TupleType((t(N, 3), t(4, 3)))
    assert not [c for c in checks if type(c).__name__ == "EqualCheck"]


def test_reshape_keeps_elements():
    result, checks = infer("reshape", t(N, 6), s(2, N, 3))
    assert result == t(2, N, 3)
    assert not [c for c in checks if type(c).__name__ == "EqualCheck"]


def test_operands_of_a_wrong_kind_are_named():
    with pytest.raises(CompileError, match="argument 2 is Tensor"):
        infer("reshape", t(4), t(1, dtype=I64))
    with pytest.raises(CompileError, match="argument 1 is int"):
        infer("exp", IntType(lit(3)))


def test_the_depth_of_index_tuples_is_known():
    index = TensorType((lit(2), N), I64)
    assert refused("gather_nd", t(3, 4), index) == "type.dynamic-rank"
