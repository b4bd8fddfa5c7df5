"""Explicit storage and its plan: what shares bytes, what is counted, symbolic sizes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from inlay.analysis.blocks import values
from inlay.arith.bounds import Range
from inlay.arith.dtype import F32
from inlay.arith.expr import Int, ceildiv, evaluate, fresh, lit, to_int
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.expr import Call, Expr, OpRef, Var
from inlay.ir.loop_trace import Step
from inlay.ir.module import Module
from inlay.ir.types import STORAGE, IntType
from inlay.memory.activations import Storage
from inlay.memory.plan_memory import plan_module
from inlay.memory.size_classes import ALIGNMENT, pack_classes
from inlay.ops.memory import ALLOC_STORAGE
from inlay.ops.table import table
from tests.python_kernels import compile_with_python_kernels


def op(name: str):
    return table().definition(name).op


def blocks_of(m: Module) -> list[Int]:
    """Return the sizes of the storages that a planned module allocates."""
    return [
        v.args[0].value
        for v in values(m.functions["main"].body)
        if isinstance(v, Call) and isinstance(v.callee, OpRef) and v.callee.op is ALLOC_STORAGE
    ]


def chain(count: int, shape, step=None) -> Module:
    """A chain of products, which do not fuse, each read by the next one only."""
    b = Builder()
    x = b.param("x", make.tensor_type(shape, F32))
    w = make.const(np.eye(64, dtype=np.float32))
    y: Expr = x
    for _ in range(count):
        y = b.emit(op("matmul"), (y, w))
    return Module(functions={"main": b.function(y)})


def test_a_chain_takes_two_buffers_and_the_result_its_own():
    _, m = compile_with_python_kernels(chain(6, (16, 64)))
    size = 16 * 64 * 4
    assert blocks_of(m) == [lit(2 * size), lit(size)]


def test_symbolic_sizes_share_like_numbers():
    n = fresh("n")
    _, m = compile_with_python_kernels(chain(6, (n, 64)))
    assert blocks_of(m) == [256 * to_int(n) * 2, 256 * to_int(n)]


def test_branches_share_bytes():
    from inlay.arith.dtype import BOOL
    from inlay.ir.core_ops import TO_CONTROL

    b = Builder()
    x, c = b.param("x", make.tensor_type((16, 64), F32)), b.param("c", make.tensor_type((), BOOL))
    w = make.const(np.eye(64, dtype=np.float32))

    def arm(s: Builder) -> Expr:
        y = s.emit(op("matmul"), (x, w))
        return s.emit(op("matmul"), (y, w))

    y = b.if_(b.emit(TO_CONTROL, (c,)), arm, arm)
    m = Module(functions={"main": b.function(b.emit(op("matmul"), (y, w)))})
    _, planned = compile_with_python_kernels(m)
    size = 16 * 64 * 4
    # In each arm an intermediate and a result; the results of both arms outlive the branch.
    assert blocks_of(planned)[0].value <= 3 * size


def test_carried_values_and_results_are_counted():
    b = Builder()
    x, n = b.param("x", make.tensor_type((16, 64), F32)), b.param("n", IntType(to_int(fresh("n"))))
    w = make.const(np.eye(64, dtype=np.float32))

    def step(s: Builder, i: Int, c: tuple[Var, ...]) -> Step:
        y = s.emit(op("matmul"), (c[0], w))
        return Step((s.emit(op("matmul"), (y, w)),))

    result = b.loop([x], step, count=n.type.value)
    m = Module(functions={"main": b.function(result.carried)})
    planned, plans = plan_module(m)
    assert plans[0].planned == 0
    _, planned = compile_with_python_kernels(m)
    # What lives inside one turn is in the block; what is carried has two buffers for all turns.
    assert blocks_of(planned) == [lit(16 * 64 * 4)] * 3


def test_operands_that_die_are_overwritten():
    b = Builder()
    x = b.param("x", make.tensor_type((16, 64), F32))
    w = make.const(np.eye(64, dtype=np.float32))
    y = b.emit(op("matmul"), (x, w))
    z = b.emit(op("relu"), (y,))
    b2 = b.emit(op("matmul"), (z, w))
    m = Module(functions={"main": b.function(b2)})
    _, planned = compile_with_python_kernels(m)
    assert blocks_of(planned)[0].value == 16 * 64 * 4


def test_nothing_but_empty_storages():
    empty = Storage([make.var("s", STORAGE)], lit(0), 64, (), 0, 1, name="s")
    (packed,) = pack_classes([empty])
    assert packed.size == 0
    assert packed.offsets == {empty: 0}


@st.composite
def storages(draw) -> tuple[list[Storage], list]:
    syms = [fresh("n"), fresh("m")]
    n, m = map(to_int, syms)
    units = [lit(1), n, n * m, m + 3, n + m, n - 1 + m]
    rounded = st.sampled_from(
        [lambda e: e, lambda e: ceildiv(e, 64) * 64, lambda e: ceildiv(e, 64) * 64 + 4 * n]
    )
    made = []
    for index in range(draw(st.integers(1, 12))):
        start = draw(st.integers(0, 20))
        end = start + draw(st.integers(0, 8))
        size = draw(rounded)(draw(st.sampled_from(units)) * draw(st.integers(0, 300)))
        name = f"s{index}"
        made.append(Storage([make.var(name, STORAGE)], size, 64, (), start, end, name=name))
    return made, syms


@given(storages(), st.integers(0, 70), st.integers(0, 70), st.integers(0, 2))
def test_what_lives_together_is_apart_for_all_sizes(made, n, m, low):
    found, syms = made
    env = dict(zip(syms, (max(n, low), max(m, low))))
    ranges = dict.fromkeys(syms, Range(low))
    base, placed = 0, {}
    for packed in pack_classes(found, ranges):
        size = evaluate(packed.size, env)
        assert size % ALIGNMENT == 0
        for storage, offset in packed.offsets.items():
            at = base + evaluate(offset, env)
            assert at % ALIGNMENT == 0
            placed[storage] = (at, at + evaluate(storage.bytes, env))
            assert placed[storage][1] <= base + size
        base += size
    for a in found:
        for b in found:
            if a is not b and a.start <= b.end and b.start <= a.end:
                (x, y), (u, v) = placed[a], placed[b]
                assert y <= u or v <= x or x == y or u == v
