"""Fourier transforms against those of NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from inlay.importers.onnx import ops_signal
from tests.unit.importers.onnx.models import Shape, model, run, value

RNG = np.random.default_rng(5)


def transformed(x: np.ndarray, shape: Shape, *, length: int | None = None, **attrs) -> np.ndarray:
    constants = {"axis": np.array(attrs.pop("axis", -2))}
    names = ["x", "", "axis"]
    if length is not None:
        constants["length"], names[1] = np.array(length), "length"
    node = helper.make_node("DFT", names, ["y"], **attrs)
    m = model([node], [value("x", shape)], [value("y", None)], constants, opset=20)
    return run(m, {"x": x})["y"]


def pairs(x: np.ndarray) -> np.ndarray:
    return np.stack([x.real, x.imag], -1).astype(np.float32)


@pytest.mark.parametrize("n", [1, 2, 7, 12])
@pytest.mark.parametrize("shape", [["b", None, "h", 2], None])
def test_complex(n: int, shape: Shape) -> None:
    x = RNG.standard_normal((2, n, 3, 2)).astype(np.float32)
    z = x[..., 0] + 1j * x[..., 1]
    given = shape or list(x.shape)
    for axis in (1, -2):
        want = pairs(np.fft.fft(z, axis=1 if axis == 1 else 2))
        np.testing.assert_allclose(transformed(x, given, axis=axis), want, atol=1e-4)
    want = pairs(np.fft.ifft(z, axis=1))
    np.testing.assert_allclose(transformed(x, given, axis=1, inverse=1), want, atol=1e-4)


@pytest.mark.parametrize("length", [None, 5, 16])
def test_real_one_sided_padded_and_cut(length: int | None) -> None:
    x = RNG.standard_normal((3, 9, 1)).astype(np.float32)
    want = pairs(np.fft.rfft(x[..., 0], n=length))
    for shape in ([3, 9, 1], ["b", "n", 1]):
        np.testing.assert_allclose(
            transformed(x, shape, length=length, onesided=1), want, atol=1e-4
        )


@pytest.mark.parametrize("length", [None, 9, 6, 20])
def test_inverse_of_one_sided(length: int | None) -> None:
    z = np.fft.rfft(RNG.standard_normal((2, 10)))
    got = transformed(pairs(z), [2, 6, 2], length=length, inverse=1, onesided=1)
    np.testing.assert_allclose(got[..., 0], np.fft.irfft(z, n=length), atol=1e-4)


@pytest.mark.parametrize("n", [12, 36, 35])
def test_in_two_steps(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops_signal, "_WHOLE", 6)
    x = RNG.standard_normal((2, n, 2)).astype(np.float32)
    want = pairs(np.fft.fft(x[..., 0] + 1j * x[..., 1]))
    np.testing.assert_allclose(transformed(x, ["b", n, 2]), want, atol=1e-4)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("parts", [1, 2])
def test_short_time(onesided: int, parts: int) -> None:
    if onesided and parts == 2:
        return
    window = np.hanning(8).astype(np.float32)
    node = helper.make_node("STFT", ["x", "step", "window"], ["y"], onesided=onesided)
    constants = {"step": np.array(3), "window": window}
    m = model([node], [value("x", ["b", "n", parts])], [value("y", None)], constants)
    x = RNG.standard_normal((2, 21, parts)).astype(np.float32)
    z = x[..., 0] + (1j * x[..., 1] if parts == 2 else 0)
    frames = np.stack([z[:, i : i + 8] * window for i in range(0, 14, 3)], 1)
    want = pairs(np.fft.fft(frames))[:, :, : 5 if onesided else 8]
    np.testing.assert_allclose(run(m, {"x": x})["y"], want, atol=1e-4)
