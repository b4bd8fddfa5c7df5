"""Boards: known ones load, wrong ones are refused with everything that is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from inlay.base.diagnostics import CompileError
from inlay.machine.board import Board
from inlay.machine.board_file import board_names, check_board, find_board, read_board
from inlay.machine.device import Device
from inlay.machine.memory import Pool, PoolKind


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


def test_findings_name_line_and_key():
    text = """summary = "a"
[[memory]]
name = "ram"
bytes = "12 parsecs"
[[device]]
name = "cpu"
arch = "nativ"
memories = ["ram"]
colour = "red"
[[engine]]
name = "dma"
memories = ["ram"]
[[link]]
from = "ram"
to = "spad"
engine = "dma"
"""
    with pytest.raises(CompileError) as failure:
        read_board("b", text, place="b.toml")
    found = {(d.span.line, d.span.text.split(" ")[0]): d for d in failure.value.diagnostics}
    assert set(found) == {(4, "bytes"), (7, "arch"), (9, "colour"), (15, "to")}
    assert found[7, "arch"].hint == "did you mean native?"


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ('[[memory]]\nname="m"\nkind="wax"', "one of heap"),
        ('[[memory]]\nname="m"\nowner="npu"', "'npu' is no device"),
        ('[[memory]]\nname="m"\nalignment=3', "power of two"),
        ('[[device]]\nname="d"\narch="native"', "without 'memories'"),
        ('[[engine]]\nname="e"\nmemories=["x"]', "'x' is no memory"),
        ('[[coherent]]\nmemory="ram"\nparties=["cpu", "gpu"]', "'gpu' is no device or engine"),
        ('[[queue]]\nname="q"\ndevice="gpu"', "'gpu' is no device"),
        (('[[memory]]\nname="s"\nkind="stack"\nowner="cpu"\n[[device]]\nname="d"\n'
         'arch="native"\nmemories=["s"]'), "is the stack of 'cpu'"),
        (('[[engine]]\nname="e"\nmemories=["ram"]\n[[memory]]\nname="m"\n'
         '[[link]]\nfrom="ram"\nto="m"\nengine="e"'), "'e' does not address 'm'"),
        ("[arch]\nname='a'", "needed [[arch]]"),
        ("default = 'gpu'", "'gpu' is no device"),
    ],
)  # fmt: skip
def test_each_mistake_has_its_message(part, message):
    base = '[[memory]]\nname = "ram"\n[[device]]\nname = "cpu"\narch = "native"\nmemories = ["ram"]\n'
    text = part + "\n" + base if part.startswith("default") else base + part
    with pytest.raises(CompileError) as failure:
        read_board("b", text, place="b.toml")
    assert message in str(failure.value)


def test_a_board_built_in_python_is_checked_too():
    ram = Pool("ram", PoolKind.HEAP)
    good = Board("b", "", (Device("cpu", "native", ("ram",)),), (ram,))
    assert check_board(good) is good
    with pytest.raises(CompileError, match="'rom' is no memory"):
        check_board(Board("b", "", (Device("cpu", "native", ("rom",)),), (ram,)))


def test_routes_take_the_fewest_links():
    board = find_board("soc_npus")
    hops = board.routes(["npu0.spad"], ["npu1.spad"])
    assert [(x.source, x.target) for x in hops] == [("npu0.spad", "ddr"), ("ddr", "npu1.spad")]
    assert board.routes(["cpu.stack"], ["npu0.spad"]) == ()
    assert board.shared_memories("cpu", "dsp") == ("ddr",)
    assert board.shared_memories("cpu", "npu0") == ()
    assert dict(board.hardware) == {"dsp_core": ("dsp", "dsp_mx")}


def test_the_board_of_the_reference_page_is_one():
    page = Path(__file__).parents[3] / "docs/reference/boards.md"
    text = re.search(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert text is not None
    board = read_board("page", text[1], place="boards.md")
    assert board.default_device == "npu0"
    assert board.memory("npu0.spad").bytes == 64 << 10
