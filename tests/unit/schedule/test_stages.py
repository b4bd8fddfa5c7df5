"""Nests around a product run block by block, and keep their meaning."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inlay.arith.dtype import F32
from inlay.arith.expr import to_int
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.loop.printer import print_function
from inlay.loop.stmt import Alloc
from inlay.loop.walk import stmts_below
from inlay.machine.target import baseline
from inlay.ops.table import table
from inlay.ops.winograd_floats import WinogradFloatAttrs
from inlay.schedule.rules.contraction import contraction
from inlay.schedule.state import Schedule
from tests.unit.schedule.programs import dim, hold_law

SMALL = replace(baseline("x86_64", "v2"), l1_bytes=64)
"""Four lanes."""
N = dim("n")


def convolution(
    images: object, rows: int, columns: int, lines: int, *, relu: bool, tile: int = 2
) -> LoopFunction:
    """A convolution of three channels to six in Winograd's form, with padding."""
    x = te.placeholder((images, rows, columns, 3), F32, "x")
    u = te.placeholder(((tile + 2) ** 2, 2, 3, 4), F32, "u")
    attrs = WinogradFloatAttrs(4, 6, (1, 1, 1, 1), lines, tile)
    shape = (to_int(images), to_int(rows), to_int(columns), to_int(6))
    y = table().definition("conv_winograd_float").compute(attrs, [x, u], TensorType(shape, F32))
    if relu:
        y = te.compute(shape, lambda *i: te.maximum(y[i], 0.0), name="z")
    return from_te("conv", [x, u], [y])


@pytest.mark.sample(1)
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(
    ("shape", "lines", "sizes"),
    [((1, 8, 5), 1, [()]), ((1, 15, 6), 2, [()]), ((5, 4, 3), 2, [()]), ((N, 7, 4), 1, [(0,), (2,)])],
    ids=["lines", "two lines and a rest", "images", "images that are not known"],
)
def test_one_loop_over_blocks(shape, lines, sizes, relu) -> None:
    f = convolution(*shape, lines, relu=relu)
    s = Schedule(f)
    contraction(s, SMALL)
    text = print_function(s.function)
    assert text.count("parallel") == 1, "all nests are in one loop over blocks"
    lowered = hold_law(f, s, *sizes)
    allocated = [x.buffer for x in stmts_below(lowered.body) if isinstance(x, Alloc)]
    tiles = next(b for b in (*lowered.workspaces, *allocated) if b.name.startswith("tiles"))
    assert tiles.shape == tuple(map(to_int, (1, 1, 16, -(-shape[2] // 2) * lines, 3))), "of one block"


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("shape", "lines"),
    [((1, 16, 9), 1), ((1, 30, 5), 2), ((5, 4, 3), 1)],
    ids=["lines", "two lines and a rest", "images"],
)
def test_tiles_of_four_lines(shape, lines) -> None:
    f = convolution(*shape, lines, relu=True, tile=4)
    s = Schedule(f)
    contraction(s, SMALL)
    assert print_function(s.function).count("parallel") == 1, "all nests are in one loop over blocks"
    hold_law(f, s, ())


def test_few_blocks_stay_apart() -> None:
    f = convolution(1, 6, 6, 1, relu=True)
    s = Schedule(f)
    contraction(s, SMALL)
    assert not any(step.primitive == "merge" and "tiles" in str(step) for step in s.trace)
    hold_law(f, s, ())


@pytest.mark.sample(1)
@pytest.mark.parametrize(("images", "sizes"), [(1, [()]), (N, [(2,)])], ids=["one volume", "volumes"])
def test_planes_of_volumes_are_images(images, sizes) -> None:
    """Of 3 x 3 x 3 to six channels: each plane of the result is a block or more."""
    x = te.placeholder((images, 4, 3, 2, 3), F32, "x")
    u = te.placeholder((16, 2, 9, 4), F32, "u")
    attrs = WinogradFloatAttrs(4, 6, (1, 1, 1, 1, 1, 1), planes=3)
    shape = tuple(map(to_int, (images, 4, 3, 2, 6)))
    y = table().definition("conv_winograd_float").compute(attrs, [x, u], TensorType(shape, F32))
    f = from_te("conv", [x, u], [y])
    s = Schedule(f)
    contraction(s, SMALL)
    assert print_function(s.function).count("parallel") == 1, "all nests are in one loop over blocks"
    hold_law(f, s, *sizes)
