"""Winograd's form of a convolution of floats gives the convolution, but for rounding."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from inlay.ops.matmul import PackAttrs
from inlay.ops.table import table
from inlay.ops.winograd_floats import WinogradFloatAttrs
from tests.unit.ops.test_winograd import direct

sizes = st.integers(1, 9)


@given(st.data(), st.integers(0, 2**32 - 1))
def test_it_is_the_convolution(data, seed):
    n, h, w, c, oc, panel = (data.draw(sizes) for _ in range(6))
    pads = tuple(data.draw(st.integers(0, 2)) for _ in range(4))
    if h + pads[0] + pads[2] < 3 or w + pads[1] + pads[3] < 3:
        return
    rng = np.random.default_rng(seed)
    x = rng.integers(-9, 10, (n, h, w, c)).astype(np.float32)
    weights = 4 * rng.integers(-9, 10, (3, 3, c, oc)).astype(np.float32)
    packed = table().definition("pack_winograd_floats").reference(PackAttrs(panel), weights)
    attrs = WinogradFloatAttrs(panel, oc, pads, data.draw(st.integers(1, 3)))
    found = table().definition("conv_winograd_float").reference(attrs, x, packed)
    np.testing.assert_array_equal(found, direct(x, weights, pads))
