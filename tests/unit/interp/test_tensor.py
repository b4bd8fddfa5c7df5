"""The evaluator: closures, recursion, effects, data types, dims."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pytest

from inlay.arith.dtype import F32, I64
from inlay.arith.expr import fresh, to_int
from inlay.base.diagnostics import CompileError
from inlay.interp.tensor import Fields, evaluate
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.expr import Expr, Function, PatternVar, PatternWildcard
from inlay.ir.module import Adt, Constructor, Module
from inlay.ir.types import AdtType, DimParam, FuncType, IntType, TensorType, TypeVar
from inlay.ops.table import table

OPS = table()
SCALAR = make.tensor_type((), F32)


def op(name: str, *args: Expr, **attrs: object) -> Expr:
    """Return a call of an operator."""
    definition = OPS.definition(name)
    return make.call(definition.op, args, definition.op.attrs_type(**attrs))


def module(main: Function, **more: Function) -> Module:
    """Return a module of these functions."""
    return Module(functions=MappingProxyType({"main": main, **more}))


def run(m: Module, *inputs: object) -> object:
    """Evaluate the entry."""
    return evaluate(m, inputs, OPS)


def f32(*values: float) -> np.ndarray:
    """Return a vector."""
    return np.array(values, np.float32)


def scalar(x: float) -> np.ndarray:
    """Return a tensor of rank 0."""
    return np.array(x, np.float32)


def test_shared_expressions_are_evaluated_once():
    x = make.var("x", SCALAR)
    cell = make.var("cell", make.ref_create(x).type)
    bump = make.ref_write(cell, op("add", make.ref_read(cell), x))
    twice = make.tuple_((bump, bump, make.ref_read(cell)))
    main = make.function((x,), make.let(cell, make.ref_create(x), twice))
    assert run(module(main), scalar(1.0))[2] == 2.0


def test_closures_keep_what_they_mention():
    x, y = make.var("x", SCALAR), make.var("y", SCALAR)
    inner = make.function((y,), op("add", x, y))
    f = make.var("f", inner.type)
    main = make.function((x,), make.let(f, inner, make.call(f, (make.call(f, (x,)),))))
    assert run(module(main), scalar(3.0)) == 9.0


def test_deep_recursion_without_tail_position():
    i = fresh("i")
    n = make.var("n", IntType(to_int(i)))
    f = make.var("f", FuncType((n.type,), SCALAR, (DimParam(i, -(2**40)),)))
    more = op("add", make.call(f, (make.int_const(to_int(i) - 1),)), make.const(scalar(1.0)))
    stop = op("int_less", n, make.int_const(1))
    body = make.if_(stop, make.const(scalar(0.0)), more)
    function = make.function((n,), body, SCALAR, f.type.dims)
    x = make.var("x", SCALAR)
    whole = make.let(f, function, op("add", x, make.call(f, (make.int_const(20_000),))))
    assert run(module(make.function((x,), whole)), scalar(0.0)) == 20_000.0


def test_long_let_spine():
    x = make.var("x", make.tensor_type((2,), F32))
    b = Builder()
    y: Expr = x
    for _ in range(3000):
        y = b.emit(OPS.definition("add").op, (y, x))
    main = make.function((x,), b.finish(y))
    np.testing.assert_array_equal(run(module(main), f32(1, 2)), f32(3001, 6002))


def test_loop_stacks_rows():
    n = fresh("n")
    x = make.var("x", make.tensor_type((n, 2), F32))
    b = Builder()
    total = make.const(f32(0, 0))

    def step(s: Builder, carried: tuple, rows: tuple):
        from inlay.ir.builder import Step

        h = s.emit(OPS.definition("add").op, (carried[0], rows[0]))
        return Step([h], [h])

    done = b.scan([total], [x], step)
    main = make.function((x,), b.finish((*done.carried, *done.stacked)))
    value = np.arange(8, dtype=np.float32).reshape(4, 2)
    last, rows = run(module(main), value)
    np.testing.assert_array_equal(rows, np.cumsum(value, axis=0))
    np.testing.assert_array_equal(last, rows[-1])


def test_data_types_and_patterns():
    a = TypeVar("a")
    option = Adt("Option", (a,), (Constructor("None", 0, ()), Constructor("Some", 1, (a,))))
    x = make.var("x", SCALAR)
    some = make.construct(option, "Some", (x,))
    none = make.construct(option, "None", (), type_args=(SCALAR,))
    assert isinstance(some.type, AdtType)
    v = make.var("v", SCALAR)

    def unwrap(e: Expr) -> Expr:
        arms = (
            (make.pattern(option, "Some", (PatternVar(v),)), op("add", v, v)),
            (PatternWildcard(), x),
        )
        return make.match(e, arms)

    main = make.function((x,), make.tuple_((unwrap(some), unwrap(none))))
    m = Module(
        functions=MappingProxyType({"main": main}), adts=MappingProxyType({"Option": option})
    )
    assert run(m, scalar(2.0)) == Fields((4.0, 2.0))


def test_dims_come_from_arguments_and_are_checked():
    n = fresh("n")
    x, y = make.var("x", make.tensor_type((n, 2), F32)), make.var("y", make.tensor_type((n,), F32))
    main = make.function((x, y), make.shape_const((to_int(n) * 2, 3)))
    assert run(module(main), np.zeros((4, 2), np.float32), np.zeros(4, np.float32)) == (8, 3)
    with pytest.raises(CompileError) as failure:
        run(module(main), np.zeros((4, 2), np.float32), np.zeros(5, np.float32))
    assert failure.value.ids == ("run.dim-mismatch",)


def test_compound_dims_are_solved():
    n = fresh("n")
    x = make.var("x", TensorType((to_int(n) * 2 + 1,), I64))
    main = make.function((x,), make.int_const(to_int(n)), dims=(n,))
    assert run(module(main), np.zeros(9, np.int64)) == 4


def test_existential_results_are_opened_where_they_are_bound():
    x = make.var("x", make.tensor_type((fresh("n"),), F32))
    b = Builder()
    flag = b.emit(OPS.definition("less").op, (make.const(scalar(0.0)), make.const(scalar(1.0))))
    control = b.emit(OPS.definition("to_control").op, (flag,))
    y = b.if_(
        control,
        lambda s: s.emit(
            OPS.definition("concat").op, (x, x), OPS.definition("concat").op.attrs_type(axis=0)
        ),
        lambda _: x,
    )
    assert isinstance(y.type, TensorType)
    main = make.function((x,), b.finish((y, make.shape_const(y.type.shape))))
    out, shape = run(module(main), f32(1, 2))
    assert out.shape == (4,) == shape
