"""Operators of other domains that mean what an operator of the core domain means.

onnxruntime writes these when it optimizes or quantizes a model, and some exporters follow it. Only
those are here that are exactly compositions of core operators; contrib operators with semantics of
their own are refused like any unknown operator.
"""

from __future__ import annotations

from collections.abc import Mapping

from inlay.importers.onnx import ops_quantized, ops_tensor
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.term import term
from inlay.importers.onnx.values import Value
from inlay.ops.elementwise import GeluForm

MICROSOFT = "com.microsoft"


def _gelu(form: GeluForm) -> Rule:
    def rule(node: Node) -> Value:
        x = term(node, 0)
        if node.has(1):
            x = x + term(node, 1)
        return x.op("gelu", form=form).value

    return rule


def _quick_gelu(node: Node) -> Value:
    x = term(node, 0)
    return (x * (x * node.float("alpha", 1.702)).op("sigmoid")).value


def _fused_matmul(node: Node) -> Value:
    if node.flag("transBatchA") or node.flag("transBatchB"):
        raise node.unsupported("transposes batches")
    a, b = term(node, 0), term(node, 1)
    if node.flag("transA"):
        a = a.move(a.rank - 1, a.rank - 2)
    if node.flag("transB"):
        b = b.move(b.rank - 1, b.rank - 2)
    return (a.op("matmul", b) * node.float("alpha", 1.0)).value


RULES: Mapping[tuple[str, str], Rule] = {
    (MICROSOFT, "Gelu"): _gelu(GeluForm.ERF),
    (MICROSOFT, "BiasGelu"): _gelu(GeluForm.ERF),
    (MICROSOFT, "FastGelu"): _gelu(GeluForm.TANH),
    (MICROSOFT, "QuickGelu"): _quick_gelu,
    (MICROSOFT, "FusedMatMul"): _fused_matmul,
    (MICROSOFT, "QuantizeLinear"): ops_quantized.RULES["QuantizeLinear"],
    (MICROSOFT, "DequantizeLinear"): ops_quantized.RULES["DequantizeLinear"],
    (MICROSOFT, "Trilu"): ops_tensor.RULES["Trilu"],
}
