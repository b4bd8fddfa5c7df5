"""An operator of a TFLite graph as its rule sees it: operands, options, quantization, and how to emit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, Protocol

import numpy as np

from inlay.arith.dtype import F16, F32, I8, I16, I32, I64, U8, DType
from inlay.arith.expr import Int, lit, product
from inlay.base.diagnostics import UnsupportedError, unsupported
from inlay.base.span import Span
from inlay.importers.folding import folded
from inlay.importers.tflite.schema import (
    MOST_AXES,
    MOST_ELEMENTS,
    GraphRecord,
    ModelRecord,
    OperatorRecord,
    Quantization,
    TensorRecord,
    damaged,
)
from inlay.importers.tflite.variables import Key, Variables, key_of_tensor
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.expr import Const, Expr
from inlay.ir.types import ShapeType, TensorType
from inlay.ops.table import OperatorTable

_SAME_SCALE = 1e-6
"""By what part of them two scales may differ that are one: less than a tenth of a step of 16 bits."""

Rule = Callable[["Node"], Expr | tuple[Expr, ...]]
"""Emits what an operator does and returns its outputs."""


class Kind(Enum):
    """What the numbers of an operator are."""

    FLOAT = auto()
    QUANTIZED = auto()  # integers with a scale
    PLAIN = auto()  # integers and booleans that are what they are


class Incomplete(Exception):
    """Something that a rule needs is missing because it was refused."""


class Subgraphs(Protocol):
    """The walk that an operator is met in, as rules see it.

    Attributes:
        model: that is walked.
        index: of the graph.
        variables: what variables are at this point.
        handles: which variable a tensor stands for, by index.
        known: what is known of integers that shapes are made of; see `sizes.py`.
    """

    @property
    def model(self) -> ModelRecord:
        """The model."""
        ...

    index: int
    variables: Variables
    handles: dict[int, Key]

    @property
    def known(self) -> dict[Expr, np.ndarray]:
        """What is known of integers that shapes are made of."""
        ...

    def run_graph(
        self, index: int, inputs: Sequence[int | Expr], builder: Builder, variables: Variables
    ) -> list[Expr]:
        """Emit another graph into a scope and return its outputs.

        Args:
            index: of the graph.
            inputs: tensors of the graph of the operator, by index, or values.
            builder: where its operations are emitted.
            variables: which it reads and changes.

        Raises:
            CompileError: `import.not-tflite` for a graph that runs itself, `import.too-large`.
            Incomplete: something in it was refused.
        """
        ...

    def record_of(self, index: int) -> GraphRecord:
        """Return another graph."""
        ...


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
        walk: the graphs around it.
    """

    record: OperatorRecord
    graph: GraphRecord
    values: tuple[Expr | None, ...]
    builder: Builder
    operators: OperatorTable
    span: Span
    walk: Subgraphs

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
        value = self.tensor(i)
        if not isinstance(value, Const) or not isinstance(value.value, np.ndarray):
            raise self.unsupported(f"takes {what} that is computed", "make it a constant")
        return value.value

    def numbers(self, i: int, what: str) -> list[int]:
        """Return the integers of an input that has to be constant."""
        return [int(v) for v in self.array(i, what).reshape(-1)]

    def known(self, i: int) -> tuple[Int, ...] | None:
        """Return the integers of an input where they are known, as constants or symbols; else None."""
        value = self.tensor(i)
        if isinstance(value, Const) and isinstance(value.value, np.ndarray):
            return tuple(lit(int(v)) for v in value.value.reshape(-1))
        found = self.walk.known.get(value)
        return None if found is None else tuple(found.reshape(-1).tolist())

    def sizes(self, i: int) -> tuple[Int, ...]:
        """Return the integers of an input, a vector or a number, as control integers.

        What is not known is read where the program runs, which waits for it.

        Raises:
            UnsupportedError: where it is not known how many there are.
        """
        found = self.known(i)
        if found is not None:
            return found
        return self.read(self.tensor(i))

    def extents(self, i: int) -> tuple[int, ...]:
        """Return the shape that an input is computed with, all of which has to be known.

        What the file says of a tensor that operators make may be less than that.
        """
        found = [d.value for d in self.shape(self.tensor(i))]
        known = tuple(d for d in found if d is not None)
        if len(known) < len(found):
            raise self.unsupported("has weights whose shape is not known")
        return known

    def output_sizes(self, i: int) -> list[int | None]:
        """Return the shape that an input says the output has, or the file, where that input is computed.

        None stands for sizes that only the running program knows.
        """
        said = [None if d < 0 else d for d in self.output().shape]
        known = self.known(i)
        if known is None:
            return said
        found = [d.value for d in known]
        return [s if f is None else f for f, s in zip(found, said, strict=True)] if said else found

    def read(self, e: Expr) -> tuple[Int, ...]:
        """Return integers of a tensor as control integers, which the running program waits for."""
        count = product(self.shape(e)).value
        if count is None or len(self.shape(e)) > 1 or count > MOST_AXES:
            raise self.unsupported("takes sizes of which it is not known how many there are")
        e = self.cast(e, I64)
        made = self.op("to_control", e if self.shape(e) else self.reshape(e, 1))
        assert isinstance(made.type, ShapeType), "to_control of a vector gives a shape"
        return tuple(v for v in made.type.values if v is not None)

    def bounded(self, *sizes: int) -> None:
        """Refuse to make tensors of absurd sizes while a model is read.

        Raises:
            UnsupportedError: the product of the sizes is beyond `MOST_ELEMENTS`.
        """
        if math.prod(max(s, 1) for s in sizes) > MOST_ELEMENTS:
            raise self.unsupported(f"has the sizes {list(sizes)}")

    def axis(self, axis: int, rank: int) -> int:
        """Return an axis that may be counted from behind."""
        if not -rank <= axis < rank:
            raise self.unsupported(f"names the axis {axis} of a tensor of rank {rank}")
        return axis % rank

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

    def kind(self, i: int = 0) -> Kind:
        """Return what the numbers of an input are."""
        t = self.input(i)
        if t.dtype is F32:
            return Kind.FLOAT
        return Kind.QUANTIZED if t.dtype in (I8, U8, I16) and t.quantization is not None else Kind.PLAIN

    def is_integer(self) -> bool:
        """Whether it computes with quantized integers, and not with floats.

        Raises:
            UnsupportedError: with anything else.
        """
        t = self.input(0)
        if t.dtype not in (F32, I8, U8, I16) or self.output().dtype is not t.dtype:
            raise self.unsupported(f"takes {t.dtype} and gives {self.output().dtype}")
        return t.dtype is not F32

    def only_floats(self, *inputs: int) -> None:
        """Require floats.

        Raises:
            UnsupportedError: with anything else.
        """
        for i in inputs or (0,):
            if self.input(i).dtype is not F32:
                raise self.unsupported(f"takes {self.input(i).dtype}, and floats are possible")

    def keeps_scale(self, *outputs: TensorRecord) -> None:
        """Require that inputs and outputs of the same element type stand for the same reals."""
        given = [self.graph.tensors[i] for i in self.record.inputs if i >= 0]
        results = outputs or (self.output(),)
        self.of_one_scale(*(t for t in (*given, *results) if t.dtype is results[0].dtype))

    def of_one_scale(self, *tensors: TensorRecord) -> None:
        """Require that tensors stand for the same reals, those of them that have a scale.

        Scales may differ as much as kernels let them: by what their computation in f32 leaves open.
        """
        quantized = [t.quantization for t in tensors if t.quantization is not None]
        for q in quantized[1:]:
            first = quantized[0]
            is_one = len(q.scales) == len(first.scales) and np.array_equal(q.zeros, first.zeros)
            if not is_one or not np.allclose(q.scales, first.scales, rtol=_SAME_SCALE, atol=0):
                raise self.unsupported("has inputs and outputs of different scales")

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
        known = folded(definition, record, exprs)
        if known is not None:
            return known
        return self.builder.emit(definition.op, exprs, record, name=name)

    def number(self, value: float, like: Expr) -> np.ndarray:
        """Return a number in the element type of a tensor."""
        return np.asarray(value, self.dtype(like).numpy)

    def dtype(self, e: Expr) -> DType:
        """Return the element type of a tensor."""
        assert isinstance(e.type, TensorType)
        return e.type.dtype

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

    def part(self, e: Expr, axis: int, start: Int | int, stop: Int | int, step: Int | int = 1) -> Expr:
        """Cut a range out of an axis."""
        numbers = [make.shape_const([v]) for v in (start, stop, step)]
        return self.op("slice", e, *numbers, axes=(axis,))

    def within(self, builder: Builder) -> Node:
        """Return the same node, emitting into another scope."""
        return replace(self, builder=builder)

    def update(self, i: int, e: Expr) -> None:
        """Give a variable, which is an input, the value that the next run begins with."""
        if not self.input(i).is_variable:
            raise damaged(f"{self.record.name} keeps a value in a tensor that is no variable")
        self.walk.variables[key_of_tensor(self.walk.index, self.record.inputs[i])] = e

    def reals(self, i: int) -> Expr:
        """Return an input as floats; of constants that are stored as integers, what they stand for.

        Files of the first years call bytes with a sign bytes without one where they are weights under floats:
        without a zero point, nothing below 0 could be said otherwise. Kernels read them so, too.
        """
        t, e = self.input(i), self.tensor(i)
        if t.dtype is F32:
            return e
        if t.dtype is F16:
            return self.cast(e, F32)
        q = self.quantization(t)
        zeros = np.asarray(q.zeros, t.dtype.numpy)
        if t.dtype is U8 and t.data is not None and not zeros.any() and self.record.name != "DEQUANTIZE":
            e, zeros = make.const(t.data.view(np.int8)), zeros.astype(np.int8)
        one = len(q.scales) == 1
        pair = (q.scales.reshape(()), zeros.reshape(())) if one else (q.scales, zeros)
        return self.op("dequantize", e, *pair, axis=q.axis)

    def centered(self, i: int) -> Expr:
        """Return an integer input less its zero point, in i32."""
        return self.less(self.cast(self.tensor(i), I32), self.zero(self.input(i)))

    def less(self, e: Expr, zero: int) -> Expr:
        """Subtract a zero point."""
        return e if zero == 0 else self.op("sub", e, self.number(zero, e))

    def looked_up(self, table: np.ndarray, e: Expr) -> Expr:
        """Return the entry of a table for each narrow integer; the first is that of the least integer.

        All have one: `clamp` says so, and spares a check of all indices in front.
        """
        info = np.iinfo(self.dtype(e).numpy)
        place = self.less(self.cast(e, I64), int(info.min))
        return self.op("gather", table, place, axis=0, clamp=True)

    def control(self, e: Expr) -> Expr:
        """Return a tensor of one element as a control value."""
        return self.op("to_control", self.reshape(e))
