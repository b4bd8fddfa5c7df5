"""Commands of accelerators compute what the loop nests of their instructions say."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.accel.accelerator import Architecture, describe
from inlay.accel.nest import meaning_of
from inlay.accelerators.vanilla import Vanilla
from inlay.arith.expr import lit
from inlay.interp.loop import run
from inlay.loop.func import LoopFunction
from inlay.loop.printer import print_function
from inlay.loop.verify import verify
from inlay.runtime.driver_places import function_of

RNG = np.random.default_rng(15)


def nest_of(arch: Architecture, name: str, **sizes: int) -> LoopFunction:
    i = arch.description.instructions[name]
    known = {
        **{n: d.sym for n, d in arch.description.dims.items()},
        **{n: x.sym for n, x in i.immediates.items()},
    }
    f = meaning_of(i, arch.device, {known[n]: lit(v) for n, v in sizes.items()})
    assert verify(f) == ()
    return f


def numbers(dtype: type, *shape: int) -> np.ndarray:
    ends = np.iinfo(dtype)
    return RNG.integers(ends.min, ends.max + 1, shape).astype(dtype)


@pytest.fixture(scope="module")
def vanilla() -> Architecture:
    return describe(Vanilla).architecture({})


@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize(
    ("channels", "groups", "image", "kernel", "strides", "pads"),
    [
        ((3, 4), 1, (5, 6), (3, 3), (1, 1), (1, 1, 1, 1)),
        ((4, 4), 4, (6, 5), (3, 2), (2, 1), (0, 1, 1, 0)),
        ((4, 6), 2, (4, 4), (1, 1), (3, 2), (0, 0, 0, 0)),
        ((1, 2), 1, (2, 2), (4, 3), (1, 1), (2, 2, 1, 2)),
    ],
)
def test_a_convolution_of_vanilla(vanilla, n, channels, groups, image, kernel, strides, pads) -> None:
    (c, k), (h, w), (r, s) = channels, image, kernel
    p = (h + pads[0] + pads[2] - r) // strides[0] + 1
    q = (w + pads[1] + pads[3] - s) // strides[1] + 1
    window = dict(zip(("down", "right", "top", "left"), (*strides, *pads[:2]), strict=True))
    sizes = {"N": n, "C": c, "H": h, "W": w, "K": k, "D": c // groups, "P": p, "Q": q, "R": r, "S": s}
    f = nest_of(vanilla, "convolve", **sizes, groups=groups, **window, outside=-7)
    arrays = [numbers(np.int8, n, c, h, w), numbers(np.int8, k, c // groups, r, s), numbers(np.int32, k)]
    [want] = run(f, arrays, {})
    got = np.full((n, k, p, q), -1, np.int32)
    call = function_of("inlay.accelerators._vanilla_model", "vanilla_convolve", "npu0")
    assert (
        call(got.ctypes.data, *(a.ctypes.data for a in arrays), *sizes.values(), groups, *window.values(), -7)
        == 0
    )
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("n", "c", "k"), [(1, 1, 1), (3, 7, 5), (0, 4, 4)])
def test_a_product_of_vanilla(vanilla, n, c, k) -> None:
    f = nest_of(vanilla, "multiply", N=n, C=c, K=k)
    arrays = [numbers(np.int8, n, c), numbers(np.int8, c, k), numbers(np.int32, k)]
    [want] = run(f, arrays, {})
    got = np.full((n, k), -1, np.int32)
    call = function_of("inlay.accelerators._vanilla_model", "vanilla_multiply", "npu0")
    assert call(got.ctypes.data, *(a.ctypes.data for a in arrays), n, c, k) == 0
    np.testing.assert_array_equal(got, want)


def test_the_meaning_is_a_loop_nest(vanilla) -> None:
    text = print_function(nest_of(vanilla, "multiply", N=2, C=3, K=4))
    assert "y[i0, i1] = b[i1]" in text
    assert "y[i0, i1] + (i32(x[i0, " in text
