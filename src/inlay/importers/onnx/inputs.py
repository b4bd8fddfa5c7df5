"""Types of the inputs of a model: which axes are numbers, which are one symbol, which are unknown.

Axes that are named (`batch`) are one symbol wherever the inputs use the name; unnamed ones are a
symbol each, called by the input and the position of the axis. What is a name: `protos.dim_name`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx

from inlay.arith.expr import Int, Sym, fresh, lit, to_int
from inlay.base.diagnostics import error, unsupported
from inlay.base.span import Span
from inlay.importers.limits import MAX_DIM, MAX_RANK
from inlay.importers.onnx import load
from inlay.importers.onnx.protos import dim_name
from inlay.importers.onnx.structure import list_of, option_of, some_tensor
from inlay.ir.existentials import pack
from inlay.ir.types import DimParam, TensorType, Type


@dataclass(slots=True)
class InputTypes:
    """Reads the types of the inputs of one model.

    Attributes:
        ranks: for a sequence whose elements have no rank, types of what is inserted into it.
        symbols: of axes, by their names.
        unnamed: symbols of the axes without one.
        names: which no unnamed axis may be given, because another axis has it.
    """

    ranks: Mapping[str, Sequence[Type]] = field(default_factory=dict[str, Sequence[Type]])
    symbols: dict[str, Sym] = field(default_factory=dict[str, Sym])
    unnamed: set[Sym] = field(default_factory=set[Sym])
    names: set[str] = field(default_factory=set[str])

    def type_of(self, declared: onnx.TypeProto, name: str, span: Span) -> Type:
        """Return the type of an input.

        Raises:
            CompileError: `import.bad-dim`.
            UnsupportedError: `import.input-type`, `import.dtype`, `import.rank-unknown`.
        """
        match declared.WhichOneof("value"):
            case "tensor_type":
                return self._tensor_type(declared.tensor_type, name, span)
            case "sequence_type":
                return list_of(self._element_type(declared.sequence_type.elem_type, name, span))
            case "optional_type":
                return option_of(self._element_type(declared.optional_type.elem_type, name, span))
            case kind:
                raise unsupported(
                    "import.input-type",
                    f"input '{name}' is a {(kind or 'value of no type').removesuffix('_type')}, "
                    "only tensors, sequences and optionals can be given",
                    span=span,
                    hint="split it into tensor inputs",
                )

    def _element_type(self, declared: onnx.TypeProto, name: str, span: Span) -> Type:
        """Return the type of elements: sizes that are no numbers are each element's own."""
        if declared.WhichOneof("value") != "tensor_type":
            return self.type_of(declared, name, span)
        inserted = [t for t in self.ranks.get(name, ()) if isinstance(t, TensorType)]
        if inserted and not declared.tensor_type.shape.dim:
            sizes = [fresh("k") for _ in inserted[0].shape]
            shape = tuple(to_int(s) for s in sizes)
            return pack(TensorType(shape, inserted[0].dtype), [DimParam(s, 0) for s in sizes])
        t = self._tensor_type(declared.tensor_type, name, span)
        return some_tensor(declared.tensor_type.shape, t.dtype)

    def _tensor_type(self, tensor: onnx.TypeProto.Tensor, name: str, span: Span) -> TensorType:
        dtype = load.dtype_of(tensor.elem_type)
        if dtype is None:
            raise unsupported(
                "import.dtype",
                f"input '{name}' has element type {load.elem_type_name(tensor.elem_type)}",
                span=span,
                hint="convert the model to a supported type",
            )
        if not tensor.HasField("shape"):
            raise unsupported(
                "import.rank-unknown",
                f"input '{name}' has no shape; its rank must be known",
                span=span,
                hint="export the model with named dynamic axes",
            )
        rank = len(tensor.shape.dim)
        if rank > MAX_RANK:
            raise error(
                "import.bad-dim",
                f"input '{name}' has {rank} axes; at most {MAX_RANK} are possible",
                span=span,
                hint="the model is damaged; export it again",
            )
        dims = [self._dim(d, name, i, span) for i, d in enumerate(tensor.shape.dim)]
        if math.prod(d.value or 1 for d in dims) > MAX_DIM:
            raise error(
                "import.bad-dim",
                f"input '{name}' has more elements than a machine has memory",
                span=span,
                hint="the model is damaged; export it again",
            )
        return TensorType(tuple(dims), dtype)

    def _dim(self, dim: onnx.TensorShapeProto.Dimension, name: str, axis: int, span: Span) -> Int:
        if dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0:
            if dim.dim_value > MAX_DIM:
                raise error(
                    "import.bad-dim",
                    f"axis {axis} of input '{name}' has {dim.dim_value} elements",
                    span=span,
                    hint="the model is damaged; export it again",
                )
            return lit(dim.dim_value)
        label = dim_name(dim)
        if not label:
            symbol = fresh(self._name_of(name, axis))
            self.unnamed.add(symbol)
            return to_int(symbol)
        return to_int(self.symbols.setdefault(label, fresh(label)))

    def _name_of(self, name: str, axis: int) -> str:
        """Return a name for an axis without one: a word, and no other axis's."""
        found = re.sub(r"\W", "_", f"{name}_{axis}")
        found = found if found[0].isalpha() else f"n{found}"
        while found in self.names:
            found += "_"
        self.names.add(found)
        return found
