"""Listings: the text of a program parses back."""

from __future__ import annotations

import pytest

from inlay.base.diagnostics import CompileError
from inlay.bytecode import writer
from tests.unit.bytecode.assembler import parse
from tests.unit.bytecode.disasm import listing, resources
from tests.unit.bytecode.test_container import plain, sample
from tests.unit.runtime.generate import Generator


def test_every_table_comes_back():
    program = sample()
    text = listing(program)
    again = parse(text, resources(program))
    assert listing(again) == text
    assert plain(again) == plain(program)


@pytest.mark.parametrize("seed", range(25))
def test_generated_programs_come_back(seed):
    program = Generator(seed).program_of()
    text = listing(program)
    again = parse(text, resources(program))
    assert listing(again) == text
    # Strings and integers are numbered by first use in the text: a second round changes nothing.
    third = parse(listing(again), resources(again))
    assert writer.to_bytes(third) == writer.to_bytes(again)


def test_the_text_reads_well():
    lines = listing(sample()).splitlines()
    begin = lines.index('.function "main" (tensor) -> (tensor) frame 8')
    assert lines[begin : begin + 13] == [
        '.function "main" (tensor) -> (tensor) frame 8',
        "  .at \"node 'x'\"",
        "  COPY 0",
        "  CONST c0",
        "  INT 2",
        "  INT 2",
        '  ALLOCATE "sram" f32 2',
        "  COPY 1",
        "  COPY 2",
        "  COPY 3",
        "  INT_WIDE 1099511627776",
        "  INVOKE k0",
        "  RETURN",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("COPY 0", "belongs in a function"),
        (".function 3", "a string is needed"),
        ('.function "f" (tensor) -> () frame 1\n  WARP 1', "no instruction WARP"),
        ('.function "f" () -> () frame 1\n  INT', "more is needed"),
        ('.function "f" () -> () frame 1\n  INT 1 2', "nothing more"),
        ('.function "f" () -> () frame 1\n  JUMP 3', "a label"),
        (".constant f99 [] sha256:0", "no dtype f99"),
        ('.kernel "k" ports q', "ints is needed"),
        ('.input "x" f32 []', "after .entry"),
        ("{", "no token"),
    ],
)
def test_errors_name_the_line(text, message):
    with pytest.raises(CompileError, match=message) as caught:
        parse(text, {})
    assert caught.value.ids == ("parse.expected",)


@pytest.mark.parametrize(
    ("body", "id"),
    [
        ("CONST c0\n  RETURN", "container.bytecode"),
        ("INT 1\n  CONST c0\n  ADD\n  RETURN", "container.bytecode"),
        ("INT 1", "parse.expected"),
        ("ADD\n  RETURN", "parse.expected"),
        ("INT 1\n  JUMP_IF_FALSE L5\n  INT 1\n  RETURN", "parse.expected"),
    ],
)
def test_wrong_programs_are_refused(body, id):
    with pytest.raises(CompileError) as caught:
        parse(f'.function "f" () -> (int) frame 1\n  {body}', {})
    assert caught.value.ids == (id,)


def test_structure_reads_well():
    (line,) = (line for line in listing(sample()).splitlines() if '"xs"' in line)
    assert line == (
        '.input "xs" list ("k" input 0 axis 0 {d}) "" tuple (".0" f32 ["k" {s1}], '
        '".1" option () "" i64 ["n+k" {s0 + s1}])'
    )
