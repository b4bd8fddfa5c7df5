"""Programs of the tensor IR run on the machine with the values they mean."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.api import compilation
from inlay.arith.dtype import F32
from inlay.arith.expr import Int, fresh, from_atom, to_int
from inlay.base.diagnostics import RunError
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.core_ops import INT_LESS, TO_CONTROL
from inlay.ir.expr import Expr, Function, Var
from inlay.ir.loop_trace import Step
from inlay.ir.module import Adt, Constructor, Module
from inlay.ir.types import AdtType, DimParam, FuncType, IntType
from inlay.ops.layout import PermAttrs
from inlay.ops.table import table
from inlay.runtime.session import executable_of
from tests.python_kernels import compile_with_python_kernels, run_program
from tests.unit.bytecode.disasm import listing

T4 = make.tensor_type((4,), F32)


def op(name: str):
    return table().definition(name).op


def module(**functions: Function) -> Module:
    return Module(functions=functions)


def both(m: Module, *inputs: np.ndarray) -> list[np.ndarray]:
    """Run with and without the memory plan; both must agree."""
    results = []
    for plan in (False, True):
        program, lowered = compile_with_python_kernels(m, plan=plan)
        results.append(run_program(program, lowered, inputs))
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)
    return results[1]


def test_straight_line_with_symbolic_dims():
    n = fresh("n")
    b = Builder()
    x = b.param("x", make.tensor_type((n, 4), F32))
    y = b.emit(op("add"), (x, x))
    z = b.emit(op("mul"), (y, x))
    m = module(main=b.function(b.emit(op("sub"), (z, y))))
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert np.array_equal(both(m, a)[0], (2 * a) * a - 2 * a)


def test_branch_on_data():
    b = Builder()
    x, c = b.param("x", T4), b.param("c", make.tensor_type((), table_bool()))
    flag = b.emit(TO_CONTROL, (c,))
    y = b.if_(flag, lambda s: s.emit(op("add"), (x, x)), lambda s: s.emit(op("mul"), (x, x)))
    m = module(main=b.function(b.emit(op("add"), (y, x))))
    a = np.arange(4, dtype=np.float32)
    assert np.array_equal(both(m, a, np.array(True))[0], 3 * a)
    assert np.array_equal(both(m, a, np.array(False))[0], a * a + a)


def table_bool():
    from inlay.arith.dtype import BOOL

    return BOOL


def counted_loop(count: Int | None = None) -> Module:
    b = Builder()
    x, n = b.param("x", T4), b.param("n", IntType(from_atom(fresh("n"))))
    assert isinstance(n.type, IntType) and n.type.value is not None
    result = b.loop([x], lambda s, i, c: Step((s.emit(op("add"), (c[0], x)),)), count=n.type.value)
    return module(main=b.function(result.carried))


def test_a_loop_is_a_jump_in_the_same_function():
    m = counted_loop()
    program, _ = compile_with_python_kernels(m)
    assert len(program.functions) == 2  # main and its entry
    a = np.arange(4, dtype=np.float32)
    for n in (0, 1, 5):
        assert np.array_equal(both(m, a, np.array(n))[0], a * (n + 1))


def test_scan_stacks_rows():
    n = fresh("n")
    b = Builder()
    xs = b.param("xs", make.tensor_type((n, 4), F32))
    start = b.param("start", T4)

    def step(s: Builder, c: tuple[Var, ...], rows: tuple[Expr, ...]) -> Step:
        total = s.emit(op("add"), (c[0], rows[0]))
        return Step((total,), (s.emit(op("mul"), (total, total)),))

    result = b.scan([start], [xs], step)
    m = module(main=b.function((*result.carried, *result.stacked)))
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    s = np.ones(4, np.float32)
    total, squares = both(m, a, s)
    sums = s + np.cumsum(a, axis=0)
    assert np.array_equal(total, sums[-1])
    assert np.array_equal(squares, sums * sums)


def test_a_while_loop_grows_its_rows():
    b = Builder()
    x, n = b.param("x", T4), b.param("n", IntType(from_atom(fresh("n"))))
    limit = n.type.value

    def step(s: Builder, i: Int, c: tuple[Var, ...]) -> Step:
        y = s.emit(op("add"), (c[0], x))
        return Step((y,), (y,))

    def condition(s: Builder, i: Int, c: tuple[Var, ...]) -> Expr:
        return s.emit(INT_LESS, (make.int_const(i), make.int_const(limit)))

    result = b.loop([x], step, condition=condition)
    m = module(main=b.function(result.stacked))
    a = np.arange(4, dtype=np.float32)
    rows = both(m, a, np.array(3))[0]
    assert np.array_equal(rows, np.stack([a * (i + 2) for i in range(3)]))
    assert both(m, a, np.array(0))[0].shape == (0, 4)


def test_recursion_that_is_no_loop_calls():
    b = Builder()
    x, n = b.param("x", T4), b.param("n", IntType(from_atom(fresh("n"))))
    k = fresh("k")
    ft = FuncType((IntType(to_int(k)),), T4, (DimParam(k, 0),))

    def body(s: Builder, f: Var, params: tuple[Var, ...]) -> Expr:
        done = s.emit(INT_LESS, (make.int_const(to_int(k)), make.int_const(1)))

        def again(t: Builder) -> Expr:
            inner = t.bind(make.call(f, (make.int_const(to_int(k) - 1),)))
            return t.emit(op("add"), (inner, x))

        return s.if_(done, lambda t: x, again)

    f = b.recursive("f", ft, body)
    m = module(main=b.function(b.bind(make.call(f, (n,)))))
    a = np.arange(4, dtype=np.float32)
    assert np.array_equal(both(m, a, np.array(4))[0], a * 5)


def tree() -> Adt:
    t = AdtType("Tree")
    return Adt("Tree", (), (Constructor("Leaf", 0, (T4,)), Constructor("Node", 1, (t, t))))


def test_trees_are_built_and_matched():
    adt = tree()
    t = AdtType("Tree")
    s = Builder()
    v = s.param("t", t)
    ft = FuncType((t,), T4)

    def node(inner: Builder, left: Expr, right: Expr) -> Expr:
        total = make.global_var("total", ft)
        a = inner.bind(make.call(total, (left,)))
        c = inner.bind(make.call(total, (right,)))
        return inner.emit(op("add"), (a, c))

    out = s.match(v, adt, {"Leaf": lambda _, leaf: leaf, "Node": node})
    total = s.function(out)
    b = Builder()
    x, y = b.param("x", T4), b.param("y", T4)
    leaf_x, leaf_y = (b.bind(make.construct(adt, "Leaf", (e,))) for e in (x, y))
    inner = b.bind(make.construct(adt, "Node", (leaf_x, leaf_y)))
    outer = b.bind(make.construct(adt, "Node", (inner, leaf_x)))
    main = b.function(b.bind(make.call(make.global_var("total", ft), (outer,))))
    m = Module(functions={"total": total, "main": main}, adts={"Tree": adt})
    a, c = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    assert np.array_equal(both(m, a, c)[0], 2 * a + c)


def test_a_closure_captures():
    b = Builder()
    x, c = b.param("x", T4), b.param("c", make.tensor_type((), table_bool()))
    flag = b.emit(TO_CONTROL, (c,))

    def function(times: str) -> Function:
        s = Builder(b)
        p = s.param("p", T4)
        return s.function(s.emit(op(times), (p, x)), dims=())

    add = b.bind(function("add"), "add")
    mul = b.bind(function("mul"), "mul")
    chosen = b.if_(flag, lambda s: add, lambda s: mul)
    m = module(main=b.function(b.bind(make.call(chosen, (x,)))))
    a = np.arange(4, dtype=np.float32)
    assert np.array_equal(both(m, a, np.array(True))[0], a + a)
    assert np.array_equal(both(m, a, np.array(False))[0], a * a)


def test_cells_hold_the_last_value_written():
    b = Builder()
    x = b.param("x", T4)
    cell = b.bind(make.ref_create(x), "cell")
    before = b.bind(make.ref_read(cell), "before")
    b.bind(make.ref_write(cell, b.emit(op("add"), (x, x))), "_")
    after = b.bind(make.ref_read(cell), "after")
    m = module(main=b.function((before, after)))
    a = np.arange(4, dtype=np.float32)
    first, second = both(m, a)
    assert np.array_equal(first, a)
    assert np.array_equal(second, 2 * a)


def test_a_failed_check_says_what_it_found():
    n, k = fresh("n"), fresh("k")
    b = Builder()
    x, y = b.param("x", make.tensor_type((n,), F32)), b.param("y", make.tensor_type((k,), F32))
    m = module(main=b.function(b.emit(op("add"), (x, y))))
    program, lowered = compile_with_python_kernels(m)
    ones = np.ones(3, np.float32)
    assert np.array_equal(run_program(program, lowered, [ones, ones])[0], ones + ones)
    with pytest.raises(RunError, match="found 4"):
        run_program(program, lowered, [ones, np.ones(4, np.float32)])


def long_program(count: int) -> Module:
    b = Builder()
    x = b.param("x", T4)
    older, y = x, x
    for i in range(count):
        older, y = y, b.emit(op("add" if i % 2 else "sub"), (y, older))
    return module(main=b.function(y))


def test_a_long_program_compiles_and_runs():
    m = long_program(1500)
    program, lowered = compile_with_python_kernels(m)
    run_program(program, lowered, [np.ones(4, np.float32)])


@pytest.mark.slow
@pytest.mark.llvm
def test_a_hundred_thousand_lets_go_through_the_whole_route(tmp_path):
    """Every pass, storage, plan, bytecode; then it runs, on the C runtime."""
    b = Builder()
    x = b.param("x", make.tensor_type((fresh("n"), 4), F32))
    w, one = make.const(np.eye(4, dtype=np.float32)), make.const(np.ones(4, np.float32))
    older, y = x, x
    for i in range(100_000):
        match i % 4:
            case 0:
                y = b.emit(op("matmul"), (y, w))
            case 1:
                y = b.emit(op("sub"), (y, one))
            case 2:
                older, y = y, b.emit(op("minimum"), (y, older))
            case _:
                y = b.emit(op("relu"), (y,))
    program = compilation(module(main=b.function(y)), cache=str(tmp_path)).program
    found = executable_of(program, threads=1)(np.ones((2, 4), np.float32))
    assert np.array_equal(found, np.zeros((2, 4), np.float32))


def test_sizes_are_computed_once_where_several_need_them():
    """Three tensors of [n, 4*n]: one product, whoever asks; in a branch again only what is new."""
    n = fresh("n")
    b = Builder()
    x, c = b.param("x", make.tensor_type((n, 4), F32)), b.param("c", make.tensor_type((), table_bool()))
    flag = b.emit(TO_CONTROL, (c,))
    square = b.emit(op("matmul"), (x, b.emit(op("transpose"), (x,), PermAttrs((1, 0)))))
    other = b.emit(op("matmul"), (square, square))
    last = b.if_(flag, lambda s: s.emit(op("matmul"), (other, square)), lambda s: other)
    m = module(main=b.function(last))
    program, _ = compile_with_python_kernels(m)
    text = listing(program)
    main = text[text.index('.function "main"') : text.index('.function "main.entry"')].splitlines()
    products = [tuple(main[i - 2 : i]) for i, line in enumerate(main) if line == "  MUL"]
    squares = [(a, b) for a, b in products if a == b and "COPY" in a]
    assert len(squares) == 1
    a = np.arange(8, dtype=np.float32).reshape(2, 4)
    s = a @ a.T
    assert np.array_equal(both(m, a, np.array(True))[0], s @ s @ s)
