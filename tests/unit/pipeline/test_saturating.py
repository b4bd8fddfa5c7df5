"""Sums of pairs of products that may saturate (`--numerics saturating`), where that is faster."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import inlay
from inlay.codegen.backends import native
from inlay.ir.parser import parse_module
from inlay.machine.target import Target, baseline, host
from inlay.ops.table import table

ROWS, TERMS, COLUMNS = 3, 24, 16
W = np.random.default_rng(3).integers(-128, 128, (TERMS, COLUMNS)).astype(np.int8)
X = np.random.default_rng(4).integers(0, 256, (ROWS, TERMS)).astype(np.uint8)


def product() -> inlay.Module:
    w = f"i8[{TERMS}, {COLUMNS}]({', '.join(map(str, W.ravel().tolist()))})"
    text = f"fn main(x: Tensor[{ROWS}, {TERMS}, u8]) {{ matmul_integer(x, {w}) }} entry main;"
    return parse_module(text, table())


def saturated() -> np.ndarray:
    products = X.astype(np.int64)[:, :, None] * W.astype(np.int64)
    pairs = products.reshape(ROWS, TERMS // 2, 2, COLUMNS).sum(2)
    return np.clip(pairs, -(2**15), 2**15 - 1).sum(1).astype(np.int32)


@pytest.fixture
def without_exact_bytes(monkeypatch: pytest.MonkeyPatch) -> Target:
    """This processor as if it had AVX2 and no instruction that multiplies bytes exactly."""
    plain = baseline("x86_64", "v3")
    if not set(plain.features) <= set(host().features):
        pytest.skip("needs a processor with AVX2")
    monkeypatch.setattr(native, "host", lambda: plain)
    return plain


@pytest.mark.llvm
def test_only_who_asks_gets_sums_that_saturate(without_exact_bytes: Target) -> None:
    exact = X.astype(np.int32) @ W.astype(np.int32)
    assert not np.array_equal(saturated(), exact)
    np.testing.assert_array_equal(inlay.compile(product(), cache="none")(X), exact)
    fast = inlay.compile(product(), cache="none", numerics="saturating")
    np.testing.assert_array_equal(fast(X), saturated())


def test_the_explanation_says_where(without_exact_bytes: Target) -> None:
    assert inlay.explain(product(), view="numerics").saturating is None
    assert inlay.explain(product(), view="numerics", numerics="saturating").saturating == ("cpu",)


def test_exact_instructions_are_taken_where_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    arm = replace(baseline("aarch64"), features=("dotprod", "neon"))
    monkeypatch.setattr(native, "host", lambda: arm)
    assert inlay.explain(product(), view="numerics", numerics="saturating").saturating == ()


def test_other_words_are_refused() -> None:
    with pytest.raises(inlay.CompileError, match="numerics"):
        inlay.compile(product(), numerics="fast")
