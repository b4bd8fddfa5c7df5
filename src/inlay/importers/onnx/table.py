"""Which rule imports which ONNX operator: the tables of the families, joined."""

from __future__ import annotations

from collections.abc import Mapping

from inlay.importers.onnx import (
    contrib,
    control_flow,
    ops_linear,
    ops_math,
    ops_nn,
    ops_norm,
    ops_pool,
    ops_quantized,
    ops_recurrent,
    ops_reduce,
    ops_resize,
    ops_rotary,
    ops_sample,
    ops_select,
    ops_sequence,
    ops_shape,
    ops_signal,
    ops_tensor,
    ops_text,
)
from inlay.importers.onnx.node import Rule

_FAMILIES = (
    ops_linear.RULES,
    ops_math.RULES,
    ops_nn.RULES,
    ops_norm.RULES,
    ops_pool.RULES,
    ops_quantized.RULES,
    ops_recurrent.RULES,
    ops_reduce.RULES,
    ops_resize.RULES,
    ops_rotary.RULES,
    ops_sample.RULES,
    ops_select.RULES,
    ops_sequence.RULES,
    ops_shape.RULES,
    ops_signal.RULES,
    ops_tensor.RULES,
    ops_text.RULES,
    control_flow.RULES,
)


def _joined() -> Mapping[str, Rule]:
    rules: dict[str, Rule] = {}
    for family in _FAMILIES:
        twice = rules.keys() & family.keys()
        assert not twice, f"two rules for {sorted(twice)}"
        rules.update(family)
    return rules


RULES: Mapping[str, Rule] = _joined()


def find(domain: str, op_type: str) -> Rule | None:
    """Return the rule of an operator, None when there is none."""
    return RULES.get(op_type) if domain == "" else contrib.RULES.get((domain, op_type))
