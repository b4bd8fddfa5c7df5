"""Attribute records as text: every record of every sample of every operator, and refusals."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import pytest

from inlay.arith.dtype import F16, DType
from inlay.arith.expr import Int, lit
from inlay.base.diagnostics import CompileError
from inlay.base.lexer import TokenStream
from inlay.base.span import Source
from inlay.ir.attrs import attrs_text, parse_attrs
from inlay.ops.table import table


class Mode(StrEnum):
    EDGE = "edge"
    WRAP = "wrap"


@dataclass(frozen=True, slots=True)
class Inner:
    a: int = 1


@dataclass(frozen=True, slots=True)
class Record:
    axis: int
    mode: Mode = Mode.EDGE
    dtype: DType = F16
    scale: float = 1.0
    keep: bool = False
    name: str = ""
    pads: tuple[int, ...] = ()
    pair: tuple[int, float] = (0, 0.5)
    maybe: int | None = None
    either: str | tuple[str, ...] = ""
    size: Int = lit(0)
    inner: Inner = Inner()


def parse(text: str, kind: type) -> object:
    return parse_attrs(TokenStream(Source("t", text)), kind, kind.__name__)


@pytest.mark.parametrize(
    "record",
    [
        Record(3),
        Record(-1, Mode.WRAP, DType("i8", F16.kind.INT, 8), 1e-5, True, 'a "b"', (1, 2)),
        Record(0, maybe=4, pair=(3, float("inf")), either=("a", "b"), size=lit(7)),
        Record(0, either="x", inner=Inner(5)),
    ],
)
def test_records_round_trip(record):
    text = attrs_text(record) or "{}"
    assert parse(text, Record) == record


def test_defaults_are_left_out():
    assert attrs_text(Record(3)) == "{axis=3}"
    assert attrs_text(Inner()) == ""


def test_all_operators_have_text():
    for definition in table():
        for sample in definition.samples():
            text = attrs_text(sample.attrs) or "{}"
            assert parse(text, definition.op.attrs_type) == sample.attrs, definition.name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{axes=1}", "needed one of those of Record: axis"),
        ("{axis=1.5}", "needed int"),
        ("{axis=true}", "needed int"),
        ('{axis=1, mode="none"}', 'needed one of "edge", "wrap"'),
        ("{axis=1, pads=[1, 2.5]}", "needed"),
        ("{scale=2.0}", "needs values for axis"),
    ],
)
def test_wrong_values_are_refused(text, message):
    with pytest.raises(CompileError, match=message) as caught:
        parse(text, Record)
    assert caught.value.ids == ("parse.bad-attribute",)
