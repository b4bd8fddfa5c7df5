"""A step of a decoder like GPT-2 with weights in 32, 8 and 4 bits, against onnxruntime.

    python benchmarks/weights.py [--json] [--layers N] [--threads N] [--block B] [--rounds R]

One token meets a cache of others, so that all weights come from memory once: few bits are few bytes. Weights
are random (MatMulNBits, symmetric, a scale for each block of terms), and outputs are compared first. The peer
runs with floats, as we do, and with activations in 8 bits (`accuracy_level=4`): `far` is how far its result
is from that with floats then, relative to the largest.
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
TOLERANCE = 1e-3
"""Between engines, relative to the largest output."""


@dataclass
class Row:
    """What was measured; times in milliseconds."""

    bits: int
    threads: int
    ours: float
    onnxruntime: float
    ratio: float
    in_bytes: float
    far: float
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
    """A model in all engines: ours, the peer, and the peer with activations in 8 bits."""

    calls: list[Callable[[], object]]
    megabytes: float
    far: float


def _made(bits: int, arguments: argparse.Namespace, folder: str) -> Made:
    """Compile a model with both; outputs with floats must agree."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = arguments.threads, 1
    paths, sessions = [], []
    for level in (0,) if bits == 32 else (0, 4):
        path = Path(folder) / f"decoder{bits}-{level}.onnx"
        model = Decoder(bits, arguments.block, arguments.layers, level).model()
        onnx.save(model, path)
        paths.append(path)
        sessions.append(ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]))
    random = np.random.default_rng(1)
    inputs = {
        i.name: random.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim]).astype(np.float32)
        for i in model.graph.input
    }
    executable = inlay.compile(paths[0], threads=arguments.threads, cache="none")
    expected, *others = (session.run(None, inputs)[0] for session in sessions)
    found = next(iter(executable.run(inputs).values()))
    ours, *far = (np.abs(x - expected).max() / np.abs(expected).max() for x in (found, *others))
    if not ours <= TOLERANCE:
        raise SystemExit(f"{bits} bits: the output differs from onnxruntime's by {ours:.2g}")
    calls = [lambda: executable.run(inputs), *((lambda s=s: s.run(None, inputs)) for s in sessions)]
    return Made(calls, paths[0].stat().st_size / 1e6, float(max(far, default=0.0)))


def _shown(rows: list[Row]) -> None:
    heads = ("bits", "ours ms", "ORT ms", "ORT/ours", "int8 ms", "far", "float/this", "file MB")
    print("".join(f"{h:>11}" for h in heads))
    for r in rows:
        times = f"{r.ours:11.2f}{r.onnxruntime:11.2f}{r.ratio:11.2f}{r.in_bytes:11.2f}"
        print(f"{r.bits:11}{times}{r.far:11.4f}{r.times_float:11.2f}{r.file:11.1f}")


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
        made = {bits: _made(bits, arguments, folder) for bits in (32, 8, 4)}
        best = {bits: [float("inf")] * len(m.calls) for bits, m in made.items()}
        for _ in range(arguments.rounds):
            for bits, m in made.items():
                best[bits] = [
                    min(b, least(c, arguments.threads, 0.15))
                    for b, c in zip(best[bits], m.calls, strict=True)
                ]
    rows: list[Row] = []
    for bits, (ours, peer, *in_bytes) in best.items():
        times = [ours * 1e3, peer * 1e3, peer / ours, min(in_bytes, default=peer) * 1e3]
        m = made[bits]
        rows.append(Row(bits, arguments.threads, *times, m.far, best[32][0] / ours, m.megabytes))
    if arguments.json:
        print(json.dumps([asdict(r) for r in rows]))
    else:
        _shown(rows)


if __name__ == "__main__":
    main()
