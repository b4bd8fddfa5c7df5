"""Attention of decoders as onnxruntime fuses it: heads that share keys, positions, a cache.

Terms of the shapes: B sequences of S queries and T = P + S keys, of which P come from before; N heads of H
numbers, of which G = N / K each share the keys and values of one. A query sees the keys up to its own, or the
last so many of these.

All sequences of a cache are of one length: keys are joined to those before, so that a session keeps them
where they are. onnxruntime also takes sequences of several lengths, and caches that are longer than what is
in them; these are refused when the program runs. The first run may have sequences that end early: what
follows their ends has results of no meaning there, too.

Source: the operator GroupQueryAttention of onnxruntime.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from inlay.arith import dtype as dt
from inlay.arith.expr import Int, lit, minimum
from inlay.importers.onnx.contrib_attention import heads, refuse
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.ops_rotary import rotated
from inlay.importers.onnx.term import Term, arange, concat, constant, integers, term
from inlay.importers.onnx.values import OnnxValue


def _grouped(node: Node) -> tuple[OnnxValue, ...]:
    """Inputs: queries, keys, values; past; ends, number of keys; cosines, sines, positions; a bias."""
    refuse(node, "smooth_softmax", "qk_output")
    if node.has(11) or any(node.string(f"{x}_quant_type", "NONE") != "NONE" for x in "kv"):
        raise node.unsupported("has a sink of its heads, or keys and values that are quantized")
    q, k, v = _operands(node)
    if node.has(3) != node.has(4):
        raise node.invalid("has past keys or past values, but not both")
    before = term(node, 3).shape[2] if node.has(3) else lit(0)
    q = _checked(node, q, before)
    if node.flag("do_rotary"):
        q, k = (_at_positions(node, x, before) for x in (q, k))
    if node.has(3):
        k, v = (concat([term(node, i), x], 2) for i, x in ((3, k), (4, v)))
    return (_attended(node, q, k, v, before).value, k.value, v.value)[: max(1, len(node.proto.output))]


def _operands(node: Node) -> tuple[Term, Term, Term]:
    """Return `[B, N or K, S, H]`: three inputs, or parts of one."""
    count, shared = node.int("num_heads", 0), node.int("kv_num_heads", 0)
    if count < 1 or shared < 1 or count % shared:
        raise node.invalid(f"has {count} heads that share keys of {shared}")
    q = term(node, 0)
    if node.has(1):
        return heads(q, count), heads(term(node, 1), shared), heads(term(node, 2), shared)
    every = count + 2 * shared
    size = (q.shape[2].value or 0) // every
    if not size or q.shape[2] != lit(size * every):
        raise node.invalid(f"has {q.shape[2]} numbers for {every} heads")
    ends = [0, count * size, (count + shared) * size, every * size]
    parts = (q.part(2, a, b) for a, b in pairwise(ends))
    q, k, v = (heads(x, n) for x, n in zip(parts, (count, shared, shared), strict=True))
    return q, k, v


def _checked(node: Node, q: Term, before: Int) -> Term:
    """Return queries after checking that the cache has the keys before them, and no others."""
    total = before + q.shape[2]
    q = q.checked_zero(
        term(node, 6).cast(dt.I64).reshape() - integers(node, (total,)).reshape(),
        "keys of GroupQueryAttention that are neither before nor here",
    )
    missing = term(node, 5).cast(dt.I64) + 1 - integers(node, (total,))
    some = integers(node, (minimum(before, lit(1)),)).reshape()
    return q.checked_zero(
        (missing * missing).over("sum") * some, "keys of GroupQueryAttention that are missing in a sequence"
    )


def _at_positions(node: Node, x: Term, before: Int) -> Term:
    """Turn the first numbers of each head by the angles of its position."""
    steps, cos = x.shape[2], term(node, 7)
    if node.has(9):
        at = term(node, 9).cast(dt.I64).reshape(x.shape[0], 1, steps)
    else:
        at = (arange(node, steps) + integers(node, (before,))).reshape(1, 1, steps)
    c, s = (table.gather(at) for table in (cos, term(node, 8)))
    return rotated(x, c, s, interleaved=node.flag("rotary_interleaved"))


def _attended(node: Node, q: Term, k: Term, v: Term, before: Int) -> Term:
    """Return `[B, S, N*H]` of queries `[B, N, S, H]`, keys and values `[B, K, T, H]`."""
    batch, count, steps, size = q.shape
    shared, keys = k.shape[1], k.shape[2]
    group = (count.value or 1) // (shared.value or 1)
    scale = node.float("scale", 0.0) or 1.0 / math.sqrt(size.value or 1)
    own = (q * scale).reshape(batch, shared, group, steps, size)
    one, two = (x.reshape(batch, shared, 1, keys, x.shape[3]) for x in (k, v))
    scores = own.op("matmul", one.transpose(0, 1, 2, 4, 3))
    cap = node.float("softcap", 0.0)
    if cap:
        scores = (scores / cap).op("tanh") * cap
    scores = scores + _unseen(node, steps, keys, before, q.dtype).reshape(1, 1, 1, steps, keys)
    if node.has(10):
        bias = term(node, 10)
        by_head = (1, 1) if bias.shape[1] == 1 else (shared, group)
        scores = scores + bias.reshape(bias.shape[0], *by_head, *bias.shape[2:])
    y = scores.op("softmax", axis=4).op("matmul", two)
    y = y.reshape(batch, count, steps, v.shape[3]).transpose(0, 2, 1, 3)
    return y.reshape(batch, steps, count * v.shape[3])


def _unseen(node: Node, steps: Int, keys: Int, before: Int, dtype: dt.DType) -> Term:
    """Return `[S, T]`: zeros, and the least number there is for keys that a query does not see."""
    at = (arange(node, steps) + integers(node, (before,))).reshape(steps, 1)
    key = arange(node, keys).reshape(1, keys)
    unseen = key > at
    window = node.int("local_window_size", -1)
    if window == 0 or window < -1:
        raise node.invalid(f"has a window of {window} keys")
    if window > 0:
        unseen = unseen | (key <= at - window)
    return unseen.where(constant(node, float(np.finfo(dtype.numpy).min), dtype), 0.0)


RULES: Mapping[str, Rule] = {"GroupQueryAttention": _grouped}
