"""Weights in few bits, as onnxruntime writes decoders: MatMulNBits and GatherBlockQuantized.

The weights are constants, and are read here: rows of the right side of a product become columns, fields of
bytes become numbers. What they stand for is `dequantize_blocks`; whether they are ever brought to floats as a
whole, the compiler decides. A model of accuracy level 4 was exported to be multiplied in integers: the other
operand is rounded to 8 bits there, block by block. Rows of a table stay as they are stored until they are
gathered.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from inlay.arith.dtype import F32, U8, from_numpy
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.term import Term, concat, constant, filled, term
from inlay.importers.onnx.values import OnnxValue
from inlay.ops._build import Array

_KNOWN = frozenset({"K", "N", "bits", "block_size", "accuracy_level"})
_BYTES = 4
"""The `accuracy_level` of models whose other operand is rounded to 8 bits; lower ones ask for floats."""


def _matmul_n_bits(node: Node) -> OnnxValue:
    """Inputs: a, weights `[n, blocks, bytes]`, scales, zero points, g_idx, a bias."""
    bits, block = node.int("bits", 4), node.int("block_size", 32)
    terms, columns = node.int("K", 0), node.int("N", 0)
    if unknown := sorted(set(node.attribute_names()) - _KNOWN):
        raise node.unsupported(f"has the attribute '{unknown[0]}'")
    if bits not in (2, 4, 8):
        raise node.unsupported(f"has weights of {bits} bits, needed 2, 4 or 8")
    if block < 16 or block & (block - 1) or terms < 1 or columns < 1:
        raise node.invalid(f"has K={terms}, N={columns} and blocks of {block}")
    blocks = -(-terms // block)
    if node.has(4):
        given = node.constant(4, "g_idx").reshape(-1)
        if not np.array_equal(given, np.arange(len(given)) // block):
            raise node.unsupported(
                "has rows of its weights in an order of their own (g_idx)",
                hint="export the model without reordering by activations (`desc_act=False`)",
            )
    q = _unpacked(node, node.constant(1, "weights"), columns, blocks * block, bits, "weights")
    scales = _sized(node, node.constant(2, "scales"), columns * blocks, "scales").reshape(columns, blocks)
    zeros = _zeros(node, columns, blocks)
    x = term(node, 0)
    is_rounded = node.int("accuracy_level", 0) == _BYTES
    if is_rounded:  # sums of integers are scaled in f32
        scales, zeros = (a.astype(np.float32) if a.dtype.kind == "f" else a for a in (scales, zeros))
    weights, *others = (_turned(node, a) for a in (q[:, :terms], scales, zeros))
    w = weights.op("dequantize_blocks", *others, block=block, axis=0)
    if is_rounded:
        y = _rounded(x.cast(F32), block).op("matmul", w).cast(x.dtype)
    else:
        y = x.op("matmul", w.cast(x.dtype))
    return (y + term(node, 5) if node.has(5) else y).value


def _rounded(x: Term, block: int) -> Term:
    """Return a term rounded to 8 bits, with a scale for as many neighbors as share one in the weights."""
    scales = x.op("block_scales", block=block)
    return x.op("quantize_blocks", scales, block=block).op("dequantize_blocks", scales, block=block, axis=-1)


def _zeros(node: Node, columns: int, blocks: int) -> Array:
    """Return a zero point for each column and block: floats, or fields of bytes as the weights are."""
    bits = node.int("bits", 4)
    if not node.has(3):
        return np.full((columns, blocks), 1 << (bits - 1), np.uint8)
    given = node.constant(3, "zero points")
    if given.dtype != np.uint8:
        return _sized(node, given, columns * blocks, "zero points").reshape(columns, blocks)
    in_byte = 8 // bits
    return _unpacked(node, given, columns, -(-blocks // in_byte) * in_byte, bits, "zero points")[:, :blocks]


def _unpacked(node: Node, packed: Array, rows: int, count: int, bits: int, what: str) -> Array:
    """Return the numbers of each row; the first one of a byte is in its lowest bits."""
    if packed.dtype != np.uint8:
        raise node.unsupported(f"has {what} of {from_numpy(packed.dtype)}, needed bytes")
    flat = _sized(node, packed, rows * count * bits // 8, what).reshape(rows, -1)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return ((flat[..., None] >> shifts) & ((1 << bits) - 1)).reshape(rows, -1)


def _sized(node: Node, array: Array, size: int, what: str) -> Array:
    if array.size != size:
        raise node.invalid(f"has {array.size} {what}, needed {size}")
    return array


def _turned(node: Node, x: Array) -> Term:
    return constant(node, np.ascontiguousarray(x.T), from_numpy(x.dtype))


def _gather_blocks(node: Node) -> OnnxValue:
    """Inputs: data, indices, scales, zero points; bytes may have two numbers each, along the last axis."""
    data, indices, scales = (term(node, i) for i in range(3))
    first, bits, block = node.inputs[0], node.int("bits", 4), node.int("block_size", 128)
    # Numbers that the model stores in 4 bits have an element each here.
    is_bytes = data.dtype is U8 and not (first is not None and first.stored)
    is_packed = is_bytes and bits == 4
    if unknown := sorted(
        set(node.attribute_names()) - {"bits", "block_size", "gather_axis", "quantize_axis"}
    ):
        raise node.unsupported(f"has the attribute '{unknown[0]}'")
    if bits not in (4, 8):
        raise node.unsupported(f"has data of {bits} bits, needed 4 or 8")
    rank = data.rank
    gathered, quantized = (node.int(name, i) for i, name in enumerate(("gather_axis", "quantize_axis")))
    if block < 1:
        raise node.invalid(f"has blocks of {block}")
    if not (-rank <= gathered < rank and -rank <= quantized < rank) or (gathered - quantized) % rank == 0:
        raise node.invalid(f"has gather_axis={gathered} and quantize_axis={quantized} of {rank} axes")
    gathered, quantized = gathered % rank, quantized % rank
    if is_packed and (quantized != rank - 1 or gathered == rank - 1):
        raise node.unsupported(
            f"has two numbers in a byte and quantize_axis={quantized}, needed the last axis"
        )
    taken = [data, scales, *([term(node, 3)] if node.has(3) else [])]
    rows, scale, *zeros = (x.gather(indices, gathered) for x in taken)
    if is_packed:
        rows = _halves(rows)
        zeros = [_halves(z).part(z.rank - 1, 0, scale.shape[-1]) for z in zeros]
    if is_bytes and not zeros:
        zeros = [filled(node, 1 << (bits - 1), scale.shape, U8)]
    axis = quantized + (indices.rank - 1 if quantized > gathered else 0)
    return rows.op("dequantize_blocks", scale, *zeros, block=block, axis=axis).value


def _halves(x: Term) -> Term:
    """Return the two numbers of each byte side by side along the last axis, the lower half first."""
    parts = (x.op("bitwise_and", 15), x.op("shift_right", 4))
    *outer, last = x.shape
    return concat([p.reshape(*x.shape, 1) for p in parts], x.rank).reshape(*outer, last * 2)


RULES: Mapping[str, Rule] = {"GatherBlockQuantized": _gather_blocks, "MatMulNBits": _matmul_n_bits}
