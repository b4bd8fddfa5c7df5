"""What placing parts in wholes saves: bytes of a call as planned and as counted, and time, in turns.

    python benchmarks/parts.py [--json] [--only NAME] [--seconds 5]

Each block is a part of a network as such networks have it, on one thread; `without` is the same
compilation where no parts to place are found. `bound` is what values in this order take at least. Times are
medians, and their ratio is the median of the ratios of turns.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import numpy as np
import onnx

import inlay
from measure import Report
from network_models import NETWORKS, Graph, Network

Made = tuple[onnx.ModelProto, Sequence[int]]
"""A model, and the shape of its input."""


class Inner(Network):
    """A network whose input has channels."""

    def __init__(self, channels: int, size: int) -> None:
        Graph.__init__(self, "network", 0)
        self.shape = (1, channels, size, size)
        self.input("x", self.shape)

    def made(self, result: str) -> Made:
        """Return the network with a result."""
        return self.model([result]), self.shape


def dense_chain(*, normalizes: bool = False) -> Made:
    """Six layers of a dense block, each of which joins what it makes to all before."""
    net, c = Inner(64, 56), 64
    x = net.conv("x", c, c)
    for _ in range(6):
        y = x
        if normalizes:
            y = net.op("Mul", y, net.noise((c, 1, 1), 1.0))
            y = net.op("Relu", net.op("Add", y, net.noise((c, 1, 1), 0.1)))
        y = net.conv(net.conv(y, c, 128), 128, 32, 3)
        x, c = net.op("Concat", x, y, axis=1), c + 32
    return net.made(net.conv(x, c, 64))


def dense_anew() -> Made:
    """The same without normalization; each layer joins all features anew."""
    net = Inner(64, 56)
    features = [net.conv("x", 64, 64)]
    for k in range(6):
        x = net.op("Concat", *features, axis=1) if k else features[0]
        features.append(net.conv(net.conv(x, 64 + 32 * k, 128), 128, 32, 3))
    return net.made(net.conv(net.op("Concat", *features, axis=1), 256, 64))


def fire() -> Made:
    """Three fire modules."""
    net, c = Inner(128, 28), 128
    x = net.conv("x", c, c)
    for squeezed, o in ((32, 128), (48, 192), (64, 256)):
        y = net.conv(x, c, squeezed)
        x, c = net.op("Concat", net.conv(y, squeezed, o), net.conv(y, squeezed, o, 3), axis=1), 2 * o
    return net.made(net.conv(x, c, 64))


def inception() -> Made:
    """Two inception modules."""
    net, c = Inner(192, 28), 192
    x = net.conv("x", c, c)
    for one, (in3, out3), (in5, out5), pool in (
        (64, (96, 128), (16, 32), 32),
        (128, (128, 192), (32, 96), 64),
    ):
        pooled = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)
        branches = (
            net.conv(x, c, one),
            net.conv(net.conv(x, c, in3), in3, out3, 3),
            net.conv(net.conv(x, c, in5), in5, out5, 5),
            net.conv(pooled, c, pool),
        )
        x, c = net.op("Concat", *branches, axis=1), one + out3 + out5 + pool
    return net.made(net.conv(x, c, 64))


def shuffle() -> Made:
    """Four units that split channels, and shuffle what they join."""
    net, c = Inner(116, 28), 116
    x = net.conv("x", c, c)
    for _ in range(4):
        kept, y = net.split(x, [c // 2, c // 2], 1)
        y = net.conv(net.conv(y, c // 2, c // 2), c // 2, c // 2, 3, groups=c // 2, act="")
        x = net.op("Concat", kept, net.conv(y, c // 2, c // 2), axis=1)
        x = net.op("Reshape", x, net.constant(np.array([1, 2, c // 2, 28, 28])))
        x = net.op("Transpose", x, perm=[0, 2, 1, 3, 4])
        x = net.op("Reshape", x, net.constant(np.array([1, c, 28, 28])))
    return net.made(net.conv(x, c, 64))


def skip() -> Made:
    """The last step of a U-Net."""
    net = Inner(32, 64)
    kept = net.conv("x", 32, 32, 3)
    x = net.op("MaxPool", kept, kernel_shape=[2, 2], strides=[2, 2])
    x = net.conv(net.conv(x, 32, 64, 3), 64, 64, 3)
    x = net.op("ConvTranspose", x, net.noise((64, 32, 2, 2), 0.1), net.noise((32,), 0.1), strides=[2, 2])
    return net.made(net.conv(net.op("Concat", kept, x, axis=1), 64, 32, 3))


def columns() -> Made:
    """Layers of 64 rows that see all features before."""
    net, c = Graph("network", 0), 256
    net.input("x", [64, c])

    def layer(x: str, c: int, o: int) -> str:
        return net.op("Relu", net.op("Gemm", x, net.noise((c, o), c**-0.5), net.noise((o,), 0.1)))

    x = layer("x", c, c)
    for _ in range(4):
        x, c = net.op("Concat", x, layer(x, c, 128), axis=1), c + 128
    result = layer(x, c, 64)
    return net.built({result: [64, 64]}), (64, 256)


def network(name: str) -> Made:
    """Return a whole network."""
    make, size = NETWORKS[name]
    return make(size), (1, 3, size, size)


MODELS: dict[str, Callable[[], Made]] = {
    "fire": fire,
    "dense chain": dense_chain,
    "dense anew": dense_anew,
    "dense normal": lambda: dense_chain(normalizes=True),
    "columns": columns,
    "inception": inception,
    "shuffle": shuffle,
    "skip": skip,
    **{
        name: lambda name=name: network(name)
        for name in ("squeezenet", "googlenet", "densenet", "unet", "shufflenet_v2", "yolo")
    },
}


def compared(path: Path, x: np.ndarray, seconds: float) -> list[object]:
    """Return peaks, the bound, and times of a model without and with parts in place."""
    found: list[tuple[int, int, int]] = []
    executables: list[inlay.Executable] = []
    for placed in (False, True):
        nothing = mock.patch("inlay.pipeline.place_parts.blocks_of", return_value={})
        with nullcontext() if placed else nothing:
            account = inlay.explain(path, view="memory", threads=1).accounts[0]
            executables.append(inlay.compile(path, threads=1))
        executables[-1].run({"x": x})
        found.append((account.peak, executables[-1].usage().peak_bytes, account.lower_bound))
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + seconds
    while not times[1] or time.perf_counter() < end:
        for k in (0, 1) if len(times[0]) % 2 else (1, 0):
            begun = time.perf_counter()
            executables[k].run({"x": x})
            times[k].append(time.perf_counter() - begun)
    (before, _, _), (after, measured, bound) = found
    ratio = statistics.median(b / a for a, b in zip(*times, strict=True))
    saved = f"{(1 - after / before) * 100:.1f} %"
    medians = [f"{statistics.median(t) * 1e3:.3f}" for t in times]
    return [before, after, measured, bound, saved, *medians, f"{ratio:.3f}"]


def main() -> None:
    """Print a row for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="models whose names contain this")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each model")
    given, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    columns = "model without with measured bound saved without-ms with-ms ratio".split()
    report = Report("parts", columns)
    with tempfile.TemporaryDirectory() as folder:
        for name, make in MODELS.items():
            if given.only in name:
                model, shape = make()
                path = Path(folder) / "model.onnx"
                onnx.save(model, path)
                x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
                report.row(name, *compared(path, x, given.seconds))


if __name__ == "__main__":
    main()
