"""Boards: known ones load, wrong ones are refused with everything that is wrong."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from inlay.base.diagnostics import CompileError
from inlay.machine.board import Board
from inlay.machine.board_check import Use
from inlay.machine.board_file import board_names, check_board, find_board, read_board
from inlay.machine.device import Arch, Device, Speed
from inlay.machine.memory import Pool, PoolKind
from inlay.machine.target import Target
from inlay.pipeline.detect import find_usable


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
        (
            (
                '[[memory]]\nname="s"\nkind="stack"\nowner="cpu"\n[[device]]\nname="d"\n'
                'arch="native"\nmemories=["s"]'
            ),
            "is the stack of 'cpu'",
        ),
        (
            (
                '[[engine]]\nname="e"\nmemories=["ram"]\n[[memory]]\nname="m"\n'
                '[[link]]\nfrom="ram"\nto="m"\nengine="e"'
            ),
            "'e' does not address 'm'",
        ),
        ("[arch]\nname='a'", "needed [[arch]]"),
        ("default = 'gpu'", "'gpu' is no device"),
    ],
)
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


BASE = """summary = "a processor and an accelerator"
[[arch]]
name = "npu"
operators = ["matmul"]
dtypes = ["f32"]
[[memory]]
name = "ram"
[[memory]]
name = "spad"
kind = "static"
bytes = "64KiB"
owner = "npu0"
[[device]]
name = "cpu"
arch = "native"
memories = ["ram"]
[[device]]
name = "npu0"
arch = "npu"
memories = ["spad"]
[[engine]]
name = "dma"
memories = ["ram", "spad"]
[[link]]
from = "ram"
to = "spad"
engine = "dma"
latency_ns = 8
[[link]]
from = "spad"
to = "ram"
engine = "dma"
"""
OPERATORS = ("matmul", "mul", "add")
WRONG_VALUES = [
    *(
        ("latency_ns = 8", f"{key} = {value}", 28, key)
        for key, values in {
            "bytes_per_ns": ("nan", "inf", "0", "-1", "1" + "0" * 400, "true", '"8GB/s"', "[8]"),
            "latency_ns": ("nan", "-1", "inf", "1" + "0" * 400),
            "colour": ("1",),
        }.items()
        for value in values
    ),
    *(
        ('kind = "static"', f"{key} = {value}", 10, key)
        for key, values in {
            "kind": ('["static"]', "{ a = 1 }", "3", '"wax"'),
            "alignment": ("true", "48", "0", '"64"', "1099511627776"),
            "banks": ("0", "2.0"),
            "keeps": ('"ever"',),
            '"kind of"': ('"static"',),
        }.items()
        for value in values
    ),
    *(
        ('bytes = "64KiB"', f"bytes = {value}", 11, "bytes")
        for value in ("0", "-5", '"64kb"', '"1.5XiB"', '"9999999999999GiB"', "65536.0", "nan", "true")
    ),
    *(
        ('name = "npu0"', f"name = {value}", 18, "name")
        for value in ("3", '""', '"npu 0"', '"npu\\n0"', "1979-05-27")
    ),
    *(
        ('memories = ["spad"]', f"memories = {value}", 20, "memories")
        for value in ('"spad"', "[]", "[1]", '["spad", "spad"]', '["sped"]')
    ),
    ('arch = "npu"', 'arch = "npuu"', 19, "arch"),
    ('owner = "npu0"', 'owner = "cpu"', 12, "owner"),
    ('dtypes = ["f32"]', 'dtypes = ["fp32"]', 5, "dtypes"),
    ('operators = ["matmul"]', 'operators = ["matmull"]', 4, "operators"),
    ('operators = ["matmul"]', "parameters = { a = { b = 1 } }", 4, "parameters"),
    ('operators = ["matmul"]', 'parameters = { a = "b c" }', 4, "parameters"),
    ("latency_ns = 8", "latency_ns = = 8", 28, "latency_ns"),
    ('arch = "npu"', 'name = "npu1"', 19, "name"),
    ("latency_ns = 8", "latency_ns = 1" + "0" * 5000, 28, "1"),
]


@pytest.mark.parametrize(("old", "new", "line", "key"), WRONG_VALUES, ids=lambda x: str(x)[:40])
def test_a_wrong_value_is_named_by_line_and_key(old, new, line, key):
    assert old in BASE
    with pytest.raises(CompileError) as failure:
        read_board("b", BASE.replace(old, new, 1), place="b.toml", use=Use(OPERATORS))
    assert set(failure.value.ids) == {"board.invalid"}
    first = failure.value.diagnostics[0]
    assert first.span.line == line
    assert key in first.span.source.line(line)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('[[link]]\nfrom = "ram"\nto = "ram"\nengine = "dma"', "to itself"),
        ('[[link]]\nfrom = "ram"\nto = "spad"\nengine = "dma"', "a second link ram -> spad"),
        ('[[coherent]]\nmemory = "ram"\nparties = ["cpu", "npu0"]', "'npu0' does not address 'ram'"),
        ('[[memory]]\nname = "lost"', "no device and no engine addresses 'lost'"),
        ('[[arch]]\nname = "npu"', "two architectures named 'npu'"),
        ('[[queue]]\nname = "q"\ndevice = "npu0"\n' * 2, "two queues named 'q'"),
        ('[[dma]]\nname = "x"', "the key 'dma', which means nothing"),
    ],
)
def test_what_does_not_fit_together_is_named(more, message):
    with pytest.raises(CompileError) as failure:
        read_board("b", BASE + more, place="b.toml", use=Use(OPERATORS))
    (only,) = failure.value.diagnostics
    assert message in only.message
    assert only.span.line > 32


def test_a_part_that_is_left_out_does_not_make_others_wrong():
    """Findings behind it have their own lines, and who refers to it is right."""
    text = BASE.replace('memories = ["spad"]', 'memories = "spad"', 1)
    text += '[[device]]\nname = "late"\narch = "nativ"\nmemories = ["ram"]\n'
    with pytest.raises(CompileError) as failure:
        read_board("b", text, place="b.toml")
    assert [d.span.line for d in failure.value.diagnostics] == [20, 35]


def test_links_that_lead_one_way_leave_a_device_without_work():
    for kept, way in ((0, "back to 'cpu'"), (1, "'cpu' to 'npu0'")):
        head, *links = BASE.split("[[link]]")
        text = f"{head}[[link]]{links[kept]}"
        board = read_board("b", text, place="b.toml")  # what runs elsewhere needs no such link
        assert len(board.links) == 1
        with pytest.raises(CompileError, match=way):
            read_board("b", text, place="b.toml", use=Use(OPERATORS))


def test_figures_of_the_processor_may_be_said():
    board = read_board("b", BASE + '[[arch]]\nname = "native"\nmacs_per_ns = 7\n', place="b.toml")
    assert board.arch_of("cpu") == Arch("native", "", "llvm", "native", speed=Speed(macs_per_ns=7.0))


def test_what_code_is_made_for_may_be_said():
    said = 'vector_bytes = 16\nl2_bytes = 0\nstack_bytes = "2KiB"\ndot = ["i8"]\nfma = false\n'
    board = read_board("b", BASE + f'[[arch]]\nname = "native"\n{said}', place="b.toml")
    facts = {"vector_bytes": 16, "l2_bytes": 0, "stack_bytes": 2048, "dot": ("i8",), "fma": False}
    assert dict(board.arch_of("cpu").facts) == facts
    assert check_board(board) is board
    target = Target(stack_bytes=7, index_bits=32).with_facts(board.arch_of("cpu").facts)
    assert (target.index_bits, target.stack_bytes, target.has_fma) == (32, 2048, False)


@pytest.mark.parametrize(
    ("line", "needed"),
    [
        ("vector_bytes = 24", "a power of two up to 256"),
        ("vector_bytes = true", "a power of two up to 256"),
        ("vector_registers = 0", "a positive integer"),
        ("l1_bytes = -1", "bytes, as a positive number"),
        ("stack_bytes = false", "bytes, as a positive number"),
        ("index_bits = 16", "32 or 64"),
        ('dot = ["i4"]', "a list of u8i8, i8, u8, u8i8_pairs, i16, bf16"),
        ('fma = "yes"', "true or false"),
    ],
)
def test_what_code_cannot_be_made_for(line, needed):
    text = BASE + f'[[arch]]\nname = "native"\n{line}\n'
    with pytest.raises(CompileError, match=needed) as failure:
        read_board("b", text, place="b.toml")
    assert failure.value.ids == ("board.invalid",)
    key = line.partition(" ")[0]
    wrong = Board(
        "b",
        "",
        (Device("cpu", "native", ("ram",)),),
        (Pool("ram", PoolKind.HEAP),),
        (Arch("native", facts=((key, ("i4",)),)),),
    )
    with pytest.raises(CompileError, match=needed):
        check_board(wrong)
    wrong = dataclasses.replace(wrong, archs=(Arch("native", facts=(("vector_byte", 16),)),))
    with pytest.raises(CompileError, match="found facts = 'vector_byte', needed one of vector_bytes, "):
        check_board(wrong)


@pytest.mark.parametrize(
    ("content", "id", "message"),
    [
        (BASE.encode("utf-16"), "load.not-text", "no UTF-8"),
        (b"", "board.invalid", "without a memory"),
        (b"x = " + b"[" * 5000 + b"]" * 5000, "board.invalid", "nested too deep"),
        (None, "load.missing", "found a folder"),
    ],
)
def test_a_file_that_is_no_board(tmp_path, content, id, message):
    file = tmp_path / "b.toml"
    file.mkdir() if content is None else file.write_bytes(content)
    with pytest.raises(CompileError, match=message) as failure:
        find_board(str(file))
    assert failure.value.ids == (id,)


def test_a_byte_order_mark_and_another_suffix(tmp_path):
    (tmp_path / "b.toml").write_bytes(b"\xef\xbb\xbf" + BASE.encode())
    assert find_board(str(tmp_path / "b.toml")).device("npu0")
    (tmp_path / "board.txt").write_text(BASE)
    with pytest.raises(CompileError, match=r"ends in \.toml"):
        find_board(str(tmp_path / "board.txt"))


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        (Pool("ram", PoolKind.HEAP, alignment=3), "ram, alignment"),
        (Pool("ram", PoolKind.HEAP, bytes=-1), "found bytes = -1"),
        (Pool("ram", PoolKind.HEAP, bytes_per_ns=float("nan")), "positive number"),
        (Pool("r m", PoolKind.HEAP), "a name of letters"),
        (Pool("ram", PoolKind.ROM), "needed|heap or static|is rom"),
    ],
)
def test_values_of_a_board_built_in_python_are_checked(pool, message):
    with pytest.raises(CompileError, match=message):
        check_board(Board("b", "", (Device("cpu", "native", (pool.name,)),), (pool,)))


@pytest.mark.parametrize("name", board_names())
def test_known_boards_have_nothing_that_nobody_means(name):
    find_usable(name)


def test_what_no_plan_reads_is_named():
    assert find_board("host").unread == ()
    found = find_board("soc_npus").unread
    assert "dims of npu.dma" in found
    assert "queue load of npu0" in found
    assert "order load -> compute of npu0" in found
