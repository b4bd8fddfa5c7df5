"""The next panel of packed weights is asked for, a part in each step of all tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from inlay.arith.dtype import F32
from inlay.arith.expr import Int, evaluate, fresh, symbols, to_int
from inlay.codegen.llvm import emit_module
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.loop.stmt import For
from inlay.loop.walk import stmts_below
from inlay.lower.lower import lower
from inlay.machine.target import Target, baseline
from inlay.ops.convolution import PackedConvAttrs
from inlay.ops.matmul import PackedAttrs
from inlay.ops.table import table
from inlay.schedule.rules.contraction import contraction
from inlay.schedule.state import Schedule

HERE = replace(baseline("x86_64", "v4"), l2_bytes=1 << 20)
SMALL = replace(HERE, l2_bytes=60_000)
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


@pytest.mark.parametrize(("target", "together"), [(HERE, TERMS), (SMALL, TERMS // 4)], ids=["panel", "block"])
def test_tiles_together_ask_for_all_of_it_once(target, together):
    """Of the next panel or, where a panel is read in blocks of terms, of the next block."""
    f = scheduled(16, 256, target)
    asked: set[int] = set()
    for note in notes(f):
        _, distance, lines, *loops = note.split()
        steps = {name: int(each) for name, each in (x.split(":") for x in loops)}
        assert lines == "lines:2"
        extents = {x.var.name: x.extent.value for x in stmts_below(f.body) if isinstance(x, For)}
        terms, *tiles = steps
        for tile in range(extents[tiles[0]] if tiles else 1):
            for k in range(together):
                start = k * PANEL * 4 + int(distance) + k * steps[terms] + sum(tile * steps[x] for x in tiles)
                asked |= {start, start + 64}
    size = 4 * PANEL * together
    assert asked >= set(range(size, 2 * size, 64)), "all lines of what comes next"
    assert max(asked) < 3 * size


@pytest.mark.parametrize(
    ("rows", "columns", "target"),
    [(4, 256, HERE), (640, 256, HERE), (16, 64, HERE), (12, 256, SMALL)],
    ids=["one tile", "many tiles", "one panel", "a small cache"],
)
def test_it_is_left_out(rows, columns, target):
    assert notes(scheduled(rows, columns, target)) == []


@pytest.mark.parametrize(("rows", "few"), [(16, False), (40, False), (60, True), (200, True)])
def test_few_of_the_steps_that_are_written_out_together_ask(rows: int, few: bool):
    """As many as there are lines, if the tiles ask for less than a line in a step."""
    for note in notes(scheduled(rows, 256)):
        assert ("every:" in note) == few


def asked_by(note: str, tiles: int) -> list[int]:
    """Return the lines of a panel that so many tiles ask for, in order, as `codegen/llvm_prefetch.py` says."""
    given = dict(word.split(":") for word in note.split() if ":" in word)
    row, steps, every = int(given["row"]), int(given["steps"]), int(given.get("every", 1))
    share = -(-row * steps // (64 * tiles))
    return [
        tile * share + min(k // every, share - 1) for tile in range(tiles) for k in range(0, steps, every)
    ]


def test_rows_that_are_not_known():
    f = scheduled(to_int(fresh("m")), 256)
    few, many = notes(f)
    assert f"+1 row:{4 * PANEL} steps:{TERMS} tiles:" in few
    assert ("every" in few, "every:2" in many) == (False, True)
    lines = set(range(4 * PANEL * TERMS // 64))
    assert set(asked_by(few, 4)) >= lines
    assert set(asked_by(many, 8)) >= lines
    found = asked_by(few, 2)
    assert found == [*range(TERMS), *range(2 * TERMS, 3 * TERMS)], "too few for all: the first of each share"
    tiles = [note.split("tiles:")[1] for note in (few, many)]
    first, second = (x.extent for x in stmts_below(f.body) if isinstance(x, For) and x.var.name in tiles)
    (rows,) = symbols(first)
    ran = {n: [evaluate(e, {rows: n}) for e in (first, second)] for n in (5, 47, 48, 300)}
    assert ran == {5: [0, 0], 47: [7, 0], 48: [0, 8], 300: [0, 50]}
    text = emit_module(lower(f, HERE), HERE).text
    assert "llvm.prefetch" in text
    assert "smax" in text
    assert "smin" in text


def test_taps_that_an_edge_cuts_off_count_as_those_of_a_whole_window():
    x = te.placeholder((1, 17, 17, 64), F32, "x")
    w = te.placeholder((3, 7, 1, 64, PANEL), F32, "w")
    attrs = PackedConvAttrs(PANEL, 3 * PANEL, pads=(3, 0, 3, 0))
    result = TensorType(tuple(map(to_int, (1, 17, 17, 3 * PANEL))), F32)
    y = table().definition("conv_nhwc_packed").compute(attrs, [x, w], result)
    s = Schedule(from_te("conv", [x, w], [y]))
    contraction(s, HERE)
    panel, tiles, steps = 7 * 64 * PANEL * 4, 3, 7 * 64
    for note in notes(s.function):
        lines = int(note.split("lines:")[1].split()[0])
        assert panel <= tiles * steps * lines * 64 < 2 * panel


def product(shape: Sequence[Int | int]) -> Schedule:
    """Schedule a product of rows on several axes."""
    x = te.placeholder([to_int(d) for d in (*shape, TERMS)], F32, "x")
    w = te.placeholder((4, TERMS, PANEL), F32, "w")
    result = TensorType((*x.shape[:2], to_int(256)), F32)
    y = table().definition("matmul_packed").compute(PackedAttrs(PANEL, 256), [x, w], result)
    s = Schedule(from_te("matmul", [x, w], [y]))
    contraction(s, HERE)
    return s


def test_images_and_rows_that_are_not_known_are_rows():
    s = product([fresh("b"), fresh("m")])
    assert "merge_axes" in [step.primitive for step in s.trace]
    assert all(note.split("tiles:")[1].count("*") == 0 for note in notes(s.function))


def test_images_that_are_not_known_share_a_panel():
    s = product([fresh("b"), 18])
    few, many = notes(s.function)
    assert few.split("tiles:")[1].count("*") == many.split("tiles:")[1].count("*") == 1
    (made,) = [step for step in s.trace if step.primitive == "version"]
    assert made.args[-1] == 3, "there are three tiles in each image"
    assert "smax" in emit_module(lower(s.function, HERE), HERE).text
