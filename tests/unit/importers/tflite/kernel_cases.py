"""Models of one operator of integers, drawn from their names, for which results of kernels are recorded."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from tests.tflite_models import Graph, Op, T, constant, model, models

ENDS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}
FIXED = {
    "LOGISTIC": {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)},
    "TANH": {"int8": (1 / 128, 0), "uint8": (1 / 128, 128), "int16": (1 / 32768, 0)},
}
FIXED["LOG_SOFTMAX"] = {"int8": (1 / 16, 127), "uint8": (1 / 16, 255)}
FIXED["SOFTMAX"] = FIXED["LOGISTIC"]
FIXED["L2_NORMALIZATION"] = {"int8": (1 / 128, 0), "uint8": (1 / 128, 128)}


@dataclass(frozen=True)
class Case:
    """A model, and inputs by position for each run."""

    name: str
    content: bytes
    runs: list[list[np.ndarray]]
    outputs: int = 1


class Draw:
    """Draws tensors for a case from its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))

    def real(self, low: float, high: float) -> float:
        return float(np.float32(self.rng.uniform(low, high)))

    def tensor(self, shape, dtype: str, scale: float = 0.0, zero: int | None = None) -> T:
        low, high = ENDS[dtype]
        if zero is None:
            zero = 0 if dtype == "int16" else int(self.rng.integers(low // 2, high // 2))
        span = (5e-5, 5e-4) if dtype == "int16" else (0.005, 0.1)
        return T(tuple(shape), dtype, scale=scale or self.real(*span), zero=zero)

    def data(self, t: T) -> np.ndarray:
        low, high = ENDS[t.dtype]
        return self.rng.integers(low, high + 1, t.shape).astype(t.dtype)

    def weights(self, shape, dtype: str, axis: int = 0, *, per_channel: bool) -> T:
        low, high, zero = (0, 256, 121) if dtype == "uint8" else (-127, 128, 0)
        scales = [self.real(0.002, 0.02) for _ in range(shape[axis] if per_channel else 1)]
        values = self.rng.integers(low, high, shape).astype("uint8" if dtype == "uint8" else "int8")
        return constant(values, scale=scales if per_channel else scales[0], axis=axis, zero=zero)

    def bias(self, x: T, w: T, count: int) -> T:
        scales = np.float32(x.scale) * np.atleast_1d(np.asarray(w.scale, np.float32))
        dtype = np.int64 if x.dtype == "int16" else np.int32
        return constant(self.rng.integers(-3000, 3000, count).astype(dtype), scale=[float(s) for s in scales])

    def case(self, op: str, inputs: list[T], outputs: list[T], table: str = "", runs: int = 1, **options):
        tensors = {f"x{i}": t for i, t in enumerate(inputs)} | {f"y{i}": t for i, t in enumerate(outputs)}
        given = [f"x{i}" for i, t in enumerate(inputs) if t.data is None and not t.is_variable]
        results = [f"y{i}" for i in range(len(outputs))]
        one = Op(
            op, [f"x{i}" if t.shape != (-1,) else "" for i, t in enumerate(inputs)], results, table, options
        )
        tensors = {n: t for n, t in tensors.items() if t.shape != (-1,)}
        given = [n for n in given if n in tensors]
        content = model(tensors, [one], given, results)
        values = [[self.data(tensors[n]) for n in given] for _ in range(runs)]
        if op == "SQRT":  # kernels fail below 0
            values = [
                [np.maximum(v, tensors[n].zero) for n, v in zip(given, run, strict=True)] for run in values
            ]
        return Case(self.name, content, values, len(outputs))


ABSENT = T((-1,))
"""An input that is left out."""


def shape(*sizes: int) -> T:
    return constant(np.array(sizes, np.int32))


def unary(d: Draw, op: str, dtype: str) -> Case:
    x, y = d.tensor((2, 150), dtype), d.tensor((2, 150), dtype)
    if op in ("LOG", "RSQRT", "SQRT"):
        x = d.tensor((2, 150), dtype, zero=ENDS[dtype][0] if dtype != "int16" else 0)
    if op == "NEG":
        x = y = d.tensor((2, 150), dtype, zero=0)
    if op in FIXED:
        y = d.tensor((2, 150), dtype, *FIXED[op][dtype])
    options = {"Beta": d.real(0.5, 2)} if op == "SOFTMAX" else {"Alpha": d.real(0.01, 0.9)}
    table = {"SOFTMAX": "SoftmaxOptions", "LEAKY_RELU": "LeakyReluOptions", "GELU": "GeluOptions"}.get(op, "")
    if op == "L2_NORMALIZATION":
        return d.case(op, [x], [y], "L2NormOptions")
    return d.case(op, [x], [y], table, **(options if table and op != "GELU" else {}))


def binary(d: Draw, op: str, dtype: str) -> Case:
    table = {"SQUARED_DIFFERENCE": "SquaredDifferenceOptions", "LESS": "LessOptions"}.get(
        op, f"{op.capitalize()}Options"
    )
    y = T((4, 30), "bool") if op == "LESS" else d.tensor((4, 30), dtype)
    options = {"FusedActivationFunction": 1} if op in ("ADD", "SUB", "MUL") else {}
    return d.case(op, [d.tensor((4, 30), dtype), d.tensor((1, 30), dtype)], [y], table, **options)


def whole(d: Draw, op: str, dtype: str) -> Case:
    """Integers of one scale without zero points, divisors of which none is 0."""
    x = d.tensor((4, 30), dtype, zero=0)
    w = replace(x, shape=(1, 30), data=d.rng.integers(1, 100, (1, 30)).astype(dtype))
    return d.case(op, [x, w], [replace(x, scale=1.0) if op == "FLOOR_DIV" else x], "")


def product(d: Draw, op: str, dtype: str) -> Case:
    x = d.tensor((2, 2, 6, 2), dtype, 0.02 if dtype == "int8" else 1e-4)
    return d.case(op, [x, shape(1, 3)], [d.tensor((2, 6), dtype, 0.01)], "ReducerOptions", KeepDims=False)


def running_sum(d: Draw, op: str, dtype: str) -> Case:
    """Sums without a zero point, with which the kernels would begin."""
    x, y = d.tensor((2, 9, 6), dtype, zero=0), d.tensor((2, 9, 6), dtype)
    if op == "ADD_N":
        return d.case(op, [x, x, x], [y])
    axis = constant(np.array(1, np.int32))
    return d.case(op, [x, axis], [y], "CumsumOptions", Exclusive=True, Reverse=True)


def slope(d: Draw, op: str, dtype: str) -> Case:
    x, y = d.tensor((2, 150), dtype), d.tensor((2, 150), dtype)
    return d.case("LEAKY_RELU", [x], [y], "LeakyReluOptions", Alpha=-0.3)


def prelu(d: Draw, op: str, dtype: str) -> Case:
    alpha = d.tensor((30,), dtype)
    alpha = replace(alpha, data=d.data(alpha))
    return d.case(op, [d.tensor((4, 30), dtype), alpha], [d.tensor((4, 30), dtype)])


def requantized(d: Draw, op: str, dtype: str) -> Case:
    to = "int8" if dtype != "int8" else "int16"
    return d.case(op, [d.tensor((4, 30), dtype)], [d.tensor((4, 30), to)], "QuantizeOptions")


def reduction(d: Draw, op: str, dtype: str) -> Case:
    x, y = d.tensor((2, 5, 7, 6), dtype), d.tensor((2, 6), dtype)
    return d.case(op, [x, shape(1, 2)], [y], "ReducerOptions", KeepDims=False)


def pool(d: Draw, op: str, dtype: str) -> Case:
    x = d.tensor((2, 5, 7, 6), dtype)
    y = replace(x, shape=(2, 3, 4, 6))
    sizes = {"StrideH": 2, "StrideW": 2, "FilterHeight": 3, "FilterWidth": 2}
    return d.case(op, [x], [y], "Pool2DOptions", Padding=0, **sizes, FusedActivationFunction=1)


def resize(d: Draw, op: str, dtype: str) -> Case:
    x = d.tensor((2, 5, 7, 3), dtype)
    table = "ResizeBilinearOptions" if op == "RESIZE_BILINEAR" else "ResizeNearestNeighborOptions"
    return d.case(
        op, [x, shape(9, 11)], [replace(x, shape=(2, 9, 11, 3))], table, HalfPixelCenters=dtype != "int8"
    )


def linear(d: Draw, op: str, dtype: str, *, per_channel: bool) -> Case:
    scale = 0.01 if dtype == "int16" else 0.0
    steps = {"Padding": 0, "StrideH": 2, "StrideW": 2}
    dilations = {"DilationHFactor": 1, "DilationWFactor": 1}
    x = d.tensor((1, 9, 8, 4), dtype)
    match op:
        case "FULLY_CONNECTED":
            x, w = d.tensor((3, 20), dtype), d.weights((7, 20), dtype, per_channel=per_channel)
            y = d.tensor((3, 7), dtype, scale)
            return d.case(op, [x, w, d.bias(x, w, 7)], [y], "FullyConnectedOptions")
        case "CONV_2D":
            w = d.weights((5, 3, 2, 4), dtype, per_channel=per_channel)
            y = d.tensor((1, 5, 4, 5), dtype, scale)
            return d.case(op, [x, w, d.bias(x, w, 5)], [y], "Conv2DOptions", **steps, **dilations)
        case "DEPTHWISE_CONV_2D":
            w = d.weights((1, 3, 2, 8), dtype, 3, per_channel=per_channel)
            y = d.tensor((1, 5, 4, 8), dtype, scale)
            more = {**steps, **dilations, "DepthMultiplier": 2}
            return d.case(op, [x, w, d.bias(x, w, 8)], [y], "DepthwiseConv2DOptions", **more)
        case _:
            w, x = d.weights((5, 3, 2, 4), dtype, per_channel=per_channel), d.tensor((1, 4, 5, 4), dtype)
            y = d.tensor((1, 8, 10, 5), dtype, scale)
            inputs = [shape(1, 8, 10, 5), w, x, d.bias(x, w, 5)]
            return d.case(op, inputs, [y], "TransposeConvOptions", **steps)


def lstm(d: Draw, op: str, dtype: str) -> Case:
    batch, time, features, count = 2, 4, 6, 5
    x = d.tensor((batch, time, features), dtype, 0.03 if dtype == "int8" else 0.0001)
    hidden = d.tensor(
        (batch, count), dtype, 1 / 128 if dtype == "int8" else 1 / 32768, 0 if dtype == "int16" else 7
    )
    weights = [d.weights((count, features), "int8", per_channel=False) for _ in range(4)]
    recurrent = [d.weights((count, count), "int8", per_channel=False) for _ in range(4)]
    biases = [d.bias(x, w, count) for w in weights]
    biases = [replace(b, scale=b.scale[0]) for b in biases]
    states = [replace(hidden, is_variable=True), T((batch, count), "int16", scale=2.0**-12, is_variable=True)]
    inputs = [x, *weights, *recurrent, *[ABSENT] * 3, *biases, *[ABSENT] * 2, *states, *[ABSENT] * 4]
    y = replace(hidden, shape=(batch, time, count))
    return d.case(
        op, inputs, [y], "UnidirectionalSequenceLSTMOptions", 3, FusedActivationFunction=4, CellClip=1.5
    )


def svdf(d: Draw, op: str, dtype: str) -> Case:
    x, features = d.tensor((2, 6), "int8"), d.weights((8, 6), "int8", per_channel=False)
    state = d.tensor((2, 40), dtype, 0.05 if dtype == "int8" else 0.002, 3 if dtype == "int8" else 0)
    most = 127 if dtype == "int8" else 3000
    time = constant(d.rng.integers(-most, most + 1, (8, 5)).astype(dtype), scale=0.002)
    bias = constant(d.rng.integers(-500, 500, 4).astype(np.int32), scale=float(state.scale) * 0.002)
    inputs = [x, features, time, bias, replace(state, is_variable=True)]
    y = d.tensor((2, 4), "int8", 0.05, -128)
    return d.case(op, inputs, [y], "SVDFOptions", 8, Rank=2, FusedActivationFunction=1)


FAMILIES: tuple[tuple[Callable[[Draw, str, str], Case], str, str], ...] = (
    (unary, "LOGISTIC TANH SOFTMAX RELU LEAKY_RELU", "int8 uint8 int16"),
    (unary, "HARD_SWISH GELU L2_NORMALIZATION", "int8 uint8"),
    (unary, "ABS", "int8 int16"),
    (unary, "ELU RSQRT LOG", "int8"),
    (unary, "SQRT NEG", "int8 int16"),
    (unary, "LOG_SOFTMAX", "int8 uint8"),
    (whole, "FLOOR_DIV FLOOR_MOD", "int8 int16"),
    (product, "REDUCE_PROD", "int8 int16"),
    (unary, "EXP", "int8 int16"),
    (binary, "ADD SUB MUL", "int8 uint8 int16"),
    (binary, "LESS", "int8 uint8"),
    (binary, "SQUARED_DIFFERENCE", "int8 int16"),
    (prelu, "PRELU", "int8 uint8"),
    (running_sum, "ADD_N CUMSUM", "int8"),
    (slope, "LEAKY_RELU_DOWN", "int8 int16"),
    (requantized, "QUANTIZE", "int8 uint8 int16"),
    (reduction, "MEAN SUM", "int8 int16"),
    (reduction, "MEAN", "uint8"),
    (pool, "AVERAGE_POOL_2D", "int8 uint8 int16"),
    (resize, "RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR", "int8 uint8 int16"),
    (lstm, "UNIDIRECTIONAL_SEQUENCE_LSTM", "int8 int16"),
    (svdf, "SVDF", "int8 int16"),
)
LINEAR = ("FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV")


def names() -> Iterator[str]:
    """Return the names of all cases: operator and element type."""
    for _, ops, dtypes in FAMILIES:
        yield from (f"{op} {dtype}" for op in ops.split() for dtype in dtypes.split())
    for op in LINEAR:
        yield from (f"{op} {dtype}" for dtype in ENDS)
        yield from (f"{op} {dtype} channels" for dtype in ("int8", "int16"))


def case(name: str) -> Case:
    """Return a case by its name."""
    op, dtype, *more = name.split()
    if op in LINEAR:
        return linear(Draw(name), op, dtype, per_channel=bool(more))
    family = next(f for f, ops, dtypes in FAMILIES if op in ops.split() and dtype in dtypes.split())
    return family(Draw(name), op, dtype)


def accumulator() -> bytes:
    """Return a model that adds its input to a variable, which begins with 10, 20, 30."""
    row, handle = T((3,)), T((), "resource")
    name = {"Container": "", "SharedName": "v"}
    named = Op("VAR_HANDLE", [], ["h"], "VarHandleOptions", name)
    main = Graph(
        {"x": row, "h": handle, "r": row, "s": row},
        [
            Op("CALL_ONCE", [], [], "CallOnceOptions", {"InitSubgraphIndex": 1}),
            named,
            Op("READ_VARIABLE", ["h"], ["r"], "ReadVariableOptions"),
            Op("ADD", ["r", "x"], ["s"], "AddOptions"),
            Op("ASSIGN_VARIABLE", ["h", "s"], [], "AssignVariableOptions"),
        ],
        ["x"],
        ["s"],
    )
    assign = Op("ASSIGN_VARIABLE", ["h", "k"], [], "AssignVariableOptions")
    first = constant(np.array([10, 20, 30], np.float32))
    return models(main, Graph({"h": handle, "k": first}, [named, assign], [], []))
