"""Smart constructors: types, checks, and the errors of both."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.arith.dtype import F32, I64
from inlay.arith.expr import Int, Sym, fresh, to_int
from inlay.base.diagnostics import CompileError
from inlay.ir import make
from inlay.ir.core_ops import (
    CHECK_AT_LEAST,
    CHECK_EQUAL,
    CHECK_SHAPE,
    INT_LESS,
    PUSH_ROW,
    TO_CONTROL,
    ZEROS,
    DTypeAttrs,
)
from inlay.ir.dims import same_type
from inlay.ir.existentials import open_exists, pack
from inlay.ir.expr import Call, Const, Expr, Let, OpRef
from inlay.ir.module import Adt, Constructor
from inlay.ir.op import NoAttrs, Op, TypeContext
from inlay.ir.prelude import adt
from inlay.ir.type_printer import type_text
from inlay.ir.types import (
    UNKNOWN,
    AdtType,
    DimParam,
    ExistsType,
    FuncType,
    IntType,
    TensorType,
    TupleType,
    Type,
    TypeVar,
)


def _add(ctx: TypeContext, attrs: object, args: tuple[Type, ...]) -> Type:
    a, b = args
    assert isinstance(a, TensorType)
    assert isinstance(b, TensorType)
    dims = tuple(ctx.equal(x, y, "operands") for x, y in zip(a.shape, b.shape, strict=True))
    return TensorType(dims, a.dtype)


def _nonzero(ctx: TypeContext, attrs: object, args: tuple[Type, ...]) -> Type:
    k = ctx.fresh_dim("k")
    return ExistsType((DimParam(k),), TensorType((to_int(k),), I64))


def _reshape(ctx: TypeContext, attrs: object, args: tuple[Type, ...]) -> Type:
    x, shape = args
    total, wanted = to_int(1), to_int(1)
    for d in x.shape:
        total = total * d
    for d in shape.values:
        wanted = wanted * d
    ctx.equal(total, wanted, "elements")
    return TensorType(shape.values, x.dtype)


ADD = Op("add", NoAttrs, _add, (2, 2))
NONZERO = Op("nonzero", NoAttrs, _nonzero, (1, 1), data_dependent=True)
RESHAPE = Op("reshape", NoAttrs, _reshape, (2, 2))
A = TypeVar("a")
LIST = Adt("List", (A,), (Constructor("Nil", 0, ()), Constructor("Cons", 1, (A, AdtType("List", (A,))))))


def tensor(name: str, *dims: Int | int | Sym) -> Expr:
    return make.var(name, make.tensor_type(dims, F32))


def text(e: Expr) -> str:
    return type_text(e.type)


def op_of(e: Expr) -> Op:
    assert isinstance(e, Call)
    assert isinstance(e.callee, OpRef)
    return e.callee.op


def test_one_of_several_equal_numbers_is_checked_against_a_dim():
    n = fresh("n")
    y = make.var("y", make.tensor_type((1, n), F32))
    f = make.var("f", FuncType((y.type,), y.type))
    z = make.var("z", make.tensor_type((1, 1), F32))
    call = make.call(f, (z,))
    assert isinstance(call, Call)
    assert isinstance(call.args[0], Call)
    assert call.args[0].callee.op is CHECK_EQUAL
    assert make.coerce(z, y.type, "annotation").type == y.type


def test_a_call_has_the_type_of_its_rule():
    n = fresh("n")
    made = make.call(ADD, (tensor("x", n, 4), tensor("y", n, 4)))
    assert text(made) == "Tensor[n, 4, f32]"
    assert op_of(made) is ADD


def test_dims_that_are_never_equal_are_an_error():
    n = fresh("n")
    with pytest.raises(CompileError, match="n \\+ 1 and n, which are never equal") as caught:
        make.call(ADD, (tensor("x", to_int(n) + 1), tensor("y", n)))
    assert caught.value.ids == ("type.dim-mismatch",)


def test_an_unproved_dim_becomes_a_check_of_the_operand():
    n, m = fresh("n"), fresh("m")
    x, y = tensor("x", n, 4), tensor("y", m, 4)
    made = make.call(ADD, (x, y))
    assert made.args[0] is x
    assert op_of(made.args[1]) is CHECK_SHAPE
    assert made.args[1].args[0] is y
    assert text(made.args[1]) == "Tensor[n, 4, f32]"
    again = make.call(ADD, made.args)
    assert again.args == made.args, "making the call again needs no second check"


def test_a_relation_that_is_no_dim_is_checked_by_its_numbers():
    n, m, k = fresh("n"), fresh("m"), fresh("k")
    made = make.call(RESHAPE, (tensor("x", n, m), make.shape_const((k, 2))))
    assert op_of(made.args[0]) is CHECK_EQUAL
    assert text(made) == "Tensor[k, 2, f32]"
    assert make.call(RESHAPE, made.args).args == made.args


def test_a_number_that_may_be_too_small_is_checked():
    k = fresh("k")
    made = make.call(ZEROS, (make.shape_const((to_int(k) - 3, 2)),), DTypeAttrs(F32))
    assert op_of(made.args[0]) is CHECK_AT_LEAST
    with pytest.raises(CompileError) as caught:
        make.call(ZEROS, (make.shape_const((-3, 2)),), DTypeAttrs(F32))
    assert caught.value.ids == ("type.dim-too-small",)


def test_some_types_are_opened_by_operators_and_packed_again():
    rows = make.call(NONZERO, (tensor("x", 7),))
    assert text(rows) == "some k. Tensor[k, i64]"
    assert text(make.call(ADD, (rows, rows))) == "some k. Tensor[k, i64]"


def test_checks_may_name_the_dims_of_unbound_operands():
    rows, other = make.call(NONZERO, (tensor("x", 7),)), make.call(NONZERO, (tensor("y", 7),))
    made = make.call(ADD, (rows, other))
    assert isinstance(made, Let)
    assert text(made) == "some k. Tensor[k, i64]"


def test_let_packs_what_its_variable_opens():
    rows = make.call(NONZERO, (tensor("x", 7),))
    opened, dims = open_exists(rows.type)
    v = make.var("r", opened)
    made = make.let(v, rows, make.call(ADD, (v, v)))
    assert same_type(made.type, rows.type)
    inside = make.let(v, rows, make.int_const(dims[0].sym))
    assert text(inside) == "some k. int[k]"


def test_what_a_value_does_not_determine_is_packed_less_exactly():
    j, k, n = fresh("j"), fresh("k"), fresh("n")
    dims = (DimParam(j), DimParam(k, high=to_int(n)), DimParam(n))

    def packed(t: Type) -> str:
        return type_text(pack(t, dims))

    both = make.tensor_type((to_int(j) + k,), F32)
    assert packed(both) == "some k. Tensor[k, f32]"
    assert packed(TupleType((both, both))) == "some k. (Tensor[k, f32], Tensor[k, f32])"
    pair = TupleType((both, make.tensor_type((k,), F32)))
    assert packed(pair) == "some j, k. (Tensor[j + k, f32], Tensor[k, f32])"
    assert packed(make.tensor_type((2 * to_int(k),), F32)) == "some k. Tensor[2*k, f32]"
    assert packed(make.tensor_type((k, n), F32)) == "some n, k <= n. Tensor[k, n, f32]"
    assert packed(AdtType("List", (make.tensor_type((j,), F32),))) == ("List[some j. Tensor[j, f32]]")
    assert packed(IntType(to_int(j) * k)) == "int"


def test_ints_open_to_symbols():
    count = make.call(TO_CONTROL, (make.var("t", make.tensor_type((), I64)),))
    assert count.type == IntType()
    opened, _ = open_exists(count.type, "c")
    c = make.var("c", opened)
    made = make.let(c, count, make.call(ZEROS, (make.shape_const((opened.value, 2)),)))
    assert text(made) == "some int c. Tensor[c, 2, f32]"


def test_functions_are_polymorphic_in_their_dims():
    n, m = fresh("n"), fresh("m")
    x, y = tensor("x", n, 4), tensor("y", m)
    f = make.function((x, y), x)
    assert type_text(f.type) == "fn<n, m>(Tensor[n, 4, f32], Tensor[m, f32]) -> Tensor[n, 4, f32]"
    g = make.global_var("g", f.type)
    assert text(make.call(g, (tensor("a", 7, 4), tensor("b", n)))) == "Tensor[7, 4, f32]"
    with pytest.raises(CompileError) as caught:
        make.call(g, (tensor("a", 7, 5), tensor("b", n)))
    assert caught.value.ids == ("type.dim-mismatch",)


def test_a_call_solves_linear_dims_and_checks_that_they_divide():
    n, m = fresh("n"), fresh("m")
    f = make.function((tensor("x", 2 * to_int(n)),), tensor("r", n))
    g = make.global_var("g", f.type)
    assert text(make.call(g, (tensor("a", 6),))) == "Tensor[3, f32]"
    checked = make.call(g, (tensor("a", m),))
    assert text(checked) == "Tensor[(m // 2), f32]"
    assert op_of(checked.args[0]) is CHECK_SHAPE
    with pytest.raises(CompileError):
        make.call(g, (tensor("a", 7),))


def test_two_arguments_of_one_dim():
    n, a, b = fresh("n"), fresh("a"), fresh("b")
    f = make.function((tensor("x", n), tensor("y", n)), tensor("r", n))
    made = make.call(make.global_var("f", f.type), (tensor("p", a), tensor("q", b)))
    assert op_of(made.args[1]) is CHECK_SHAPE
    assert text(made) == "Tensor[a, f32]"


def test_a_dim_that_no_argument_decides():
    n, m = fresh("n"), fresh("m")
    f = make.function((tensor("x", to_int(n) + m),), tensor("r", n))
    with pytest.raises(CompileError) as caught:
        make.call(make.global_var("f", f.type), (tensor("a", 7),))
    assert caught.value.ids == ("type.dim-undetermined",)


def test_recursive_calls_may_change_the_dims():
    n = fresh("n")
    type = FuncType((make.tensor_type((n,), F32),), make.tensor_type((2 * to_int(n),), F32), (DimParam(n),))
    f = make.var("f", type)
    assert text(make.call(f, (tensor("x", to_int(n) + 1),))) == "Tensor[2*n + 2, f32]"


def test_bounds_of_dims_are_asked_of_arguments():
    n, m = fresh("n"), fresh("m")
    f = make.function((tensor("x", n),), tensor("r", n), dims=(DimParam(n, 1, to_int(8), 2),))
    g = make.global_var("f", f.type)
    assert text(make.call(g, (tensor("a", 8),))) == "Tensor[8, f32]"
    for bad in (10, 0, 3):
        with pytest.raises(CompileError):
            make.call(g, (tensor("a", bad),))
    checked = make.call(g, (tensor("a", m),))
    ops = []
    inner = checked.args[0]
    while isinstance(inner, Call):
        ops.append(op_of(inner).name)
        inner = inner.args[0]
    assert sorted(ops) == ["check_at_least", "check_at_least", "check_equal"]


def test_branches_join():
    n = fresh("n")
    yes = make.bool_const(True)
    made = make.if_(yes, tensor("a", to_int(n) + 1), tensor("b", n))
    assert text(made) == "some n. Tensor[n, f32]"
    pair = make.if_(
        yes,
        make.tuple_((tensor("a", 3), tensor("b", 3, 4))),
        make.tuple_((tensor("a", 5), tensor("b", 5, 4))),
    )
    assert text(pair) == "some k in 3..5. (Tensor[k, f32], Tensor[k, 4, f32])"
    assert text(make.if_(yes, make.int_const(1), make.int_const(2))) == "int"
    with pytest.raises(CompileError) as caught:
        make.if_(yes, tensor("a", 3), tensor("b", 3, 4))
    assert caught.value.ids == ("type.branches-differ",)


def test_data_types():
    nil = make.construct(LIST, "Nil", (), [make.tensor_type((4,), F32)])
    one = make.construct(LIST, "Cons", (tensor("x", 4), nil))
    assert text(one) == "List[Tensor[4, f32]]"
    two = make.construct(LIST, "Cons", (tensor("x", 5), one))
    assert text(two) == "List[some k in 4..5. Tensor[k, f32]]"
    with pytest.raises(CompileError) as caught:
        make.construct(LIST, "Nil", ())
    assert caught.value.ids == ("type.undetermined-argument",)


def test_pattern_variables_do_not_leak_their_dims():
    k = fresh("k")
    some = ExistsType((DimParam(k),), make.tensor_type((k,), F32))
    xs = make.var("xs", AdtType("List", (some,)))
    opened, _ = open_exists(some)
    head, tail = make.var("h", opened), make.var("t", xs.type)
    arm = (make.pattern(LIST, "Cons", (head, tail)), head)
    made = make.match(xs, [arm, (make.pattern(LIST, "Nil"), make.const(np.zeros(3, np.float32)))])
    assert isinstance(made.type, ExistsType)


def test_a_list_of_some_elements_is_no_list_of_one_size():
    n, k = fresh("n"), fresh("k")
    f = make.function((make.var("xs", AdtType("List", (make.tensor_type((n,), F32),))),), tensor("r", n))
    some = ExistsType((DimParam(k),), make.tensor_type((k,), F32))
    xs = make.var("xs", AdtType("List", (some,)))
    with pytest.raises(CompileError) as caught:
        make.call(make.global_var("f", f.type), (xs,))
    assert caught.value.ids == ("type.dim-undetermined",)


def test_cells_keep_their_type():
    cell = make.ref_create(tensor("x", 4))
    assert text(make.ref_read(cell)) == "Tensor[4, f32]"
    n = fresh("n")
    write = make.ref_write(cell, tensor("y", n))
    assert op_of(write.value) is CHECK_SHAPE
    with pytest.raises(CompileError):
        make.ref_write(cell, tensor("y", 5))


def test_unknown_types_spread():
    x = make.var("x", UNKNOWN)
    assert make.call(ADD, (x, x)).type is UNKNOWN
    assert make.tuple_((x,)).type is UNKNOWN
    assert make.if_(x, x, tensor("a", 3)).type is UNKNOWN


def test_constants():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    c = make.const(array)
    assert text(c) == "Tensor[2, 3, f32]"
    assert not c.value.flags.writeable
    assert array.flags.writeable
    assert text(make.const(1.5)) == "Tensor[f32]"
    assert text(make.const([1, 2])) == "Tensor[2, i64]"
    assert isinstance(make.int_const(3), Const)
    assert text(make.shape_const((1, fresh("n")))) == "shape[1, n]"


def test_control_and_rows():
    n = fresh("n")
    assert text(make.call(INT_LESS, (make.int_const(n), make.int_const(3)))) == "bool"
    grown = make.call(PUSH_ROW, (tensor("a", n, 4), tensor("r", 4)))
    assert text(grown) == "Tensor[n + 1, 4, f32]"
    with pytest.raises(CompileError):
        make.call(INT_LESS, (tensor("x"), make.int_const(3)))


def test_wrong_number_of_arguments():
    with pytest.raises(CompileError) as caught:
        make.call(ADD, (tensor("x", 3),))
    assert caught.value.ids == ("type.arity",)


def test_bounds_of_elements_are_known_where_they_are_put_together():
    """An element of a list has its bounds from the list: nothing is left to be checked."""
    k = fresh("k")
    element = pack(make.tensor_type((2, k), F32), [DimParam(k, 1, to_int(3))])
    nil = make.construct(adt("List"), "Nil", (), [element])
    xs = make.construct(adt("List"), "Cons", (make.const(np.zeros((2, 3), np.float32)), nil), [element])
    longer = make.construct(adt("List"), "Cons", (make.const(np.zeros((2, 1), np.float32)), xs), [element])
    assert same_type(longer.type, xs.type)
    with pytest.raises(CompileError, match=r"type\.dim-"):
        make.construct(adt("List"), "Cons", (make.const(np.zeros((2, 0), np.float32)), xs), [element])
