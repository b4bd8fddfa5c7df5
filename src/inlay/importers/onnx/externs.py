"""Nodes that an operator of the user stands for.

A node `com.acme.MyOp` is the extern of the name `com.acme.MyOp`, or else `MyOp`. Its inputs are the
operands, its attributes those that the extern declares, under the same names; what the node leaves
out has its default.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence
from typing import Any, cast

from inlay.importers.onnx.node import Node
from inlay.importers.onnx.values import OnnxValue
from inlay.ir.op import Op
from inlay.ir.types import TupleType
from inlay.ops._define import ForeignOp
from inlay.ops.table import OperatorTable


def find(operators: OperatorTable, domain: str, op_type: str) -> Op | None:
    """Return the operator of the user for a node, None where none was given."""
    for name in ((f"{domain}.{op_type}",) if domain else ()) + (op_type,):
        found = operators.find(name)
        if isinstance(found, ForeignOp):
            return found
    return None


def call(op: Op, node: Node) -> Sequence[OnnxValue]:
    """Return the results of a call.

    Raises:
        CompileError: `import.invalid-node` for attributes that the extern does not have; `type.*`
            for operands that its rule refuses.
    """
    result = node.b.emit(op, node.tensors(), _attributes(op, node), name=node.result_name)
    if isinstance(result.type, TupleType):
        return [OnnxValue(part) for part in node.b.unpack(result)]
    return [OnnxValue(result)]


def _attributes(op: Op, node: Node) -> object:
    hints = typing.get_type_hints(op.attrs_type)
    given = node.attribute_names()
    for name in given:
        if name not in hints:
            known = ", ".join(hints) or "none"
            raise node.invalid(
                f"has attribute '{name}', the extern of its name has {known}",
                hint="declare it: inlay.extern(..., attributes={...})",
            )
    fields = dataclasses.fields(cast("Any", op.attrs_type))
    if missing := [f.name for f in fields if f.default is dataclasses.MISSING and f.name not in given]:
        raise node.invalid(f"lacks the attribute {' and '.join(missing)} of its extern")
    return op.attrs_type(**{name: _attribute(node, name, hints[name]) for name in given})


def _attribute(node: Node, name: str, kind: Any) -> object:
    if kind is bool:
        return node.flag(name)
    if kind is int:
        return node.int(name, 0)
    if kind is float:
        return node.float(name, 0.0)
    if kind is str:
        return node.string(name, "")
    element = typing.get_args(kind)[0]
    found = node.float_list(name) if element is float else node.int_list(name)
    return tuple(element(v) for v in found or ())
