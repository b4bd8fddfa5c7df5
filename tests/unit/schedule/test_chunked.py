"""Few rows read a factor of any number of rows in chunks, wherever its heads lie, and keep their meaning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from inlay.arith.dtype import F32
from inlay.arith.expr import Int, to_int
from inlay.interp import loop as interp
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.loop.stmt import LoopKind
from inlay.machine.target import baseline
from inlay.schedule.choose import decide
from inlay.schedule.rules.chunked import BLOCK, CHUNK, chunked
from inlay.schedule.rules.loops import reduce_loops
from inlay.schedule.state import Illegal, Schedule
from tests.unit.schedule.programs import dim, hold_law

SMALL = replace(baseline("x86_64", "v2"), l2_bytes=4096)
"""Four lanes, and a second cache that no long factor fits."""
K = dim("k")
HEADS_FIRST, ROWS_FIRST = (1, 0, 2), (0, 1, 2)
"""Orders of the axes of a factor: `[terms, heads, columns]` is `ROWS_FIRST`."""


def product(
    heads: Int | int,
    rows: Int | int,
    terms: Int | int,
    columns: Int | int,
    order: tuple[int, ...],
    *,
    bias: bool = False,
) -> LoopFunction:
    """Return products of `[heads, rows, terms]` with a factor whose axes are in some order."""
    own = [to_int(n) for n in (terms, heads, columns)]
    x = te.placeholder([to_int(n) for n in (heads, rows, terms)], F32, "x")
    w = te.placeholder([own[n] for n in order], F32, "w")
    shape = tuple(to_int(n) for n in (heads, rows, columns))
    r = te.reduce_axis("r", to_int(terms))

    def body(h: Int, i: Int, j: Int) -> te.ScalarValue:
        at = (r, h, j)
        return te.sum_over([r], x[(h, i, r)] * w[tuple(at[n] for n in order)])

    y = te.compute(shape, body, name="matmul")
    if not bias:
        return from_te("matmul", [x, w], [y])
    v = te.placeholder(shape[-1:], F32, "v")
    z = te.compute(shape, lambda h, i, j: te.maximum(y[(h, i, j)] + v[j], 0), name="out")
    return from_te("matmul", [x, w, v], [z])


@pytest.mark.sample(3)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("order", [HEADS_FIRST, ROWS_FIRST], ids=["heads first", "rows first"])
@pytest.mark.parametrize(
    ("heads", "rows", "terms", "columns", "sizes"),
    [
        (3, 1, K, 8, [(0,), (1,), (BLOCK + 1,), (CHUNK,), (CHUNK + 3,)]),
        (1, 2, K, 5, [(2 * CHUNK + 17,)]),
        (2, 7, K, 16, [(CHUNK + 1,)]),
    ],
    ids=str,
)
def test_sums_are_those_of_chunks(
    heads: int,
    rows: int,
    terms: Int | int,
    columns: int,
    sizes: list[tuple[int, ...]],
    order: tuple[int, ...],
    bias: bool,
) -> None:
    f = product(heads, rows, terms, columns, order, bias=bias)
    s = Schedule(f)
    block = s.block_names()[0]
    chunked(s, SMALL)
    hold_law(f, s, *sizes)
    parts = next(x for x in s.block_names() if x.endswith("_lanes_lanes"))
    loops = s.loops_of(parts)
    assert s.loop(loops[0]).kind is LoopKind.PARALLEL
    is_inside = order == ROWS_FIRST or heads == 1
    assert loops[0] not in s.loops_of(block), "chunks are added up behind all of them"
    assert (s.loop(loops[0]).extent.value is None) == is_inside, "threads share chunks where heads are inside"
    assert loops.index(reduce_loops(s, parts)[0]) > 2, "blocks of rows are the innermost sums"


def test_where_heads_lie_changes_no_bit() -> None:
    rng = np.random.default_rng(0)
    n = 2 * CHUNK + 21
    x = rng.standard_normal((3, 2, n)).astype(np.float32)
    w = rng.standard_normal((n, 3, 8)).astype(np.float32)
    results = []
    for order in (HEADS_FIRST, ROWS_FIRST):
        terms = dim("k")
        found = decide(product(3, 2, terms, 8, order), SMALL)
        assert found.rule == "chunked"
        env = dict.fromkeys(found.function.dims, n)
        results += interp.run(found.function, [x, np.ascontiguousarray(w.transpose(order))], env)
    np.testing.assert_array_equal(*results)
    np.testing.assert_allclose(results[0], np.einsum("hik,khj->hij", x, w), rtol=1e-4, atol=1e-4)


def test_a_known_number_of_rows_is_in_chunks_where_heads_lie_between_them() -> None:
    rows = 1 << 10
    assert decide(product(2, 1, rows, 8, ROWS_FIRST), SMALL).rule == "chunked"
    assert decide(product(2, 1, rows, 8, HEADS_FIRST), SMALL).rule != "chunked"


@pytest.mark.parametrize(
    ("heads", "rows", "terms", "columns", "why"),
    [
        (2, 24, K, 8, "rows"),
        (2, dim("m"), K, 8, "rows"),
        (2, 1, K, dim("n"), "bytes"),
        (2, 1, K, 1 << 9, "bytes"),
        (2, 1, 4, 8, "far more"),
    ],
    ids=str,
)
def test_what_is_left_to_other_rules(
    heads: int, rows: Int | int, terms: Int | int, columns: Int | int, why: str
) -> None:
    for order in (HEADS_FIRST, ROWS_FIRST):
        f = product(heads, rows, terms, columns, order)
        with pytest.raises(Illegal, match=why):
            chunked(Schedule(f), SMALL)
        assert decide(f, SMALL).rule in ("contraction", "streams")
