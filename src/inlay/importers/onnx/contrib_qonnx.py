"""Quantizers of QONNX, which Brevitas and FINN write: a value is rounded to integers of any number of bits.

What it gives are reals: the integers less the zero point, times the scale.

Source: the operator pages of QONNX.
"""

from __future__ import annotations

from collections.abc import Mapping

from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.term import Term, term
from inlay.importers.onnx.values import OnnxValue

DOMAINS = ("qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas")
_ROUNDINGS = {"ROUND": "round", "FLOOR": "floor", "CEIL": "ceil"}
_MOST_BITS = 24
"""Integers of more bits are no floats."""


def _quant(node: Node) -> OnnxValue:
    """Inputs: a tensor, its scale, its zero point, how many bits."""
    bits = float(node.constant(3, "a number of bits").reshape(()))
    mode = node.string("rounding_mode", "ROUND").upper()
    if mode not in _ROUNDINGS or bits != int(bits) or not 1 <= bits <= _MOST_BITS:
        raise node.unsupported(f"rounds to {bits:g} bits in the mode {mode}")
    is_narrow = node.flag("narrow")
    if node.flag("signed", default=True):
        high = 2 ** (int(bits) - 1) - 1
        low = -high if is_narrow else -high - 1
    else:
        low, high = 0, 2 ** int(bits) - 1 - is_narrow
    scale, zero = term(node, 1), term(node, 2)
    steps = (term(node, 0) / scale + zero).op(_ROUNDINGS[mode])
    return ((steps.clamp(float(low), float(high)) - zero) * scale).value


def _bipolar(node: Node) -> OnnxValue:
    """Inputs: a tensor, and what replaces it: the scale, with its sign."""
    x, scale = term(node, 0), term(node, 1)
    return _signs(x, scale).value


def _signs(x: Term, scale: Term) -> Term:
    return (x < 0.0).where(-scale, scale)


RULES: Mapping[str, Rule] = {"Quant": _quant, "BipolarQuant": _bipolar}
