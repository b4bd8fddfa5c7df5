"""The default schedules of contractions keep the meaning and have the shape they are made for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from inlay.arith.dtype import F32, I32, DType
from inlay.arith.expr import Int, lit, to_int
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.loop.printer import print_function
from inlay.loop.stmt import For, LoopKind
from inlay.loop.walk import stmts_below
from inlay.machine.target import baseline
from inlay.ops.matmul import PackedAttrs
from inlay.ops.table import table
from inlay.schedule.rules.contraction import contraction, even_tiles, row_tiles
from inlay.schedule.state import Schedule
from tests.unit.schedule.programs import dim, hold_law

SMALL = baseline("x86_64", "v2")
"""Four lanes: panels of 8 columns."""


def packed_matmul(
    shape: Sequence[Int | int], n: int, panel: int, *, epilogue: str = "", dtype: DType = F32
) -> LoopFunction:
    dims = [to_int(d) for d in shape]
    x = te.placeholder(dims, dtype, "x")
    w = te.placeholder((-(-n // panel), dims[-1], panel), dtype, "w")
    result = TensorType((*dims[:-1], lit(n)), dtype)
    compute = table().definition("matmul_packed").compute
    y = compute(PackedAttrs(panel, n), [x, w], result)
    inputs = [x, w]
    if epilogue:
        b = te.placeholder((n,), dtype, "b")
        r = te.placeholder(result.shape, dtype, "r")
        inputs += [b, r]
        product = y
        y = te.compute(
            result.shape, lambda *i: te.maximum(product[i] + b[i[-1]] + r[i], 0), name="out"
        )
    return from_te("matmul", inputs, [y])


def scheduled(f: LoopFunction) -> tuple[Schedule, tuple[str, ...]]:
    s = Schedule(f)
    [block] = [b for b in s.block_names() if s.block(b).init is not None]
    return s, contraction(s, block, SMALL)


@pytest.mark.parametrize("epilogue", ["", "relu"])
@pytest.mark.parametrize(
    ("shape", "n", "sizes"),
    [
        ((dim("m"), 5), 16, [(0,), (1,), (7,), (13,)]),
        ((16, 3), 8, [()]),
        ((13, 3), 24, [()]),
        ((3, dim("m"), 4), 8, [(5,)]),
        ((dim("p"), dim("m"), dim("k")), 8, [(2, 5, 3), (1, 4, 0)]),
        ((5,), 16, [()]),
        ((6, 4), 10, [()]),
        ((6, 4), 3, [()]),
    ],
    ids=str,
)
def test_packed_matmul(shape: tuple, n: int, sizes: list, epilogue: str) -> None:
    f = packed_matmul(shape, n, 8, epilogue=epilogue)
    s, taken = scheduled(f)
    assert len(taken) == (2 if epilogue else 1)
    lowered = hold_law(f, s, *sizes)
    assert not lowered.workspaces
    assert isinstance(lowered.body, For)
    assert lowered.body.kind is LoopKind.PARALLEL
    assert " register" in print_function(lowered)


def test_integers_keep_their_two_operations() -> None:
    f = packed_matmul((6, 4), 8, 8, dtype=I32)
    s, _ = scheduled(f)
    assert "fma" not in print_function(hold_law(f, s))


def test_the_reduction_is_the_only_serial_loop_in_a_tile() -> None:
    s, _ = scheduled(packed_matmul((16, 7), 8, 8, epilogue="relu"))
    from inlay.lower.lower import lower

    serial = [
        x.extent
        for x in stmts_below(lower(s.function).body)
        if isinstance(x, For) and x.kind is LoopKind.SERIAL
    ]
    assert serial == [4, 7]


def test_rows_are_divided_evenly() -> None:
    assert even_tiles(196, 8) == (7,)
    assert even_tiles(128, 8) == (8,)
    assert even_tiles(13, 8) == (7, 6)
    assert even_tiles(17, 8) == (6, 5)
    assert even_tiles(3, 8) == (3,)
    assert even_tiles(0, 8) == (1,)
    assert row_tiles(baseline("x86_64", "v3"), F32, 16, dim("m")) == (6, 4, 1)
    assert row_tiles(baseline("x86_64", "v4"), F32, 32, dim("m")) == (8, 4, 1)
