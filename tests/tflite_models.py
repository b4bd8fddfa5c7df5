"""Writes small TFLite models: tensors, operators with options, one graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

TYPES = {"float32": 0, "int32": 2, "uint8": 3, "int64": 4, "bool": 6, "int16": 7, "int8": 9}


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


@dataclass(frozen=True)
class Op:
    """An operator: its name, tensors by name, its table of options and the fields of that."""

    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    table: str = ""
    options: Mapping[str, int | float] = field(default_factory=dict)


def constant(data, **more) -> T:
    """Return a constant tensor."""
    array = np.asarray(data)
    return T(array.shape, array.dtype.name, array, **more)


def model(
    tensors: Mapping[str, T], ops: Sequence[Op], inputs: Sequence[str], outputs: Sequence[str]
) -> bytes:
    """Return the bytes of a model."""
    import flatbuffers
    import tflite

    b = flatbuffers.Builder(1024)
    index = {name: i for i, name in enumerate(tensors)}

    def vector(offsets: Sequence[int]) -> int:
        b.StartVector(4, len(offsets), 4)
        for o in reversed(offsets):
            b.PrependUOffsetTRelative(o)
        return b.EndVector()

    def numbers(values: Sequence[int]) -> int:
        return b.CreateNumpyVector(np.asarray(values, np.int32))

    def table(name: str, **fields: object) -> int:
        getattr(tflite, f"{name}Start")(b)
        for key, value in fields.items():
            getattr(tflite, f"{name}Add{key}")(b, value)
        return getattr(tflite, f"{name}End")(b)

    def buffer(data: np.ndarray | None) -> int:
        if data is None:
            return table("Buffer")
        content = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
        return table("Buffer", Data=b.CreateNumpyVector(content))

    def tensor(name: str, t: T) -> int:
        fields: dict[str, object] = {"Name": b.CreateString(name), "Shape": numbers(t.shape)}
        if t.signature:
            fields["ShapeSignature"] = numbers(t.signature)
        scales = np.atleast_1d(np.asarray(t.scale, np.float32))
        if scales.size:
            zeros = b.CreateNumpyVector(np.full(scales.shape, t.zero, np.int64))
            pair = {"Scale": b.CreateNumpyVector(scales), "ZeroPoint": zeros}
            fields["Quantization"] = table("QuantizationParameters", **pair, QuantizedDimension=t.axis)
        more = {"Type": TYPES[t.dtype], "Buffer": index[name] + 1, "IsVariable": t.is_variable}
        return table("Tensor", **fields, **more)

    def operator(number: int, op: Op) -> int:
        fields: dict[str, object] = {
            "Inputs": numbers([index[i] if i else -1 for i in op.inputs]),
            "Outputs": numbers([index[o] for o in op.outputs]),
        }
        if op.table:
            fields["BuiltinOptions"] = table(op.table, **op.options)
            fields["BuiltinOptionsType"] = getattr(tflite.BuiltinOptions, op.table)
        return table("Operator", **fields, OpcodeIndex=number)

    codes = []
    for op in ops:
        code = getattr(tflite.BuiltinOperator, op.name)
        codes.append(table("OperatorCode", BuiltinCode=code, DeprecatedBuiltinCode=min(code, 127), Version=1))
    made = {
        "Tensors": vector([tensor(n, t) for n, t in tensors.items()]),
        "Operators": vector([operator(i, op) for i, op in enumerate(ops)]),
        "Inputs": numbers([index[i] for i in inputs]),
        "Outputs": numbers([index[o] for o in outputs]),
    }
    graphs = vector([table("SubGraph", **made)])
    buffers = vector([table("Buffer"), *(buffer(t.data) for t in tensors.values())])
    whole = table("Model", Version=3, OperatorCodes=vector(codes), Subgraphs=graphs, Buffers=buffers)
    b.Finish(whole, b"TFL3")
    return bytes(b.Output())
