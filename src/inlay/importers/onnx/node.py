"""What an import rule sees of its node: attributes, inputs, and how to emit operations.

A rule is a function `rule(node: Node) -> Value | tuple[Value, ...]`, one per ONNX operator, in a
table of its family (`ops_*.py`). It reads attributes with defaults as the ONNX specification states
them for the node's operator set, and returns one value per output. A rule that cannot do what the
node asks raises `node.unsupported(...)`; the importer collects these and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import onnx
from onnx import AttributeProto

from inlay.arith import dtype as dt
from inlay.arith.expr import Int, lit
from inlay.base.diagnostics import InlayError, UnsupportedError, error, unsupported
from inlay.base.span import Span
from inlay.importers.folding import MAX_KNOWN
from inlay.importers.limits import MAX_RANK
from inlay.importers.onnx import load
from inlay.importers.onnx.emit import Emitter
from inlay.importers.onnx.external import ExternalFiles
from inlay.importers.onnx.values import OnnxValue
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.expr import Const, Expr
from inlay.ir.types import IntType, ShapeType, TensorType

Rule = Callable[["Node"], "OnnxValue | tuple[OnnxValue, ...]"]


class Subgraphs(Protocol):
    """Imports a subgraph of a node; the graph importer implements it."""

    def run(
        self, graph: onnx.GraphProto, inputs: Sequence[OnnxValue], b: Builder, span: Span
    ) -> tuple[OnnxValue, ...]:
        """Import the nodes of `graph` into `b` with its inputs bound; return its outputs."""
        ...


@dataclass(frozen=True, slots=True)
class Node:
    """A node under import.

    Attributes:
        proto: the node.
        opset: version of the operator set that the node belongs to.
        inputs: one value per input; None where an optional input is left out.
        b: where operations go.
        emitter: makes operations.
        subgraphs: imports bodies of control flow.
        files: where external data of tensor attributes lies, if anywhere.
    """

    proto: onnx.NodeProto
    opset: int
    inputs: tuple[OnnxValue | None, ...]
    b: Builder
    emitter: Emitter
    subgraphs: Subgraphs
    files: ExternalFiles
    span: Span

    # ------------------------------------------------------------------ refusals

    def unsupported(self, why: str, hint: str = "") -> UnsupportedError:
        """Return the refusal to raise when the node is legal and we cannot do it."""
        return unsupported(
            "import.unsupported",
            f"operator {self.proto.op_type} {why}",
            span=self.span,
            hint=hint or "export the model with a simpler form of this operator",
        )

    def invalid(self, why: str, hint: str = "") -> InlayError:
        """Return the error to raise when the node breaks the ONNX specification."""
        return error(
            "import.invalid-node",
            f"operator {self.proto.op_type} {why}",
            span=self.span,
            hint=hint or "the model is damaged or was written by a faulty exporter",
        )

    # ------------------------------------------------------------------ attributes

    def attribute_names(self) -> tuple[str, ...]:
        """Return the names of the attributes that the node gives."""
        return tuple(str(a.name) for a in self.proto.attribute)

    def _attribute(self, name: str, kind: int) -> AttributeProto | None:
        for a in self.proto.attribute:
            if a.name == name:
                if a.type not in (kind, AttributeProto.UNDEFINED):
                    found = AttributeProto.AttributeType.Name(a.type).lower()
                    needed = AttributeProto.AttributeType.Name(kind).lower()
                    raise self.invalid(f"has attribute '{name}' of type {found}, needed {needed}")
                return a
        return None

    def int(self, name: str, default: int) -> int:
        """Return an integer attribute."""
        a = self._attribute(name, AttributeProto.INT)
        return default if a is None else int(a.i)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return an integer attribute that stands for a truth value: 0 or 1."""
        found = self.int(name, int(default))
        if found not in (0, 1):
            raise self.invalid(f"has {name} = {found}, needed 0 or 1")
        return bool(found)

    def flags(self, name: str, count: int) -> tuple[bool, ...]:
        """Return an attribute that is a list of so many truth values, 0 by default."""
        found = self.int_list(name) or (0,) * count
        if len(found) != count or not set(found) <= {0, 1}:
            raise self.invalid(f"has {name} = {list(found)}, needed {count} times 0 or 1")
        return tuple(bool(b) for b in found)

    def choice(self, name: str, default: str, *others: str) -> str:
        """Return a string attribute that is one of some words."""
        found = self.string(name, default)
        if found not in (default, *others):
            words = ", ".join(f"'{word}'" for word in (default, *others))
            raise self.invalid(f"has {name} '{found}', needed one of {words}")
        return found

    def float(self, name: str, default: float) -> float:
        """Return a float attribute."""
        a = self._attribute(name, AttributeProto.FLOAT)
        return default if a is None else float(a.f)

    def string(self, name: str, default: str) -> str:
        """Return a string attribute."""
        a = self._attribute(name, AttributeProto.STRING)
        return default if a is None else a.s.decode("utf-8", "replace")

    def int_list(self, name: str) -> tuple[int, ...] | None:
        """Return an attribute that is a list of integers."""
        a = self._attribute(name, AttributeProto.INTS)
        return None if a is None else tuple(int(i) for i in a.ints)

    def float_list(self, name: str) -> tuple[float, ...] | None:
        """Return an attribute that is a list of floats."""
        a = self._attribute(name, AttributeProto.FLOATS)
        return None if a is None else tuple(float(f) for f in a.floats)

    def string_list(self, name: str) -> tuple[str, ...] | None:
        """Return an attribute that is a list of strings."""
        a = self._attribute(name, AttributeProto.STRINGS)
        return None if a is None else tuple(s.decode("utf-8", "replace") for s in a.strings)

    def graph(self, name: str) -> onnx.GraphProto:
        """Return a subgraph attribute, which must be there."""
        a = self._attribute(name, AttributeProto.GRAPH)
        if a is None:
            raise self.invalid(f"has no attribute '{name}'")
        return a.g

    def tensor_attribute(self, name: str) -> np.ndarray | None:
        """Return the content of a tensor attribute."""
        proto = self.tensor_proto(name)
        return None if proto is None else load.read_tensor(proto, self.files, self.span)

    def tensor_proto(self, name: str) -> onnx.TensorProto | None:
        """Return a tensor attribute as it is stored."""
        a = self._attribute(name, AttributeProto.TENSOR)
        return None if a is None else a.t

    def sparse_attribute(self, name: str) -> np.ndarray | None:
        """Return the content of a sparse tensor attribute, dense."""
        a = self._attribute(name, AttributeProto.SPARSE_TENSOR)
        return None if a is None else load.read_sparse(a.sparse_tensor, self.files, self.span)

    # ------------------------------------------------------------------ inputs

    def has(self, i: int) -> bool:
        """Whether input `i` is given."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def value(self, i: int) -> OnnxValue:
        """Return input `i`, which must be given."""
        found = self.inputs[i] if i < len(self.inputs) else None
        if found is None:
            raise self.invalid(f"needs input {i}, which is not given")
        return found

    def tensor(self, i: int) -> Expr:
        """Return input `i` as a tensor."""
        return self.as_tensor(self.value(i))

    def tensors(self) -> tuple[Expr, ...]:
        """Return all inputs as tensors; none may be left out."""
        return tuple(self.tensor(i) for i in range(len(self.inputs)))

    def as_tensor(self, value: OnnxValue) -> Expr:
        """Return a value as a tensor, writing known integers out as one."""
        if value.expr is not None:
            return value.expr
        if value.ints is None:
            raise self.unsupported("needs a tensor where it is given a sequence or an optional")
        numbers = [n.value for n in value.ints]
        if all(n is not None for n in numbers):
            content = np.array(numbers, dtype=value.dtype.numpy)
            return make.const(content.reshape(()) if value.is_scalar else content)
        one = value.is_scalar
        control = make.int_const(value.ints[0]) if one else make.shape_const(value.ints)
        return self.cast(self.emit("to_tensor", control), value.dtype)

    def type(self, i: int) -> TensorType:
        """Return the type of input `i`, which is a tensor."""
        v = self.value(i)
        if v.expr is None:
            if v.ints is None:
                raise self.unsupported("needs a tensor where it is given a sequence or an optional")
            return TensorType(() if v.is_scalar else (lit(len(v.ints)),), v.dtype)
        return self.type_of(v.expr)

    def type_of(self, e: Expr) -> TensorType:
        """Return the type of an expression, which must be a tensor."""
        if not isinstance(e.type, TensorType):
            raise self.unsupported(f"is given a value of type {e.type}, needed a tensor")
        return e.type

    def rank(self, i: int) -> int:
        """Return the rank of input `i`."""
        return len(self.type(i).shape)

    def axis(self, axis: int, rank: int) -> int:
        """Return an axis counted from the front; it must be in range."""
        if not -rank <= axis < rank:
            raise self.invalid(f"has axis {axis} of a tensor of rank {rank}")
        return axis % rank if rank else 0

    def array(self, i: int) -> np.ndarray | None:
        """Return the content of input `i` when it is a constant."""
        v = self.value(i)
        if v.expr is not None:
            content = v.expr.value if isinstance(v.expr, Const) else None
            return content if isinstance(content, np.ndarray) else None
        numbers = [n.value for n in v.ints or ()]
        if v.ints is None or any(n is None for n in numbers):
            return None
        content = np.array(numbers, v.dtype.numpy)
        return content.reshape(()) if v.is_scalar else content

    def constant(self, i: int, what: str) -> np.ndarray:
        """Return the content of input `i`, which must be a constant."""
        found = self.array(i)
        if found is None:
            raise self.unsupported(
                f"has {what} that is computed at run time; it must be a constant",
                hint=f"export the model with a constant {what}",
            )
        return found

    def numbers(self, i: int, what: str) -> tuple[int, ...]:
        """Return the integers of input `i`, which must be a constant of rank 0 or 1."""
        return tuple(int(n) for n in self.constant(i, what).reshape(-1))

    def known(self, i: int) -> tuple[Int, ...] | None:
        """Return the content of input `i` as integers over dims, when it is known."""
        v = self.value(i)
        if v.ints is not None:
            return v.ints
        a = self.array(i)
        if a is None or a.ndim > 1 or a.size > MAX_KNOWN or a.dtype.kind not in "iu":
            return None
        return tuple(lit(int(n)) for n in a.reshape(-1))

    def shape(self, i: int) -> tuple[Int, ...]:
        """Return the content of input `i`, a vector of static length, as control integers.

        What is not known is read from the tensor where the program runs (it waits for it).
        """
        found = self.known(i)
        if found is not None:
            return found
        t = self.type(i)
        length = t.shape[0].value if len(t.shape) == 1 else None
        if length is None:
            raise self.unsupported(
                "is given a shape of unknown length, so the rank of its result depends on data",
                hint="ranks must be static: export the model with a shape of fixed length",
            )
        return self.controls(self.tensor(i))

    def control_int(self, i: int) -> Expr:
        """Return input `i`, a one-element integer tensor, as a control integer."""
        v = self.value(i)
        if v.scalar is not None:
            return make.int_const(v.scalar)
        single = self.known(i)
        if single is not None and len(single) == 1:
            return make.int_const(single[0])
        found = self.emit("to_control", self.reshape(self.cast(self.tensor(i), dt.I64), ()))
        assert isinstance(found.type, IntType), "to_control of an integer gives an int"
        return found

    # ------------------------------------------------------------------ results

    def within(self, b: Builder) -> Node:
        """Return the same node emitting into another scope."""
        return replace(self, b=b)

    def emit(self, name: str, *args: Expr, **attrs: object) -> Expr:
        """Emit an operation by name and return what stands for its result."""
        return self.emitter.emit(self.b, name, args, attrs, self.result_name)

    @property
    def result_name(self) -> str:
        """The name for variables of this node: that of its first output."""
        return next((o for o in self.proto.output if o), self.proto.op_type.lower())

    @property
    def loop_name(self) -> str:
        """The name of the local function that a loop becomes."""
        return self.proto.name or self.proto.op_type.lower()

    def move_axis(self, x: Expr, source: int, target: int) -> Expr:
        """Transpose so that one axis takes another position."""
        if source == target:
            return x
        order = [i for i in range(len(self.type_of(x).shape)) if i != source]
        order.insert(target, source)
        return self.emit("transpose", x, perm=tuple(order))

    def number(self, value: float, dtype: dt.DType) -> Expr:
        """Return a constant of rank 0."""
        return make.const(np.array(value, dtype.numpy))

    def is_one(self, e: Expr) -> bool:
        """Whether a tensor is a constant that is 1 everywhere."""
        content = e.value if isinstance(e, Const) else None
        return isinstance(content, np.ndarray) and bool((content == 1).all())

    def controls(self, e: Expr) -> tuple[Int, ...]:
        """Wait for a vector of integers of static length; return them as control integers."""
        content = e.value if isinstance(e, Const) else None
        if isinstance(content, np.ndarray):
            return tuple(lit(int(n)) for n in content)
        dims = self.type_of(e).shape
        length = dims[0].value if len(dims) == 1 else None
        if length is None or length > MAX_RANK:
            raise self.unsupported(
                f"is given {dims[0] if dims else 'no vector'} as the length of a shape, which must "
                f"be a number up to {MAX_RANK}",
                hint="ranks must be static: export the model with a shape of fixed length",
            )
        s = self.emit("to_control", self.cast(e, dt.I64))
        assert isinstance(s.type, ShapeType), "to_control of a vector gives a shape"
        return tuple(v for v in s.type.values if v is not None)

    def cast(self, e: Expr, dtype: dt.DType) -> Expr:
        """Convert a tensor, if it is not of that format already."""
        own = self.type_of(e).dtype
        if own == dtype:
            return e
        if dt.BOOL in (own, dtype) and dt.STRING in (own, dtype):
            raise self.unsupported("converts between strings and truth values")
        if dtype is dt.STRING:
            return self.emit("string_of", e)
        if own is dt.STRING:
            read = "string_to_int" if dtype.is_integer else "string_to_float"
            return self.cast(self.emit(read, e), dtype)
        return self.emit("cast", e, dtype=dtype)

    def reshape(self, e: Expr, shape: Sequence[Int | int]) -> Expr:
        """Give a tensor another shape, if it is not its shape already."""
        wanted = tuple(lit(n) if isinstance(n, int) else n for n in shape)
        if self.type_of(e).shape == wanted:
            return e
        return self.emit("reshape", e, make.shape_const(wanted))

    def result(self, name: str, *args: Expr, **attrs: object) -> OnnxValue:
        """Emit an operation whose result is the value of the node."""
        return OnnxValue(self.emit(name, *args, **attrs))


def describe(proto: onnx.NodeProto, index: int) -> str:
    """Return how messages name a node: by its name, or by what it makes."""
    made = next((o for o in proto.output if o), "")
    return f"node '{proto.name or made or index}' ({proto.op_type})"
