"""Winograd's form is taken where it is exact and pays, for instructions that multiply 16 bits."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.analysis.winograd import pays
from inlay.arith.dtype import I8, U8
from inlay.ir import make
from inlay.ir.module import Module
from tests.unit.transforms.programs import Program, operators, same
from tests.unit.transforms.test_integer_layout import PAIRS, QUADS, converted, integers, target


def network(c: int = 64, weights: np.ndarray | None = None, **attrs: object) -> Module:
    """A convolution of 3 x 3."""
    p = Program()
    w = integers(I8, 48, c, 3, 3) if weights is None else weights
    return p.module(p.op("conv_integer", p.input("x", 1, c, 9, 8, dtype=U8), make.const(w), **attrs))


def test_it_is_taken_and_gives_the_same():
    before = network(pads=(1, 0, 1, 2))
    after = converted(before, target(PAIRS))
    assert operators(after)["conv_winograd"] == 1
    same(before, after, integers(U8, 1, 64, 9, 8), exact=True)


@pytest.mark.parametrize(
    "module",
    [
        network(strides=(2, 2)),
        network(dilations=(2, 2)),
        network(8),
        network(32, integers(I8, 48, 32, 3, 3), groups=1, pads=(0, 0, 0, 0), strides=(1, 2)),
        network(64, integers(I8, 48, 64, 3, 1)),
        network(2048, np.full((48, 2048, 3, 3), 127, np.int8)),
    ],
    ids=["stride", "dilation", "few channels", "one stride", "3 by 1", "sums that overflow"],
)
def test_it_is_not_taken(module):
    assert operators(converted(module, target(PAIRS)))["conv_winograd"] == 0


def test_instructions_of_8_bits_are_faster_without_it():
    assert operators(converted(network(), target(QUADS)))["conv_winograd"] == 0


def test_tiles_are_to_stay_in_the_last_cache():
    shape = (56, 56, 64, 64)
    assert pays(*shape, images=1, cache_bytes=8 << 20)
    assert not pays(*shape, images=8, cache_bytes=8 << 20)
    assert not pays(*shape, images=1, cache_bytes=0)
