"""Elements of constants that are read all at once are what they are one by one, and so are errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.base.diagnostics import CompileError
from inlay.ir.const_parser import ConstParser
from inlay.ir.expr import Const
from inlay.ir.parser import parse_module
from inlay.ops.table import table

WORDS = [
    "0",
    "-0",
    "- 0",
    "1",
    "-1",
    "127",
    "128",
    "-128",
    "-129",
    "255",
    "256",
    "00",
    "-00",
    "0.0",
    "-0.0",
    "1.5",
    "-2.5e3",
]
WORDS += [
    "1e-45",
    "1e400",
    "-1e39",
    "65520.0",
    "0x10",
    "-0x1p3",
    "inf",
    "-inf",
    "nan",
    "true",
    "",
    "1 2",
    "--1",
    "9" * 25,
]
WORDS += ["16777217", "3.4028236e38", '"1"', "1.", "x", "1e5", "-1E+2"]
DTYPES = ["i8", "u8", "i64", "bool", "f16", "bf16", "f32", "f64", "string"]


def read(dtype: str, words: list[str], end: str) -> object:
    """Return bytes of a constant, or what is wrong with it."""
    text = f"fn main() {{ {dtype}[{len(words)}]({', '.join(words)}{end}) }}"
    try:
        body = parse_module(text, table()).functions["main"].body
    except CompileError as failure:
        return [(d.id, d.message, d.span.start, d.span.end) for d in failure.diagnostics]
    assert isinstance(body, Const)
    held = np.asarray(body.value)
    return held.tolist() if dtype == "string" else (str(held.dtype), held.tobytes())


@pytest.mark.parametrize("dtype", DTYPES)
@given(words=st.lists(st.sampled_from(WORDS), max_size=4), end=st.sampled_from(["", ",", " ,", ",,"]))
def test_all_at_once_and_one_by_one(dtype: str, words: list[str], end: str) -> None:
    at_once = read(dtype, words, end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConstParser, "_plain", lambda *_: None)
        assert at_once == read(dtype, words, end)


def test_many_elements_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ConstParser, "_element")
    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    text = ", ".join(repr(float(v)) for v in values)
    body = parse_module(f"fn main() {{ f32[1000]({text}) }}", table()).functions["main"].body
    assert isinstance(body, Const)
    np.testing.assert_array_equal(np.asarray(body.value), values)
