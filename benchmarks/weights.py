"""A step of a decoder like GPT-2 with weights in 32, 8 and 4 bits, against onnxruntime.

    python benchmarks/weights.py [--json] [--layers N] [--threads N] [--block B] [--rounds R]

One token meets a cache of others, so that all weights come from memory once: few bits are few bytes. Weights
are random (MatMulNBits, symmetric, a scale for each block of terms), and outputs are compared first. Each
model is there with products of floats and of activations in 8 bits (`accuracy_level=4`). `far` is how far our
result and the peer's are from the peer's with floats, relative to the largest.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import inlay
from measure import least

WIDTH, HEADS, PAST, VOCABULARY = 768, 12, 128, 8192
FORMS = ((32, 0), (8, 0), (8, 4), (4, 0), (4, 4))
"""Bits of weights, with the accuracy level."""
TOLERANCE = 1e-3
"""Between engines, relative to the largest output."""


@dataclass
class Row:
    """What was measured; times in milliseconds."""

    bits: int
    level: int
    threads: int
    ours: float
    onnxruntime: float
    ratio: float
    far: float
    far_onnxruntime: float
    times_float: float
    file: float


class Decoder:
    """Writes the model, with weights of so many bits."""

    def __init__(self, bits: int, block: int, layers: int, level: int = 0) -> None:
        self.level = level
        self.bits, self.block, self.random = bits, block, np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs = [_value("x", (1, WIDTH))]
        x = "x"
        for i in range(layers):
            x = self.op("Add", x, self.attention(self.normal(x), i))
            inner = self.op("Gelu", self.product(self.normal(x), WIDTH, 4 * WIDTH), domain="com.microsoft")
            x = self.op("Add", x, self.product(inner, 4 * WIDTH, WIDTH))
        self.result = self.product(self.normal(x), WIDTH, VOCABULARY)

    def model(self) -> onnx.ModelProto:
        """Return what was written."""
        outputs = [_value(self.result, None)]
        graph = helper.make_graph(self.nodes, "decoder", self.inputs, outputs, self.constants)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def op(self, name: str, *inputs: str, **attributes: object) -> str:
        """Add an operation; return the name of its result."""
        y = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(name, list(inputs), [y], **attributes))
        return y

    def constant(self, value: np.ndarray) -> str:
        """Add a constant."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def normal(self, x: str) -> str:
        """Add a layer normalization."""
        ones, zeros = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
        return self.op("LayerNormalization", x, self.constant(ones), self.constant(zeros))

    def product(self, x: str, k: int, n: int) -> str:
        """Add a product with weights and a bias."""
        bias = self.random.normal(0, 0.02, n).astype(np.float32)
        half = 1 << ((self.bits if self.bits < 32 else 8) - 1)
        scale = (self.random.uniform(0.5, 1, (n, k // self.block)) * 0.05 / half).astype(np.float32)
        q = self.random.integers(0, 2 * half, (n, k), np.int64).astype(np.uint8)
        if self.bits == 32:
            real = (q.astype(np.float32) - half) * np.repeat(scale, self.block, 1)
            y = self.op("MatMul", x, self.constant(np.ascontiguousarray(real.T)))
        else:
            packed = q if self.bits == 8 else q[:, 0::2] | (q[:, 1::2] << 4)
            shaped = packed.reshape(n, k // self.block, -1)
            attributes = {"K": k, "N": n, "bits": self.bits, "block_size": self.block}
            if self.level:
                attributes["accuracy_level"] = self.level
            operands = (self.constant(shaped), self.constant(scale.ravel()))
            y = self.op("MatMulNBits", x, *operands, domain="com.microsoft", **attributes)
        return self.op("Add", y, self.constant(bias))

    def attention(self, x: str, layer: int) -> str:
        """Add the attention of one token to those of a cache."""
        each, of_head = self.product(x, WIDTH, 3 * WIDTH), WIDTH // HEADS
        ends = self.constant(np.array([WIDTH] * 3, np.int64))
        names = [f"{part}{layer}" for part in ("query", "key", "value")]
        self.nodes.append(helper.make_node("Split", [each, ends], names, axis=1))
        heads = self.constant(np.array([HEADS, 1, of_head], np.int64))
        q, k, v = (self.op("Reshape", n, heads) for n in names)
        for kind in ("k", "v"):
            self.inputs.append(_value(f"past_{kind}{layer}", (HEADS, PAST, of_head)))
        keys = self.op("Concat", f"past_k{layer}", k, axis=1)
        values = self.op("Concat", f"past_v{layer}", v, axis=1)
        scores = self.op("MatMul", q, self.op("Transpose", keys, perm=[0, 2, 1]))
        scaled = self.op("Mul", scores, self.constant(np.float32(of_head**-0.5).reshape(())))
        mixed = self.op("MatMul", self.op("Softmax", scaled, axis=-1), values)
        row = self.constant(np.array([1, WIDTH], np.int64))
        return self.product(self.op("Reshape", mixed, row), WIDTH, WIDTH)


def _value(name: str, shape: tuple[int, ...] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


@dataclass
class Made:
    """A model in both engines, ours first, with how far their results are from those with floats."""

    calls: tuple[Callable[[], object], Callable[[], object]]
    megabytes: float
    far: tuple[float, float]


def _made(bits: int, level: int, arguments: argparse.Namespace, folder: str) -> Made:
    """Compile a model with both; outputs must agree."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = arguments.threads, 1

    def session_of(level: int) -> tuple[Path, ort.InferenceSession]:
        path = Path(folder) / f"decoder{bits}-{level}.onnx"
        onnx.save(Decoder(bits, arguments.block, arguments.layers, level).model(), path)
        return path, ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    floats = session_of(0)
    path, session = session_of(level) if level else floats
    random = np.random.default_rng(1)
    inputs = {i.name: random.standard_normal(i.shape).astype(np.float32) for i in session.get_inputs()}
    executable = inlay.compile(path, threads=arguments.threads, cache="none")
    real = floats[1].run(None, inputs)[0]
    found = (next(iter(executable.run(inputs).values())), session.run(None, inputs)[0])
    ours, theirs = (float(np.abs(x - real).max() / np.abs(real).max()) for x in found)
    if not ours <= (2 * theirs if level else TOLERANCE):
        raise SystemExit(f"{bits} bits: the output differs from onnxruntime's by {ours:.2g}")
    calls = (lambda: executable.run(inputs), lambda: session.run(None, inputs))
    return Made(calls, path.stat().st_size / 1e6, (ours, theirs))


def _shown(rows: list[Row]) -> None:
    heads = ("bits", "level", "ours ms", "ORT ms", "ORT/ours", "far", "ORT far", "float/this", "file MB")
    print("".join(f"{h:>11}" for h in heads))
    for r in rows:
        times = f"{r.ours:11.2f}{r.onnxruntime:11.2f}{r.ratio:11.2f}"
        far = f"{r.far:11.1e}{r.far_onnxruntime:11.1e}"
        print(f"{r.bits:11}{r.level:11}{times}{far}{r.times_float:11.2f}{r.file:11.1f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--block", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = {form: _made(*form, arguments, folder) for form in FORMS}
        best = {form: [float("inf")] * 2 for form in FORMS}
        for _ in range(arguments.rounds):
            for form, m in made.items():
                times = (least(c, arguments.threads, 0.15) for c in m.calls)
                best[form] = [min(b, t) for b, t in zip(best[form], times, strict=True)]
    rows: list[Row] = []
    for (bits, level), (ours, peer) in best.items():
        m, times = made[bits, level], (ours * 1e3, peer * 1e3, peer / ours)
        rows.append(Row(bits, level, arguments.threads, *times, *m.far, best[32, 0][0] / ours, m.megabytes))
    if arguments.json:
        print(json.dumps([asdict(r) for r in rows]))
    else:
        _shown(rows)


if __name__ == "__main__":
    main()
