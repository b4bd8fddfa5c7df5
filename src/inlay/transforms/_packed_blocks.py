"""How weights in few bits are packed for a device: two in a byte where 16 values are enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from inlay.ir import make
from inlay.ir.expr import Call, Const, Expr, OpRef
from inlay.ops._build import Array
from inlay.ops.matmul import PackAttrs, pack_reference
from inlay.ops.weight_blocks import BlocksAttrs, PackedBlocksAttrs, nibbles

_NIBBLE = 16


@dataclass(frozen=True, slots=True)
class _Stored:
    """Weights as they are stored.

    Attributes:
        q: a row for each term, or for two.
        bits: of a weight.
        zero: taken off all of them.
        zeros: taken off those of each block and column; None where there is nothing to.
    """

    q: Array
    bits: int
    zero: int
    zeros: Array | None


def packed_blocks(
    call: Call, width: Callable[[int, int], int]
) -> tuple[list[Expr], PackedBlocksAttrs] | None:
    """Return the operands of a packed product behind its first, and its attributes.

    Args:
        call: a `matmul_blocks`.
        width: gives the panel for columns and terms.
    """
    assert isinstance(call.callee, OpRef)
    attrs = call.callee.attrs
    assert isinstance(attrs, BlocksAttrs), "weights have blocks"
    arrays = [a.value for a in call.args[1:] if isinstance(a, Const) and isinstance(a.value, np.ndarray)]
    if len(arrays) < len(call.args) - 1 or not arrays[0].size:
        return None
    q, scale, *zeros = arrays
    terms, columns = q.shape
    stored = _stored(q, zeros[0] if zeros else None, attrs.block)
    panel = width(columns, terms)
    operands = [stored.q, scale, *([] if stored.zeros is None else [stored.zeros])]
    made = [np.ascontiguousarray(pack_reference(PackAttrs(panel), a)) for a in operands]
    how = PackedBlocksAttrs(panel, columns, attrs.block, stored.bits, stored.zero)
    return [make.const(a, span=call.span) for a in made], how


def _stored(q: Array, zeros: Array | None, block: int) -> _Stored:
    whole = q.astype(np.int16)
    zero = 0
    if zeros is not None and np.all(zeros == zeros.flat[0]) and float(zeros.flat[0]).is_integer():
        zero, zeros = int(zeros.flat[0]), None
    low = min(int(whole.min()), 0 if q.dtype == np.uint8 else -_NIBBLE // 2)
    is_even = q.shape[0] % 2 == 0 and (block % 2 == 0 or block >= q.shape[0])
    if is_even and int(whole.max()) - low < _NIBBLE:
        return _Stored(nibbles(whole - low), 4, *_moved(zero, zeros, -low))
    shifted = whole - zero
    if zeros is None and shifted.min() >= -128 and shifted.max() <= 127:
        return _Stored(shifted.astype(np.int8), 8, 0, None)
    return _Stored(q, 8, zero, zeros)


def _moved(zero: int, zeros: Array | None, by: int) -> tuple[int, Array | None]:
    """Return zero points of weights that were made larger: one for all, or floats, which hold them."""
    if zeros is None or by == 0:
        return zero + by, zeros
    return 0, zeros.astype(np.float32) + np.float32(by)
