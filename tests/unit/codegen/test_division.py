"""Quotients and remainders of vectors: of integers by floats, of floats by one multiply-add."""

from __future__ import annotations

import numpy as np
import pytest

import inlay
from inlay.ir.parser import parse_module
from inlay.ops.table import table

pytestmark = pytest.mark.llvm
INTEGERS = ("i8", "u8", "i16", "u16", "i32", "u32", "i64")


def compiled(op: str, dtype: str, count: int) -> inlay.Executable:
    kind = f"Tensor[{count}, {dtype}]"
    text = f"fn main(a: {kind}, b: {kind}) -> {kind} {{ {op}(a, b) }}"
    return inlay.compile(parse_module(text, table()), cache="none", threads=1)


def pairs(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(numbers, len(numbers)), np.tile(numbers, len(numbers))


def integers(dtype: str) -> np.ndarray:
    """All numbers of 8 bits; of others those at the ends, near powers of two, and some in between."""
    numpy = np.dtype(dtype.replace("u", "uint").replace("i", "int").replace("uintnt", "uint"))
    ends = np.iinfo(numpy)
    if ends.bits == 8:
        return np.arange(ends.min, ends.max + 1).astype(numpy)
    powers = [s * 2**k + d for k in range(ends.bits) for s in (1, -1) for d in (-1, 0, 1)]
    drawn = np.random.default_rng(0).integers(ends.min, ends.max, 100, dtype=numpy, endpoint=True)
    known = [p for p in powers if ends.min <= p <= ends.max]
    return np.concatenate([np.array(known, numpy), drawn])


@pytest.mark.sample(14)
@pytest.mark.parametrize("op", ["div", "rem", "floor_div", "mod"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(op: str, dtype: str) -> None:
    a, b = pairs(integers(dtype))
    expected = table().definition(op).evaluate(None, a, b)
    np.testing.assert_array_equal(compiled(op, dtype, len(a))(a, b), expected)


@pytest.mark.parametrize("op", ["rem", "mod", "floor_div"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16"])
def test_floats(op: str, dtype: str) -> None:
    """Ends of the format too: quotients that no float has as a whole number go another way."""
    numpy = np.dtype(dtype.replace("f", "float"))
    ends, rng = np.finfo(numpy), np.random.default_rng(1)
    special = [0.0, np.inf, np.nan, ends.max, ends.tiny, ends.smallest_subnormal, 1.0, 3.0, 0.1, 7.5, 1e4]
    drawn = np.concatenate([rng.standard_normal(90), np.exp(rng.uniform(-9, 9, 60))])
    numbers = np.array([*special, *drawn], np.float64).astype(numpy)
    a, b = pairs(np.concatenate([numbers, -numbers]))
    with np.errstate(all="ignore"):
        expected = table().definition(op).evaluate(None, a, b)
    found = compiled(op, dtype, len(a))(a, b)
    np.testing.assert_array_equal(found, expected)
    zeros = expected == 0
    np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(expected[zeros]))


def test_whole_numbers_are_not_rounded_up() -> None:
    """Quotients just below a whole number: the remainder is nearly the divisor, not zero or less."""
    rng = np.random.default_rng(2)
    b = rng.uniform(1e-3, 1e3, 4096).astype(np.float32)
    n = rng.integers(1, 1 << 20, 4096)
    a = np.nextafter((b * n).astype(np.float32), np.float32(0))
    np.testing.assert_array_equal(compiled("rem", "f32", 4096)(a, b), np.fmod(a, b))
