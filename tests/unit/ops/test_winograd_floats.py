"""Winograd's forms of a convolution of floats give the convolution, but for rounding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.analysis.winograd import FLOAT_ERROR
from inlay.ops._winograd_forms import FORMS
from inlay.ops.table import table
from inlay.ops.winograd_floats import WinogradFloatAttrs, WinogradFloatPackAttrs
from tests.unit.ops.test_winograd import direct

sizes = st.integers(1, 9)


def convolution(x: np.ndarray, w: np.ndarray, pads: tuple[int, ...] = (0, 0, 0, 0)) -> np.ndarray:
    """The same by definition, in f64: x `[n, h, w, c]`, w `[3, 3, c, oc]`."""
    around = ((0, 0), (pads[0], pads[2]), (pads[1], pads[3]), (0, 0))
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x.astype(np.float64), around), (3, 3), (1, 2))
    return np.einsum("nyxcrs,rsco->nyxo", windows, w.astype(np.float64))


@given(st.data(), st.integers(0, 2**32 - 1))
def test_it_is_the_convolution(data, seed):
    n, h, w, c, oc, panel = (data.draw(sizes) for _ in range(6))
    pads = tuple(data.draw(st.integers(0, 2)) for _ in range(4))
    if h + pads[0] + pads[2] < 3 or w + pads[1] + pads[3] < 3:
        return
    rng = np.random.default_rng(seed)
    x = rng.integers(-9, 10, (n, h, w, c)).astype(np.float32)
    weights = 4 * rng.integers(-9, 10, (3, 3, c, oc)).astype(np.float32)
    packed = table().definition("pack_winograd_floats").reference(WinogradFloatPackAttrs(panel), weights)
    attrs = WinogradFloatAttrs(panel, oc, pads, data.draw(st.integers(1, 3)))
    found = table().definition("conv_winograd_float").reference(attrs, x, packed)
    np.testing.assert_array_equal(found, direct(x, weights, pads))


@given(st.data(), st.integers(0, 2**32 - 1))
def test_it_is_the_convolution_of_volumes(data, seed):
    n, d, h, w, c, oc, panel = (data.draw(sizes) for _ in range(7))
    k, pads = data.draw(st.integers(1, 4)), tuple(data.draw(st.integers(0, 2)) for _ in range(6))
    padded = [size + pads[i] + pads[i + 3] for i, size in enumerate((d, h, w))]
    if any(size < least for size, least in zip(padded, (k, 3, 3), strict=True)):
        return
    rng = np.random.default_rng(seed)
    x = rng.integers(-9, 10, (n, d, h, w, c)).astype(np.float32)
    weights = 4 * rng.integers(-9, 10, (k, 3, 3, c, oc)).astype(np.float32)
    packed = table().definition("pack_winograd_floats").reference(WinogradFloatPackAttrs(panel), weights)
    attrs = WinogradFloatAttrs(panel, oc, pads, data.draw(st.integers(1, 3)), planes=k)
    found = table().definition("conv_winograd_float").reference(attrs, x, packed)
    around = [(0, 0), *((pads[i], pads[i + 3]) for i in range(3)), (0, 0)]
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, around), (k, 3, 3), (1, 2, 3))
    wanted = np.einsum("nzyxckrs,krsco->nzyxo", windows.astype(np.int64), weights.astype(np.int64))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("tile", FORMS)
@given(st.data(), st.integers(0, 2**32 - 1))
def test_it_is_near_the_convolution(tile, data, seed):
    """With weights as they are in memory, in f32."""
    n, h, w, c, oc, panel = (data.draw(sizes) for _ in range(6))
    pads = tuple(data.draw(st.integers(0, 2)) for _ in range(4))
    if h + pads[0] + pads[2] < 3 or w + pads[1] + pads[3] < 3:
        return
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, h, w, c)).astype(np.float32)
    weights = rng.standard_normal((3, 3, c, oc)).astype(np.float32)
    packed = (
        table().definition("pack_winograd_floats").reference(WinogradFloatPackAttrs(panel, tile), weights)
    )
    attrs = WinogradFloatAttrs(panel, oc, pads, data.draw(st.integers(1, 3)), tile)
    found = table().definition("conv_winograd_float").reference(attrs, x, packed)
    wanted = convolution(x, weights, pads)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("tile", FORMS)
def test_matrices_are_those_of_the_convolution(tile):
    form = FORMS[tile]
    rng = np.random.default_rng(tile)
    line, weights = rng.standard_normal(form.side), rng.standard_normal(3)
    found = form.result @ ((form.weights @ weights) * (form.input @ line))
    wanted = np.convolve(line, weights[::-1], "valid")
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-14)


def in_f32(tile: int, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """One line of results by F(tile, 3) with every step rounded to f32: x `[tile + 2, side, c]`, w `[3, 3, c]`."""
    form = FORMS[tile]
    u = np.einsum("ir,rsc,js->ijc", form.weights, w.astype(np.float64), form.weights).astype(np.float32)
    b, a = form.input.astype(np.float32), form.result.astype(np.float32)
    v = np.einsum("js,isc->ijc", b, np.einsum("ir,rsc->isc", b, x))
    sums = np.zeros(v.shape[:2], np.float32)
    for i in range(x.shape[-1]):
        sums += v[..., i] * u[..., i]
    return a @ (sums @ a.T)


@pytest.mark.parametrize("tile", FORMS)
@pytest.mark.parametrize("mean", [0.0, 3.0])
def test_errors_are_within_what_is_said(tile, mean):
    """Over many channels, of normal numbers and of such that are nearly all positive."""
    rng = np.random.default_rng(7)
    worst = 0.0
    for _ in range(20):
        side, c = FORMS[tile].side, 1024
        x = (mean + rng.standard_normal((side, side, c))).astype(np.float32)
        w = (rng.standard_normal((3, 3, c)) / 96).astype(np.float32)
        wanted = convolution(x[None], w[..., None])[0, ..., 0]
        worst = max(worst, float(np.abs(in_f32(tile, x, w) - wanted).max() / np.abs(wanted).max()))
    assert worst <= FLOAT_ERROR[tile] / 4
