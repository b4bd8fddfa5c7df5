"""Chains: what data orders shares bytes at no price, what is independent gets bytes of its own."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from inlay.arith.dtype import F32
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.expr import Expr
from inlay.ir.module import Module
from inlay.memory.chains import MOST_CHAINS, Chains
from inlay.memory.plan import Sharing
from tests.python_kernels import compile_with_python_kernels
from tests.unit.memory.test_plan_memory import blocks_of, op


def test_what_needs_each_other_is_one_chain():
    chains = Chains()
    clock = ()
    for n in range(1, 5):
        chain, clock = chains.place([clock])
        assert (chain, clock) == (0, (n,))


def test_independent_chains_and_what_joins_them():
    chains = Chains()
    (a, clock_a), (b, clock_b) = chains.place([]), chains.place([])
    assert (a, b) == (0, 1)
    for _ in range(3):
        (a, clock_a), (b, clock_b) = chains.place([clock_a]), chains.place([clock_b])
        assert (a, b) == (0, 1)
    _, clock = chains.place([clock_a, clock_b])
    assert clock in ((5, 4), (4, 5))
    # Both are behind: the next two kernels that need it take one each, and no third is begun.
    assert {chains.place([clock])[0], chains.place([clock])[0]} == {0, 1}


def test_after_a_join_nothing_is_independent_of_what_was_before():
    chains = Chains()
    for n in range(5):
        assert chains.place([])[0] == n
    chains.join()
    assert {chains.place([])[0] for _ in range(5)} == set(range(5))


@given(st.lists(st.sets(st.integers(0, 30), max_size=3), max_size=30))
def test_a_chain_is_ordered_by_data(graph):
    """The kernels of a chain need each other, as long as there are chains enough."""
    chains, before, clocks, last, found = Chains(), [], [], {}, []
    for index, chosen in enumerate(graph):
        needs = {n for n in chosen if n < index}
        chain, clock = chains.place([clocks[n] for n in needs])
        before.append(needs.union(*(before[n] for n in needs)))
        clocks.append(clock)
        if len(set(found)) < MOST_CHAINS:
            assert chain not in last or last[chain] in before[index]
        assert chain < MOST_CHAINS
        last[chain] = index
        found.append(chain)


def halves(depth: int) -> Module:
    """Two chains of products from one input, written in turns."""
    b = Builder()
    x = b.param("x", make.tensor_type((16, 64), F32))
    w = make.const(np.eye(64, dtype=np.float32))
    ends: list[Expr] = [x, x]
    for _ in range(depth):
        ends = [b.emit(op("matmul"), (end, w)) for end in ends]
    return Module(functions={"main": b.function(b.emit(op("matmul"), (b.emit(op("add"), ends), w)))})


def test_halves_take_bytes_side_by_side_only_where_they_are_to_overlap():
    size = 16 * 64 * 4
    _, m = compile_with_python_kernels(halves(6))
    assert blocks_of(m)[0].value == 3 * size
    _, m = compile_with_python_kernels(halves(6), sharing=Sharing.PARALLEL)
    assert blocks_of(m)[0].value == 4 * size
