"""Attention as onnxruntime fuses it: products of the input, heads, masks, past and present.

Terms of the shapes: B sequences of S queries and T keys, of which P come from before; N heads of H
numbers. Masks are added to the scores: what is masked gets `mask_filter_value`, which is finite, so a
row of masked keys alone is like one without a mask; what lies ahead gets the least number there is.

Source: the operators Attention, MultiHeadAttention, QAttention and RotaryEmbedding of onnxruntime.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from inlay.arith import dtype as dt
from inlay.arith.expr import Int, lit
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.ops_quantized import parameter
from inlay.importers.onnx.ops_rotary import rotated_heads, split_heads
from inlay.importers.onnx.term import Term, arange, concat, constant, integers, term
from inlay.importers.onnx.values import OnnxValue


def heads(x: Term, count: int) -> Term:
    """Turn `[B, S, N*H]` into `[B, N, S, H]`."""
    return split_heads(x, count).transpose(0, 2, 1, 3)


def _lengths(node: Node, i: int, batch: Int, keys: Int) -> Term:
    """Return which keys count, `[B, 1, 1, T]`, from the ends of sequences, or ends and starts."""
    mask = term(node, i).cast(dt.I64)
    at = arange(node, keys).reshape(1, 1, 1, keys)
    if mask.shape[0] != batch * 2:
        return at < mask.reshape(mask.shape[0], 1, 1, 1)
    ends, starts = mask.part(0, 0, batch), mask.part(0, batch, batch * 2)
    return (at < ends.reshape(batch, 1, 1, 1)) & (at >= starts.reshape(batch, 1, 1, 1))


def _mask(node: Node, i: int, batch: Int, keys: Int) -> Term | None:
    """Return which keys count for which queries as truth values that broadcast; None for all."""
    if not node.has(i):
        return None
    mask = term(node, i)
    match mask.rank:
        case 1:
            return _lengths(node, i, batch, keys)
        case 2:
            return (mask > 0).reshape(batch, 1, 1, keys)
        case 3:
            return (mask > 0).reshape(batch, 1, mask.shape[1], keys)
        case _:
            raise node.unsupported(f"has a mask of rank {mask.rank}")


def _attended(node: Node, q: Term, k: Term, v: Term, kept: Term | None, bias: Term | None) -> Term:
    """Return `[B, S, N*H]` of queries, keys and values `[B, N, S or T, H]`."""
    size = q.shape[3].value
    scale = node.float("scale", 0.0) or 1.0 / math.sqrt(size or 1)
    scores = (q * scale).op("matmul", k.transpose(0, 1, 3, 2))
    if kept is not None:
        scores = scores + kept.where(constant(node, 0.0, q.dtype), node.float("mask_filter_value", -10000.0))
    if node.flag("unidirectional"):
        queries, keys = q.shape[2], k.shape[2]
        before = arange(node, queries).reshape(queries, 1) + integers(node, (keys - queries,))
        least = float(np.finfo(q.dtype.numpy).min)
        ahead = arange(node, keys).reshape(1, keys) > before
        scores = scores + ahead.where(constant(node, least, q.dtype), 0.0).reshape(1, 1, queries, keys)
    if bias is not None:
        scores = scores + bias
    y = scores.op("softmax", axis=3).op("matmul", v).transpose(0, 2, 1, 3)
    return y.reshape(y.shape[0], y.shape[1], y.shape[2] * y.shape[3])


def refuse(node: Node, *flags: str) -> None:
    """Refuse a node that has one of these flags."""
    for name in flags:
        if node.flag(name):
            raise node.unsupported(f"has {name}")


def _from_products(
    node: Node, qkv: Term, sizes: Sequence[int], mask: int, past: int, bias: Term | None
) -> tuple[OnnxValue, ...]:
    """Attend with queries, keys and values that lie side by side in the last axis."""
    refuse(node, "do_rotary", "past_present_share_buffer")
    count = node.int("num_heads", 0)
    ends = np.cumsum([0, *sizes])
    q, k, v = (heads(qkv.part(2, int(a), int(b)), count) for a, b in pairwise(ends))
    if node.has(past):
        k, v = (concat([term(node, past).at(0, j), x], 2) for j, x in enumerate((k, v)))
    kept = _mask(node, mask, qkv.shape[0], k.shape[2])
    y = _attended(node, q, k, v, kept, bias)
    if len(node.proto.output) < 2:
        return (y.value,)
    if k.shape[3] != v.shape[3]:
        raise node.unsupported("gives keys and values of different sizes as one tensor")
    return y.value, concat([x.reshape(1, *x.shape) for x in (k, v)], 0).value


def _attention(node: Node) -> tuple[OnnxValue, ...]:
    """Inputs: x, weights, bias; a mask, the past, a bias of scores."""
    if node.has(6):
        raise node.unsupported("is given the length of its past")
    qkv = term(node, 0).op("matmul", term(node, 1))
    if node.has(2):
        qkv = qkv + term(node, 2)
    bias = term(node, 5) if node.has(5) else None
    return _from_products(node, qkv, _sizes(node, qkv), 3, 4, bias)


def _sizes(node: Node, qkv: Term) -> tuple[int, ...]:
    width = qkv.shape[2].value
    given = node.int_list("qkv_hidden_sizes")
    sizes = given or ((width or 0) // 3,) * 3
    if width is None or len(sizes) != 3 or sum(sizes) != width:
        raise node.invalid(f"has {qkv.shape[2]} columns for sizes {list(sizes)}")
    return sizes


def _q_attention(node: Node) -> tuple[OnnxValue, ...]:
    """Inputs: x, weights, bias, scales of both, a mask, zero points of both, the past."""
    zeros = [
        parameter(node, i) if node.has(i) else constant(node, 0, node.type(of).dtype)
        for i, of in ((6, 0), (7, 1))
    ]
    total = term(node, 0).op("matmul_integer", term(node, 1), *zeros)
    scale = parameter(node, 3) * parameter(node, 4)
    qkv = total.cast(dt.F32) * scale + term(node, 2)
    return _from_products(node, qkv, _sizes(node, qkv), 5, 8, None)


def _multi_head(node: Node) -> tuple[OnnxValue, ...]:
    """Inputs: queries, keys, values; their bias; a mask; a bias of scores; past keys and values."""
    if node.has(8) or node.has(9) or any(node.proto.output[3:]):
        raise node.unsupported("shares a buffer with its past, or gives its scores")
    count = node.int("num_heads", 0)
    q, k, v = _operands(node, count)
    if node.has(6) != node.has(7):
        raise node.invalid("has past keys or past values, but not both")
    if node.has(6):
        k, v = (concat([term(node, i), x], 2) for i, x in ((6, k), (7, v)))
    kept = _mask(node, 4, q.shape[0], k.shape[2])
    y = _attended(node, q, k, v, kept, term(node, 5) if node.has(5) else None)
    return (y.value, k.value, v.value)[: max(1, len(node.proto.output))]


def _operands(node: Node, count: int) -> tuple[Term, Term, Term]:
    """Return queries, keys and values in heads, whichever of them lie in one tensor."""
    q = term(node, 0)
    if q.rank == 5 or not node.has(1):
        if q.rank != 5 or node.has(3):
            raise node.unsupported("has queries alone, which are not of rank 5, or have a bias")
        q, k, v = _unpacked(q, 3)
        return q, k, v
    k = term(node, 1)
    biases: list[Term | None] = [None, None, None]
    if node.has(3):
        biases = list(_parts(term(node, 3), q, k))
    q = heads(q if biases[0] is None else q + biases[0], count)
    if k.rank == 5:
        if node.has(3):
            raise node.unsupported("adds a bias to keys and values in one tensor")
        k, v = _unpacked(k, 2)
        return q, k, v
    v = term(node, 2)
    if k.rank == 4:
        return q, k, v
    k, v = (x if b is None else x + b for x, b in zip((k, v), biases[1:], strict=True))
    return q, heads(k, count), heads(v, count)


def _parts(bias: Term, q: Term, k: Term) -> tuple[Term, Term, Term]:
    first = q.shape[2]
    second = first + (k.shape[2] if k.rank == 3 else first)
    total = bias.shape[0]
    return bias.part(0, 0, first), bias.part(0, first, second), bias.part(0, second, total)


def _unpacked(x: Term, count: int) -> tuple[Term, ...]:
    """Take `[B, S, N, count, H]` apart, each to `[B, N, S, H]`."""
    if x.shape[3] != lit(count):
        raise x.node.invalid(f"has {x.shape[3]} tensors in one, needed {count}")
    return tuple(x.at(3, i).transpose(0, 2, 1, 3) for i in range(count))


def _rotary(node: Node) -> OnnxValue:
    """Turn pairs of numbers of each head by angles that depend on the position.

    Inputs: x `[B, S, N*H]` or `[B, N, S, H]`; positions `[B, S]`, or `[1]`, the first one; cosines
    and sines `[positions, H/2]`.
    """
    refuse(node, "is_packed_batching")
    if node.float("scale", 1.0) != 1.0:
        raise node.unsupported("has a scale")
    x, places, cos = term(node, 0), term(node, 1), term(node, 2)
    half = cos.shape[1].value
    if half is None:
        raise node.unsupported("has angles whose number is not known")
    turned = node.int("rotary_embedding_dim", 0) or 2 * half
    if turned != 2 * half:
        raise node.invalid(f"turns {turned} numbers by angles for {2 * half}")
    y, steps = x, 2
    if x.rank == 3:
        width = x.shape[2].value or 0
        y, steps = split_heads(x, node.int("num_heads", 0) or width // max(turned, 1)), 1
    count = x.shape[steps]
    if places.rank == 1:
        at = (arange(node, count) + places.reshape()).reshape(1, count)
    else:
        at = places.reshape(x.shape[0], count)
    c, s = (table.gather(at) for table in (cos, term(node, 3)))
    y = rotated_heads(y, c, s, steps=steps, interleaved=node.flag("interleaved"))
    return y.reshape(*x.shape).value


RULES: Mapping[str, Rule] = {
    "Attention": _attention,
    "QAttention": _q_attention,
    "MultiHeadAttention": _multi_head,
    "RotaryEmbedding": _rotary,
}
