"""Custom operators that an operator of the user stands for.

A custom operator is the extern of its name. Its inputs are the operands, the entries of its options (a
flexbuffer with a map) are the attributes that the extern declares; what they leave out has its default.
"""

from __future__ import annotations

import dataclasses
import typing
from typing import Any, cast

from inlay.base.diagnostics import error
from inlay.importers.tflite.node import Node
from inlay.ir.expr import Expr
from inlay.ir.op import Op
from inlay.ir.types import TupleType
from inlay.ops._define import ForeignOp
from inlay.ops.table import OperatorTable


def find(operators: OperatorTable, name: str) -> Op | None:
    """Return the operator of the user for a custom operator, None where none was given."""
    found = operators.find(name)
    return found if isinstance(found, ForeignOp) else None


def call(op: Op, node: Node) -> tuple[Expr, ...]:
    """Return the results of a call.

    Raises:
        CompileError: `import.invalid-node` for attributes that the extern does not have; `type.*`
            for operands that its rule refuses.
    """
    operands = [node.tensor(i) for i in range(len(node.values))]
    result = node.builder.emit(op, operands, _attributes(op, node), name=node.record.name)
    return node.builder.unpack(result) if isinstance(result.type, TupleType) else (result,)


def _attributes(op: Op, node: Node) -> object:
    hints = typing.get_type_hints(op.attrs_type)
    given = node.record.custom_options()
    fields = dataclasses.fields(cast("Any", op.attrs_type))
    missing = [f.name for f in fields if f.default is dataclasses.MISSING and f.name not in given]
    unknown = [name for name in given if name not in hints]
    if missing or unknown:
        what = f"lacks the attribute {missing[0]}" if missing else f"has the attribute '{unknown[0]}'"
        raise error(
            "import.invalid-node",
            f"{node.record.name} {what}; the extern of its name has {', '.join(hints) or 'none'}",
            span=node.span,
            hint="declare it: inlay.extern(..., attributes={...})",
        )
    return op.attrs_type(**{name: _attribute(node, value, hints[name]) for name, value in given.items()})


def _attribute(node: Node, value: Any, kind: Any) -> object:
    try:
        if kind in (bool, int, float, str):
            return kind(value)
        element = typing.get_args(kind)[0]
        return tuple(element(v) for v in value)
    except (TypeError, ValueError) as fault:
        raise node.unsupported(f"has the attribute {value!r}, which is no {kind}") from fault
