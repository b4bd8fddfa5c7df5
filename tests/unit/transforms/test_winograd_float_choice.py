"""Winograd's form of floats is taken where it pays, for images of known size."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.analysis.winograd import ACCURACY, FLOAT_ERROR, SUMS_ERROR, float_lines
from inlay.arith.expr import Int, fresh, to_int
from inlay.ir import make
from inlay.ir.module import Module
from inlay.machine.target import Target
from tests.unit.transforms.programs import Program, operators, same, value_of
from tests.unit.transforms.test_integer_layout import calls, converted

HERE = Target(vector_bytes=16)


def noise(*shape: int) -> np.ndarray:
    """Return numbers on which every order of summation gives the same bits."""
    return np.random.default_rng(len(shape)).integers(-4, 5, shape).astype(np.float32)


def network(
    c: int = 32, size: Int | int = 9, images: Int | int = 1, window: int = 3, **attrs: object
) -> Module:
    """A convolution with channels first."""
    p = Program()
    weights = noise(40, c // attrs.get("groups", 1), 3, window)
    return p.module(p.op("conv", p.input("x", images, c, size, 8), make.const(weights), **attrs))


@pytest.mark.parametrize("images", [1, to_int(fresh("n"))], ids=["one image", "images that are not known"])
def test_it_is_taken_and_gives_the_same(images):
    before = network(images=images, pads=(1, 0, 1, 2))
    after = converted(before, HERE)
    assert operators(after)["conv_winograd_float"] == 1
    same(before, after, noise(1, 32, 9, 8), exact=True)


def volume(*kernel: int, planes: Int | int = 5, **attrs: object) -> Module:
    """A convolution of a volume, with channels first."""
    p = Program()
    weights = make.const(noise(40, 32, *kernel))
    return p.module(p.op("conv", p.input("x", 1, 32, planes, 9, 8), weights, **attrs))


@pytest.mark.parametrize("planes", [5, to_int(fresh("d"))], ids=["five planes", "planes that are not known"])
@pytest.mark.parametrize("kernel", [(3, 3, 3), (1, 3, 3), (2, 3, 3)], ids=str)
def test_it_is_taken_for_volumes(kernel, planes):
    before = volume(*kernel, planes=planes, pads=(1, 1, 0, 0, 1, 2))
    after = converted(before, HERE)
    assert operators(after)["conv_winograd_float"] == 1
    same(before, after, noise(1, 32, 5, 9, 8), exact=True)


@pytest.mark.parametrize(
    "module",
    [
        volume(3, 1, 1),
        volume(3, 3, 3, strides=(2, 1, 1)),
        volume(3, 3, 3, dilations=(2, 1, 1)),
        network(strides=(2, 2)),
        network(dilations=(2, 2)),
        network(3),
        network(groups=2),
        network(window=1),
        network(size=to_int(fresh("h"))),
    ],
    ids=[
        "3 planes",
        "stride of planes",
        "dilation of planes",
        "stride",
        "dilation",
        "few channels",
        "groups",
        "3 by 1",
        "a size that is not known",
    ],
)
def test_it_is_not_taken(module):
    assert operators(converted(module, HERE))["conv_winograd_float"] == 0


def tiles(module: Module, accuracy: float) -> list[int]:
    """Return the tiles of the Winograd forms that a program takes with errors of so much allowed."""
    after = converted(module, HERE, accuracy=accuracy)
    return [c.callee.attrs.tile for c in calls(after) if c.callee.op.name == "conv_winograd_float"]


def test_forms_are_as_accurate_as_is_asked():
    module = network(64, 16, pads=(1, 1, 1, 1))
    assert tiles(module, ACCURACY) == tiles(module, FLOAT_ERROR[2]) == [2]
    assert tiles(module, FLOAT_ERROR[4]) == [4]
    assert tiles(module, np.nextafter(FLOAT_ERROR[4], 0)) == [2]
    assert tiles(module, SUMS_ERROR) == tiles(module, np.nextafter(FLOAT_ERROR[2], 0)) == []


def test_larger_tiles_give_the_same():
    before = network(64, 17, pads=(1, 0, 1, 2))
    after = converted(before, HERE, accuracy=1.0)
    assert tiles(before, 1.0) == [4]
    x = noise(1, 64, 17, 8)
    found, wanted = (np.asarray(value_of(m, x)) for m in (after, before))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def lines(size: int, channels: int, images: int | None = 1) -> int | None:
    return float_lines(size, size, channels, channels, images=images, l2_bytes=1 << 20, cache_bytes=8 << 20)


def test_blocks_are_small_but_an_image_of_few_lines_is_one():
    assert lines(56, 64) == 1
    assert lines(28, 64) == 1
    assert lines(14, 64) == 2
    assert lines(14, 256) == 7
    assert lines(14, 256, images=8) == 7
    assert lines(14, 128, images=None) == 2
    assert lines(14, 256, images=None) == 7, "parts of an image would load far weights too often"


def test_weights_that_are_far_have_to_pay_for_being_more():
    assert lines(8, 64) is not None
    assert lines(7, 512) == 4, "each weight is loaded once, for 16 tiles"
    assert lines(5, 512) is None, "for 9 tiles"
    assert lines(4, 256) is None
    assert lines(7, 512, images=16) is None, "each image loads all of them"
    assert lines(14, 256, images=16) is not None


def test_a_block_is_to_stay_in_a_cache():
    assert float_lines(64, 64, 64, 64, images=1, l2_bytes=0, cache_bytes=0) is None
