"""What the specification says of operators: their signatures, and bodies where they have one.

A node is held to the signature of its operator before a rule sees it, so that rules need not look
for attributes and inputs that cannot be there, and none is passed over in silence.

The specification gives many operators a body: a list of nodes, fixed, or made for a given node and
the types of its inputs. Where there is no rule for an operator, its body is expanded, so that what
is missing here costs speed and not models.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import AttributeProto, defs, helper

from inlay.importers.onnx.load import elem_type_of
from inlay.importers.onnx.values import OnnxValue
from inlay.ir.types import TensorType

NEWEST = defs.onnx_opset_version()
"""The newest version of the core operators that the installed `onnx` knows."""


@dataclass(frozen=True, slots=True)
class _Signature:
    """What a node of an operator may look like."""

    attributes: Mapping[str, int]
    required: tuple[str, ...]
    inputs: tuple[int, int]
    outputs: tuple[int, int]


@functools.cache
def _signature(domain: str, op_type: str, version: int) -> _Signature | None:
    schema = _schema(domain, op_type, version)
    if schema is None:
        return None
    attributes = schema.attributes
    return _Signature(
        {name: a.type.value for name, a in attributes.items()},
        tuple(sorted(name for name, a in attributes.items() if a.required)),
        (schema.min_input, schema.max_input),
        (schema.min_output, schema.max_output),
    )


def fault(proto: onnx.NodeProto, domain: str, version: int) -> str:
    """Return what is wrong with a node by the signature of its operator, or nothing."""
    signature = _signature(domain, proto.op_type, version)
    if signature is None:
        return ""
    names = [a.name for a in proto.attribute]
    for a in proto.attribute:
        wanted = signature.attributes.get(a.name)
        if wanted is None:
            return f"has attribute '{a.name}', which version {version} of it does not have"
        if a.type not in (wanted, AttributeProto.UNDEFINED):
            needed = AttributeProto.AttributeType.Name(wanted).lower()
            return f"has attribute '{a.name}' of another type than {needed}"
    if len(set(names)) != len(names):
        return "has an attribute twice"
    missing = [name for name in signature.required if name not in names]
    if missing:
        return f"has no attribute '{missing[0]}'"
    for what, count, (low, high) in (
        ("inputs", len(proto.input), signature.inputs),
        ("outputs", len(proto.output), signature.outputs),
    ):
        if not low <= count <= high:
            return f"has {count} {what}, needed {low} to {high}"
    return ""


def has_body(domain: str, op_type: str, version: int) -> bool:
    """Whether the specification defines an operator by a body, at a version of its domain."""
    schema = _schema(domain, op_type, version)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def body_of(
    proto: onnx.NodeProto, domain: str, version: int, inputs: Sequence[OnnxValue | None]
) -> onnx.FunctionProto | None:
    """Return the body of a node's operator; None where there is none for these inputs."""
    schema = _schema(domain, proto.op_type, version)
    if schema is None:
        return None
    since = _newest(schema.function_opset_versions, version)
    if since is not None:
        return _with_defaults(_parsed(schema.get_function_with_opset_version(since)), schema)
    since = _newest(schema.context_dependent_function_opset_versions, version)
    if since is None:
        return None
    types = [_type_proto(v).SerializeToString() for v in inputs]
    made = schema.get_context_dependent_function_with_opset_version(since, proto.SerializeToString(), types)
    return _with_defaults(_parsed(made), schema)


def _schema(domain: str, op_type: str, version: int) -> Any:
    """Return the schema of an operator, or None. Its class is native and its stubs are incomplete."""
    try:
        return defs.get_schema(op_type, version, domain)
    except defs.SchemaError:
        return None


def _newest(versions: Sequence[int], limit: int) -> int | None:
    """Return the newest of the versions that is not newer than the limit."""
    return max((v for v in versions if v <= limit), default=None)


def _with_defaults(function: onnx.FunctionProto | None, schema: defs.OpSchema) -> onnx.FunctionProto | None:
    """Add the defaults of the operator's attributes, which its body refers to."""
    if function is not None:
        written = {a.name for a in function.attribute_proto}
        for name in sorted(schema.attributes):
            default = schema.attributes[name].default_value
            if default.type != onnx.AttributeProto.UNDEFINED and name not in written:
                function.attribute_proto.append(default)
    return function


def _parsed(body: bytes | None) -> onnx.FunctionProto | None:
    if not body:
        return None
    function = onnx.FunctionProto()
    function.ParseFromString(body)
    return function if function.node else None


def _type_proto(v: OnnxValue | None) -> onnx.TypeProto:
    """Return the type of a value as ONNX writes it; an empty one for what is left out."""
    if v is None:
        return onnx.TypeProto()
    if v.expr is None and v.ints is None:
        return onnx.TypeProto()
    if v.expr is None:
        shape = [] if v.is_scalar else [len(v.ints or ())]
        return helper.make_tensor_type_proto(elem_type_of(v.dtype), shape)
    t = v.expr.type
    if not isinstance(t, TensorType):
        return onnx.TypeProto()
    dims = [str(d) if d.value is None else d.value for d in t.shape]
    return helper.make_tensor_type_proto(elem_type_of(t.dtype), dims)
