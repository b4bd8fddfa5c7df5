"""Sums of two tensors of bytes that are requantized: factors of floats that give the same results.

Importers write such a sum as additions, products with numbers, and requantizations of integers of 32 bits.
Whatever stands between two tensors of bytes and bytes again has 65536 results, so it is evaluated on all
pairs, and what floats give is compared with all of them. Factors are nearly those of real numbers: the
steps of the sum before it is requantized, times the factor of that. A few floats next to these are tried.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np

from inlay.arith.dtype import I32
from inlay.ir.expr import Call, Const, Expr, OpRef
from inlay.ir.types import TensorType
from inlay.ops._build import Array
from inlay.ops.float_rounding import BYTES, MOST_FACTOR, MOST_SUM, FloatSumAttrs, summed
from inlay.ops.requantization import RequantizeAttrs, requantized
from inlay.ops.table import OperatorTable
from inlay.transforms._blocks import BlockWriter

_LOOKED_THROUGH = ("add", "sub", "mul", "requantize", "requantize_prepared")
_DEEPEST = 8
"""Operations between a tensor of bytes and the result that are looked through."""
_STEPS = sorted(itertools.product((0, 1, -1, 2, -2), repeat=2), key=lambda s: abs(s[0]) + abs(s[1]))
"""Floats that are tried: how many floats both factors are from the nearest ones."""
_PARTS = (0.5, 0.3, 0.7, 0.1, 0.9)
"""Offsets that are tried: where they are between what bounds them."""
_SLACK = 2.0**-12
"""Exact factors that leave no offset by more than this have no floats next to them that do."""


def float_sum(
    block: BlockWriter, call: Call, operators: OperatorTable
) -> tuple[tuple[Expr, Expr], FloatSumAttrs] | None:
    """Return the operands and attributes of an `add_by_floats` that a requantization is; None for others.

    Args:
        block: where operands are bound.
        call: a `requantize`.
        operators: give what operations mean.

    Cost: O(1), a few dozen passes over 65536 numbers at most.
    """
    assert isinstance(call.callee, OpRef), "a requantization is a call of its operator"
    attrs = call.callee.attrs
    assert isinstance(attrs, RequantizeAttrs), "requantizations have their attributes"
    factors = [e.value for e in call.args[1:] if isinstance(e, Const)]
    numbers = [f for f in factors if isinstance(f, np.ndarray) and f.ndim == 0]
    if attrs.dtype not in BYTES or len(numbers) < len(call.args) - 1:
        return None
    pairs = _Pairs(block, operators)
    total = pairs.values(call.args[0], _DEEPEST)
    if total is None or len(pairs.leaves) != 2 or total.shape != (256, 256):
        return None
    x, y = pairs.leaves
    if any(_tensor(e).shape != _tensor(call).shape for e in (x, y)):
        return None
    wanted = requantized(attrs, total, *numbers).astype(np.int64)
    factor = float(numbers[0]) * (2.0 ** (int(numbers[1]) - attrs.bits) if numbers[1:] else 1.0)
    steps = [(float(total[i]) - float(total[0, 0])) / 255 * factor for i in ((-1, 0), (0, -1))]
    found = _searched(steps, wanted, pairs.operands(), attrs)
    return None if found is None else ((x, y), found)


def _tensor(e: Expr) -> TensorType:
    assert isinstance(e.type, TensorType), "operands of sums are tensors"
    return e.type


@dataclass
class _Pairs:
    """Evaluates what is made of two tensors of bytes on all pairs: the first one along rows.

    Attributes:
        leaves: the tensors, as they were found.
    """

    block: BlockWriter
    operators: OperatorTable
    leaves: list[Expr] = field(default_factory=list[Expr])

    def operands(self) -> tuple[Array, Array]:
        """Return all bytes of the first tensor in a column, and of the second in a row."""
        x, y = (_all(e) for e in self.leaves)
        return x[:, None], y[None]

    def values(self, e: Expr, depth: int) -> Array | None:
        """Return what a value of i32 is on all pairs; None where it depends on anything else."""
        value = self.block.definition(e)
        if isinstance(value, Const):
            array = value.value
            return array if isinstance(array, np.ndarray) and array.ndim == 0 else None
        if depth == 0 or not isinstance(value, Call) or not isinstance(value.callee, OpRef):
            return None
        name, attrs = value.callee.op.name, value.callee.attrs
        if name == "cast" and _tensor(value).dtype is I32 and _tensor(value.args[0]).dtype in BYTES:
            return self._leaf(value.args[0])
        if name not in _LOOKED_THROUGH:
            return None
        operands = [self.values(a, depth - 1) for a in value.args]
        known = [o for o in operands if o is not None]
        if len(known) < len(operands):
            return None
        return np.asarray(self.operators.definition(name).evaluate(attrs, *known))

    def _leaf(self, e: Expr) -> Array | None:
        if e not in self.leaves:
            self.leaves.append(e)
        at = self.leaves.index(e)
        return None if at > 1 else _all(e).astype(np.int32).reshape((-1, 1) if at == 0 else (1, -1))


def _all(e: Expr) -> Array:
    info = np.iinfo(_tensor(e).dtype.numpy)
    return np.arange(info.min, int(info.max) + 1, dtype=np.int64)


def _searched(
    steps: list[float], wanted: Array, operands: tuple[Array, Array], attrs: RequantizeAttrs
) -> FloatSumAttrs | None:
    """Return attributes that give what is wanted of all pairs."""
    low, high = attrs.ends()
    if max(map(abs, steps)) > MOST_FACTOR:
        return None
    for tried in _STEPS:
        x, y = (_next(s, n) for s, n in zip(steps, tried, strict=True))
        middle = wanted - (x * operands[0] + y * operands[1])
        least = np.where(wanted > low, middle - 0.5, -MOST_SUM).max()
        most = np.where(wanted < high, middle + 0.5, MOST_SUM).min()
        if most < least - _SLACK:
            return None
        for part in _PARTS if most > least else ():
            offset = float(np.float32(least + (most - least) * part))
            made = FloatSumAttrs(x, y, offset, attrs.dtype, low, high)
            if abs(offset) <= MOST_SUM and np.array_equal(summed(made, *operands), wanted):
                return made
    return None


def _next(x: float, step: int) -> float:
    """Return the float of 32 bits that is nearest to a number, or so many floats away from zero from it."""
    near = np.float32(x).view(np.int32) + np.int32(step)
    return float(near.view(np.float32))
