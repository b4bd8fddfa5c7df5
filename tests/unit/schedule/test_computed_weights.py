"""Weights in few bits become floats once for some tiles of rows, where nobody knows how many rows there are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inlay.arith.dtype import F32, U8
from inlay.arith.expr import Int, to_int
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.loop.stmt import LoopKind
from inlay.machine.target import baseline
from inlay.ops.table import table
from inlay.ops.weight_blocks import PackedBlocksAttrs
from inlay.schedule.rules.contraction import TOGETHER, contraction
from inlay.schedule.state import Schedule
from tests.unit.schedule.programs import dim, hold_law

HERE = baseline("x86_64", "v3")
PANEL, TERMS, COLUMNS = 16, 8, 20


def blocks(rows: Int | int, *, bias: bool = False, by_word: bool = False) -> LoopFunction:
    """Return a product with weights of four bits, two panels of which the second one is not full."""
    x = te.placeholder((to_int(rows), to_int(TERMS)), F32, "x")
    w = te.placeholder((2, TERMS // 2, PANEL), U8, "w")
    scale = te.placeholder((2, TERMS // 4, PANEL), F32, "scale")
    definition = table().definition("matmul_blocks_packed")
    assert definition.compute is not None
    result = TensorType((to_int(rows), to_int(COLUMNS)), F32)
    y = definition.compute(PackedBlocksAttrs(PANEL, COLUMNS, 4, 4, 8, by_word), [x, w, scale], result)
    if not bias:
        return from_te("product", [x, w, scale], [y])
    v = te.placeholder((COLUMNS,), F32, "v")
    z = te.compute(y.shape, lambda i, j: te.maximum(y[i, j] + v[j], 0.0), name="z")
    return from_te("product", [x, w, scale, v], [z])


@pytest.mark.sample(1)
@pytest.mark.parametrize("bias", [False, True])
def test_some_tiles_share_weights_in_floats(bias: bool) -> None:
    f = blocks(dim("m"), bias=bias)
    s = Schedule(f)
    contraction(s, HERE)
    tile = max(step.args[1][0] for step in s.trace if step.primitive == "split_cascade" and step.args[1])
    makers = [n for n in s.block_names() if n.endswith("_factor")]
    assert len(makers) == len(TOGETHER)
    for name in makers:
        assert s.loop(s.loops_of(name)[-1]).kind is LoopKind.VECTOR
    most = max(TOGETHER) * tile
    hold_law(f, s, (0,), (1,), (tile,), (2 * tile + 1,), (most,), (most + 3 * tile + 2,))


def test_rows_that_are_known_and_caches_that_are_small_have_no_copy() -> None:
    for rows, target in ((5, HERE), (dim("m"), replace(HERE, l2_bytes=1024, l3_bytes=2048))):
        s = Schedule(blocks(rows))
        contraction(s, target)
        assert "cache_factor" not in [step.primitive for step in s.trace]


@pytest.mark.sample(1)
@pytest.mark.parametrize("bias", [False, True])
def test_products_of_a_word_are_a_term_of_each_tile(bias: bool) -> None:
    f = blocks(dim("m"), bias=bias, by_word=True)
    s = Schedule(f)
    contraction(s, baseline("x86_64", "v4"))
    steps = [step.primitive for step in s.trace]
    assert "cache_factor" not in steps
    assert "use_fma" in steps
    hold_law(f, s, (0,), (1,), (7,), (21,))
