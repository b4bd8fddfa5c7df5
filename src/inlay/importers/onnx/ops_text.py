"""Operators on strings, and TfIdfVectorizer: how often n-grams of a pool occur in a row of tokens.

What looks into strings is an operator of `ops/text.py`; all else is a composition of equality and
gathering, for which it does not matter that elements are strings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from inlay.arith import dtype as dt
from inlay.arith.expr import maximum, product
from inlay.arith.text import text_array
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.ops_select import places
from inlay.importers.onnx.term import Term, concat, constant, filled, term
from inlay.importers.onnx.values import OnnxValue
from inlay.ir import make


def _tf_idf(node: Node) -> OnnxValue:
    """Compare all windows of each length and gap with all n-grams of that length, and count."""
    pool = node.string_list("pool_strings") or node.int_list("pool_int64s")
    starts = node.int_list("ngram_counts") or ()
    columns = node.int_list("ngram_indexes") or ()
    if pool is None:
        raise node.invalid("has no pool")
    x = term(node, 0)
    dtype = dt.STRING if isinstance(pool[0], str) else dt.I64
    if not (x.dtype is dtype or (x.dtype.is_integer and dtype is dt.I64)) or x.rank not in (1, 2):
        raise node.unsupported(f"is given {x.dtype} of rank {x.rank}")
    rows = x.cast(dtype).reshape(*((1,) * (2 - x.rank)), *x.shape)
    width = rows.shape[1].value
    if width is None:
        raise node.unsupported("has rows of a length that is not known")
    low, high = node.int("min_gram_length", 1), node.int("max_gram_length", 1)
    skips = node.int("max_skip_count", 0)
    if not 1 <= low <= high <= len(starts) or skips < 0:
        raise node.invalid(
            f"has n-grams of {low} to {high} words with at most {skips} between them, and a pool of "
            f"those up to {len(starts)}"
        )
    counts: list[Term] = []
    for n, grams in enumerate(_grams(node, np.array(pool, dtype.numpy), starts), 1):
        found = filled(node, 0.0, (rows.shape[0], len(grams)), dt.F32)
        if low <= n <= high and len(grams):
            found = _occurrences(rows, width, grams, skips)
        counts.append(found)
    total = concat(counts, 1)
    if total.shape[1] != len(columns):
        raise node.invalid(f"has {len(columns)} columns for {total.shape[1]} n-grams")
    y = _weighted(node, total, columns)
    return (y.reshape(y.shape[1]) if x.rank == 1 else y).value


def _grams(node: Node, pool: np.ndarray, starts: Sequence[int]) -> list[np.ndarray]:
    """Return the n-grams of each length: one row each."""
    ends = [*starts[1:], len(pool)]
    found: list[np.ndarray] = []
    for n, (begin, end) in enumerate(zip(starts, ends, strict=True), 1):
        part = pool[begin:end]
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
            hit = at.equals(constant(node, grams[:, k].reshape(1, 1, count), rows.dtype))
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


# --------------------------------------------------------------------------- strings


def _concat(node: Node) -> OnnxValue:
    return term(node, 0).op("string_concat", term(node, 1)).value


_OTHER_REGEX = re.compile(
    r"\\[1-9CpPQEzZuUNA]|\(\?(?![:imsU-]|P<)|\[\[:|[*+?}]\+|\{,|\(\?[ims]*U|&&|\[\[|--|\|\||~~"
)
"""What RE2, whose syntax ONNX means, and Python read in different ways, or only one of them."""


def _full_match(node: Node) -> OnnxValue:
    pattern = node.string("pattern", "")
    if found := _OTHER_REGEX.search(pattern):
        raise node.unsupported(
            f"has {found.group()!r} in its pattern {pattern!r}, which is no part of the common "
            "ground of RE2 and Python",
            hint="write the pattern with groups, classes, repetition and alternatives only",
        )
    try:
        re.compile(pattern, re.ASCII)
    except (re.error, RecursionError, OverflowError) as problem:
        raise node.invalid(f"has the pattern {pattern!r}: {problem}") from None
    return term(node, 0).op("string_full_match", constant(node, pattern, dt.STRING)).value


def _split(node: Node) -> tuple[OnnxValue, OnnxValue]:
    x = term(node, 0)
    how = (
        constant(node, node.string("delimiter", ""), dt.STRING),
        constant(node, node.int("maxsplit", -1), dt.I64),
    )
    counts = x.op("string_split_counts", *how)
    # With an element more there is always a greatest.
    none = constant(node, [0], dt.I64)
    width = concat([counts.reshape(product(x.shape)), none], 0).over("max", 0).control()
    shape = make.shape_const((*x.shape, width))
    operands = (x.expr, *(h.expr for h in how), shape)
    return OnnxValue(node.emit("string_split", *operands)), counts.value


def _normalize(node: Node) -> OnnxValue:
    """Leave stop words out and change the case; one empty string where nothing is left."""
    x, action = term(node, 0), node.string("case_change_action", "NONE")
    stops = node.string_list("stopwords") or ()
    if action not in ("NONE", "LOWER", "UPPER"):
        raise node.invalid(f"has the action {action!r}")
    if node.string("locale", "").lower()[:2] in ("tr", "az", "lt"):
        raise node.unsupported("has a locale with letters of its own")
    if x.rank not in (1, 2) or (x.rank == 2 and x.shape[0] != 1):
        raise node.unsupported("is given something else than a vector or one row")
    words = x.reshape(x.shape[-1])
    if stops:
        compared = words
        if not node.flag("is_case_sensitive"):
            compared, stops = words.op("string_lower"), tuple(s.lower() for s in stops)
        same = compared.reshape(x.shape[-1], 1).equals(constant(node, stops, dt.STRING))
        words = words.gather(places(~same.over("any", 1)), clamp=True)
    if action != "NONE":
        words = words.op(f"string_{action.lower()}")
    # Behind them one empty string, which stays where there is no other.
    left = words.shape[0]
    padded = concat([words, constant(node, [""], dt.STRING)], 0)
    words = padded.part(0, 0, maximum(left, 1))
    return (words if x.rank == 1 else words.reshape(1, words.shape[0])).value


# --------------------------------------------------------------------------- labels


def label_encoder(node: Node) -> OnnxValue:
    """Replace keys by values: where an element is equal to a key, gather."""
    x = term(node, 0)
    keys, values = _table(node, "keys"), _table(node, "values")
    if keys.size != values.size:
        raise node.invalid(f"has {keys.size} keys and {values.size} values")
    if keys.size and dt.from_numpy(keys.dtype) is not x.dtype:
        raise node.invalid(f"is given {x.dtype}, and its keys are {dt.from_numpy(keys.dtype)}")
    other = _default(node, dt.from_numpy(values.dtype))
    targets = Term(node, make.const(np.concatenate([values.reshape(-1), other.reshape(1)])))
    flat = x.reshape(product(x.shape), 1)
    same = flat.equals(Term(node, make.const(keys.reshape(1, -1))))
    if x.dtype.is_float and np.isnan(keys).any():
        same = same | (flat.op("is_nan") & constant(node, np.isnan(keys).reshape(1, -1), dt.BOOL))
    # The first key that is equal counts; behind all keys stands one that always is.
    always = filled(node, 1, (flat.shape[0], 1), dt.BOOL)
    found = concat([same, always], 1).cast(dt.U8).op("argmax", axis=1, keepdims=False)
    return targets.gather(found.cast(dt.I64), clamp=True).reshape(*x.shape).value


def _table(node: Node, side: str) -> np.ndarray:
    """Return the keys or the values, from whichever attribute has them."""
    tensor = node.tensor_attribute(f"{side}_tensor")
    if tensor is not None:
        return text_array(tensor) if tensor.dtype == object else tensor
    lists = (
        (node.string_list(f"{side}_strings"), dt.STRING),
        (node.int_list(f"{side}_int64s"), dt.I64),
        (node.float_list(f"{side}_floats"), dt.F32),
    )
    for items, dtype in lists:
        if items is not None:
            return np.array(items, dtype.numpy)
    raise node.invalid(f"has no {side}")


def _default(node: Node, dtype: dt.DType) -> np.ndarray:
    tensor = node.tensor_attribute("default_tensor")
    if tensor is not None:
        return tensor
    if dtype is dt.STRING:
        return np.array(node.string("default_string", "_Unused"), object)
    if dtype is dt.I64:
        return np.array(node.int("default_int64", -1), np.int64)
    if dtype.is_float:
        return np.array(node.float("default_float", -0.0), dtype.numpy)
    return np.array(-1 if dtype.is_signed else 0, dtype.numpy)


RULES: Mapping[str, Rule] = {
    "TfIdfVectorizer": _tf_idf,
    "StringConcat": _concat,
    "RegexFullMatch": _full_match,
    "StringSplit": _split,
    "StringNormalizer": _normalize,
}
