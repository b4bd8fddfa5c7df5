"""TfIdfVectorizer over integers: how often each n-gram of a pool occurs in a row of tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from inlay.arith import dtype as dt
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.term import Term, concat, constant, filled, term
from inlay.importers.onnx.values import Value


def _tf_idf(node: Node) -> Value:
    """Compare all windows of each length and gap with all n-grams of that length, and count."""
    pool = node.int_list("pool_int64s")
    starts = node.int_list("ngram_counts") or ()
    columns = node.int_list("ngram_indexes") or ()
    if pool is None:
        raise node.unsupported("looks for strings; only integers are done")
    x = term(node, 0)
    if not x.dtype.is_integer or x.rank not in (1, 2):
        raise node.unsupported(f"is given {x.dtype} of rank {x.rank}")
    rows = x.cast(dt.I64).reshape(*((1,) * (2 - x.rank)), *x.shape)
    width = rows.shape[1].value
    if width is None:
        raise node.unsupported("has rows of a length that is not known")
    low, high = node.int("min_gram_length", 1), node.int("max_gram_length", 1)
    counts: list[Term] = []
    for n, grams in enumerate(_grams(node, pool, starts), 1):
        found = filled(node, 0.0, (rows.shape[0], len(grams)), dt.F32)
        if low <= n <= high and len(grams):
            found = _occurrences(rows, width, grams, node.int("max_skip_count", 0))
        counts.append(found)
    total = concat(counts, 1)
    if total.shape[1] != len(columns):
        raise node.invalid(f"has {len(columns)} columns for {total.shape[1]} n-grams")
    y = _weighted(node, total, columns)
    return (y.reshape(y.shape[1]) if x.rank == 1 else y).value


def _grams(node: Node, pool: Sequence[int], starts: Sequence[int]) -> list[np.ndarray]:
    """Return the n-grams of each length: one row each."""
    ends = [*starts[1:], len(pool)]
    found: list[np.ndarray] = []
    for n, (begin, end) in enumerate(zip(starts, ends, strict=True), 1):
        part = np.array(pool[begin:end], np.int64)
        if begin > end or part.size % n:
            raise node.invalid(f"has a pool that does not hold whole n-grams of length {n}")
        found.append(part.reshape(-1, n))
    return found


def _occurrences(rows: Term, width: int, grams: np.ndarray, skips: int) -> Term:
    node, (count, n) = rows.node, grams.shape
    total: Term | None = None
    for gap in range(1, skips + 2 if n > 1 else 2):
        windows = width - (n - 1) * gap
        if windows < 1:
            break
        same: Term | None = None
        for k in range(n):
            at = rows.part(1, k * gap, k * gap + windows).reshape(rows.shape[0], windows, 1)
            hit = at.equals(constant(node, grams[:, k].reshape(1, 1, count), dt.I64))
            same = hit if same is None else same & hit
        assert same is not None, "an n-gram has an element"
        part = same.cast(dt.F32).over("sum", 1)
        total = part if total is None else total + part
    return filled(node, 0.0, (rows.shape[0], count), dt.F32) if total is None else total


def _weighted(node: Node, counts: Term, columns: Sequence[int]) -> Term:
    """Put the counts into their columns and weigh them as the mode says."""
    mode = node.string("mode", "TF")
    weights = node.float_list("weights") or (1.0,) * len(columns)
    if mode not in ("TF", "IDF", "TFIDF") or len(weights) != len(columns):
        raise node.invalid(f"has mode '{mode}' and {len(weights)} weights")
    if not columns or min(columns) < 0 or max(columns) >= 2**20:
        raise node.invalid("has columns out of range")
    place = np.zeros((len(columns), max(columns) + 1), np.float32)
    place[np.arange(len(columns)), np.array(columns)] = 1.0 if mode == "TF" else np.array(weights)
    if mode == "IDF":
        counts = (counts > 0.0).cast(dt.F32)
    return counts.op("matmul", constant(node, place, dt.F32))


RULES: Mapping[str, Rule] = {"TfIdfVectorizer": _tf_idf}
