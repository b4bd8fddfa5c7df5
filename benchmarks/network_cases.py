"""The models that `networks.py` measures: built from code with fixed seeds, each with inputs for a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx

import network_models as images
import transformer_models as words

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """One row.

    Attributes:
        name: of the row.
        make: builds the model.
        inputs: of a call.
        flops: of a call, products alone; None to count them in the graph (Loop is not counted).
        is_in_set: whether the row is one of those that the geometric mean is about.
    """

    name: str
    make: Callable[[], onnx.ModelProto]
    inputs: Callable[[], Arrays]
    flops: float | None = None
    is_in_set: bool = True


def _rng() -> np.random.Generator:
    return np.random.default_rng(1)


def noise(name: str, *dims: int) -> dict[str, np.ndarray]:
    """Return an input of random floats."""
    return {name: _rng().standard_normal(dims).astype(np.float32)}


def sentences(batch: int, length: int) -> Arrays:
    """Return ids and a mask; the last words of all sentences but the first are padding."""
    mask = np.ones((batch, length), np.int64)
    mask[1:, length * 3 // 4 :] = 0
    return {"ids": _rng().integers(0, 30000, (batch, length)), "mask": mask}


def _products(shape: words.Shape, batch: int, length: int) -> float:
    """Return the FLOPs of an encoder's products; shape inference does not see through its slice."""
    weights = 4 * shape.width**2 + 2 * shape.width * shape.inner
    return 2.0 * batch * length * shape.layers * (weights + 2 * length * shape.width)


def _step(shape: words.Shape, past: int) -> Arrays:
    caches = {
        f"{part}{i}": _rng().standard_normal((1, shape.heads, past, shape.head)).astype(np.float32)
        for i in range(shape.layers)
        for part in "kv"
    }
    return {"ids": np.array([[7]]), "position": np.array([[past]]), **caches}


def _image(name: str, batch: int | str = 1) -> Callable[[], onnx.ModelProto]:
    def make() -> onnx.ModelProto:
        build, size = images.NETWORKS[name]
        model = build(size)
        first = model.graph.input[0].type.tensor_type.shape.dim[0]
        if isinstance(batch, str):
            first.dim_param = batch
        else:
            first.dim_value = batch
        return model

    return make


def _pixels(name: str, batch: int = 1) -> Callable[[], Arrays]:
    size = images.NETWORKS[name][1]
    return lambda: noise("x", batch, 3, size, size)


def _mlp() -> onnx.ModelProto:
    net = words.Transformer("mlp", 0)
    x = net.input("x", [1, 64])
    for _ in range(3):
        x = net.op("Relu", net.linear(x, 64, 64))
    return net.built({net.named("y", x): [1, 64]})


def _product(size: int, *, is_constant: bool) -> onnx.ModelProto:
    net = words.Transformer("gemm", 0)
    a = net.input("a", [size, size])
    b = net.noise((size, size), size**-0.5) if is_constant else net.input("b", [size, size])
    return net.built({net.named("y", net.op("MatMul", a, b)): [size, size]})


def _factors(size: int, *, is_constant: bool) -> Arrays:
    return noise("a", size, size) | ({} if is_constant else noise("b", size, size))


def _rows(name: str) -> onnx.ModelProto:
    net = words.Transformer(name, 0)
    dims = [256 if name == "normmix" else 1024, 1024]
    x = net.input("x", dims)
    if name == "softmax":
        y = net.op("Softmax", x, axis=-1)
    elif name == "layernorm":
        y = net.normalized(x, 1024)
    elif name == "eltchain":
        y = net.gelu(net.op("Add", x, net.noise((1024,), 1.0)))
        y = net.op("Mul", net.op("Tanh", y), net.op("Sigmoid", x))
        y = net.op("Exp", net.op("Neg", net.op("Mul", y, y)))
    else:
        n = net.normalized(x, 1024)
        y = net.op("Mul", net.op("Softmax", net.gelu(n), axis=-1), n)
    return net.built({net.named("y", y): dims})


def _image_cases() -> list[Case]:
    cases = [
        Case(name, _image(name), _pixels(name), is_in_set=name not in ("resnet50_96", "resnext"))
        for name in images.NETWORKS
    ]
    for word, dim, batch in (("b", "", 8), ("b", "", 32), ("dyn@", "n", 1), ("dyn@", "n", 4)):
        make, inputs = _image("resnet50", dim or batch), _pixels("resnet50", batch)
        cases.append(Case(f"resnet50_{word}{batch}", make, inputs, is_in_set=False))
    return cases


LENGTHS = ((1, 16), (1, 50), (1, 128), (2, 77))
"""Batches and lengths of sentences for encoders whose dims calls choose."""


def _encoder(name: str, shape: words.Shape, batch: int, length: int, *, fixed: bool = True) -> Case:
    dims = (batch, length) if fixed else ("b", "t")
    return Case(
        name,
        lambda: words.bert(shape, *dims),
        lambda: sentences(batch, length),
        _products(shape, batch, length),
    )


def _word_cases() -> list[Case]:
    cases = [Case("vit_small", lambda: words.vit(words.VIT), lambda: noise("x", 1, 3, 224, 224))]
    for name, shape in (("bert", words.BERT), ("minilm", words.MINILM)):
        cases += [
            _encoder(f"{name}_128", shape, 1, 128),
            *(_encoder(f"{name}_dyn@{b}x{t}", shape, b, t, fixed=False) for b, t in LENGTHS),
        ]
    cases += [
        replace(_encoder("bert_512", words.BERT, 1, 512), is_in_set=False),
        replace(_encoder("bert_b8", words.BERT, 8, 128), is_in_set=False),
        Case("gpt2_step", lambda: words.gpt_step(words.GPT2, "past"), lambda: _step(words.GPT2, 128)),
        Case(
            "greedy_32",
            lambda: words.greedy(words.SMALL_GPT, 32),
            lambda: {"first": np.array([[7]])},
            32 * 2.0 * (12 * 4 * 256**2 + 256 * 8192),
        ),
        Case("lstm", lambda: words.lstm(64, 256), lambda: noise("x", 64, 1, 256)),
    ]
    return cases


def _small_cases() -> list[Case]:
    cases = [Case("mlp", _mlp, lambda: noise("x", 1, 64))]
    for name in ("softmax", "layernorm", "eltchain", "normmix"):
        rows = 256 if name == "normmix" else 1024
        cases.append(Case(name, lambda n=name: _rows(n), lambda r=rows: noise("x", r, 1024)))
    for word, is_constant in (("gemm", False), ("gemmw", True)):
        cases += [
            Case(
                f"{word}_{size}",
                lambda n=size, c=is_constant: _product(n, is_constant=c),
                lambda n=size, c=is_constant: _factors(n, is_constant=c),
            )
            for size in (256, 512, 1024, 2048)
        ]
    return cases


CASES: tuple[Case, ...] = (*_image_cases(), *_word_cases(), *_small_cases())


def flops(model: onnx.ModelProto, inputs: Arrays) -> float:
    """Return the multiplications and additions of products in a call; what a Loop holds is left out."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for x in fixed.graph.input:
        shape = x.type.tensor_type.shape
        shape.Clear()
        for extent in inputs[x.name].shape:
            shape.dim.add().dim_value = extent
    for y in fixed.graph.output:
        y.type.tensor_type.ClearField("shape")
    graph = onnx.shape_inference.infer_shapes(fixed, data_prop=True).graph
    dims = {w.name: tuple(w.dims) for w in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        dims[value.name] = tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
    total = 0.0
    for node in graph.node:
        shapes = [dims.get(x, ()) for x in node.input]
        result = float(np.prod(dims.get(node.output[0], (0,))))
        match node.op_type:
            case "Conv":
                total += 2 * result * float(np.prod(shapes[1][1:]))
            case "ConvTranspose":
                total += 2 * float(np.prod(shapes[0])) * float(np.prod(shapes[1][1:]))
            case "MatMul" | "Gemm":
                total += 2 * result * shapes[0][-1]
            case "LSTM":
                total += 2 * float(np.prod(shapes[0][:2]) * np.prod(shapes[1][1:]))
                total += 2 * float(np.prod(shapes[0][:2]) * np.prod(shapes[2][1:]))
            case _:
                pass
    return total
