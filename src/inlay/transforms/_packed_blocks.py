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
from inlay.ops.quantized_blocks import packed_groups
from inlay.ops.weight_blocks import WORDS, BlocksAttrs, PackedBlocksAttrs, PackedWeightsAttrs, half_bytes

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
    found = _constants(call, 1)
    if found is None:
        return None
    block, (q, scale, *zeros) = found
    terms, columns = q.shape
    stored = _stored(q, zeros, block)
    by_word = stored.bits == 4 and target.vector_registers >= MANY_REGISTERS
    panel = target.lanes(F32.itemsize) if by_word else panel_width(target, columns, terms, rows, 1)
    operands = [stored.q, scale, *([] if stored.zeros is None else [stored.zeros])]
    made = [np.ascontiguousarray(pack_reference(PackAttrs(panel), a)) for a in operands]
    how = PackedBlocksAttrs(panel, columns, block, stored.bits, stored.zero, by_word)
    return [make.const(a, span=call.span) for a in made], how


def _constants(call: Call, first: int) -> tuple[int, list[Array]] | None:
    """Return the terms that share a scale, and constant operands from one on; None for other weights."""
    assert isinstance(call.callee, OpRef)
    attrs = call.callee.attrs
    assert isinstance(attrs, BlocksAttrs), "weights have blocks"
    arrays = [a.value for a in call.args[first:] if isinstance(a, Const)]
    found = [a for a in arrays if isinstance(a, np.ndarray)]
    is_whole = len(found) == len(call.args) - first and found[0].size > 0
    return (attrs.block, found) if is_whole else None


def _half_bytes_from(q: Array) -> int | None:
    """Return the number from which on 4 bits hold the weights; None where they do not."""
    low = min(int(q.min()), 0 if q.dtype == np.uint8 else -_NIBBLE // 2)
    return low if int(q.max()) - low < _NIBBLE else None


def _stored(q: Array, zeros: Sequence[Array], block: int) -> _Stored:
    whole = q.astype(np.int16)
    zero, each = _uniform(zeros)
    low, words = _half_bytes_from(q), _words(q.shape[0], block)
    if words is not None and low is not None:
        return _Stored(half_bytes(whole - low, words), 4, *_moved(zero, each, -low))
    shifted = whole - zero
    if each is None and shifted.min() >= -128 and shifted.max() <= 127:
        return _Stored(shifted.astype(np.int8), 8, 0, None)
    return _Stored(q, 8, zero, each)


def _words(terms: int, block: int) -> DType | None:
    """Return the widest words of neighbors in 4 bits that fit a sum and its blocks."""
    for words in reversed(WORDS):
        count = 2 * words.itemsize
        if terms % count == 0 and (block % count == 0 or block >= terms):
            return words
    return None


def _moved(zero: int, zeros: Array | None, by: int) -> tuple[int, Array | None]:
    """Return zero points of weights that were made larger: one for all, or bytes, or else floats."""
    if zeros is None or by == 0:
        return zero + by, zeros
    if zeros.dtype.kind in "iu":
        moved = zeros.astype(np.int16) + by
        if moved.min() >= 0 and moved.max() <= 255:
            return 0, moved.astype(np.uint8)
    return 0, zeros.astype(np.float32) + np.float32(by)


def packed_quantized(call: Call, target: Target) -> tuple[list[Expr], PackedWeightsAttrs] | None:
    """Return the weights of a packed product of integers with what goes with them, and its attributes.

    Args:
        call: a `matmul_quantized_blocks`.
        target: the device.

    Returns:
        None where no instruction of the device adds up products of such weights and bytes, and where the
        weights are no constants.
    """
    found = _constants(call, 2)
    if found is None:
        return None
    block, (q, scale, *zeros) = found
    low = _half_bytes_from(q)
    bits, multiplies = (8, target.multiplies_unsigned) if low is None else (4, target.multiplies_half_bytes)
    if not multiplies:
        return None
    if low is None:
        low = 0 if q.dtype == np.uint8 else -128
    panel = target.lanes(F32.itemsize)
    zero, each = _moved(*_uniform(zeros), -low)
    others = (pack_reference(PackAttrs(panel), a) for a in (scale, each) if a is not None)
    made = [packed_groups(q.astype(np.int16) - low, panel, bits), *map(np.ascontiguousarray, others)]
    how = PackedWeightsAttrs(panel, q.shape[1], block, bits, zero)
    return [make.const(a, span=call.span) for a in made], how


def _uniform(zeros: Sequence[Array]) -> tuple[int, Array | None]:
    """Return what is taken off all weights, and what is taken off those of each block where they differ."""
    if not zeros:
        return 0, None
    first = float(zeros[0].flat[0])
    return (int(first), None) if first.is_integer() and np.all(zeros[0] == first) else (0, zeros[0])
