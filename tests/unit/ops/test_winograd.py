"""Winograd's form of a convolution gives the convolution, exactly, as far as `fits` says."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from inlay.ops.convolution import ConvAttrs, conv_reference
from inlay.ops.table import table
from inlay.ops.winograd import WinogradAttrs, WinogradPackAttrs, fits

sizes = st.integers(1, 9)


def direct(x, w, pads):
    """The same by definition, with channels last."""
    first = conv_reference(
        ConvAttrs(pads=pads),
        np.moveaxis(x, 3, 1).astype(np.int64),
        np.transpose(w, (3, 2, 0, 1)).astype(np.int64),
    )
    return np.moveaxis(first, 1, 3)


def winograd(x, w, pads, panel):
    """The same in Winograd's form."""
    packed = table().definition("pack_winograd_weights").reference(WinogradPackAttrs(panel), w)
    attrs = WinogradAttrs(panel, w.shape[3], pads)
    return table().definition("conv_winograd").reference(attrs, x, packed)


@given(st.data(), st.sampled_from([np.uint8, np.int8]), st.integers(0, 2**32 - 1))
def test_it_is_the_convolution(data, dtype, seed):
    n, h, w, c, oc, panel = (data.draw(sizes) for _ in range(6))
    pads = tuple(data.draw(st.integers(0, 2)) for _ in range(4))
    if h + pads[0] + pads[2] < 3 or w + pads[1] + pads[3] < 3:
        return
    rng, info = np.random.default_rng(seed), np.iinfo(dtype)
    x = rng.integers(info.min, info.max + 1, (n, h, w, c)).astype(dtype)
    weights = rng.integers(-128, 128, (3, 3, c, oc)).astype(np.int8)
    np.testing.assert_array_equal(winograd(x, weights, pads, panel), direct(x, weights, pads))


def test_the_largest_elements_fit_16_bits():
    w = np.full((3, 3, 1, 1), -128, np.int8)
    packed = table().definition("pack_winograd_weights").reference(WinogradPackAttrs(1), w)
    assert packed.min() == 9 * -128


def test_what_fits_is_exact_and_no_more_is_promised():
    one = np.full((3, 3, 1, 1), 127, np.int8)
    most = (1 << 31) // (4 * 255 * 9 * 127)
    assert fits(np.repeat(one, most, axis=2), 255)
    assert not fits(np.repeat(one, most + 1, axis=2), 255)
    x = np.full((1, 4, 4, most), 255, np.uint8)
    w = np.repeat(one, most, axis=2)
    np.testing.assert_array_equal(winograd(x, w, (), 1), direct(x, w, ()))
