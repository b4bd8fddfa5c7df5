"""How weights in few bits are packed for a device: several in a word where 16 values are enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inlay.analysis.register_tiles import panel_width
from inlay.arith.dtype import F32, DType
from inlay.ir import make
from inlay.ir.expr import Call, Const, Expr, OpRef
from inlay.machine.target import Target
from inlay.ops._build import Array
from inlay.ops.matmul import PackAttrs, pack_reference
from inlay.ops.quantized_blocks import PackedQuantizedAttrs, packed_groups
from inlay.ops.weight_blocks import WORDS, BlocksAttrs, PackedBlocksAttrs, half_bytes

_NIBBLE = 16
MANY_REGISTERS = 32
"""So many hold the weights of a word beside the sums of a tile of rows. With 16, sums are kept on the stack,
and 128 rows in four bits take 13 ms instead of 7.8."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """Weights as they are stored.

    Attributes:
        q: a row for each term, or for those of a word.
        bits: of a weight.
        zero: taken off all of them.
        zeros: taken off those of each block and column; None where there is nothing to.
    """

    q: Array
    bits: int
    zero: int
    zeros: Array | None


def packed_blocks(
    call: Call, target: Target, rows: int | None
) -> tuple[list[Expr], PackedBlocksAttrs] | None:
    """Return the operands of a packed product behind its first, and its attributes.

    Args:
        call: a `matmul_blocks`.
        target: the device.
        rows: of the product; None where they are not known.
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
    by_word = stored.bits == 4 and target.vector_registers >= MANY_REGISTERS
    panel = target.lanes(F32.itemsize) if by_word else panel_width(target, columns, terms, rows, 1)
    operands = [stored.q, scale, *([] if stored.zeros is None else [stored.zeros])]
    made = [np.ascontiguousarray(pack_reference(PackAttrs(panel), a)) for a in operands]
    how = PackedBlocksAttrs(panel, columns, attrs.block, stored.bits, stored.zero, by_word)
    return [make.const(a, span=call.span) for a in made], how


def _stored(q: Array, zeros: Array | None, block: int) -> _Stored:
    whole = q.astype(np.int16)
    zero, zeros = _uniform([] if zeros is None else [zeros])
    low = min(int(whole.min()), 0 if q.dtype == np.uint8 else -_NIBBLE // 2)
    words = _words(q.shape[0], block)
    if words is not None and int(whole.max()) - low < _NIBBLE:
        return _Stored(half_bytes(whole - low, words), 4, *_moved(zero, zeros, -low))
    shifted = whole - zero
    if zeros is None and shifted.min() >= -128 and shifted.max() <= 127:
        return _Stored(shifted.astype(np.int8), 8, 0, None)
    return _Stored(q, 8, zero, zeros)


def _words(terms: int, block: int) -> DType | None:
    """Return the widest words of neighbors in 4 bits that fit a sum and its blocks."""
    for words in reversed(WORDS):
        count = 2 * words.itemsize
        if terms % count == 0 and (block % count == 0 or block >= terms):
            return words
    return None


def _moved(zero: int, zeros: Array | None, by: int) -> tuple[int, Array | None]:
    """Return zero points of weights that were made larger: one for all, or floats, which hold them."""
    if zeros is None or by == 0:
        return zero + by, zeros
    return 0, zeros.astype(np.float32) + np.float32(by)


def packed_quantized(call: Call, panel: int) -> tuple[list[Expr], PackedQuantizedAttrs] | None:
    """Return the weights of a packed product of integers with what goes with them, and its attributes.

    Args:
        call: a `matmul_quantized_blocks`.
        panel: columns in a panel.
    """
    assert isinstance(call.callee, OpRef)
    attrs = call.callee.attrs
    assert isinstance(attrs, BlocksAttrs), "weights have blocks"
    arrays = [a.value for a in call.args[2:] if isinstance(a, Const) and isinstance(a.value, np.ndarray)]
    if len(arrays) < len(call.args) - 2:
        return None
    q, scale, *zeros = arrays
    low = min(int(q.min()), 0 if q.dtype == np.uint8 else -_NIBBLE // 2)
    bits = 4 if int(q.max()) - low < _NIBBLE else 8
    low = low if bits == 4 or q.dtype == np.uint8 else -128
    zero, each = _uniform(zeros)
    others = [scale, *([] if each is None else [_bytes_or_floats(each, low)])]
    packed = [pack_reference(PackAttrs(panel), a) for a in others]
    made = [packed_groups(q.astype(np.int16) - low, panel, bits), *map(np.ascontiguousarray, packed)]
    how = PackedQuantizedAttrs(panel, q.shape[1], attrs.block, bits, 0 if each is not None else zero - low)
    return [make.const(a, span=call.span) for a in made], how


def _bytes_or_floats(zeros: Array, low: int) -> Array:
    """Return zero points less a number: bytes where those hold them, else floats, which do."""
    if zeros.dtype.kind in "iu":
        moved = zeros.astype(np.int16) - low
        if moved.min() >= 0 and moved.max() <= 255:
            return moved.astype(np.uint8)
    return zeros.astype(np.float32) - np.float32(low)


def _uniform(zeros: Sequence[Array]) -> tuple[int, Array | None]:
    """Return what is taken off all weights, and what is taken off those of each block where they differ."""
    if not zeros:
        return 0, None
    first = float(zeros[0].flat[0])
    return (int(first), None) if first.is_integer() and np.all(zeros[0] == first) else (0, zeros[0])
