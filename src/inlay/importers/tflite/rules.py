"""The rules of all operators, by name."""

from __future__ import annotations

from collections.abc import Mapping

from inlay.importers.tflite import (
    ops_control,
    ops_detection,
    ops_elementwise,
    ops_index,
    ops_linear,
    ops_norm,
    ops_recurrent,
    ops_reduce,
    ops_resize,
    ops_segment,
    ops_shape,
    ops_slice,
    ops_sparse,
    ops_spectral,
    ops_stablehlo,
    ops_suppression,
    ops_unary,
    ops_volume,
)
from inlay.importers.tflite.node import Rule

RULES: Mapping[str, Rule] = {
    **ops_control.RULES,
    **ops_detection.RULES,
    **ops_elementwise.RULES,
    **ops_index.RULES,
    **ops_linear.RULES,
    **ops_norm.RULES,
    **ops_recurrent.RULES,
    **ops_reduce.RULES,
    **ops_resize.RULES,
    **ops_segment.RULES,
    **ops_shape.RULES,
    **ops_slice.RULES,
    **ops_sparse.RULES,
    **ops_spectral.RULES,
    **ops_stablehlo.RULES,
    **ops_suppression.RULES,
    **ops_unary.RULES,
    **ops_volume.RULES,
}
