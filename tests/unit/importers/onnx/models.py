"""Small ONNX models for tests, and how to run one through the evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from inlay.importers.onnx.graph import import_model
from inlay.interp.tensor import evaluate_entry
from inlay.ir.module import Module
from inlay.ir.op import Op
from inlay.ops.table import table

Shape = Sequence[int | str | None] | None


def value(name: str, shape: Shape, elem_type: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    """Return the declaration of an input or output."""
    return helper.make_tensor_value_info(name, elem_type, shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    constants: Mapping[str, np.ndarray] | None = None,
    *,
    opset: int = 17,
    **more: Any,
) -> onnx.ModelProto:
    """Return a model of one graph."""
    initializers = [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()]
    graph = helper.make_graph(nodes, "test", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], **more)


def load(m: onnx.ModelProto) -> Module:
    """Import a model with all operators."""
    return import_model(m, table())


def meaning(op: Op, attrs: object, args: tuple[Any, ...]) -> Any:
    """Return what an operator computes."""
    return table().definition(op).evaluate(attrs, *args)


def run(m: onnx.ModelProto | Module, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Import a model and evaluate it; outputs by name."""
    return evaluate_entry(m if isinstance(m, Module) else load(m), inputs, meaning)
