"""What goes in and out of a session, in the words of onnxruntime."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from inlay.arith import dtype as dtypes
from inlay.bytecode.spec import Spec, TensorSpec
from inlay.compat.onnxruntime.failures import InvalidArgument, NotOffered
from inlay.importers.onnx import load

_CPU = "cpu"


def type_text(declared: onnx.TypeProto) -> str:
    """Return how onnxruntime spells a type: `tensor(float)`, `seq(tensor(int64))`."""
    match declared.WhichOneof("value"):
        case "tensor_type":
            return f"tensor({load.elem_type_name(declared.tensor_type.elem_type)})"
        case "sparse_tensor_type":
            return f"sparse_tensor({load.elem_type_name(declared.sparse_tensor_type.elem_type)})"
        case "sequence_type":
            return f"seq({type_text(declared.sequence_type.elem_type)})"
        case "optional_type":
            return f"optional({type_text(declared.optional_type.elem_type)})"
        case "map_type":
            key = load.elem_type_name(declared.map_type.key_type)
            return f"map({key},{type_text(declared.map_type.value_type)})"
        case _:
            return ""


@dataclass(frozen=True, slots=True)
class NodeArg:
    """An input or output of a model.

    Attributes:
        name: in the model.
        type: `tensor(float)`, `seq(tensor(int64))` and so on.
        shape: sizes, names of symbolic dims, and None for a dim without a name. Empty for a scalar and
            where the model does not say.
    """

    name: str
    type: str
    shape: list[int | str | None]

    @staticmethod
    def of(info: onnx.ValueInfoProto) -> NodeArg:
        """Read a declaration of a model."""
        dims = info.type.tensor_type.shape.dim if info.type.HasField("tensor_type") else ()
        return NodeArg(info.name, type_text(info.type), [_dim(d) for d in dims])

    def completed(self, spec: Spec) -> NodeArg:
        """Return the same with what the model does not say, as compiling found it."""
        if not isinstance(spec, TensorSpec):
            return self
        elem_type = load.elem_type_of(dtypes.BY_NAME[spec.dtype])
        sizes = [d if isinstance(d, int) or d.isidentifier() else None for d in spec.shape]
        return NodeArg(
            self.name, self.type or f"tensor({load.elem_type_name(elem_type)})", self.shape or list(sizes)
        )


def _dim(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    if dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0:
        return dim.dim_value
    return dim.dim_param or None


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """What a model says of itself."""

    producer_name: str = ""
    graph_name: str = ""
    graph_description: str = ""
    domain: str = ""
    description: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = field(default_factory=dict[str, str])

    @staticmethod
    def of(model: onnx.ModelProto) -> ModelMetadata:
        """Read the fields of a model."""
        return ModelMetadata(
            producer_name=model.producer_name,
            graph_name=model.graph.name,
            graph_description=model.graph.doc_string,
            domain=model.domain,
            description=model.doc_string,
            version=model.model_version,
            custom_metadata_map={p.key: p.value for p in model.metadata_props},
        )


class OrtValue:
    """A tensor, or a list of tensors, in memory of the processor."""

    def __init__(self, value: Any) -> None:
        self._value = value

    @staticmethod
    def ortvalue_from_numpy(numpy_obj: np.ndarray, device_type: str = _CPU, device_id: int = 0) -> OrtValue:
        """Return a value that holds an array, which is not copied."""
        check_device(device_type, device_id)
        return OrtValue(np.asarray(numpy_obj))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any, device_type: str = _CPU, device_id: int = 0
    ) -> OrtValue:
        """Return a tensor of zeros; the type is one of NumPy or of ONNX."""
        check_device(device_type, device_id)
        return OrtValue(np.zeros(tuple(shape), numpy_type(element_type)))

    def numpy(self) -> np.ndarray:
        """Return the array; of a list of tensors there is none."""
        if not self.is_tensor():
            raise InvalidArgument(f"the value is a {self.data_type()}, not a tensor")
        return self._value

    def content(self) -> Any:
        """Return an array, or a list of arrays, or None."""
        return self._value

    def shape(self) -> list[int]:
        """Return the sizes of the axes."""
        return list(self.numpy().shape)

    def element_type(self) -> int:
        """Return the element type as ONNX numbers it."""
        return load.elem_type_of(dtypes.from_numpy(self.numpy().dtype))

    def data_type(self) -> str:
        """Return the type as text."""
        if isinstance(self._value, list):
            return "seq(tensor)"
        return f"tensor({load.elem_type_name(self.element_type())})" if self.has_value() else "optional"

    def device_name(self) -> str:
        """Return where the value is."""
        return _CPU

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        return self.numpy().ctypes.data

    def tensor_size_in_bytes(self) -> int:
        """Return the bytes of all elements."""
        return self.numpy().nbytes

    def has_value(self) -> bool:
        """Whether there is a value: an optional may have none."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Whether the value is a tensor."""
        return isinstance(self._value, np.ndarray)

    def is_tensor_sequence(self) -> bool:
        """Whether the value is a list of tensors."""
        return isinstance(self._value, list)

    def is_sparse_tensor(self) -> bool:
        """Whether the value is a sparse tensor: never."""
        return False

    def update_inplace(self, np_arr: np.ndarray) -> None:
        """Overwrite the elements."""
        found = self.numpy()
        if found.shape != np_arr.shape or found.dtype != np_arr.dtype:
            raise InvalidArgument(
                f"found {np_arr.dtype}{list(np_arr.shape)}, needed {found.dtype}{list(found.shape)}"
            )
        found[...] = np_arr

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:  # noqa: FBT001
        """Return the array to NumPy."""
        return np.array(self.numpy(), dtype=dtype, copy=copy)


def numpy_type(element_type: Any) -> np.dtype[Any]:
    """Return the type of NumPy for one of NumPy or a number of ONNX."""
    if isinstance(element_type, int):
        dtype = load.dtype_of(element_type)
        if dtype is None:
            raise NotOffered(f"Inlay has no element type {load.elem_type_name(element_type)}")
        return np.dtype(dtype.numpy)
    return np.dtype(element_type)


def array_at(address: int, shape: Sequence[int], element_type: Any) -> np.ndarray:
    """Return an array over memory of the caller, which must outlive it."""
    dtype = numpy_type(element_type)
    size = math.prod(shape) * dtype.itemsize
    memory = memoryview((ctypes.c_char * size).from_address(address))
    return np.frombuffer(memory, dtype).reshape(tuple(shape))


def check_device(device_type: str, device_id: int) -> None:
    """Refuse memory of other devices.

    Raises:
        InvalidArgument: the device is not the processor.
    """
    if device_type.lower() != _CPU or device_id != 0:
        raise InvalidArgument(
            f"found device '{device_type}:{device_id}', and values are on 'cpu:0'; where a model runs, "
            "its provider says"
        )


def plain(value: Any) -> Any:
    """Return an input as Inlay takes it."""
    return value.content() if isinstance(value, OrtValue) else value


def values_of(feed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of a run by name."""
    return {name: plain(value) for name, value in feed.items()}
