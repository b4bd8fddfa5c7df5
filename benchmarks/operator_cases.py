"""Single operators at shapes of networks: what `operators.py` runs beside another engine.

A group is a generator of calls, and crosses what a schedule can depend on: where the axis lies and how long
it is, which operand repeats, how wide an element is. A new case is a line in its group.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray
OPSET = 18
SHOWN = 4
"""Elements of a constant that a case's name shows."""


@dataclass(frozen=True)
class Call:
    """One operator with its operands.

    Attributes:
        op: its ONNX name.
        inputs: arrays of a call, by name, in the order of the operator; an empty name is an operand left out.
        attributes: as in ONNX.
        constants: operands behind the inputs that the model holds.
        opset: of ONNX.
        outputs: how many the model has.
    """

    op: str
    inputs: Mapping[str, Array]
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    constants: Mapping[str, Array] = field(default_factory=dict[str, Array])
    opset: int = OPSET
    outputs: int = 1

    @property
    def name(self) -> str:
        """The operator, its operands and its attributes, in one line."""
        given = [_shown(x) for x in self.inputs.values()]
        given += [
            _value(x) if x.size <= SHOWN else _shown(x) + "!" for x in self.constants.values() if x.size
        ]
        return " ".join([self.op, *given, *(f"{k}={_plain(v)}" for k, v in self.attributes.items())])

    def model(self) -> onnx.ModelProto:
        """Return a model of this operator alone."""
        inputs = [
            helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for k, v in self.inputs.items()
        ]
        held = {k: v for k, v in self.constants.items() if v.size}
        operands = [*self.inputs, *(k if k in held else "" for k in self.constants)]
        results = [f"y{i}" for i in range(self.outputs)]
        node = helper.make_node(self.op, operands, results, **self.attributes)
        graph = helper.make_graph(
            [node],
            "operator",
            inputs,
            [onnx.ValueInfoProto(name=x) for x in results],
            [numpy_helper.from_array(v, k) for k, v in held.items()],
        )
        opset = helper.make_opsetid("", self.opset)
        return helper.make_model(graph, opset_imports=[opset], ir_version=9)


def _shown(x: Array) -> str:
    kind = {"float32": "", "float16": "f16:", "float64": "f64:", "bool": "b:"}.get(
        x.dtype.name, x.dtype.name.replace("uint", "u").replace("int", "i") + ":"
    )
    return kind + ("x".join(map(str, x.shape)) or "()")


def _value(x: Array) -> str:
    shown = [float(f"{v:.3g}") if x.dtype.kind == "f" else int(v) for v in x.ravel()]
    return _plain(shown if x.ndim else shown[0])


def _plain(x: object) -> str:
    return str(x).replace(" ", "")


_RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> Array:
    """Return normal float32."""
    return _RANDOM.standard_normal(shape, np.float32)


def positive(*shape: int) -> Array:
    """Return float32 of at least 0.1."""
    return np.abs(floats(*shape)) + np.float32(0.1)


def integers(low: int, high: int, *shape: int, dtype: type = np.int64) -> Array:
    """Return integers from `low` to below `high`."""
    return _RANDOM.integers(low, high, shape).astype(dtype)


def booleans(*shape: int) -> Array:
    """Return booleans, half of them true."""
    return _RANDOM.random(shape) < 0.5


def i64(*values: int) -> Array:
    """Return a vector of int64."""
    return np.array(values, np.int64)


def scalar(value: float, dtype: type = np.float32) -> Array:
    """Return an array without axes."""
    return np.array(value, dtype)


NONE = np.empty(0, np.float32)
"""An operand that is left out."""

Maker = Callable[..., Array]
TYPES: Mapping[str, Maker] = {
    "f16": lambda *s: floats(*s).astype(np.float16),
    "f64": lambda *s: floats(*s).astype(np.float64),
    "u8": lambda *s: integers(0, 255, *s, dtype=np.uint8),
    "i32": lambda *s: integers(-99, 99, *s, dtype=np.int32),
    "i64": lambda *s: integers(-99, 99, *s),
}

SHAPES = ((64, 128, 96), (8, 32, 28, 28), (1, 512, 1000), (4000, 3), (3, 4000), (20, 30, 5))
"""Of what is reduced, scanned or sorted along each axis."""


def pointwise() -> Iterator[Call]:
    """Functions of one element."""
    x = floats(512, 1000)
    plain = (
        "Abs Asinh Atan Ceil Celu Cos Elu Erf Exp Floor HardSigmoid HardSwish LeakyRelu Mish Neg Reciprocal"
        " Relu Round Selu Shrink Sigmoid Sign Sin Softplus Softsign Tan Tanh ThresholdedRelu IsInf IsNaN"
    )
    for op in plain.split():
        yield Call(op, {"x": x})
    for op in ("Cosh", "Sinh"):
        yield Call(op, {"x": x})
    for op in ("Log", "Sqrt"):
        yield Call(op, {"x": positive(512, 1000)})
    for op in ("Acos", "Asin", "Atanh"):
        yield Call(op, {"x": np.tanh(x)})
    yield Call("Acosh", {"x": np.abs(x) + 1})
    for way in ("none", "tanh"):
        yield Call("Gelu", {"x": x}, {"approximate": way}, opset=20)
    yield Call("Swish", {"x": x}, opset=24)
    yield Call("Clip", {"x": x}, {}, {"low": scalar(-1), "high": scalar(1)})
    yield Call("Not", {"x": booleans(512, 1000)})
    for n in (10, 1000, 100000):
        yield Call("Erf", {"x": floats(n)})
    for p in (2, 3, 0.5, 1.7):
        yield Call("Pow", {"x": positive(512, 1000)}, {}, {"p": scalar(p)})
    ops = ("Exp", "Log", "Sigmoid", "Tanh", "Sqrt", "Erf", "Relu", "Floor")
    for op, of in itertools.product(ops, (TYPES["f16"], TYPES["f64"])):
        yield Call(op, {"x": np.abs(of(512, 1000))})


REPEATS = (
    ((512, 1000), (512, 1000)),
    ((50176, 3), (3,)),
    ((224, 224, 3), (1, 1, 3)),
    ((3, 224, 224), (3, 1, 1)),
    ((64, 1000), (64, 1)),
    ((64, 1000), (1000,)),
    ((1, 64, 56, 56), (64, 1, 1)),
    ((8, 128, 64), (8, 1, 64)),
    ((8, 128, 64), (128, 1)),
    ((32, 7, 7, 5), (5,)),
    ((32, 7, 7, 5), (7, 1)),
    ((1, 12, 128, 128), (1, 1, 1, 128)),
    ((1000, 1), (1, 1000)),
    ((4, 5, 6, 7, 8), (6, 1, 1)),
    ((512, 1000), ()),
)
"""Shapes of two operands, one of which repeats."""


def binary() -> Iterator[Call]:
    """Functions of two operands, by which of them repeats and by type."""
    for op, (a, b) in itertools.product(
        ("Add", "Mul", "Sub", "Div", "Max", "Pow", "Greater", "Equal"), REPEATS
    ):
        yield Call(op, {"x": positive(*a), "y": floats(*b)})
    for a, b in REPEATS:
        yield Call("Where", {"c": booleans(*a), "x": floats(*a), "y": floats(*b)})
        if (len(a), len(b)) != (2, 2):
            yield Call("PRelu", {"x": floats(*a), "y": floats(*b)})
    for op, of in itertools.product(("Add", "Mul", "Sub", "Div", "Max", "Less"), TYPES.values()):
        yield Call(op, {"x": of(512, 1000), "y": np.abs(of(512, 1000)) + of(1).dtype.type(1)})
    for of in TYPES.values():
        yield Call("Add", {"x": of(300, 100), "y": of(100)})
        yield Call("Mul", {"x": of(8, 60, 30), "y": of(60, 1)})
        yield Call("Greater", {"x": of(300, 100), "y": of(300, 1)})
        yield Call("Equal", {"x": of(512, 1000), "y": of(512, 1000)})
        yield Call("Clip", {"x": of(512, 1000)}, {}, {"low": of(), "high": of()})
    for op, of in itertools.product(("Div", "Mod"), (TYPES["u8"], TYPES["i32"], TYPES["i64"])):
        yield Call(op, {"x": of(512, 1000)}, {}, {"y": np.array(7, of(1).dtype)})
    yield Call("Mod", {"x": floats(512, 1000), "y": positive(512, 1000)}, {"fmod": 1})
    for op in ("And", "Or", "Xor"):
        yield Call(op, {"x": booleans(512, 1000), "y": booleans(512, 1000)})
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        yield Call(op, {"x": TYPES["i32"](512, 1000), "y": TYPES["i32"](512, 1000)})
    for op in ("Sum", "Mean"):
        yield Call(op, {k: floats(300, 1000) for k in "xyz"})


def reductions() -> Iterator[Call]:
    """Reductions of one axis and of all sets of axes."""
    for op, shape in itertools.product(("ReduceSum", "ReduceSumSquare"), (*SHAPES, (1, 100, 1))):
        for count in range(1, len(shape) + 1):
            for axes in itertools.combinations(range(len(shape)), count):
                yield Call(op, {"x": floats(*shape)}, {"keepdims": count % 2}, {"axes": i64(*axes)})
    ops = ("ReduceMax", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceProd")
    for op, shape in itertools.product(ops, SHAPES):
        for axis in range(len(shape)):
            yield Call(op, {"x": floats(*shape)}, {"keepdims": axis % 2}, {"axes": i64(axis)})
    for op, of in itertools.product(("ReduceSum", "ReduceMax", "ReduceMean"), TYPES.values()):
        for axis in (0, 1):
            if of is not TYPES["u8"] or op == "ReduceMax":
                yield Call(op, {"x": of(1000, 1000)}, {}, {"axes": i64(axis)})
    for of, axis in itertools.product(TYPES.values(), (1, 2)):
        yield Call("ReduceMax", {"x": of(8, 60, 100)}, {"keepdims": 0}, {"axes": i64(axis)})
        yield Call("ReduceMin", {"x": of(60, 100, 7)}, {}, {"axes": i64(axis)})
    yield Call("ReduceMax", {"x": floats(1000000, 4)}, {}, {"axes": i64(0)})
    yield Call("ReduceMean", {"x": floats(4, 100000)}, {}, {"axes": i64(0)})
    yield Call("ReduceMax", {"x": floats(1000000)}, {}, {"axes": i64(0)})


def norms() -> Iterator[Call]:
    """Normalizations, softmax and what else takes a row and returns one."""
    for op, shape in itertools.product(("Softmax", "LogSoftmax", "Hardmax"), SHAPES):
        for axis in range(len(shape)):
            yield Call(op, {"x": floats(*shape)}, {"axis": axis})
    for n, c in ((1024, 768), (512, 1000), (4096, 32), (50000, 16), (100, 17), (1, 64), (1, 100000)):
        scale = {"s": floats(c), "b": floats(c)}
        yield Call("LayerNormalization", {"x": floats(n, c)}, {}, scale)
        yield Call("RMSNormalization", {"x": floats(n, c)}, {}, {"s": floats(c)}, 23)
        yield Call("Softmax", {"x": floats(n, c)})
        yield Call("LpNormalization", {"x": floats(n, c)}, {"axis": 1})
    for shape in ((8, 64, 28, 28), (1, 32, 100, 100), (4, 20, 50), (1, 64, 112, 112)):
        c = shape[1]
        scale = {"s": floats(c), "b": floats(c)}
        axes = [0, *range(2, len(shape))]
        yield Call("InstanceNormalization", {"x": floats(*shape)}, {}, scale)
        yield Call("GroupNormalization", {"x": floats(*shape)}, {"num_groups": 4}, scale, 21)
        yield Call(
            "BatchNormalization", {"x": floats(*shape)}, {}, {**scale, "m": floats(c), "v": positive(c)}
        )
        yield Call("LRN", {"x": floats(*shape)}, {"size": 5})
        yield Call("MeanVarianceNormalization", {"x": floats(*shape)}, {"axes": axes})


def orders() -> Iterator[Call]:
    """Scans, places of extremes, and sorting."""
    for shape in SHAPES:
        for axis in range(len(shape)):
            yield Call("CumSum", {"x": floats(*shape)}, {}, {"axis": np.int64(axis)})
            yield Call("ArgMax", {"x": floats(*shape)}, {"axis": axis})
            top = {"k": i64(min(3, shape[axis]))}
            yield Call("TopK", {"x": floats(*shape)}, {"axis": axis}, top, outputs=2)
    for shape, axis in (((100000, 8), 0), ((100000, 8), 1), ((1, 1000000), 1), ((1, 21, 256, 256), 1)):
        yield Call("ArgMax", {"x": floats(*shape)}, {"axis": axis})
    for shape, k in (((64, 1000), 10), ((1, 100000), 100), ((10000, 10), 1), ((1, 20000), 20000)):
        yield Call("TopK", {"x": floats(*shape)}, {}, {"k": i64(k)}, outputs=2)
    for of in (TYPES["f64"], TYPES["i32"], TYPES["i64"]):
        yield Call("ArgMax", {"x": of(1000, 1000)}, {"axis": 1})
        yield Call("CumSum", {"x": of(1000, 1000)}, {}, {"axis": np.int64(1)})
        yield Call("TopK", {"x": of(100, 1000)}, {}, {"k": i64(10)}, outputs=2)
    yield Call("Unique", {"x": integers(0, 500, 20000)}, {"sorted": 1})
    boxes = np.sort(positive(1, 1000, 4), -1)
    for classes in (1, 5, 80):
        limits = {"m": i64(50), "iou": scalar(0.5), "score": scalar(0.3)}
        scores = positive(1, classes, 1000)
        yield Call("NonMaxSuppression", {"b": boxes, "s": scores}, {}, limits)


def transpositions() -> Iterator[Call]:
    """Orders of axes."""
    shapes = ((256, 1024, 4), (64, 64, 64), (8, 512, 512), (512, 512, 8), (100, 300, 50), (1000, 3, 1000))
    for shape, order in itertools.product(shapes, itertools.permutations(range(3))):
        yield Call("Transpose", {"x": floats(*shape)}, {"perm": list(order)})
    for c in (2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 32, 80):
        for of in (floats, TYPES["u8"]):
            yield Call("Transpose", {"x": of(1, 256, 256, c)}, {"perm": [0, 3, 1, 2]})
            yield Call("Transpose", {"x": of(1, c, 256, 256)}, {"perm": [0, 2, 3, 1]})
    for shape, order in (
        ((8, 128, 12, 64), (0, 2, 1, 3)),
        ((8, 16, 32, 64), (3, 2, 1, 0)),
        ((2, 8, 128, 64), (0, 1, 3, 2)),
        ((16, 4, 64, 64), (2, 3, 0, 1)),
        ((1, 14, 14, 7, 7, 32), (0, 1, 3, 2, 4, 5)),
        ((8, 7, 7, 4, 4, 64), (0, 1, 3, 2, 4, 5)),
    ):
        yield Call("Transpose", {"x": floats(*shape)}, {"perm": list(order)})
    for rows, columns in ((84, 8400), (8400, 85), (20000, 7), (50000, 3), (197, 64), (1000, 333), (50001, 2)):
        yield Call("Transpose", {"x": floats(1, rows, columns)}, {"perm": [0, 2, 1]})
    for of in TYPES.values():
        yield Call("Transpose", {"x": of(1000, 1000)}, {"perm": [1, 0]})


def views() -> Iterator[Call]:
    """What moves elements to other places: joins, cuts, padding, repeats."""
    for shape, axis in (
        ((8, 128, 64), 1),
        ((8, 128, 64), 2),
        ((8, 3, 64), 1),
        ((1000, 4), 1),
        ((4, 1000), 0),
        ((1, 64, 28, 28), 1),
        ((16, 16, 5), 2),
        ((100000, 2), 1),
    ):
        yield Call("Concat", {k: floats(*shape) for k in "xyz"}, {"axis": axis})
        twice = [2 * n if i == axis else n for i, n in enumerate(shape)]
        yield Call("Split", {"x": floats(*twice)}, {"axis": axis, "num_outputs": 2}, outputs=2)
    for shape, pads, mode in (
        ((1, 3, 224, 224), (0, 0, 1, 1, 0, 0, 1, 1), "constant"),
        ((1, 64, 112, 112), (0, 0, 1, 1, 0, 0, 1, 1), "constant"),
        ((1, 64, 28, 28), (0, 0, 2, 2, 0, 0, 2, 2), "edge"),
        ((8, 16, 100), (0, 0, 3, 0, 0, 3), "reflect"),
        ((1, 64, 112, 112), (0, 0, 3, 3, 0, 0, 3, 3), "reflect"),
        ((1, 3, 100, 100), (0, 0, 10, 10, 0, 0, 10, 10), "wrap"),
        ((100, 3), (0, 1, 0, 0), "constant"),
    ):
        yield Call("Pad", {"x": floats(*shape)}, {"mode": mode}, {"p": i64(*pads)}, 19)
    for shape, cuts in (
        ((1, 64, 56, 56), ((1, 55, 2, 1), (1, 55, 3, 1))),
        ((8, 128, 64), ((0, 64, 2, 2),)),
        ((8, 128, 64), ((0, 128, 1, 2),)),
        ((1000, 10), ((9, -99, 1, -1),)),
        ((1000, 10), ((-1, -9999, 0, -1),)),
        ((50176, 4), ((0, 3, 1, 1),)),
        ((1, 64, 112, 112), ((0, 112, 2, 2), (0, 112, 3, 2))),
    ):
        begin, end, axes, steps = (i64(*x) for x in zip(*cuts, strict=True))
        yield Call("Slice", {"x": floats(*shape)}, {}, {"b": begin, "e": end, "a": axes, "s": steps})
    for size, shape, mode in itertools.product((2, 4), ((1, 48, 56, 56), (1, 64, 64, 64)), ("DCR", "CRD")):
        yield Call("DepthToSpace", {"x": floats(*shape)}, {"blocksize": size, "mode": mode}, {}, 13)
    for shape, size in (((1, 16, 128, 128), 2), ((1, 16, 256, 256), 4)):
        yield Call("SpaceToDepth", {"x": floats(*shape)}, {"blocksize": size})
    for shape, times in (((1, 64, 28, 28), (1, 1, 2, 2)), ((64, 1000), (4, 2)), ((100, 1, 64), (1, 100, 1))):
        yield Call("Tile", {"x": floats(*shape)}, {}, {"r": i64(*times)})
    for shape, to in (((1, 64, 1, 1), (1, 64, 56, 56)), ((1, 64, 1), (32, 64, 200)), ((1, 512), (64, 512))):
        yield Call("Expand", {"x": floats(*shape)}, {}, {"s": i64(*to)})
    yield Call("Trilu", {"x": floats(1, 12, 256, 256)})
    yield Call("CenterCropPad", {"x": floats(3, 300, 300)}, {"axes": [1, 2]}, {"s": i64(224, 320)})
    yield Call("EyeLike", {"x": floats(512, 512)})
    lengths = integers(1, 64, 32)
    axes = {"time_axis": 0, "batch_axis": 1}
    yield Call("ReverseSequence", {"x": floats(64, 32, 100)}, axes, {"l": lengths})
    for of in TYPES.values():
        yield Call("Concat", {"x": of(8, 64, 28, 28), "y": of(8, 32, 28, 28)}, {"axis": 1})
        yield Call("Pad", {"x": of(8, 64, 28, 28)}, {}, {"p": i64(0, 0, 1, 1, 0, 0, 1, 1)})
        yield Call("Transpose", {"x": of(8, 128, 12, 64)}, {"perm": [0, 2, 1, 3]})
        yield Call("Tile", {"x": of(16, 64, 10)}, {}, {"r": i64(1, 1, 8)})
        yield Call("Slice", {"x": of(8, 64, 56, 56)}, {}, {"b": i64(1, 1), "e": i64(50, 50), "a": i64(2, 3)})
        yield Call("Slice", {"x": of(8, 128, 64)}, {}, {"b": i64(1), "e": i64(64), "a": i64(2), "s": i64(2)})
        yield Call("Expand", {"x": of(1, 64, 1, 50)}, {}, {"s": i64(8, 64, 30, 50)})
        yield Call("Split", {"x": of(64, 300)}, {"axis": 1, "num_outputs": 3}, outputs=3)
        yield Call("DepthToSpace", {"x": of(1, 64, 64, 64)}, {"blocksize": 2}, {}, 13)
        yield Call("Trilu", {"x": of(12, 256, 256)})
        yield Call("Where", {"c": booleans(300, 1), "x": of(300, 1000), "y": of(1, 1000)})
        yield Call("Where", {"c": booleans(300, 1001), "x": of(300, 1001), "y": of()})
        yield Call("Pad", {"x": of(1, 3, 224, 224)}, {"mode": "reflect"}, {"p": i64(0, 0, 3, 3, 0, 0, 3, 3)})


def gathers() -> Iterator[Call]:
    """What reads or writes places that it computes."""
    for shape, indices, axis in (
        ((30000, 256), (512,), 0),
        ((1000, 64), (32, 128), 0),
        ((1000, 64), (5,), 1),
        ((256, 3000), (512,), 1),
        ((8, 100, 64), (50,), 1),
        ((50, 3), (1000,), 0),
    ):
        places = {"i": integers(0, shape[axis], *indices)}
        yield Call("Gather", {"x": floats(*shape)}, {"axis": axis}, places)
        yield Call("Gather", {"x": floats(*shape), **places}, {"axis": axis})
    for shape, axis in (((1000, 256), 0), ((1000, 256), 1), ((64, 128, 32), 1)):
        places = integers(0, shape[axis], *shape)
        yield Call("GatherElements", {"x": floats(*shape), "i": places}, {"axis": axis})
        for way in ("none", "add"):
            updates = {"x": floats(*shape), "i": places, "u": floats(*shape)}
            yield Call("ScatterElements", updates, {"axis": axis, "reduction": way})
    yield Call("GatherND", {"x": floats(100, 100, 64)}, {}, {"i": integers(0, 100, 1000, 2)})
    # Of two threads onnxruntime's add into one place at once, and lose some: its outputs differ there.
    for way, places in (("none", _RANDOM.permutation(1000)[:500]), ("add", integers(0, 1000, 5000))):
        updates = {"i": places[:, None], "u": floats(len(places), 64)}
        yield Call("ScatterND", {"x": floats(1000, 64), **updates}, {"reduction": way})
    hot = np.array([0, 1], np.float32)
    yield Call("OneHot", {"i": integers(0, 1000, 512)}, {}, {"d": scalar(1000, np.int64), "v": hot})
    yield Call("NonZero", {"x": (floats(512, 1000) > 1).astype(np.float32)})
    yield Call("Compress", {"x": floats(10000, 64)}, {"axis": 0}, {"c": booleans(10000)})
    for of in TYPES.values():
        yield Call("Gather", {"x": of(5000, 100)}, {"axis": 0}, {"i": integers(0, 5000, 3000)})
        yield Call("Gather", {"x": of(200, 500)}, {"axis": 1}, {"i": integers(0, 500, 300)})
        yield Call("GatherElements", {"x": of(500, 100), "i": integers(0, 500, 400, 100)}, {"axis": 0})
        yield Call("GatherND", {"x": of(100, 100, 20)}, {}, {"i": integers(0, 100, 2000, 2)})
        updates = {"i": _RANDOM.permutation(1000)[:300, None], "u": of(300, 60)}
        yield Call("ScatterND", {"x": of(1000, 60), **updates})
        yield Call("NonZero", {"x": of(300, 300)})
        yield Call("OneHot", {"i": integers(0, 100, 1000)}, {}, {"d": scalar(100, np.int64), "v": of(2)})


def windows() -> Iterator[Call]:
    """Pooling and resampling."""
    for shape, size, step, pad in (
        ((1, 64, 112, 112), 3, 2, 1),
        ((1, 64, 56, 56), 2, 2, 0),
        ((1, 64, 20, 20), 5, 1, 2),
        ((1, 64, 20, 20), 13, 1, 6),
        ((8, 64, 2000), 3, 2, 0),
        ((1, 16, 16, 32, 32), 2, 2, 0),
    ):
        axes = len(shape) - 2
        how = {"kernel_shape": [size] * axes, "strides": [step] * axes, "pads": [pad] * 2 * axes}
        for op in ("MaxPool", "AveragePool", "LpPool"):
            yield Call(op, {"x": floats(*shape)}, how)
        for of in (TYPES["f16"], TYPES["u8"], TYPES["f64"]):
            yield Call("MaxPool", {"x": of(*shape)}, how)
    for shape in ((8, 512, 7, 7), (1, 1280, 7, 7), (1, 64, 112, 112), (32, 3, 32, 32)):
        for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
            yield Call(op, {"x": floats(*shape)})
    for shape, mode, ratio in itertools.product(
        ((1, 64, 64, 64), (1, 3, 256, 256)), ("nearest", "linear", "cubic"), (0.5, 0.4375, 1.5, 2)
    ):
        if mode != "cubic" or shape[1] == 3:
            scales = {"roi": NONE, "s": np.array([1, 1, ratio, ratio], np.float32)}
            yield Call("Resize", {"x": floats(*shape)}, {"mode": mode}, scales)
    for of, ratio in itertools.product((TYPES["f16"], TYPES["u8"], TYPES["i32"]), (0.5, 1.5, 2)):
        scales = {"roi": NONE, "s": np.array([1, 1, ratio, ratio], np.float32)}
        yield Call("Resize", {"x": of(1, 16, 64, 64)}, {"mode": "nearest"}, scales)
    grid = np.tanh(floats(1, 64, 64, 2))
    for mode in ("bilinear", "nearest", "bicubic"):
        yield Call("GridSample", {"x": floats(1, 64, 64, 64), "g": grid}, {"mode": mode}, {}, 16)
    regions = {"r": positive(100, 4) * 10, "b": np.zeros(100, np.int64)}
    how = {"output_height": 7, "output_width": 7, "sampling_ratio": 2, "spatial_scale": 0.5}
    yield Call("RoiAlign", {"x": floats(1, 256, 50, 50), **regions}, how)
    sizes = {"s": i64(28, 28), "b": i64(3, 3)}
    yield Call("Col2Im", {"x": floats(1, 64 * 9, 784)}, {"pads": [1] * 4}, sizes)
    yield Call("AffineGrid", {"t": floats(4, 2, 3)}, {}, {"s": i64(4, 3, 128, 128)}, 20)


def convolutions() -> Iterator[Call]:
    """Convolutions, and their transposes."""
    for shape, weights, how in (
        ((1, 64, 56, 56), (64, 64, 3, 3), {"pads": [1] * 4}),
        ((1, 128, 56, 56), (128, 4, 3, 3), {"group": 32, "pads": [1] * 4}),
        ((1, 3, 720, 1280), (8, 3, 1, 1), {}),
        ((1, 3, 360, 640), (16, 3, 3, 3), {"pads": [1] * 4}),
        ((1, 16, 360, 640), (1, 16, 3, 3), {"pads": [1] * 4}),
        ((1, 256, 33, 33), (64, 256, 3, 3), {"dilations": [6, 6], "pads": [6] * 4}),
        ((8, 3, 64, 64), (32, 3, 7, 7), {"strides": [2, 2], "pads": [3] * 4}),
        ((1, 64, 32, 128), (64, 64, 1, 9), {"pads": [0, 4, 0, 4]}),
        ((1, 512, 7, 7), (1024, 512, 7, 7), {}),
        ((1, 64, 28, 28), (64, 1, 31, 31), {"group": 64, "pads": [15] * 4}),
        ((1, 64, 20000), (64, 1, 3), {"group": 64, "pads": [1, 1]}),
        ((1, 1, 100000), (16, 1, 15), {"pads": [7, 7]}),
        ((1, 16, 16, 32, 32), (32, 16, 3, 3, 3), {"pads": [1] * 6}),
    ):
        yield Call("Conv", {"x": floats(*shape)}, how, {"w": floats(*weights)})
    yield Call("Conv", {"x": floats(1, 32, 28, 28), "w": floats(32, 32, 3, 3)}, {"pads": [1] * 4})
    for shape, weights, how in (
        ((1, 64, 32, 32), (64, 32, 4, 4), {"strides": [2, 2], "pads": [1] * 4}),
        ((1, 256, 28, 28), (256, 128, 2, 2), {"strides": [2, 2]}),
        ((1, 64, 32, 32), (64, 1, 4, 4), {"group": 64, "strides": [2, 2], "pads": [1] * 4}),
        ((1, 128, 500), (128, 64, 16), {"strides": [8], "pads": [4]}),
    ):
        yield Call("ConvTranspose", {"x": floats(*shape)}, how, {"w": floats(*weights)})
    offsets = {"w": floats(32, 32, 3, 3), "o": floats(1, 18, 32, 32)}
    yield Call("DeformConv", {"x": floats(1, 32, 32, 32), **offsets}, {"pads": [1] * 4}, {}, 19)
    for of in (TYPES["f16"], TYPES["f64"]):
        yield Call("Conv", {"x": of(1, 32, 56, 56)}, {}, {"w": of(64, 32, 3, 3)})


def products() -> Iterator[Call]:
    """Products of matrices, of all widths of elements, and what is made of them."""
    sizes = (
        ((512, 512), (512, 512)),
        ((1, 1024), (1024, 1024)),
        ((3, 100), (100, 50)),
        ((20000, 64), (64, 1)),
        ((300000, 4), (4, 4)),
        ((30000, 3), (3, 64)),
        ((10000, 4, 4), (10000, 4, 4)),
        ((5000, 3, 3), (5000, 3, 3)),
        ((2000, 16, 16), (2000, 16, 16)),
        ((12, 64, 64), (12, 64, 64)),
        ((4, 200000), (200000, 4)),
        ((1, 20000), (20000, 8)),
        ((1000000,), (1000000,)),
        ((2000, 1), (1, 2000)),
    )
    for a, b in sizes:
        yield Call("MatMul", {"x": floats(*a), "y": floats(*b)})
        if len(b) == 2:
            yield Call("MatMul", {"x": floats(*a)}, {}, {"y": floats(*b)})
    for of, (a, b) in itertools.product(("f64", "i32", "i64", "f16"), sizes[:3]):
        yield Call("MatMul", {"x": TYPES[of](*a), "y": TYPES[of](*b)})
    for first, second in itertools.product((0, 1), repeat=2):
        how = {"transA": first, "transB": second}
        yield Call("Gemm", {"x": floats(512, 512), "y": floats(512, 512)}, how)
    for equation, a, b in (
        ("bij,bjk->bik", (32, 64, 64), (32, 64, 64)),
        ("bhid,bhjd->bhij", (2, 8, 128, 64), (2, 8, 128, 64)),
        ("bqhd,bkhd->bhqk", (4, 64, 8, 32), (4, 64, 8, 32)),
        ("i,j->ij", (1000,), (1000,)),
        ("bnd,mnd->bnm", (16, 40, 64), (32, 40, 64)),
    ):
        yield Call("Einsum", {"x": floats(*a), "y": floats(*b)}, {"equation": equation})
    for equation, a in (("bii->b", (64, 128, 128)), ("ii->i", (300, 300)), ("bij->bji", (8, 200, 200))):
        yield Call("Einsum", {"x": floats(*a)}, {"equation": equation})
    for shape in ((1000, 4, 4), (64, 16, 16)):
        yield Call("Det", {"x": floats(*shape)})
    weights = integers(-127, 127, 768, 768, dtype=np.int8)
    yield Call("MatMulInteger", {"x": TYPES["u8"](128, 768)}, {}, {"w": weights}, 10)
    kernel = integers(-127, 127, 64, 64, 3, 3, dtype=np.int8)
    yield Call("ConvInteger", {"x": TYPES["u8"](1, 64, 28, 28)}, {"pads": [1] * 4}, {"w": kernel}, 10)
    heads = {k: floats(1, 12, 128, 64) for k in "qkv"}
    yield Call("Attention", heads, {}, {}, 23)
    joined = {k: floats(2, 77, 512) for k in "qkv"}
    yield Call("Attention", joined, {"q_num_heads": 8, "kv_num_heads": 8, "is_causal": 1}, {}, 23)
    angles = {"c": floats(1, 128, 32), "s": floats(1, 128, 32)}
    yield Call("RotaryEmbedding", {"x": floats(1, 12, 128, 64)}, {}, angles, 23)


def skinny() -> Iterator[Call]:
    """Products of few rows or columns, with a second factor that is constant, computed or transposed."""
    sides = ((128, 2048), (512, 512), (1000, 1000), (1024, 1024), (2048, 128), (2048, 2048))
    for rows, (terms, columns) in itertools.product((1, 2, 4, 8, 16, 32, 128), sides):
        x, y = floats(rows, terms), floats(terms, columns)
        yield Call("MatMul", {"x": x}, {}, {"y": y})
        yield Call("MatMul", {"x": x, "y": y})
        yield Call("Gemm", {"x": x, "y": floats(columns, terms)}, {"transB": 1})
    for few in (1, 3, 8, 16, 32):
        for a, b in (((2048, 512), (512, few)), ((2048, few), (few, 512))):
            yield Call("MatMul", {"x": floats(*a)}, {}, {"y": floats(*b)})
            yield Call("MatMul", {"x": floats(*a), "y": floats(*b)})


def recurrences() -> Iterator[Call]:
    """Recurrent layers and transforms of signals."""
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        for steps, rows, hidden in ((50, 1, 64), (40, 16, 64), (20, 1, 256)):
            weights = {"w": floats(1, gates * hidden, 64) * 0.1, "r": floats(1, gates * hidden, hidden) * 0.1}
            yield Call(op, {"x": floats(steps, rows, 64)}, {"hidden_size": hidden}, weights)
    yield Call("DFT", {"x": floats(64, 512, 1)}, {"axis": 1}, {}, 17)
    frame = {"s": np.int64(160), "w": np.hanning(400).astype(np.float32)}
    yield Call("STFT", {"x": floats(1, 16000, 1)}, {}, frame, 17)


def numbers() -> Iterator[Call]:
    """Changes of type, and quantization."""
    for of, to in itertools.product(
        (floats, *TYPES.values(), lambda *s: booleans(*s)), ("FLOAT", "FLOAT16", "INT64", "UINT8", "BOOL")
    ):
        code = getattr(onnx.TensorProto, to)
        x = np.abs(of(512, 1000)) if of is not TYPES["u8"] else of(512, 1000)
        if helper.np_dtype_to_tensor_dtype(x.dtype) != code:
            yield Call("Cast", {"x": x}, {"to": code})
    x, small = floats(512, 1000), TYPES["u8"](512, 1000)
    step = {"s": scalar(0.02), "z": scalar(128, np.uint8)}
    steps = {"s": positive(512), "z": np.full(512, 128, np.uint8)}
    for scale, axis in ((step, 1), (steps, 0)):
        yield Call("QuantizeLinear", {"x": x}, {"axis": axis}, scale)
        yield Call("DequantizeLinear", {"x": small}, {"axis": axis}, scale)
    for shape in ((128, 768), (1, 512), (512, 1000)):
        yield Call("DynamicQuantizeLinear", {"x": floats(*shape)}, {}, {}, 17, 3)


Group = Callable[[], Iterator[Call]]
_ALL: Sequence[Group] = (
    pointwise,
    binary,
    reductions,
    norms,
    orders,
    transpositions,
    views,
    gathers,
    windows,
    convolutions,
    products,
    skinny,
    recurrences,
    numbers,
)
GROUPS: Mapping[str, Group] = {x.__name__: x for x in _ALL}
