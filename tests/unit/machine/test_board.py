"""Boards: known ones load, wrong ones are refused with everything that is wrong."""

from __future__ import annotations

import pytest

from inlay.base.diagnostics import CompileError
from inlay.machine.board import board_names, find_board, read_board


def test_known_boards_load():
    assert "host" in board_names()
    for name in board_names():
        board = find_board(name)
        assert board.name == name
        assert board.summary
        assert board.host.memories[0] == board.memories[0].name


def test_an_unknown_board_has_near_names():
    with pytest.raises(CompileError, match="did you mean host") as failure:
        find_board("hots")
    assert failure.value.ids == ("name.unknown",)


def test_everything_wrong_is_reported():
    text = """
    [[memory]]
    name = "ram"
    alignment = 48
    [[memory]]
    name = "ram"
    [[device]]
    name = "cpu"
    arch = "native"
    memories = ["rom"]
    """
    with pytest.raises(CompileError) as failure:
        read_board("b", text, place="b.toml")
    assert failure.value.ids == ("board.invalid",) * 3
    assert "power of two" in str(failure.value)
    assert "'rom'" in str(failure.value)
    assert "two parts named 'ram'" in str(failure.value)


def test_a_syntax_error_names_the_file():
    with pytest.raises(CompileError, match=r"b\.toml"):
        read_board("b", "[[", place="b.toml")
