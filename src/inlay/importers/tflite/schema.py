"""What a TFLite file says, as plain records, with everything checked that later steps lean on.

The format is a flatbuffer: offsets into the file, which nobody has checked. Numbers of records are held
against the size of the file before anything is read, and what reading damaged bytes raises becomes one error.
The generated accessors come from the package `tflite`.

Source: schema.fbs of TensorFlow Lite, version 3.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import math
import struct
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from inlay.arith.dtype import BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType
from inlay.base.diagnostics import Collector, InlayError, error, unsupported
from inlay.importers.tflite import sparsity

IDENTIFIER = b"TFL3"
MOST_AXES = 16
MOST_ELEMENTS = 1 << 26
"""Of what is made while a model is read, beside what its file has."""
_DTYPES: dict[int, DType] = {
    0: F32,
    1: F16,
    2: I32,
    3: U8,
    4: I64,
    6: BOOL,
    7: I16,
    8: F32,
    9: I8,
    10: F64,
    12: U64,
    13: I32,
    15: U32,
    16: U16,
    17: I8,
}  # numbers of TensorType; handles of variables are i32, integers of 4 bits i8, complex numbers pairs
_INT4, _STRING, _COMPLEX = 17, 5, 8


@dataclass(frozen=True, slots=True)
class Quantization:
    """What integers stand for: `(q - zero) * scale`, one pair, or one for each index of an axis."""

    scales: np.ndarray
    zeros: np.ndarray
    axis: int


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """A tensor of a graph.

    Attributes:
        name: as the file has it; "" for none.
        dtype: of the elements.
        shape: -1 where a size is known at run time only.
        data: of a constant.
        quantization: None where the numbers are what they are.
        is_variable: whether it keeps its value from run to run.
        is_refused: whether it is of a kind that is not possible here; the rest says nothing then.
        is_complex: whether its last axis, which the file does not have, is that of pairs of floats.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    data: np.ndarray | None
    quantization: Quantization | None
    is_variable: bool
    is_refused: bool = False
    is_complex: bool = False


@dataclass(frozen=True, slots=True)
class OperatorRecord:
    """An operator of a graph: its name, and tensors by index; -1 for an input that is left out.

    Attributes:
        is_custom: whether the name is one that a person gave.
    """

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    is_custom: bool
    raw: Any = field(repr=False)

    def custom_options(self) -> Mapping[str, Any]:
        """Return the options of a custom operator: a flexbuffer with a map, or nothing.

        Raises:
            CompileError: `import.not-tflite` for other content.
        """
        with reading():
            if self.raw.CustomOptionsLength() == 0:
                return {}
            found = _package("flatbuffers.flexbuffers").Loads(self.raw.CustomOptionsAsNumpy().tobytes())
            if isinstance(found, dict):
                return cast("dict[str, Any]", found)
            raise ValueError(f"{self.name} has options that are no map")

    def options(self, table: str, *fields: str) -> tuple[Any, ...]:
        """Return fields of the table of options of an operator.

        Args:
            table: as the schema calls it.
            fields: as the schema calls them, in camel case; a vector becomes a tuple.

        Raises:
            CompileError: `import.not-tflite`.
        """
        with reading():
            made = self._table(table)
            return tuple(_field(made, f) for f in fields)

    def vector(self, table: str, name: str) -> tuple[Any, ...]:
        """Return a field of the options that may be a long vector; see `options`."""
        with reading():
            made = self._table(table)
            return tuple(getattr(made, name)(i) for i in range(getattr(made, f"{name}Length")()))

    def _table(self, name: str) -> Any:
        tflite = _package()
        if hasattr(tflite.BuiltinOptions, name):
            number, kind = getattr(tflite.BuiltinOptions, name), self.raw.BuiltinOptionsType()
            found = self.raw.BuiltinOptions()
        else:  # the schema has two unions: the first was full
            number, kind = getattr(tflite.BuiltinOptions2, name), self.raw.BuiltinOptions2Type()
            found = self.raw.BuiltinOptions2()
        if kind not in (0, number):
            raise ValueError(f"{self.name} has other options than {name}")
        if found is None:  # of which all have their defaults
            return getattr(tflite, name).GetRootAs(_empty_table(), 0)
        made = getattr(tflite, name)()
        made.Init(found.Bytes, found.Pos)
        return made


@dataclass(frozen=True, slots=True)
class GraphRecord:
    """A graph: tensors by index, operators in order."""

    name: str
    tensors: tuple[TensorRecord, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[OperatorRecord, ...]


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A model: its graphs, of which the first is the program."""

    description: str
    graphs: tuple[GraphRecord, ...]


@contextlib.contextmanager
def reading() -> Generator[None, None, None]:
    """Turn what reading a damaged file raises into an error.

    Raises:
        CompileError: `import.not-tflite`.
    """
    try:
        yield
    except InlayError:
        raise
    except (
        struct.error,
        LookupError,
        ValueError,
        TypeError,
        OverflowError,
        AttributeError,
        MemoryError,
        AssertionError,
        RecursionError,
        UnicodeDecodeError,
    ) as fault:
        raise damaged(str(fault) or type(fault).__name__) from fault


def damaged(why: str) -> InlayError:
    """Return the error for a file that is not what it has to be."""
    return error(
        "import.not-tflite",
        f"the file is no TFLite model, or damaged: {why}",
        hint="check that it is complete, or convert the model again",
    )


def is_tflite(content: bytes) -> bool:
    """Whether bytes begin as a TFLite model."""
    return content[4:8] == IDENTIFIER


def read_model(content: bytes, findings: Collector) -> ModelRecord:
    """Return what a file says. Cost: linear in the file.

    Tensors that are right and not possible here are found, and stand as something else.

    Raises:
        CompileError: `import.not-tflite`.
        UnsupportedError: `import.missing-package` without the package `tflite`.
    """
    tflite = _package()
    if not is_tflite(content):
        raise damaged("it does not begin as one")
    with reading():
        return _Reader(content, tflite, tflite.Model.GetRootAs(content, 0), findings).model()


class _Reader:
    """Reads one file."""

    def __init__(self, content: bytes, tflite: Any, root: Any, findings: Collector) -> None:
        self._findings = findings
        self._size = len(content)
        self._root = root
        self._tflite = tflite
        numbers = cast("dict[str, Any]", vars(tflite.BuiltinOperator))
        self._names = {v: k for k, v in numbers.items() if isinstance(v, int)}
        self._codes: list[tuple[str, bool]] = [
            self._code(root.OperatorCodes(i)) for i in self._counted(root.OperatorCodesLength())
        ]
        self._buffers = self._counted(root.BuffersLength())

    def _counted(self, count: int, each: int = 4) -> range:
        """Return the indices of a vector whose elements the file can hold."""
        if not 0 <= count <= self._size // each:
            raise ValueError(f"a list of {count} elements in a file of {self._size} bytes")
        return range(count)

    def _code(self, code: Any) -> tuple[str, bool]:
        """Return the name of an operator, and whether it is a custom one."""
        number = max(int(code.BuiltinCode()), int(code.DeprecatedBuiltinCode()))
        name = self._names.get(number, f"operator {number}")
        return (_text(code.CustomCode()) or "CUSTOM", True) if name == "CUSTOM" else (name, False)

    def model(self) -> ModelRecord:
        graphs = [self._graph(self._root.Subgraphs(i)) for i in self._counted(self._root.SubgraphsLength())]
        if not graphs:
            raise ValueError("it has no graph")
        return ModelRecord(_text(self._root.Description()), tuple(graphs))

    def _graph(self, graph: Any) -> GraphRecord:
        tensors = tuple(self._tensor(graph.Tensors(i)) for i in self._counted(graph.TensorsLength()))
        here = range(len(tensors))
        inputs = tuple(self._at(graph.Inputs(i), here) for i in self._counted(graph.InputsLength()))
        outputs = tuple(self._at(graph.Outputs(i), here) for i in self._counted(graph.OutputsLength()))
        operators = [self._operator(graph.Operators(i), here) for i in self._counted(graph.OperatorsLength())]
        return GraphRecord(_text(graph.Name()), tensors, inputs, outputs, tuple(operators))

    @staticmethod
    def _at(index: int, places: range) -> int:
        if index not in places:
            raise ValueError(f"tensor {index} of {len(places)}")
        return int(index)

    def _operator(self, o: Any, tensors: range) -> OperatorRecord:
        inputs = [o.Inputs(i) for i in self._counted(o.InputsLength())]
        outputs = [self._at(o.Outputs(i), tensors) for i in self._counted(o.OutputsLength())]
        known = tuple(int(i) if i == -1 else self._at(i, tensors) for i in inputs)
        name, is_custom = self._codes[int(o.OpcodeIndex())]
        return OperatorRecord(name, known, tuple(outputs), is_custom, o)

    def _tensor(self, t: Any) -> TensorRecord:
        name, number = _text(t.Name()), t.Type()
        if problem := self._problem(t, number):
            self._findings.unsupported("import.unsupported", f"the tensor '{name}' {problem}")
            return TensorRecord(name, I8, (), None, None, is_variable=False, is_refused=True)
        dtype = _DTYPES[number]
        shape = tuple(int(t.Shape(i)) for i in self._counted(t.ShapeLength()))
        signature = tuple(int(t.ShapeSignature(i)) for i in self._counted(t.ShapeSignatureLength()))
        if number == _COMPLEX:
            shape, signature = (*shape, 2), (*signature, 2) if signature else ()
        if len(shape) > MOST_AXES or any(d < 0 for d in shape):
            raise ValueError(f"tensor '{name}' has the shape {shape}")
        if t.Sparsity() is None:
            data = self._data(t.Buffer(), dtype, shape, name, is_half_byte=number == _INT4)
        else:
            content = self._content(t.Buffer())
            kind = np.dtype(dtype.numpy)
            data = sparsity.dense(self._tflite, t.Sparsity(), content, kind, shape, MOST_ELEMENTS)
        if data is None and len(signature) == len(shape):
            shape = tuple(-1 if s < 0 else d for s, d in zip(signature, shape, strict=True))
        return TensorRecord(
            name,
            dtype,
            shape,
            data,
            self._quantization(t, shape, name, dtype),
            bool(t.IsVariable()),
            is_complex=number == _COMPLEX,
        )

    def _problem(self, t: Any, number: int) -> str:
        """Return why a tensor that is right is not possible here; "" for nothing."""
        if number == _STRING:
            return "has strings"
        if t.Sparsity() is not None and number == _INT4:
            return "has integers of 4 bits, and is stored without its zeros"
        if number not in _DTYPES:
            return f"has the element type {number} of TFLite"
        outside = t.Buffer() in self._buffers and self._root.Buffers(t.Buffer()).Size() > 0
        return "has its data behind the model" if outside else ""

    def _content(self, number: int) -> bytes:
        if number not in self._buffers:
            raise ValueError(f"buffer {number} of {len(self._buffers)}")
        buffer = self._root.Buffers(number)
        self._counted(buffer.DataLength(), 1)
        return buffer.DataAsNumpy().tobytes() if buffer.DataLength() else b""

    def _data(
        self, number: int, dtype: DType, shape: Sequence[int], name: str, *, is_half_byte: bool
    ) -> np.ndarray | None:
        content = self._content(number)
        if number == 0 or (not content and 0 not in shape):
            return None
        elements = math.prod(shape)
        needed = (elements + 1) // 2 if is_half_byte else elements * np.dtype(dtype.numpy).itemsize
        if len(content) != needed:
            raise ValueError(
                f"tensor '{name}' of shape {tuple(shape)} has {len(content)} bytes, not {needed}"
            )
        if is_half_byte:  # the lower half of a byte comes first
            pairs = np.frombuffer(content, np.int8)
            return np.stack([pairs << 4 >> 4, pairs >> 4], 1).reshape(-1)[:elements].reshape(shape)
        return np.frombuffer(content, dtype.numpy).reshape(shape)

    def _quantization(self, t: Any, shape: Sequence[int], name: str, dtype: DType) -> Quantization | None:
        q = t.Quantization()
        if q is None or q.ScaleLength() == 0:
            return None
        scales = np.array([q.Scale(i) for i in self._counted(q.ScaleLength())], np.float32)
        zeros = np.array([q.ZeroPoint(i) for i in self._counted(q.ZeroPointLength())], np.int64)
        zeros = np.zeros(len(scales), np.int64) if not len(zeros) else np.broadcast_to(zeros, scales.shape)
        axis = int(q.QuantizedDimension())
        if not np.all(np.isfinite(scales) & (scales > 0)):
            raise ValueError(f"tensor '{name}' has a scale that is not positive")
        info = np.iinfo(dtype.numpy if dtype.is_integer else np.int64)
        if np.any((zeros < info.min) | (zeros > info.max)):
            raise ValueError(f"tensor '{name}' of {dtype} has a zero point beyond it")
        if len(scales) > 1 and (axis not in range(len(shape)) or shape[axis] != len(scales)):
            raise ValueError(f"tensor '{name}' has {len(scales)} scales along axis {axis} of {tuple(shape)}")
        return Quantization(scales, zeros, axis)


_PROVED_BY = {"tflite": "Model", "flatbuffers": "Builder"}
"""Packages, and what each must have: another module may have its name."""


@functools.cache
def _package(name: str = "tflite") -> Any:
    """Return a package that reads the format, or a module in one.

    Raises:
        UnsupportedError: `import.missing-package`.
    """
    top = name.partition(".")[0]
    needs = f"reading TFLite models takes the package '{top}'"
    hint = "pip install 'inlay-compiler[tflite]'"
    spec = importlib.util.find_spec(top)
    if spec is None:
        raise unsupported("import.missing-package", f"{needs}, which is not installed", hint=hint)
    where = spec.origin or ", ".join(spec.submodule_search_locations or ())
    # A file of this name is not run: it is somebody's program.
    if spec.submodule_search_locations is None or not hasattr(importlib.import_module(top), _PROVED_BY[top]):
        raise unsupported(
            "import.missing-package",
            f"{needs}; found {where}, which is something else of that name",
            hint=f"give that file another name, or take its folder from the path; {hint}",
        )
    return importlib.import_module(name)


def _empty_table() -> bytes:
    flatbuffers = _package("flatbuffers")
    builder = flatbuffers.Builder(16)
    builder.StartObject(0)
    builder.Finish(builder.EndObject())
    return bytes(builder.Output())


def _field(table: Any, name: str) -> Any:
    length = getattr(table, f"{name}Length", None)
    if length is None:
        return getattr(table, name)()
    return tuple(getattr(table, name)(i) for i in range(min(length(), MOST_AXES)))


def _text(value: bytes | str | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""
