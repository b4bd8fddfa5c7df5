"""Writes small TFLite models: tensors, operators with options, graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

TYPES = {"float32": 0, "float16": 1, "int32": 2, "uint8": 3, "int64": 4, "bool": 6, "int16": 7, "int8": 9}
TYPES |= {"string": 5, "complex64": 8, "resource": 13, "int4": 17}


@dataclass(frozen=True)
class Sparse:
    """How a constant is stored without its zeros.

    `order`: the axis of each level, those of blocks last; `blocks`: axes that are cut; `levels`: the size of a
    dense one, or ends and positions; `data`: what is stored.
    """

    order: Sequence[int]
    blocks: Sequence[int]
    levels: Sequence[int | tuple[np.ndarray, np.ndarray]]
    data: np.ndarray


@dataclass(frozen=True)
class T:
    """A tensor: its shape and element type, or its constant value; what its integers stand for."""

    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    data: np.ndarray | None = None
    scale: float | Sequence[float] = ()
    zero: int = 0
    axis: int = 0
    signature: tuple[int, ...] = ()
    is_variable: bool = False
    sparse: Sparse | None = None


@dataclass(frozen=True)
class Op:
    """An operator: its name, tensors by name, its table of options and the fields of that.

    `custom` is the content of the options of a custom operator, whose name is not one of TFLite.
    """

    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    table: str = ""
    options: Mapping[str, int | float | str | Sequence[int]] = field(default_factory=dict)
    custom: Mapping[str, object] | None = None


@dataclass(frozen=True)
class Graph:
    """A graph: tensors by name, operators, and the names of its inputs and outputs."""

    tensors: Mapping[str, T]
    ops: Sequence[Op]
    inputs: Sequence[str]
    outputs: Sequence[str]


def constant(data, **more) -> T:
    """Return a constant tensor."""
    array = np.asarray(data)
    return T(array.shape, array.dtype.name, array, **more)


def model(
    tensors: Mapping[str, T], ops: Sequence[Op], inputs: Sequence[str], outputs: Sequence[str]
) -> bytes:
    """Return the bytes of a model of one graph."""
    return models(Graph(tensors, ops, inputs, outputs))


def models(*graphs: Graph) -> bytes:
    """Return the bytes of a model; the first graph is the program."""
    writer = _Writer()
    return writer.model(graphs)


class _Writer:
    def __init__(self) -> None:
        import flatbuffers
        import tflite

        self.b = flatbuffers.Builder(1024)
        self.tflite = tflite
        self.codes: dict[str, int] = {}
        self.buffers: list[np.ndarray | None] = [None]

    def vector(self, offsets: Sequence[int]) -> int:
        self.b.StartVector(4, len(offsets), 4)
        for o in reversed(offsets):
            self.b.PrependUOffsetTRelative(o)
        return self.b.EndVector()

    def numbers(self, values: Sequence[int]) -> int:
        return self.b.CreateNumpyVector(np.asarray(values, np.int32))

    def table(self, name: str, **fields: object) -> int:
        made = {k: self.content(v) for k, v in fields.items()}
        getattr(self.tflite, f"{name}Start")(self.b)
        for key, value in made.items():
            getattr(self.tflite, f"{name}Add{key}")(self.b, value)
        return getattr(self.tflite, f"{name}End")(self.b)

    def content(self, value: object) -> object:
        if isinstance(value, str):
            return self.b.CreateString(value)
        if isinstance(value, np.ndarray):
            return self.b.CreateNumpyVector(value)
        return self.numbers(value) if isinstance(value, list | tuple) else value

    def buffer(self, data: np.ndarray | None) -> int:
        if data is None:
            return self.table("Buffer")
        content = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
        return self.table("Buffer", Data=self.b.CreateNumpyVector(content))

    def positions(self, values: np.ndarray) -> tuple[int, int]:
        """Return a list of positions, and the number of its table."""
        kinds = ("Int32Vector", "Uint16Vector", "Uint8Vector")
        number = ("int32", "uint16", "uint8").index(values.dtype.name)
        return self.table(kinds[number], Values=values), number + 1

    def level(self, level: int | tuple[np.ndarray, np.ndarray]) -> int:
        if isinstance(level, int):
            return self.table("DimensionMetadata", Format=0, DenseSize=level)
        (ends, of_ends), (at, of_at) = (self.positions(v) for v in level)
        ends_of = {"ArraySegments": ends, "ArraySegmentsType": of_ends}
        return self.table("DimensionMetadata", Format=1, ArrayIndices=at, ArrayIndicesType=of_at, **ends_of)

    def sparsity(self, s: Sparse) -> int:
        levels = self.vector([self.level(v) for v in s.levels])
        order, blocks = self.numbers(s.order), self.numbers(s.blocks)
        return self.table("SparsityParameters", TraversalOrder=order, BlockMap=blocks, DimMetadata=levels)

    def tensor(self, name: str, t: T) -> int:
        fields: dict[str, object] = {"Name": self.b.CreateString(name), "Shape": self.numbers(t.shape)}
        if t.signature:
            fields["ShapeSignature"] = self.numbers(t.signature)
        scales = np.atleast_1d(np.asarray(t.scale, np.float32))
        if scales.size:
            zeros = self.b.CreateNumpyVector(np.full(scales.shape, t.zero, np.int64))
            pair = {"Scale": self.b.CreateNumpyVector(scales), "ZeroPoint": zeros}
            fields["Quantization"] = self.table("QuantizationParameters", **pair, QuantizedDimension=t.axis)
        if t.sparse is not None:
            fields["Sparsity"] = self.sparsity(t.sparse)
        self.buffers.append(t.data if t.sparse is None else t.sparse.data)
        more = {"Type": TYPES[t.dtype], "Buffer": len(self.buffers) - 1, "IsVariable": t.is_variable}
        return self.table("Tensor", **fields, **more)

    def operator(self, op: Op, index: Mapping[str, int]) -> int:
        fields: dict[str, object] = {
            "Inputs": self.numbers([index[i] if i else -1 for i in op.inputs]),
            "Outputs": self.numbers([index[o] for o in op.outputs]),
        }
        if op.custom is not None:
            from flatbuffers import flexbuffers

            flex = flexbuffers.Builder()
            flex.MapFromElements(dict(op.custom))
            fields["CustomOptions"] = self.b.CreateByteVector(bytes(flex.Finish()))
        if op.table:
            union = "BuiltinOptions" if hasattr(self.tflite.BuiltinOptions, op.table) else "BuiltinOptions2"
            fields[union] = self.table(op.table, **op.options)
            fields[f"{union}Type"] = getattr(getattr(self.tflite, union), op.table)
        number = self.codes.setdefault(op.name, len(self.codes))
        return self.table("Operator", **fields, OpcodeIndex=number)

    def code(self, name: str) -> int:
        code = getattr(self.tflite.BuiltinOperator, name, None)
        if code is None:
            custom = self.tflite.BuiltinOperator.CUSTOM
            return self.table(
                "OperatorCode", BuiltinCode=custom, DeprecatedBuiltinCode=custom, CustomCode=name, Version=1
            )
        return self.table("OperatorCode", BuiltinCode=code, DeprecatedBuiltinCode=min(code, 127), Version=1)

    def graph(self, g: Graph) -> int:
        index = {name: i for i, name in enumerate(g.tensors)}
        made = {
            "Tensors": self.vector([self.tensor(n, t) for n, t in g.tensors.items()]),
            "Operators": self.vector([self.operator(op, index) for op in g.ops]),
            "Inputs": self.numbers([index[i] for i in g.inputs]),
            "Outputs": self.numbers([index[o] for o in g.outputs]),
        }
        return self.table("SubGraph", **made)

    def model(self, graphs: Sequence[Graph]) -> bytes:
        subgraphs = self.vector([self.graph(g) for g in graphs])
        codes = self.vector([self.code(name) for name in self.codes])
        buffers = self.vector([self.buffer(data) for data in self.buffers])
        whole = self.table("Model", Version=3, OperatorCodes=codes, Subgraphs=subgraphs, Buffers=buffers)
        self.b.Finish(whole, b"TFL3")
        return bytes(self.b.Output())
