"""Long sums are added up in blocks of terms, in the same order, where a panel fills the second cache."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from inlay.arith.expr import Int
from inlay.interp import loop as interp
from inlay.loop.func import LoopFunction
from inlay.machine.target import Target, baseline
from inlay.schedule.primitives.cache_inplace import cache_inplace
from inlay.schedule.primitives.decompose_reduction import decompose_reduction
from inlay.schedule.rules.contraction import contraction
from inlay.schedule.state import Illegal, Schedule
from tests.unit.schedule.programs import dim, gemm, hold_law
from tests.unit.schedule.test_contraction import packed_matmul
from tests.unit.schedule.test_packing import Dims, two_factors

SMALL = replace(baseline("x86_64", "v2"), l1_bytes=64, l2_bytes=1024, l3_bytes=1 << 20)
"""Four lanes; half of the second cache holds 16 terms of 8 columns, half of that a block of terms."""
M = dim("m")


def packed(rows: Int | int, terms: int, columns: int, *, bias: bool) -> LoopFunction:
    """Return a product with weights in panels of 8."""
    return packed_matmul((rows, terms), columns, 8, epilogue="relu" if bias else "")


def scheduled(f: LoopFunction, target: Target = SMALL) -> tuple[Schedule, bool]:
    """Return a schedule, and whether sums wait in a workspace."""
    s = Schedule(f)
    contraction(s, target)
    return s, "cache_inplace" in [step.primitive for step in s.trace]


@pytest.mark.sample(2)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("rows", "terms", "columns", "sizes"),
    [
        (24, 40, 16, [()]),
        (25, 37, 20, [()]),
        (24, 64, 13, [()]),
        (M, 40, 16, [(0,), (1,), (7,), (30,)]),
        (M, 37, 12, [(1,), (29,)]),
    ],
    ids=str,
)
def test_constants_in_panels(
    rows: Int | int, terms: int, columns: int, sizes: list[tuple[int, ...]], bias: bool
) -> None:
    f = packed(rows, terms, columns, bias=bias)
    s, in_blocks = scheduled(f)
    assert in_blocks
    hold_law(f, s, *sizes)


@pytest.mark.sample(1)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("a", "b"), [((24, 40), (40, 16)), ((2, 26, 37), (2, 37, 20))], ids=str)
def test_factors_that_are_packed_where_they_are_used(a: Dims, b: Dims, bias: bool) -> None:
    f = two_factors(a, b, bias=bias)
    s, in_blocks = scheduled(f)
    assert in_blocks
    hold_law(f, s)


def test_bits_are_those_of_one_loop_over_all_terms() -> None:
    f = packed(24, 100, 16, bias=True)
    random = np.random.default_rng(3)
    inputs = [
        random.standard_normal([e.value for e in b.shape]).astype(np.float32) for b in f.params[: f.n_reads]
    ]
    (one, in_blocks), (whole, in_whole) = scheduled(f), scheduled(f, replace(SMALL, l2_bytes=1 << 20))
    assert in_blocks and not in_whole
    found, wanted = (interp.run(s.function, inputs, {})[0] for s in (one, whole))
    assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    ("rows", "terms", "l2"), [(24, 16, 1024), (24, 40, 1 << 20), (8, 40, 1024)], ids=["short", "held", "few"]
)
def test_short_sums_and_few_rows_stay_in_one(rows: int, terms: int, l2: int) -> None:
    f = packed(rows, terms, 16, bias=False)
    assert not scheduled(f, replace(SMALL, l2_bytes=l2))[1]


def test_what_is_updated_is_updated_by_one_block() -> None:
    s = Schedule(gemm(4, 4, 8))
    (block,) = s.block_names()
    row, _, terms = s.loops_of(block)
    with pytest.raises(Illegal, match="does not start it"):
        cache_inplace(s, block, terms, "stack")
    decompose_reduction(s, block, terms)
    with pytest.raises(Illegal, match="another block"):
        cache_inplace(s, block, row, "stack")
