"""An operator of a TFLite graph as its rule sees it: operands, options, quantization, and how to emit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from inlay.arith.dtype import F32, I8, I16, I32, DType
from inlay.arith.expr import Int
from inlay.base.diagnostics import UnsupportedError, unsupported
from inlay.base.span import Span
from inlay.importers.tflite.schema import GraphRecord, OperatorRecord, Quantization, TensorRecord, damaged
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.expr import Expr
from inlay.ir.types import TensorType
from inlay.ops.table import OperatorTable

Rule = Callable[["Node"], Expr | tuple[Expr, ...]]
"""Emits what an operator does and returns its outputs."""


@dataclass(frozen=True, slots=True)
class Node:
    """One operator.

    Attributes:
        record: what the file says of it.
        graph: that it is in.
        values: what its inputs are, None for those that are left out.
        builder: where operations are emitted.
        operators: what names of operations mean.
        span: for messages.
        updates: new values of variables, by index of the tensor.
    """

    record: OperatorRecord
    graph: GraphRecord
    values: tuple[Expr | None, ...]
    builder: Builder
    operators: OperatorTable
    span: Span
    updates: dict[int, Expr] = field(default_factory=dict[int, Expr])

    # ------------------------------------------------------------------ what the file says

    def unsupported(self, why: str, hint: str = "") -> UnsupportedError:
        """Return an error: the operator is right, and cannot be imported."""
        return unsupported("import.unsupported", f"{self.record.name} {why}", span=self.span, hint=hint)

    def has(self, i: int) -> bool:
        """Whether an input is given."""
        return i < len(self.values) and self.values[i] is not None

    def input(self, i: int) -> TensorRecord:
        """Return what the file says of an input.

        Raises:
            CompileError: `import.not-tflite` where it is left out.
        """
        if not self.has(i):
            raise damaged(f"{self.record.name} has no input {i}")
        return self.graph.tensors[self.record.inputs[i]]

    def output(self, i: int = 0) -> TensorRecord:
        """Return what the file says of an output."""
        if i >= len(self.record.outputs):
            raise damaged(f"{self.record.name} has no output {i}")
        return self.graph.tensors[self.record.outputs[i]]

    def options(self, table: str, *fields: str) -> tuple[Any, ...]:
        """Return fields of the options; see `OperatorRecord.options`."""
        return self.record.options(table, *fields)

    def tensor(self, i: int) -> Expr:
        """Return an input."""
        self.input(i)
        value = self.values[i]
        assert value is not None, "an input that is given has a value"
        return value

    def array(self, i: int, what: str) -> np.ndarray:
        """Return an input that has to be constant."""
        data = self.input(i).data
        if data is None:
            raise self.unsupported(f"takes {what} that is computed", "make it a constant")
        return data

    def quantization(self, t: TensorRecord) -> Quantization:
        """Return the scales and zero points of a tensor of integers."""
        if t.quantization is None:
            raise self.unsupported(f"has the tensor '{t.name}' of {t.dtype} without a scale")
        return t.quantization

    def scale(self, t: TensorRecord) -> np.float32:
        """Return the one scale of a tensor."""
        scales = self.quantization(t).scales
        if len(scales) != 1:
            raise self.unsupported(
                f"has the tensor '{t.name}' with {len(scales)} scales, where one is possible"
            )
        return scales[0]

    def zero(self, t: TensorRecord) -> int:
        """Return the one zero point of a tensor."""
        self.scale(t)
        return int(self.quantization(t).zeros[0])

    def is_integer(self) -> bool:
        """Whether it computes with quantized integers.

        Raises:
            UnsupportedError: with 8-bit integers without a sign, which newer converters do not write.
        """
        dtype = self.input(0).dtype
        if dtype not in (F32, I8, I16) or self.output().dtype is not dtype:
            raise self.unsupported(f"takes {dtype} and gives {self.output().dtype}")
        return dtype is not F32

    # ------------------------------------------------------------------ what is emitted

    def shape(self, e: Expr) -> tuple[Int, ...]:
        """Return the shape of a tensor."""
        assert isinstance(e.type, TensorType)
        return e.type.shape

    def op(self, name: str, *args: Expr | np.ndarray, **attrs: object) -> Expr:
        """Emit an operation; arrays are constants."""
        definition = self.operators.definition(name)
        exprs = [make.const(a) if isinstance(a, np.ndarray) else a for a in args]
        record = definition.op.attrs_type(**attrs)
        return self.builder.emit(definition.op, exprs, record, name=name)

    def cast(self, e: Expr, dtype: DType) -> Expr:
        """Convert a tensor, if it has another element type."""
        assert isinstance(e.type, TensorType)
        return e if e.type.dtype is dtype else self.op("cast", e, dtype=dtype)

    def clamped(self, e: Expr, low: float | None, high: float | None) -> Expr:
        """Clamp the elements of a tensor; None = no end."""
        assert isinstance(e.type, TensorType)
        number = e.type.dtype.numpy
        if low is not None:
            e = self.op("maximum", e, np.asarray(low, number))
        return e if high is None else self.op("minimum", e, np.asarray(high, number))

    def reshape(self, e: Expr, *shape: Int | int) -> Expr:
        """Give a tensor another shape."""
        return self.op("reshape", e, make.shape_const(shape))

    def part(self, e: Expr, axis: int, start: int, stop: int, step: int = 1) -> Expr:
        """Cut a range out of an axis."""
        numbers = [make.shape_const([v]) for v in (start, stop, step)]
        return self.op("slice", e, *numbers, axes=(axis,))

    def within(self, builder: Builder) -> Node:
        """Return the same node, emitting into another scope."""
        return replace(self, builder=builder)

    def update(self, i: int, e: Expr) -> None:
        """Give a variable, which is an input, the value that the next run begins with."""
        self.updates[self.record.inputs[i]] = e

    def reals(self, i: int) -> Expr:
        """Return an input as floats; of constants that are stored as integers, what they stand for."""
        t, e = self.input(i), self.tensor(i)
        if t.dtype is F32:
            return e
        q = self.quantization(t)
        zeros = np.asarray(q.zeros, t.dtype.numpy)
        one = len(q.scales) == 1
        pair = (q.scales.reshape(()), zeros.reshape(())) if one else (q.scales, zeros)
        return self.op("dequantize", e, *pair, axis=q.axis)

    def centered(self, i: int) -> Expr:
        """Return an integer input less its zero point, in i32."""
        wide, zero = self.cast(self.tensor(i), I32), self.zero(self.input(i))
        return wide if zero == 0 else self.op("sub", wide, np.asarray(zero, np.int32))
