"""The next panel of packed weights is asked for, a part in each step of all tiles."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inlay.arith.dtype import F32
from inlay.arith.expr import Int, fresh, to_int
from inlay.codegen.llvm import emit_module
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.loop.stmt import For
from inlay.loop.walk import stmts_below
from inlay.lower.lower import lower
from inlay.machine.target import Target, baseline
from inlay.ops.matmul import PackedAttrs
from inlay.ops.table import table
from inlay.schedule.rules.contraction import contraction
from inlay.schedule.state import Schedule

HERE = replace(baseline("x86_64", "v4"), l2_bytes=1 << 20)
PANEL, TERMS = 64, 128


def scheduled(rows: Int | int, columns: int, target: Target = HERE) -> LoopFunction:
    """A product with packed weights."""
    x, w = (
        te.placeholder((rows, TERMS), F32, "x"),
        te.placeholder((-(-columns // PANEL), TERMS, PANEL), F32, "w"),
    )
    result = TensorType((to_int(rows), to_int(columns)), F32)
    y = table().definition("matmul_packed").compute(PackedAttrs(PANEL, columns), [x, w], result)
    s = Schedule(from_te("matmul", [x, w], [y]))
    contraction(s, target)
    return s.function


def notes(f: LoopFunction) -> list[str]:
    found = (dict(x.note).get("prefetch") for x in stmts_below(f.body) if isinstance(x, For))
    return [x for x in found if x is not None]


def test_tiles_together_ask_for_all_of_it_once():
    f = scheduled(16, 256)
    asked: set[int] = set()
    for note in notes(f):
        _, distance, lines, *loops = note.split()
        steps = {name: int(each) for name, each in (x.split(":") for x in loops)}
        assert lines == "lines:2"
        extents = {x.var.name: x.extent.value for x in stmts_below(f.body) if isinstance(x, For)}
        terms, *tiles = steps
        for tile in range(extents[tiles[0]] if tiles else 1):
            for k in range(TERMS):
                start = k * PANEL * 4 + int(distance) + k * steps[terms] + sum(tile * steps[x] for x in tiles)
                asked |= {start, start + 64}
    panel = 4 * PANEL * TERMS
    assert asked >= set(range(panel, 2 * panel, 64)), "all lines of the next panel"
    assert max(asked) < 3 * panel


@pytest.mark.parametrize(
    ("rows", "columns", "target"),
    [(4, 256, HERE), (640, 256, HERE), (16, 64, HERE), (16, 256, replace(HERE, l2_bytes=60_000))],
    ids=["one tile", "many tiles", "one panel", "a small cache"],
)
def test_it_is_left_out(rows, columns, target):
    assert notes(scheduled(rows, columns, target)) == []


def test_rows_that_are_not_known():
    f = scheduled(to_int(fresh("m")), 256)
    (note,) = notes(f)
    assert f"+1 row:{4 * PANEL} steps:{TERMS} tiles:" in note
    text = emit_module(lower(f, HERE), HERE).text
    assert "llvm.prefetch" in text
    assert "smax" in text


def test_images_and_rows_that_are_not_known_share_a_panel():
    x = te.placeholder((fresh("b"), fresh("m"), TERMS), F32, "x")
    w = te.placeholder((4, TERMS, PANEL), F32, "w")
    result = TensorType((*x.shape[:2], to_int(256)), F32)
    y = table().definition("matmul_packed").compute(PackedAttrs(PANEL, 256), [x, w], result)
    s = Schedule(from_te("matmul", [x, w], [y]))
    contraction(s, HERE)
    (note,) = notes(s.function)
    assert note.split("tiles:")[1].count("*") == 1
    assert "smax" in emit_module(lower(s.function, HERE), HERE).text
