"""Operators of other domains that mean what an operator of the core domain means.

onnxruntime writes these when it optimizes or quantizes a model, and some exporters follow it. Only
those are here that are exactly compositions of core operators; contrib operators with semantics of
their own are refused like any unknown operator.
"""

from __future__ import annotations

from collections.abc import Mapping

from inlay.importers.onnx import (
    contrib_attention,
    contrib_blocks,
    contrib_fused,
    contrib_grouped,
    contrib_qonnx,
    ops_quantized,
    ops_recurrent,
    ops_tensor,
    ops_text,
)
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.ops_quantized import parameter
from inlay.importers.onnx.term import Term, term
from inlay.importers.onnx.values import OnnxValue
from inlay.ops.activations import GeluForm

MICROSOFT = "com.microsoft"
LEARNING = "ai.onnx.ml"

HINTS: Mapping[str, str] = {
    "com.microsoft.nchwc": "onnxruntime optimized this model for one machine; save it with the level "
    "ORT_ENABLE_EXTENDED, or take the model from before"
}
"""What to do about operators of a domain of which none is known."""


def _gelu(form: GeluForm) -> Rule:
    def rule(node: Node) -> OnnxValue:
        x = term(node, 0)
        if node.has(1):
            x = x + term(node, 1)
        return x.op("gelu", form=form).value

    return rule


def _quick_gelu(node: Node) -> OnnxValue:
    x = term(node, 0)
    return (x * (x * node.float("alpha", 1.702)).op("sigmoid")).value


def _fused_matmul(node: Node) -> OnnxValue:
    a, b = (_turned(node, i, side) for i, side in enumerate("AB"))
    return (a.op("matmul", b) * node.float("alpha", 1.0)).value


def _turned(node: Node, i: int, side: str) -> Term:
    """Return an operand as a batch of matrices: its first axis may be that of rows."""
    x = term(node, i)
    if x.rank > 1 and node.flag(f"transBatch{side}"):
        x = x.move(0, x.rank - 2)
    if x.rank > 1 and node.flag(f"trans{side}"):
        x = x.move(x.rank - 1, x.rank - 2)
    return x


def _real(node: Node, first: int) -> Term:
    """Return what three inputs stand for: a quantized tensor, its scale and its zero point."""
    q, scale = term(node, first), parameter(node, first + 1)
    zero = (parameter(node, first + 2),) if node.has(first + 2) else ()
    return q.op("dequantize", scale, *zero, axis=0)


def _quantized(node: Node, x: Term, first: int) -> OnnxValue:
    """Quantize with the scale and zero point of two inputs, to the type of input 0."""
    scale = parameter(node, first)
    zero = (parameter(node, first + 1),) if node.has(first + 1) else ()
    return x.op("quantize", scale, *zero, dtype=node.type(0).dtype, axis=0).value


def _q_linear_binary(name: str) -> Rule:
    """Inputs: a, scale, zero; b, scale, zero; scale and zero of the result."""
    return lambda node: _quantized(node, _real(node, 0).op(name, _real(node, 3)), 6)


def _q_linear_unary(name: str, **defaults: float) -> Rule:
    """Inputs: x, scale, zero; scale and zero of the result."""

    def rule(node: Node) -> OnnxValue:
        attrs = {k: node.float(k, d) for k, d in defaults.items()}
        return _quantized(node, _real(node, 0).op(name, **attrs), 3)

    return rule


RULES: Mapping[tuple[str, str], Rule] = {
    **{(MICROSOFT, name): rule for name, rule in contrib_fused.RULES.items()},
    **{(MICROSOFT, name): rule for name, rule in contrib_attention.RULES.items()},
    **{(MICROSOFT, name): rule for name, rule in contrib_grouped.RULES.items()},
    **{(MICROSOFT, name): rule for name, rule in contrib_blocks.RULES.items()},
    **{(MICROSOFT, name): rule for name, rule in ops_recurrent.QUANTIZED.items()},
    **{
        (domain, name): rule for domain in contrib_qonnx.DOMAINS for name, rule in contrib_qonnx.RULES.items()
    },
    (LEARNING, "LabelEncoder"): ops_text.label_encoder,
    (MICROSOFT, "Gelu"): _gelu(GeluForm.ERF),
    (MICROSOFT, "BiasGelu"): _gelu(GeluForm.ERF),
    (MICROSOFT, "FastGelu"): _gelu(GeluForm.TANH),
    (MICROSOFT, "QuickGelu"): _quick_gelu,
    (MICROSOFT, "FusedMatMul"): _fused_matmul,
    (MICROSOFT, "QuantizeLinear"): ops_quantized.RULES["QuantizeLinear"],
    (MICROSOFT, "DequantizeLinear"): ops_quantized.RULES["DequantizeLinear"],
    (MICROSOFT, "QLinearAdd"): _q_linear_binary("add"),
    (MICROSOFT, "QLinearMul"): _q_linear_binary("mul"),
    (MICROSOFT, "QLinearSigmoid"): _q_linear_unary("sigmoid"),
    (MICROSOFT, "QLinearLeakyRelu"): _q_linear_unary("leaky_relu", alpha=0.01),
    (MICROSOFT, "Trilu"): ops_tensor.RULES["Trilu"],
}
