"""Fourier transforms against those of NumPy."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import inlay
from inlay.importers.onnx import ops_signal
from tests.unit.importers.onnx.models import Shape, load, model, run, value

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
        np.testing.assert_allclose(transformed(x, shape, length=length, onesided=1), want, atol=1e-4)


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
@pytest.mark.parametrize("n", [12, 36, 35, 22, 13, 128, 210])
@pytest.mark.parametrize("longest", [3, 256])
def test_reals_in_two_steps(n: int, onesided: int, longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops_signal, "_WHOLE", 6)
    monkeypatch.setattr(ops_signal, "_LONG", longest)
    x = RNG.standard_normal((2, n, 1)).astype(np.float32)
    want = pairs((np.fft.rfft if onesided else np.fft.fft)(x[..., 0]))
    np.testing.assert_allclose(transformed(x, ["b", n, 1], onesided=onesided), want, atol=1e-4)


@pytest.mark.parametrize("given", [7, 8, 5, 30])
@pytest.mark.parametrize("length", [12, 14, 15, 35])
def test_inverse_of_one_sided_in_two_steps(given: int, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops_signal, "_WHOLE", 6)
    z = RNG.standard_normal((2, given)) + 1j * RNG.standard_normal((2, given))
    got = transformed(pairs(z), [2, given, 2], length=length, inverse=1, onesided=1)
    np.testing.assert_allclose(got[..., 0], np.fft.irfft(z, n=length), atol=1e-4)


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


def theirs(m, inputs: dict[str, np.ndarray]) -> np.ndarray:
    m.ir_version = 9
    session = onnxruntime.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


@pytest.mark.parametrize("n", [5, 6])
@pytest.mark.parametrize("length", [None, 7, 8])
def test_inverse_of_one_sided_of_unknown_length(n: int, length: int | None) -> None:
    z = np.fft.rfft(RNG.standard_normal((2, 2 * (n - 1))))
    got = transformed(pairs(z), ["b", "n", 2], length=length, inverse=1, onesided=1)
    np.testing.assert_allclose(got[..., 0], np.fft.irfft(z, n=length), atol=1e-4)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("has_window", [False, True])
def test_short_time_of_sizes_that_the_program_computes(parts: int, has_window: bool) -> None:
    names = ["x", "step", "window" if has_window else "", "" if has_window else "length"]
    node = helper.make_node("STFT", names, ["y"], onesided=int(parts == 1))
    inputs = {
        "x": RNG.standard_normal((2, 21, parts)).astype(np.float32),
        "step": np.array(3),
        "window": np.hanning(8).astype(np.float32),
        "length": np.array(8),
    }
    given = {n: inputs[n] for n in names if n}
    declared = [
        value(
            n,
            ["b", "n", parts] if n == "x" else ["w"] * a.ndim,
            TensorProto.INT64 if a.dtype == np.int64 else TensorProto.FLOAT,
        )
        for n, a in given.items()
    ]
    m = model([node], declared, [value("y", None)])
    np.testing.assert_allclose(run(m, given)["y"], theirs(m, given), atol=1e-4)


@pytest.mark.parametrize("computed", [(), ("length",), ("bins", "length", "rate", "low", "high")])
@pytest.mark.parametrize("bins", [4, 8])
def test_mel_weights(computed: tuple[str, ...], bins: int) -> None:
    kinds = {"bins": np.int64, "length": np.int64, "rate": np.int64, "low": np.float32}
    numbers = {"bins": bins, "length": 64, "rate": 8000, "low": 20.0, "high": 3500.0}
    arrays = {n: np.array(v, kinds.get(n, np.float32)) for n, v in numbers.items()}
    inputs = {n: arrays[n] for n in computed}
    declared = [
        value(n, [], TensorProto.INT64 if a.dtype == np.int64 else TensorProto.FLOAT)
        for n, a in inputs.items()
    ]
    fixed = {n: a for n, a in arrays.items() if n not in inputs}
    node = helper.make_node("MelWeightMatrix", list(arrays), ["y"])
    m = model([node], declared, [value("y", None)], fixed)
    np.testing.assert_allclose(run(m, inputs)["y"], theirs(m, inputs), atol=1e-5)


def test_mel_weights_compiled() -> None:
    """For the spectrum of a signal whose length is a dim."""
    nodes = [
        helper.make_node("Shape", ["x"], ["length"]),
        helper.make_node("Squeeze", ["length"], ["n"]),
        helper.make_node("MelWeightMatrix", ["bins", "n", "rate", "low", "high"], ["y"]),
    ]
    fixed = {
        "bins": np.array(4),
        "rate": np.array(8000),
        "low": np.array(20, np.float32),
        "high": np.array(3500, np.float32),
    }
    m = model(nodes, [value("x", ["n"])], [value("y", None)], fixed)
    x = {"x": np.zeros(64, np.float32)}
    found = inlay.compile(load(m), cache="none").run(x)["y"]
    np.testing.assert_allclose(found, theirs(m, x), atol=1e-5)
