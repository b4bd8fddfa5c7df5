"""The page of the language: its grammar is complete, its examples are programs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from inlay.analysis.infer_types import infer_types
from inlay.ir.equal import modules_equal
from inlay.ir.parser import parse_module
from inlay.ir.printer import KEYWORDS, print_module
from inlay.ir.verify import verify
from inlay.ops.table import table

PAGE = (Path(__file__).parents[3] / "docs" / "language" / "tensor_ir.md").read_text()
GRAMMAR = re.findall(r"```grammar\n(.*?)```", PAGE, re.S)[0]
TERMINALS = {"NAME", "STRING", "INTEGER", "NUMBER", "DTYPE"}


@pytest.mark.parametrize("text", re.findall(r"```inl\n(.*?)```", PAGE, re.S))
def test_examples_are_programs(text):
    m = parse_module(text, table())
    assert verify(m) == ()
    assert modules_equal(m, parse_module(print_module(m), table()))


@pytest.mark.parametrize("text", re.findall(r"```bare\n(.*?)```", PAGE, re.S))
def test_examples_of_inference_are_programs(text):
    m = infer_types(parse_module(text, table()))
    assert verify(m) == ()
    for name, params, result in re.findall(r"`(\w+)` becomes `fn<[^>]*>\((.*?)\) -> (.*?)`", PAGE):
        shown = " ".join(print_module(m).split())
        assert f"{result} {{" in shown, name
        assert all(p in shown for p in re.findall(r"\w+: \w+\[[^]]*\]", params)), name


def test_the_grammar_defines_what_it_uses():
    defined = set(re.findall(r"^(\w+) +=", GRAMMAR, re.M))
    bare = re.sub(r'"[^"]*"', " ", GRAMMAR)
    used = set(re.findall(r"\w+", re.sub(r"^\w+ +=", "", bare, flags=re.M)))
    assert used - defined - TERMINALS == set()
    assert defined - used == {"module"}


def test_the_grammar_has_the_words_of_the_language():
    quoted = set(re.findall(r'"([A-Za-z]\w*)"', GRAMMAR))
    assert quoted - KEYWORDS <= {"min", "max", "ceildiv", "state", "first", "grows", "updates"}
    assert KEYWORDS - quoted <= {"inf", "nan"}


def test_every_rule_reads_as_ebnf():
    """Brackets of each rule are balanced once the quoted ones are gone."""
    for rule in re.split(r"\n(?=\w+ +=)", GRAMMAR):
        bare = re.sub(r'"[^"]*"', "", rule)
        for opening, closing in ("{}", "[]", "()"):
            assert bare.count(opening) == bare.count(closing), rule
