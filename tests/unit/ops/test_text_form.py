"""Calls of every operator, with the attributes of every sample, print and parse back."""

from __future__ import annotations

import pytest

from inlay.ir.equal import modules_equal
from inlay.ir.parser import parse_module
from inlay.ir.printer import print_module
from inlay.ops._define import OpDef
from inlay.ops.table import table
from tests.differential.executors import prepare, program


@pytest.mark.sample(50)
@pytest.mark.parametrize(
    "d", [d for d in table() if d.compute or d.loops or d.decompose], ids=lambda d: d.name
)
def test_calls_print_and_parse(d: OpDef) -> None:
    seen: set[object] = set()
    for s in d.samples():
        if s.attrs in seen:
            continue
        seen.add(s.attrs)
        module, _ = program(prepare(d, s, symbolic=bool(s.symbolic)))
        text = print_module(module)
        again = parse_module(text, table())
        assert modules_equal(module, again), text
        assert print_module(again) == text
