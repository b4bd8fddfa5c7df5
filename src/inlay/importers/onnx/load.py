"""Reading an ONNX file: protobuf, tensors, and what must hold before a node is looked at.

Which files may hold external data, `external.py` says.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError, Message
from onnx import TensorProto, numpy_helper

from inlay.arith import dtype as dt
from inlay.arith.dtype import DType
from inlay.base.diagnostics import InlayError, error
from inlay.base.metadata import Metadata
from inlay.base.span import Span
from inlay.importers.limits import DEFAULT_LIMITS, MAX_DIM, MAX_RANK, ImportLimits, read_bytes, too_large
from inlay.importers.onnx.external import ExternalFiles
from inlay.importers.onnx.weights import read_apart

_DTYPES: dict[int, DType] = {
    TensorProto.FLOAT: dt.F32,
    TensorProto.DOUBLE: dt.F64,
    TensorProto.FLOAT16: dt.F16,
    TensorProto.BFLOAT16: dt.BF16,
    TensorProto.INT8: dt.I8,
    TensorProto.INT16: dt.I16,
    TensorProto.INT32: dt.I32,
    TensorProto.INT64: dt.I64,
    TensorProto.UINT8: dt.U8,
    TensorProto.UINT16: dt.U16,
    TensorProto.UINT32: dt.U32,
    TensorProto.UINT64: dt.U64,
    TensorProto.BOOL: dt.BOOL,
    TensorProto.STRING: dt.STRING,
}


_NARROW: dict[int, DType] = {
    number: wide
    for name, wide in {
        "INT2": dt.I8,
        "UINT2": dt.U8,
        "INT4": dt.I8,
        "UINT4": dt.U8,
        "FLOAT8E4M3FN": dt.F32,
        "FLOAT8E4M3FNUZ": dt.F32,
        "FLOAT8E5M2": dt.F32,
        "FLOAT8E5M2FNUZ": dt.F32,
        "FLOAT4E2M1": dt.F32,
    }.items()
    if (number := dict(TensorProto.DataType.items()).get(name)) is not None
}
"""Formats that only storage knows, and the narrowest of ours that has all their numbers; an older package
`onnx` has fewer."""


def is_narrow(elem_type: int) -> bool:
    """Whether an element type is one that numbers are only stored in."""
    return elem_type in _NARROW


def integers_of(elem_type: int) -> tuple[DType, int, int] | None:
    """Return, of a narrow format of integers, what holds it here, its least and its largest number."""
    wide = _NARROW.get(elem_type)
    if wide is None or not wide.is_integer:
        return None
    bits = _stored_bits(elem_type, wide)
    return (wide, -(1 << bits - 1), (1 << bits - 1) - 1) if wide.is_signed else (wide, 0, (1 << bits) - 1)


def _stored_bits(elem_type: int, dtype: DType) -> int:
    """Return how many bits of a file an element takes; the name of a narrow format says it."""
    found = re.search(r"\d+", elem_type_name(elem_type)) if is_narrow(elem_type) else None
    return int(found[0]) if found else 8 * dtype.itemsize


def dtype_of(elem_type: int) -> DType | None:
    """Return the format of an ONNX element type, None when there is none here."""
    return _DTYPES.get(elem_type)


def elem_type_of(dtype: DType) -> int:
    """Return the ONNX element type of a format."""
    return next(k for k, v in _DTYPES.items() if v == dtype)


def elem_type_name(elem_type: int) -> str:
    """Return how ONNX spells an element type, for messages."""
    try:
        return TensorProto.DataType.Name(elem_type).lower()
    except ValueError:
        return f"element type {elem_type}"


def read_model(path: Path, limits: ImportLimits = DEFAULT_LIMITS) -> onnx.ModelProto:
    """Return the model in a file, without its external data.

    Raises:
        CompileError: `import.unreadable`, `import.not-onnx`, `import.too-large`.
    """
    return parse_model(read_bytes(path, limits), str(path))


def read_parts(
    path: Path, limits: ImportLimits = DEFAULT_LIMITS
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return the model in a file without its large initializers, and their bytes by what it calls them.

    `ExternalFiles.stored` takes these. Of an unusual file the model has all.

    Raises:
        CompileError: `import.unreadable`, `import.not-onnx`, `import.too-large`.
    """
    try:
        parts = read_apart(path, limits.max_file_bytes)
    except OSError:
        parts = None  # reading the whole says why
    if parts is None:
        return read_model(path, limits), {}
    return parse_model(parts[0], str(path)), parts[1]


def check_nodes(model: onnx.ModelProto, limits: ImportLimits) -> None:
    """Count nodes, those of subgraphs and functions too.

    Raises:
        CompileError: `import.too-large`.
    """
    count, waiting = 0, [model.graph.node, *(f.node for f in model.functions)]
    while waiting:
        nodes = waiting.pop()
        count += len(nodes)
        if count > limits.max_nodes:
            raise too_large("the model has", limits.max_nodes, "nodes", "max_nodes")
        for node in nodes:
            for a in node.attribute:
                waiting += [g.node for g in (*([a.g] if a.HasField("g") else []), *a.graphs)]


def parse_model(data: bytes, name: str) -> onnx.ModelProto:
    """Return the model in some bytes.

    Raises:
        CompileError: `import.not-onnx`.
    """
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, RecursionError, ValueError) as failure:
        raise _not_onnx(name, str(failure)) from None
    return _checked(model, name)


def model_of(content: bytes | onnx.ModelProto, name: str) -> onnx.ModelProto:
    """Return the model that is, or whose bytes are, some content.

    Raises:
        CompileError: `import.not-onnx`.
    """
    return parse_model(content, name) if isinstance(content, bytes) else _checked(content, name)


def _checked(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    unreadable = _not_text(model)
    if unreadable:
        raise _not_onnx(name, f"{unreadable} is no text")
    if not model.HasField("graph") or not model.opset_import:
        raise _not_onnx(name, "it has no graph or names no operator set")
    return model


def metadata_of(model: onnx.ModelProto) -> Metadata:
    """Return what a model says of itself."""
    return Metadata(
        graph=model.graph.name,
        producer=model.producer_name,
        producer_version=model.producer_version,
        domain=model.domain,
        version=model.model_version,
        description=model.doc_string,
        graph_description=model.graph.doc_string,
        properties={p.key: p.value for p in model.metadata_props},
    )


def _not_text(root: Message) -> str:
    """Return the name of a field for text that holds bytes which are none, or nothing.

    Some builds of protobuf hand such fields out as bytes.
    """
    waiting = [root]
    while waiting:
        message = waiting.pop()
        for field, value in message.ListFields():
            if field.type == field.TYPE_MESSAGE:
                waiting += [value] if isinstance(value, Message) else value
            elif field.type == field.TYPE_STRING:
                texts = [value] if isinstance(value, str | bytes) else value
                if not all(isinstance(t, str) for t in texts):
                    return f"field '{field.name}'"
    return ""


def _not_onnx(name: str, why: str) -> InlayError:
    return error(
        "import.not-onnx",
        f"'{name}' is not an ONNX model: {why}",
        hint="check that the file is complete and was written by an ONNX exporter",
    )


def read_tensor(
    tensor: TensorProto,
    files: ExternalFiles,
    span: Span,
    limits: ImportLimits = DEFAULT_LIMITS,
    *,
    widen: bool = False,
) -> np.ndarray:
    """Return the content of an initializer or tensor attribute, read-only, row-major.

    External data is mapped, not read. With `widen`, formats that only storage knows (see
    `is_narrow`) come in one that computes.

    Raises:
        CompileError: `import.external-data`, `import.bad-tensor`, `import.dtype`,
            `import.too-large`.
    """
    dtype = dtype_of(tensor.data_type)
    if dtype is None and widen:
        dtype = _NARROW.get(tensor.data_type)
    if dtype is None:
        raise error(
            "import.dtype",
            f"tensor '{tensor.name}' has element type {elem_type_name(tensor.data_type)}, "
            "which is not supported",
            span=span,
            hint="convert the model to one of: " + ", ".join(d.name for d in _DTYPES.values()),
        )
    shape = _shape(tensor, dtype, span, limits)
    if tensor.data_location == TensorProto.EXTERNAL:
        return _external(tensor, files, span, dtype)
    return _decoded(tensor, span, dtype, shape)


def _decoded(tensor: TensorProto, span: Span, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Return the content of a tensor that holds it."""
    try:
        array = numpy_helper.to_array(tensor)
    except Exception as failure:  # noqa: BLE001  onnx raises whatever NumPy does on damaged data
        raise _bad(tensor, span, f"cannot be decoded: {failure}") from None
    if array.shape != shape:
        raise _bad(tensor, span, f"has {array.size} elements for shape {list(shape)}")
    array = np.array(array, dtype=dtype.numpy, order="C", copy=None)
    array.flags.writeable = False
    return array


def _shape(tensor: TensorProto, dtype: DType, span: Span, limits: ImportLimits) -> tuple[int, ...]:
    """Return the shape of a tensor that may be read."""
    shape = tuple(tensor.dims)
    if len(shape) > MAX_RANK:
        raise _bad(tensor, span, f"has {len(shape)} axes")
    count = 1
    for n in shape:
        count *= n
        if n < 0 or count > MAX_DIM:
            raise _bad(tensor, span, f"has the impossible shape {list(shape)}")
    if count * max(dtype.itemsize, 1) > limits.max_tensor_bytes:
        what = f"tensor '{tensor.name}' of shape {list(shape)} has"
        raise too_large(what, limits.max_tensor_bytes, "bytes", "max_tensor_bytes", span)
    return shape


def _external(tensor: TensorProto, files: ExternalFiles, span: Span, dtype: DType) -> np.ndarray:
    """Map the content of a tensor whose bytes are in a file of their own."""
    shape = tuple(tensor.dims)
    stored = files.stored_of(tensor)
    if stored is not None:
        return _of_bytes(tensor, stored, span, dtype)
    path, offset, length = files.find(tensor, span)
    needed = -(-math.prod(shape) * _stored_bits(tensor.data_type, dtype) // 8)
    if dtype is dt.STRING or (length >= 0 and length != needed):
        raise _bad(tensor, span, f"needs {needed} bytes and its external data has {length}")
    if path.stat().st_size - offset < needed:
        raise _bad(tensor, span, f"needs {needed} bytes and its external data file is too short")
    if needed == 0:
        return np.zeros(shape, dtype.numpy)
    if is_narrow(tensor.data_type):
        packed = np.asarray(np.memmap(path, np.uint8, "r", offset, needed))
        return _of_bytes(tensor, packed, span, dtype)
    array = np.memmap(path, dtype.numpy, "r", offset, shape)
    return np.asarray(array)


def _of_bytes(tensor: TensorProto, stored: np.ndarray, span: Span, dtype: DType) -> np.ndarray:
    """Return a tensor whose bytes were read apart."""
    if is_narrow(tensor.data_type) or dtype is dt.STRING:
        whole = TensorProto(dims=tensor.dims, data_type=tensor.data_type, name=tensor.name)
        whole.raw_data = stored.tobytes()
        return _decoded(whole, span, dtype, tuple(tensor.dims))
    if stored.size != math.prod(tensor.dims) * dtype.itemsize:
        raise _bad(tensor, span, f"has {stored.size} bytes for shape {list(tensor.dims)}")
    return stored.view(dtype.numpy).reshape(tuple(tensor.dims))


def _bad(tensor: TensorProto, span: Span, why: str) -> InlayError:
    return error(
        "import.bad-tensor",
        f"tensor '{tensor.name}' {why}",
        span=span,
        hint="the model is damaged; export it again",
    )


def read_sparse(
    sparse: onnx.SparseTensorProto, files: ExternalFiles, span: Span, limits: ImportLimits = DEFAULT_LIMITS
) -> np.ndarray:
    """Return the content of a sparse tensor, dense. It may be as large as a model file.

    Raises:
        CompileError: `import.bad-tensor`, `import.dtype`, `import.too-large`.
    """
    values = read_tensor(sparse.values, files, span, limits)
    indices = read_tensor(sparse.indices, files, span, limits)
    shape = tuple(sparse.dims)

    def bad(why: str) -> InlayError:
        message = f"sparse tensor '{sparse.values.name}' {why}"
        hint = "the model is damaged; export it again"
        return error("import.bad-tensor", message, span=span, hint=hint)

    if not 1 <= len(shape) <= MAX_RANK or min(shape) < 0:
        raise bad(f"has the impossible shape {list(shape)}")
    if values.ndim != 1 or values.dtype == object:
        raise bad(f"has values of shape {list(values.shape)} that are no list of numbers")
    count = math.prod(shape)
    if count * max(values.itemsize, 1) > limits.max_file_bytes:
        what = f"sparse tensor '{sparse.values.name}' of shape {list(shape)} has"
        raise too_large(what, limits.max_file_bytes, "bytes", "max_file_bytes", span)
    if indices.dtype != np.int64 or indices.shape not in ((values.size,), (values.size, len(shape))):
        raise bad(f"has indices of shape {list(indices.shape)} for {values.size} values")
    steps = np.array([math.prod(shape[i + 1 :]) for i in range(len(shape))], np.int64)
    high = np.array(shape if indices.ndim == 2 else [count])
    if indices.size and ((indices < 0) | (indices >= high)).any():
        raise bad("has indices outside its shape")
    places = indices @ steps if indices.ndim == 2 else indices
    dense = np.zeros(count, values.dtype)
    dense[places] = values
    return _frozen(dense.reshape(shape))


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array
