"""Quantized models, made by the quantizer of onnxruntime, and what their QDQ graphs mean: in f64, node by node.

`deviations` holds what a compiled model gives, at every tensor that it quantizes, against the nodes in
front in f64 that begin with the integers that the compiled model had there: so a step that one layer is off is
not counted again behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import inlay
from inlay.ops.convolution import ConvAttrs, conv_reference

Arrays = dict[str, np.ndarray]
MICROSOFT = "com.microsoft"


class Float:
    """A float model that is written node by node.

    Attributes:
        rng: of its weights.
    """

    def __init__(self, shape: tuple[int, ...], seed: int = 7, dims: tuple[object, ...] = ()) -> None:
        self.rng = np.random.default_rng(seed)
        self._shape = shape
        self._dims = dims or shape
        self._nodes: list[onnx.NodeProto] = []
        self._fixed: dict[str, np.ndarray] = {}

    def fixed(self, value: np.ndarray) -> str:
        """Return the name of a constant."""
        name = f"c{len(self._fixed)}"
        self._fixed[name] = value
        return name

    def weights(self, *shape: int) -> str:
        """Return the name of random weights that keep magnitudes."""
        scale = 1.5 / np.sqrt(max(1, int(np.prod(shape[1:]))))
        return self.fixed((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def op(self, name: str, *inputs: str, domain: str = "", **attrs: object) -> str:
        """Return the name of the result of a node."""
        out = f"t{len(self._nodes)}"
        self._nodes.append(helper.make_node(name, list(inputs), [out], name=out, domain=domain, **attrs))
        return out

    def conv(self, x: str, oc: int, c: int, k: int = 3, **attrs: object) -> str:
        """Return a convolution with a bias."""
        bias = self.fixed((self.rng.standard_normal(oc) * 0.3).astype(np.float32))
        pads = attrs.pop("pads", [k // 2] * 4)
        group = int(attrs.get("group", 1))  # type: ignore[call-overload]
        return self.op("Conv", x, self.weights(oc, c // group, k, k), bias, pads=pads, **attrs)

    def model(self, out: str, opset: int = 17, domains: tuple[str, ...] = ()) -> onnx.ModelProto:
        """Return the model with one input, `x`, and one output; `domains` are those of other operators."""
        opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
        graph = helper.make_graph(
            self._nodes,
            "quantized",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(self._dims))],
            [helper.make_tensor_value_info(out, TensorProto.FLOAT, None)],
            [numpy_helper.from_array(v, n) for n, v in self._fixed.items()],
        )
        model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
        return onnx.shape_inference.infer_shapes(model)

    def samples(self, count: int = 4) -> list[Arrays]:
        """Return inputs."""
        return [{"x": self.rng.standard_normal(self._shape).astype(np.float32)} for _ in range(count)]


def quantized(
    model: onnx.ModelProto, samples: list[Arrays], folder: Path, **options: object
) -> onnx.ModelProto:
    """Return a model that onnxruntime's quantizer made of a float model."""
    from onnxruntime.quantization import CalibrationDataReader, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self._left = iter(samples)

        def get_next(self) -> Arrays | None:  # type: ignore[override]
            return next(self._left, None)

    source, target = folder / "float.onnx", folder / "quantized.onnx"
    onnx.save(model, source)
    quantize_static(source, target, Reader(), **options)
    return onnx.load(target)


def watched(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose outputs are all that it quantizes, behind its own."""
    found = onnx.ModelProto()
    found.CopyFrom(model)
    own = {o.name for o in found.graph.output}
    types = {i.name: i.data_type for i in found.graph.initializer}
    for node in found.graph.node:
        at = _ZERO_OF_RESULT.get(node.op_type)
        if at is not None and node.output[0] not in own:
            elem = types[node.input[at]]
            found.graph.output.append(helper.make_tensor_value_info(node.output[0], elem, None))
    return found


def deviations(model: onnx.ModelProto, inputs: Arrays, results: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return by how many steps each tensor that is quantized is off at most."""
    values: Arrays = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer} | inputs
    steps: dict[str, float] = {}
    for node in model.graph.node:
        args = [values[n] if n else None for n in node.input]
        attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        out = node.output[0]
        rule = _RULES.get(node.op_type)
        values[out] = _by_peer(model, node, values) if rule is None else rule(attrs, *args)
        if out in results and node.op_type in _ZERO_OF_RESULT:
            wanted, got = values[out].astype(np.int64), results[out].astype(np.int64)
            assert got.shape == wanted.shape
            steps[out] = float(np.abs(wanted - got).max(initial=0))
            values[out] = results[out]
    return steps


def _by_peer(model: onnx.ModelProto, node: onnx.NodeProto, values: Arrays) -> np.ndarray:
    """Return the first result of an operator that is not here, as onnxruntime computes it in f32."""
    import onnxruntime

    given = {n: np.asarray(values[n]) for n in dict.fromkeys(node.input) if n}
    given = {n: v.astype(np.float32) if v.dtype == np.float64 else v for n, v in given.items()}
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in given.items()
    ]
    graph = helper.make_graph([node], "one", inputs, [onnx.ValueInfoProto(name=node.output[0])])
    one = helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=model.ir_version)
    session = onnxruntime.InferenceSession(one.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, given)[0]


def run_watched(model: onnx.ModelProto, inputs: Arrays, **options: object) -> Arrays:
    """Return all outputs of a model and all that it quantizes, compiled."""
    compiled = inlay.compile(watched(model), threads=1, cache=None, **options)
    return dict(compiled.run(inputs))


# --------------------------------------------------------------------------- meanings in f64


def _along(p: np.ndarray, x: np.ndarray, axis: int) -> np.ndarray:
    if p.size == 1:
        return p.reshape(()).astype(np.float64)
    return p.astype(np.float64).reshape([-1 if d == axis % x.ndim else 1 for d in range(x.ndim)])


def _quantize(a: Mapping[str, int], x: np.ndarray, s: np.ndarray, z: np.ndarray) -> np.ndarray:
    axis = a.get("axis", 1)
    info = np.iinfo(z.dtype)
    q = np.rint(x.astype(np.float64) / _along(s, x, axis)) + _along(z, x, axis)
    return np.clip(q, info.min, info.max).astype(z.dtype)


def _dequantize(
    a: Mapping[str, int], q: np.ndarray, s: np.ndarray, z: np.ndarray | None = None
) -> np.ndarray:
    axis = a.get("axis", 1)
    zero = 0 if z is None else _along(z, q, axis)
    return (q.astype(np.float64) - zero) * _along(s, q, axis)


def _conv(a: Mapping[str, list[int]], x: np.ndarray, w: np.ndarray, *b: np.ndarray) -> np.ndarray:
    attrs = ConvAttrs(
        tuple(a.get("strides", ())),
        tuple(a.get("pads", ())),
        tuple(a.get("dilations", ())),
        a.get("group", 1),
    )
    y = conv_reference(attrs, x.astype(np.float64), w.astype(np.float64))
    return y + b[0].reshape(-1, *[1] * (x.ndim - 2)) if b else y


def _gemm(a: Mapping[str, float], x: np.ndarray, w: np.ndarray, *c: np.ndarray) -> np.ndarray:
    x, w = (x.T if a.get("transA") else x), (w.T if a.get("transB") else w)
    y = a.get("alpha", 1.0) * (x.astype(np.float64) @ w.astype(np.float64))
    return y + a.get("beta", 1.0) * c[0] if c else y


def _pool(take: Callable[..., np.ndarray], a: Mapping[str, list[int]], x: np.ndarray) -> np.ndarray:
    kernel, strides = a["kernel_shape"], a.get("strides", [1, 1])
    before, after = a.get("pads", [0] * 4)[:2], a.get("pads", [0] * 4)[2:]
    x = x.astype(np.float64)
    fill = -np.inf if take is np.max else 0.0
    wide = np.pad(x, [(0, 0), (0, 0), *zip(before, after, strict=True)], constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(wide, kernel, (2, 3))  # type: ignore[call-overload]
    return take(view[:, :, :: strides[0], :: strides[1]], axis=(-1, -2))


def _softmax(a: Mapping[str, int], x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(a.get("axis", -1), keepdims=True))
    return e / e.sum(a.get("axis", -1), keepdims=True)


def _layer_norm(a: Mapping[str, float], x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    centered = x - x.mean(-1, keepdims=True)
    variance = (centered**2).mean(-1, keepdims=True)
    return centered / np.sqrt(variance + a.get("epsilon", 1e-5)) * scale + bias


def _reshape(a: Mapping[str, int], x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    return x.reshape([x.shape[i] if d == 0 else d for i, d in enumerate(shape.tolist())])


def _q_linear(name: str, count: int = 1) -> Callable[..., np.ndarray]:
    """Inputs: tensor, scale and zero point of each operand, then scale and zero point of the result."""

    def rule(a: Mapping[str, int], *args: np.ndarray) -> np.ndarray:
        reals = [_dequantize({"axis": -1}, *args[3 * i : 3 * i + 3]) for i in range(count)]
        return _quantize({}, _RULES[name](a, *reals), *args[3 * count : 3 * count + 2])

    return rule


def _q_conv(a: Mapping[str, int], *args: np.ndarray) -> np.ndarray:
    x, w = _dequantize({}, *args[:3]), _dequantize({"axis": 0}, *args[3:6])
    bias = [args[8] * args[1].astype(np.float64) * args[4]] if len(args) > 8 else []
    return _quantize({}, _conv(a, x, w, *bias), *args[6:8])


def _q_gemm(a: Mapping[str, float], *args: np.ndarray) -> np.ndarray:
    x, w = _dequantize({}, *args[:3]), _dequantize({"axis": 0 if a.get("transB") else 1}, *args[3:6])
    bias = 0 if args[6] is None else args[6]
    return _quantize({}, _gemm(a, x, w, bias * args[1].astype(np.float64) * args[4]), *args[7:9])


def _q_concat(a: Mapping[str, int], s: np.ndarray, z: np.ndarray, *parts: np.ndarray) -> np.ndarray:
    reals = [_dequantize({}, *parts[i : i + 3]) for i in range(0, len(parts), 3)]
    return _quantize({}, np.concatenate(reals, a["axis"]), s, z)


_ZERO_OF_RESULT = {
    "QuantizeLinear": 2,
    "QLinearConv": 7,
    "QLinearMatMul": 7,
    "QGemm": 8,
    "QLinearAdd": 7,
    "QLinearMul": 7,
    "QLinearConcat": 1,
    "QLinearSigmoid": 4,
    "QLinearGlobalAveragePool": 4,
    "QLinearAveragePool": 4,
    "QLinearSoftmax": 4,
    "QLinearLeakyRelu": 4,
}
"""Of operators that quantize: which input is the zero point of the result."""

_RULES: Mapping[str, Callable[..., np.ndarray]] = {
    "QLinearConv": _q_conv,
    "QLinearMatMul": _q_linear("MatMul", 2),
    "QGemm": _q_gemm,
    "QLinearAdd": _q_linear("Add", 2),
    "QLinearMul": _q_linear("Mul", 2),
    "QLinearConcat": _q_concat,
    "QLinearSigmoid": _q_linear("Sigmoid"),
    "QLinearGlobalAveragePool": _q_linear("GlobalAveragePool"),
    "QLinearAveragePool": _q_linear("AveragePool"),
    "QLinearSoftmax": _q_linear("Softmax"),
    "QLinearLeakyRelu": _q_linear("LeakyRelu"),
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "Conv": _conv,
    "Gemm": _gemm,
    "MatMul": lambda a, x, y: np.matmul(x.astype(np.float64), y.astype(np.float64)),
    "Add": lambda a, x, y: x.astype(np.float64) + y,
    "Sub": lambda a, x, y: x.astype(np.float64) - y,
    "Mul": lambda a, x, y: x.astype(np.float64) * y,
    "Div": lambda a, x, y: x.astype(np.float64) / y,
    "Relu": lambda a, x: np.maximum(x, 0),
    "LeakyRelu": lambda a, x: np.where(x < 0, x * a.get("alpha", 0.01), x),
    "Clip": lambda a, x, low, high: np.clip(x, low, high),
    "MaxPool": lambda a, x: _pool(np.max, a, x),
    "AveragePool": lambda a, x: _pool(np.mean, a, x),
    "GlobalAveragePool": lambda a, x: x.mean((2, 3), keepdims=True, dtype=np.float64),
    "Concat": lambda a, *xs: np.concatenate(xs, a["axis"]),
    "Flatten": lambda a, x: x.reshape(int(np.prod(x.shape[: a.get("axis", 1)])), -1),
    "Reshape": _reshape,
    "Transpose": lambda a, x: x.transpose(a["perm"]),
    "Sigmoid": lambda a, x: 1 / (1 + np.exp(-x.astype(np.float64))),
    "HardSigmoid": lambda a, x: np.clip(x * a.get("alpha", 0.2) + a.get("beta", 0.5), 0, 1),
    "Tanh": lambda a, x: np.tanh(x.astype(np.float64)),
    "Softmax": _softmax,
    "LayerNormalization": _layer_norm,
}
