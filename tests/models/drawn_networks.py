"""Small networks of layers that are drawn, quantized as ONNX has it: what other people's models look like to a board.

Layers have any window (1 x 7, 3 x 1), strides to 3, dilations, groups, pads that differ on all four sides, odd
numbers of channels, with and without a bias; sums and products of branches, joints, pools, activations; images,
lines or rows; one of them or two. Quantizers' choices are drawn as well: bytes with or without a sign, one scale
or one for each channel, symmetric or not, QDQ or operators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
import onnx

from tests.qdq import Arrays, Float, quantized

_CHANNELS = (1, 3, 5, 8, 16, 17, 24, 33)


@dataclass(frozen=True)
class Network:
    """A quantized network, and values of its input."""

    model: onnx.ModelProto
    inputs: Arrays


def drawn(seed: int, folder: Path) -> Network:
    """Return the network of a seed."""
    from onnxruntime.quantization import QuantFormat, QuantType

    r = Random(seed)
    rank = r.choice((4, 4, 4, 3, 2))
    count, channels = r.choice((1, 1, 1, 2)), r.choice(_CHANNELS)
    sizes = [r.choice((1, 2, 5, 9, 14, 19)) for _ in range(rank - 2)]
    shape = (count, channels, *sizes) if rank > 2 else (count, r.choice((3, 17, 40)))
    if rank == 3 and r.random() < 0.4:
        shape, rows = (count, r.choice((4, 9)), channels), True
    else:
        rows = rank == 2
    net = _Net(Float(shape, seed), r)
    last = net.of_rows("x", shape) if rows else net.of_images("x", shape)
    signed, each = r.random() < 0.5, r.random() < 0.5
    options = {
        "quant_format": r.choice((QuantFormat.QDQ, QuantFormat.QDQ, QuantFormat.QOperator)),
        "activation_type": QuantType.QInt8 if signed else QuantType.QUInt8,
        "weight_type": QuantType.QInt8,
        "per_channel": each,
        "extra_options": {"ActivationSymmetric": r.random() < 0.3, "WeightSymmetric": r.random() < 0.9},
    }
    samples = net.model.samples()
    made = quantized(net.model.model(last), samples, folder, **options)
    return Network(made, net.model.samples(1)[0])


@dataclass
class _Net:
    """A network being drawn."""

    model: Float
    rng: Random
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])

    def of_rows(self, x: str, shape: tuple[int, ...]) -> str:
        """Draw products of rows, with sums around them."""
        self.shapes[x] = shape
        for _ in range(self.rng.choice((1, 2, 3))):
            before, x = x, self._dense(x)
            if self.shapes[before] == self.shapes[x] and self.rng.random() < 0.7:
                x = self._same("Add", x, before)
        return x

    def of_images(self, x: str, shape: tuple[int, ...]) -> str:
        """Draw layers of images or lines."""
        self.shapes[x] = shape
        layers: tuple[Callable[[str], str], ...] = (
            self._conv, self._conv, self._conv, self._branches, self._joint, self._pool, self._gate, self._up,
        )  # fmt: skip
        for _ in range(self.rng.choice((1, 2, 3, 4))):
            x = self.rng.choice(layers)(x)
        if self.rng.random() < 0.3:
            flat = self.model.op("Flatten", x)
            self.shapes[flat] = (self.shapes[x][0], int(np.prod(self.shapes[x][1:])))
            x = self._dense(flat)
        return x

    def _same(self, name: str, *operands: str, **attrs: object) -> str:
        made = self.model.op(name, *operands, **attrs)
        self.shapes[made] = self.shapes[operands[0]]
        return made

    def _activation(self, x: str) -> str:
        ends = [self.model.fixed(np.float32(n)) for n in (0, 6)]
        match self.rng.choice(("", "", "Relu", "Relu", "Clip", "HardSwish", "Sigmoid", "LeakyRelu")):
            case "":
                return x
            case "Clip":
                return self._same("Clip", x, *ends)
            case name:
                return self._same(name, x)

    def _dense(self, x: str) -> str:
        r, shape = self.rng, self.shapes[x]
        width = r.choice((1, shape[-1], 10, 16, 33))
        drawn = self.model.rng.standard_normal((shape[-1], width)) / np.sqrt(shape[-1])
        made = self.model.op("MatMul", x, self.model.fixed(drawn.astype(np.float32)))
        self.shapes[made] = (*shape[:-1], width)
        if r.random() < 0.7:
            made = self._same("Add", made, self.model.weights(width))
        return self._activation(made)

    def _conv(self, x: str, *, keeps: bool = False) -> str:
        r, (n, c, *sizes) = self.rng, self.shapes[x]
        axes = len(sizes)
        groups = 1 if keeps else r.choice((1, 1, c, next((g for g in (2, 3) if c % g == 0), 1)))
        k = c if keeps or groups == c else groups * r.choice((1, 2, 5, 8))
        window = [r.choice((1, 3)) if keeps else r.choice((1, 1, 2, 3, 5, 7)) for _ in sizes]
        strides = [1 if keeps else r.choice((1, 1, 2, 3)) for _ in sizes]
        steps = [1 if keeps else r.choice((1, 1, 1, 2, 3)) for _ in sizes]
        if keeps:
            pads = [w // 2 for w in window] * 2
        else:
            pads = [r.choice((0, 0, 1, 2)) for _ in range(2 * axes)]
        reach = [(w - 1) * d + 1 for w, d in zip(window, steps, strict=True)]
        for a, (size, need) in enumerate(zip(sizes, reach, strict=True)):
            pads[a] += max(0, need - size - pads[a] - pads[a + axes])
        out = [(size + pads[a] + pads[a + axes] - reach[a]) // strides[a] + 1 for a, size in enumerate(sizes)]
        bias = [self.model.fixed((self.model.rng.standard_normal(k) * 0.3).astype(np.float32))]
        made = self.model.op(
            "Conv", x, self.model.weights(k, c // groups, *window), *(bias if r.random() < 0.8 else []),
            pads=pads, strides=strides, dilations=steps, group=groups,
        )  # fmt: skip
        self.shapes[made] = (n, k, *out)
        return made if keeps else self._activation(made)

    def _branches(self, x: str) -> str:
        """Two ways, or one and none, and their sum."""
        a = self._activation(self._conv(x, keeps=True))
        b = x if self.rng.random() < 0.5 else self._conv(x, keeps=True)
        return self._activation(self._same("Add", *self.rng.sample((a, b), 2)))

    def _joint(self, x: str) -> str:
        a, b = self._conv(x, keeps=True), x
        made = self.model.op("Concat", a, b, axis=1)
        n, c, *sizes = self.shapes[x]
        self.shapes[made] = (n, 2 * c, *sizes)
        return made

    def _gate(self, x: str) -> str:
        """A product with one number for each channel, or for each element."""
        n, c, *sizes = self.shapes[x]
        by = x
        if self.rng.random() < 0.5:
            by = self.model.op("GlobalAveragePool", x)
            self.shapes[by] = (n, c, *[1] * len(sizes))
        return self._same("Mul", x, self._same("Sigmoid", self._conv(by, keeps=True)))

    def _pool(self, x: str) -> str:
        n, c, *sizes = self.shapes[x]
        window = [self.rng.choice((1, 2, 3)) if s > 2 else 1 for s in sizes]
        made = self.model.op(
            self.rng.choice(("MaxPool", "AveragePool")), x, kernel_shape=window, strides=window
        )
        self.shapes[made] = (n, c, *((s - w) // w + 1 for s, w in zip(sizes, window, strict=True)))
        return made

    def _up(self, x: str) -> str:
        """Twice the size: elements twice, or a transposed convolution."""
        n, c, *sizes = self.shapes[x]
        if int(np.prod(sizes)) > 150:
            return self._conv(x)
        if self.rng.random() < 0.5:
            scales = self.model.fixed(np.array([1, 1, *[2] * len(sizes)], np.float32))
            made = self.model.op(
                "Resize", x, "", scales, mode="nearest", coordinate_transformation_mode="asymmetric",
                nearest_mode="floor",
            )  # fmt: skip
        else:
            weights = self.model.weights(c, c, *[2] * len(sizes))
            made = self.model.op("ConvTranspose", x, weights, strides=[2] * len(sizes))
        self.shapes[made] = (n, c, *(2 * s for s in sizes))
        return made
