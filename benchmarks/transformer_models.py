"""Transformers with random weights as ONNX models, written as their exporters write them.

Attention is products, scalings, masks and softmax of their own, gelu is a chain with `Erf`, and layer
normalization is one operator. Dims are numbers or names: a name is a dim that calls choose.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from network_models import Dims, Graph


@dataclass(frozen=True)
class Shape:
    """How large a transformer is.

    Attributes:
        layers, width, heads, inner: numbers of blocks, of channels, of heads, of channels inside of a block.
        words: size of the vocabulary.
        positions: of the table of positions.
    """

    layers: int
    width: int
    heads: int
    inner: int
    words: int = 30522
    positions: int = 512

    @property
    def head(self) -> int:
        """Channels of a head."""
        return self.width // self.heads


BERT = Shape(12, 768, 12, 3072)
MINILM = Shape(6, 384, 12, 1536)
VIT = Shape(12, 384, 6, 1536)
GPT2 = Shape(12, 768, 12, 3072, words=50257, positions=1024)
SMALL_GPT = Shape(4, 256, 4, 1024, words=8192, positions=128)


class Transformer(Graph):
    """A graph with the layers of transformers."""

    def linear(self, x: str, c: int, o: int) -> str:
        """Add a product with weights and a bias."""
        return self.op("Add", self.op("MatMul", x, self.noise((c, o), c**-0.5)), self.noise((o,), 0.02))

    def normalized(self, x: str, c: int) -> str:
        """Add a layer normalization."""
        scale = self.constant(np.ones(c, np.float32))
        return self.op("LayerNormalization", x, scale, self.noise((c,), 0.02), axis=-1, epsilon=1e-5)

    def scalar(self, value: float) -> str:
        """Add a number."""
        return self.constant(np.array(value, np.float32))

    def gelu(self, x: str) -> str:
        """Add x / 2 (1 + erf(x / sqrt 2))."""
        y = self.op("Add", self.op("Erf", self.op("Div", x, self.scalar(2**0.5))), self.scalar(1))
        return self.op("Mul", self.op("Mul", x, y), self.scalar(0.5))

    def gelu_tanh(self, x: str) -> str:
        """Add the form of gelu with a tanh."""
        cubed = self.op("Mul", self.op("Mul", self.op("Mul", x, x), x), self.scalar(0.044715))
        inner = self.op("Mul", self.op("Add", x, cubed), self.scalar((2 / np.pi) ** 0.5))
        y = self.op("Add", self.op("Tanh", inner), self.scalar(1))
        return self.op("Mul", self.op("Mul", x, y), self.scalar(0.5))

    def heads(self, x: str, shape: Shape) -> str:
        """Put heads in front of rows: [b, t, c] to [b, heads, t, c / heads]."""
        apart = self.constant(np.array([0, 0, shape.heads, shape.head]))
        return self.op("Transpose", self.op("Reshape", x, apart), perm=[0, 2, 1, 3])

    def attended(self, q: str, k: str, v: str, shape: Shape, mask: str = "") -> str:
        """Add softmax(q k^T / sqrt(head) + mask) v of heads, and put the heads beside each other."""
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.op("Div", scores, self.scalar(shape.head**0.5))
        if mask:
            scores = self.op("Add", scores, mask)
        y = self.op("MatMul", self.op("Softmax", scores, axis=-1), v)
        beside = self.constant(np.array([0, 0, shape.width]))
        return self.op("Reshape", self.op("Transpose", y, perm=[0, 2, 1, 3]), beside)

    def attention(self, x: str, shape: Shape, mask: str = "") -> str:
        """Add attention of a sequence to itself."""
        q, k, v = (self.heads(self.linear(x, shape.width, shape.width), shape) for _ in range(3))
        return self.linear(self.attended(q, k, v, shape, mask), shape.width, shape.width)

    def cached(self, x: str, shape: Shape, past: tuple[str, str]) -> tuple[str, str, str]:
        """Add attention of the last words to what the caches hold; return it and the longer caches."""
        width = shape.width
        parts = self.split(self.linear(x, width, 3 * width), [width] * 3, 2)
        q, k, v = (self.heads(part, shape) for part in parts)
        k, v = (self.op("Concat", old, new, axis=2) for old, new in zip(past, (k, v), strict=True))
        return self.linear(self.attended(q, k, v, shape), width, width), k, v


def bert(shape: Shape, batch: int | str, length: int | str) -> onnx.ModelProto:
    """Devlin and others, 2018: ids and a mask to the last hidden states."""
    net = Transformer("bert", 0)
    ids, kept = (net.input(n, [batch, length], np.int64) for n in ("ids", "mask"))
    first, no_axes = net.constant(np.array([1])), net.constant(np.array([0]))
    count = net.op("Gather", net.op("Shape", ids), first, axis=0)
    table = net.noise((1, shape.positions, shape.width), 0.02)
    x = net.op("Gather", net.noise((shape.words, shape.width), 0.02), ids, axis=0)
    x = net.op("Add", x, net.op("Slice", table, no_axes, count, first))
    x = net.op("Add", x, net.noise((shape.width,), 0.02))
    x = net.normalized(x, shape.width)
    mask = net.op(
        "Unsqueeze", net.op("Cast", kept, to=onnx.TensorProto.FLOAT), net.constant(np.array([1, 2]))
    )
    mask = net.op("Mul", net.op("Sub", net.scalar(1), mask), net.scalar(-10000))
    for _ in range(shape.layers):
        x = net.normalized(net.op("Add", net.attention(x, shape, mask), x), shape.width)
        inner = net.gelu(net.linear(x, shape.width, shape.inner))
        x = net.normalized(net.op("Add", net.linear(inner, shape.inner, shape.width), x), shape.width)
    return net.built({net.named("hidden", x): [batch, length, shape.width]})


def vit(shape: Shape, side: int = 224, patch: int = 16) -> onnx.ModelProto:
    """Dosovitskiy and others, 2020: an image to classes."""
    net, width, count = Transformer("vit", 0), shape.width, (side // patch) ** 2
    x = net.input("x", [1, 3, side, side])
    w = net.noise((width, 3, patch, patch), (3 * patch * patch) ** -0.5)
    x = net.op("Conv", x, w, net.noise((width,), 0.02), strides=[patch, patch])
    x = net.op("Reshape", x, net.constant(np.array([0, width, count])))
    x = net.op("Transpose", x, perm=[0, 2, 1])
    x = net.op("Concat", net.noise((1, 1, width), 0.02), x, axis=1)
    x = net.op("Add", x, net.noise((1, count + 1, width), 0.02))
    for _ in range(shape.layers):
        x = net.op("Add", net.attention(net.normalized(x, width), shape), x)
        inner = net.gelu(net.linear(net.normalized(x, width), width, shape.inner))
        x = net.op("Add", net.linear(inner, shape.inner, width), x)
    x = net.op("Gather", net.normalized(x, width), net.constant(np.array(0)), axis=1)
    return net.built({net.named("classes", net.linear(x, width, 1000)): [1, 1000]})


def _decoder(net: Transformer, shape: Shape, x: str, pasts: list[tuple[str, str]]) -> tuple[str, list[str]]:
    """Add the blocks of a decoder over caches; return the states and the longer caches."""
    caches: list[str] = []
    for past in pasts:
        y, k, v = net.cached(net.normalized(x, shape.width), shape, past)
        x = net.op("Add", x, y)
        inner = net.gelu_tanh(net.linear(net.normalized(x, shape.width), shape.width, shape.inner))
        x = net.op("Add", x, net.linear(inner, shape.inner, shape.width))
        caches += [k, v]
    return net.normalized(x, shape.width), caches


def gpt_step(shape: Shape, past: int | str) -> onnx.ModelProto:
    """Radford and others, 2019: a word, its place and caches to scores of the next and longer caches."""
    net = Transformer("gpt", 0)
    ids, position = (net.input(n, [1, 1], np.int64) for n in ("ids", "position"))
    dims: Dims = [1, shape.heads, past, shape.head]
    pasts = [(net.input(f"k{i}", dims), net.input(f"v{i}", dims)) for i in range(shape.layers)]
    table = net.noise((shape.words, shape.width), 0.02)
    x = net.op("Gather", table, ids, axis=0)
    x = net.op("Add", x, net.op("Gather", net.noise((shape.positions, shape.width), 0.02), position, axis=0))
    x, caches = _decoder(net, shape, x, pasts)
    x = net.named("scores", net.op("MatMul", x, net.op("Transpose", table, perm=[1, 0])))
    results: dict[str, Dims | None] = {x: [1, 1, shape.words]}
    now = past + 1 if isinstance(past, int) else "now"
    for i, cache in enumerate(caches):
        results[net.named(f"{'kv'[i % 2]}{i // 2}_now", cache)] = [1, shape.heads, now, shape.head]
    return net.built(results)


def greedy(shape: Shape, count: int) -> onnx.ModelProto:
    """A decoder in a loop: from one word, `count` words of the greatest score, with caches that grow."""
    body = Transformer("turn", 0)
    at, go = body.input("i", [], np.int64), body.input("go", [], bool)
    ids = body.input("ids", [1, 1], np.int64)
    dims: Dims = [1, shape.heads, "p", shape.head]
    pasts = [(body.input(f"k{i}", dims), body.input(f"v{i}", dims)) for i in range(shape.layers)]
    table = body.noise((shape.words, shape.width), 0.5)
    x = body.op("Gather", table, ids, axis=0)
    x = body.op("Add", x, body.op("Gather", body.noise((shape.positions, shape.width), 0.5), at, axis=0))
    x, caches = _decoder(body, shape, x, pasts)
    scores = body.op("MatMul", x, body.noise((shape.width, shape.words), 0.1))
    following = body.op("ArgMax", scores, axis=-1, keepdims=0)
    now: Dims = [1, shape.heads, "p_now", shape.head]
    results: dict[str, Dims | None] = {body.named("on", go): [], body.named("next", following): [1, 1]}
    results |= {body.named(f"now{i}", c): now for i, c in enumerate(caches)}
    results[body.named("word", following)] = [1, 1]
    turn = body.graph(results, {"on": bool, "next": np.int64, "word": np.int64})
    outside = Graph("greedy", 0)
    outside.input("first", [1, 1], np.int64)
    empty = outside.constant(np.zeros((1, shape.heads, 0, shape.head), np.float32))
    given = [outside.constant(np.array(count)), outside.constant(np.ones((), bool)), "first"]
    outside.op("Loop", *given, *[empty] * len(caches), body=turn)
    words = outside.named("words", outside.more(len(caches) + 1)[-1])
    return outside.built({words: [count, 1, 1]}, {words: np.int64})


def lstm(steps: int, width: int) -> onnx.ModelProto:
    """One recurrent layer, hidden states as wide as its inputs."""
    net = Graph("lstm", 0)
    x = net.input("x", [steps, 1, width])
    w, r = (net.noise((1, 4 * width, width), width**-0.5) for _ in range(2))
    y = net.op("LSTM", x, w, r, net.noise((1, 8 * width), 0.1), hidden_size=width)
    return net.built({net.named("y", y): [steps, 1, 1, width]})
