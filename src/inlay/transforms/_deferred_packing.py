"""Packed weights that are computed where the program keeps them, some panels at a time.

Each panel has columns of its own of the weights, so packing them is packing blocks of columns, one after the
other: what it needs beside source and result is that of a block, however large the layer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from inlay.arith.deferred import AnyArray, deferred
from inlay.arith.dtype import from_numpy
from inlay.arith.expr import lit
from inlay.ir import make
from inlay.ir.types import TensorType
from inlay.ops._build import Array
from inlay.ops._define import OpDef

BLOCK_BYTES = 1 << 20
"""Of weights that are packed at once: what that takes stays in the second cache."""


def packed(
    pack: OpDef, attrs: object, panel: int, weights: AnyArray, prepared: Callable[[Array], Array]
) -> AnyArray:
    """Return weights `[*k, c, n]` as an operator packs them, deferred where they are large.

    Args:
        pack: the operator.
        attrs: its attributes.
        panel: columns of a panel.
        weights: what is packed.
        prepared: makes of columns of the weights what the operator takes.
    """
    columns = weights.shape[-1]

    def shape(count: int) -> tuple[tuple[int, ...], np.dtype]:
        taken = prepared(np.empty((*weights.shape[:-1], 0), weights.dtype))
        operand = TensorType((*map(lit, taken.shape[:-1]), lit(count)), from_numpy(taken.dtype))
        found = make.call(pack.op, (make.var("w", operand),), attrs).type
        assert isinstance(found, TensorType), "packed weights are a tensor"
        sizes = [d.value for d in found.shape]
        return tuple([s for s in sizes if s is not None]), found.dtype.numpy

    whole, dtype = shape(columns)
    one, _ = shape(panel)
    axis = next((i for i, (a, b) in enumerate(zip(whole, one, strict=True)) if a != b), None)
    step = max(1, BLOCK_BYTES * columns // (max(weights.nbytes, 1) * panel)) * panel

    def fill(source: Array, out: Array) -> None:
        if axis is None:
            out[...] = pack.evaluate(attrs, prepared(source))
            return
        panels = np.moveaxis(out, axis, 0)
        for start in range(0, columns, step):
            block = pack.evaluate(attrs, prepared(source[..., start : start + step]))
            panels[start // panel :][: step // panel] = np.moveaxis(block, axis, 0)

    return deferred(whole, dtype, weights, fill)
