"""Which device is the host does not depend on the order of a board's file, and who asks gets one answer."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import inlay
from inlay.base.diagnostics import CompileError
from inlay.cli.main import main
from inlay.codegen.backend_table import target_of
from inlay.machine.board import Board
from inlay.machine.board_file import read_board
from inlay.pipeline.detect import find_usable

ACCELERATOR = """
[[device]]
name = "npu0"
arch = "vanilla"
memories = ["ram"]
"""
PROCESSOR = """
[[device]]
name = "cpu"
arch = "native"
memories = ["ram"]
"""
HEAD = """
summary = "a processor and an accelerator in one memory"
[[arch]]
name = "vanilla"
generator = "vanilla"
loader = "vanilla"
[[memory]]
name = "ram"
"""
SHARED = """
[[coherent]]
memory = "ram"
parties = ["cpu", "npu0"]
"""
PROGRAM = """
fn main(x: Tensor[8, 64, i8], w: Tensor[64, 32, i8]) -> Tensor[8, 32, i32] { matmul_integer(x, w, i8(0), i8(0)) }
entry main("x", "w") -> ("y");
"""
ALONE = HEAD + ACCELERATOR


def board(text: str) -> Board:
    return find_usable(read_board("drawn", text, place="drawn.toml"))


@pytest.mark.parametrize("devices", [PROCESSOR + ACCELERATOR, ACCELERATOR + PROCESSOR])
def test_the_processor_is_the_host_wherever_it_stands(devices: str) -> None:
    machine = board(HEAD + devices + SHARED)
    assert machine.host.name == "cpu"
    assert [d.name for d in machine.others] == ["npu0"]
    found = inlay.explain(io.StringIO(PROGRAM), machine, threads=1)
    assert found.operations[0].device == "cpu"
    inlay.compile(io.StringIO(PROGRAM), board=machine, threads=1, cache="none")


def test_a_device_behind_a_link_is_no_host_because_it_stands_first() -> None:
    far = '[[device]]\nname = "far"\narch = "native"\nmemories = ["far.mem"]\n'
    text = HEAD + '[[memory]]\nname = "far.mem"\nowner = "far"\n' + far + PROCESSOR
    text += '[[engine]]\nname = "dma"\nmemories = ["ram", "far.mem"]\n'
    for source, target in (("ram", "far.mem"), ("far.mem", "ram")):
        text += f'[[link]]\nfrom = "{source}"\nto = "{target}"\nengine = "dma"\n'
    assert board(text).host.name == "cpu"


def test_a_board_without_a_host_is_refused_in_the_same_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever asks: the accelerator runs no program, so there is no plan to show."""
    file, program = tmp_path / "alone.toml", tmp_path / "p.inl"
    file.write_text(ALONE)
    program.write_text(PROGRAM)
    said: set[str] = set()
    for words in (
        ("explain", str(program), "--board", str(file)),
        ("run", str(program), "--board", str(file)),
        ("compile", str(program), "-o", str(tmp_path / "p.inlay"), "--board", str(file)),
        ("targets", "check", str(file)),
    ):
        assert main(list(words)) == 1
        said.add(capsys.readouterr().err)
    (only,) = said
    assert "'npu0' is the host, being the first that addresses 'ram'" in only


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("detect = true", "found detect, which does nothing here: devices of 'native' are not asked"),
        ("parameters = { threads = 3 }", "found parameters, which does nothing here: 'cpu' is the host"),
    ],
)
def test_what_a_board_says_of_its_host_for_nothing_is_refused(key: str, why: str) -> None:
    with pytest.raises(CompileError) as caught:
        board(HEAD + PROCESSOR + ACCELERATOR + SHARED + f'[[arch]]\nname = "native"\n{key}\n')
    (found,) = caught.value.diagnostics
    assert why in found.message
    assert key.partition(" ")[0] in str(found.span)


def test_only_a_host_gives_threads_parts_of_a_kernel() -> None:
    of_accelerator = HEAD.replace('loader = "vanilla"', 'loader = "vanilla"\nhand_off_ns = 5000')
    with pytest.raises(
        CompileError, match="found hand_off_ns, which does nothing here: only the host"
    ) as caught:
        board(of_accelerator + PROCESSOR + ACCELERATOR + SHARED)
    assert caught.value.ids == ("board.invalid",)
    of_host = HEAD + PROCESSOR + ACCELERATOR + SHARED + '[[arch]]\nname = "native"\nhand_off_ns = 5000\n'
    machine = board(of_host)
    assert machine.arch_of("cpu").hand_off_ns == target_of(machine, "cpu").hand_off_ns == 5000


def test_nobody_addresses_the_first_memory() -> None:
    head = HEAD.replace("[[memory]]", '[[memory]]\nname = "lost"\n[[memory]]')
    with pytest.raises(CompileError, match="no device that addresses the first memory, 'lost'") as caught:
        read_board("b", head + PROCESSOR, place="b.toml")
    assert caught.value.ids == ("board.invalid",)


def test_whether_values_fit_one_device_is_for_the_plan_of_memory_to_say() -> None:
    """Explaining once refused by a count that is no plan what compiling ran."""
    text = 'summary = "one"\n[[memory]]\nname = "ram"\nkind = "static"\nbytes = "SIZE"\n' + PROCESSOR
    source = """
    fn main(x: Tensor[8, 16, f32], w: Tensor[16, 32, f32]) -> Tensor[8, 32, f32] {
      let a = matmul(x, w);
      softmax{axis=1}(add(tanh(a), relu(a)))
    }
    entry main("x", "w") -> ("y");
    """
    tight = board(text.replace("SIZE", "3KiB"))
    for view in ("placement", "memory"):
        inlay.explain(io.StringIO(source), tight, view=view, threads=1)
    inlay.compile(io.StringIO(source), board=tight, threads=1, cache="none")
    small = board(text.replace("SIZE", "256B"))
    refusals: set[str] = set()
    with pytest.raises(CompileError) as caught:
        inlay.explain(io.StringIO(source), small, view="memory", threads=1)
    refusals.add(str(caught.value))
    with pytest.raises(CompileError) as caught:
        inlay.compile(io.StringIO(source), board=small, threads=1, cache="none")
    refusals.add(str(caught.value))
    assert len(refusals) == 1
    assert "memory.no-room" in refusals.pop()


def test_a_batch_that_nobody_gives_a_size_is_one_item_for_who_explains_too() -> None:
    source = "fn main<batch, n>(x: Tensor[batch, n, f32]) -> Tensor[batch, n, f32] { relu(x) }"
    source += '\nentry main("x") -> ("y");'
    found = inlay.explain(io.StringIO(source), threads=1)
    assert dict(found.sizes) == {"batch": (1, "a guess"), "n": (64, "a guess")}
