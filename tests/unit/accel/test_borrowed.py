"""Memories of a device that are a part of one of the board: tiles follow what is free where a kernel is called."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.accel.backend import backend_in_file
from inlay.accel.kit import Checked, checks
from inlay.accelerators import strawberry
from inlay.api import compilation
from inlay.base.diagnostics import CompileError
from inlay.ir.parser import parse_module
from inlay.machine.board_file import read_board
from inlay.ops.table import table
from inlay.runtime import streams
from inlay.runtime.session import executable_of

SOURCE = Path(strawberry.__file__).read_text(encoding="utf-8")


def listed(dtype: str, shape: tuple[int, ...], seed: int, most: int) -> str:
    values = np.random.default_rng(seed).integers(-most, most + 1, shape)
    return f"{dtype}[{', '.join(map(str, shape))}]({', '.join(map(str, values.ravel()))})"


def layer(x: str, seed: int) -> str:
    conv = f"conv_integer{{pads=[1, 1, 1, 1]}}({x}, {listed('i8', (32, 32, 3, 3), seed, 127)})"
    return f"requantize{{zero=3}}(add({conv}, {listed('i32', (32, 1, 1), seed + 1, 3000)}), f32(0.0002))"


MODEL = f"""
fn main(x: Tensor[1, 32, 24, 24, i8]) {{ let a = {layer("x", 1)}; let b = abs(a); {layer("b", 5)} }}
entry main("x") -> ("y");
"""
X = np.random.default_rng(2).integers(-128, 128, (1, 32, 24, 24)).astype(np.int8)
BOARD = """
[[memory]]
name = "ram"
bytes_per_ns = 12
{tcm}
[[device]]
name = "cpu"
arch = "native"
memories = ["ram"{names}]
[[arch]]
name = "own"
generator = "own"
loader = "{path}"
parameters = {{ clock = 1000000000000 }}
[[device]]
name = "npu0"
arch = "own"
memories = ["ram"{names}]
[[coherent]]
memory = "ram"
parties = ["cpu", "npu0"]
"""
TCM = '[[memory]]\nname = "tcm"\nbytes = {0}\n[[coherent]]\nmemory = "tcm"\nparties = ["cpu", "npu0"]'


def file_of(folder: Path, of: str, driver: str) -> Path:
    """Return a strawberry whose memory for activations is a part of one of the board."""
    text = SOURCE.replace(
        "act = Memory(act_kib * KiB, unit=block)", f"act = Memory(act_kib * KiB, unit=block, of={of})"
    )
    text = text.replace("    act = Memory", "    tcm = Shared()\n    act = Memory") if of == "tcm" else text
    if driver == "mock":
        text = text.replace('Library("inlay.accelerators._strawberry_model")', "Mock()").replace(
            "    Memory,", "    Memory,\n    Mock,", 1
        )
    path = folder / "own.py"
    path.write_text(text, encoding="utf-8")
    return path


def board_of(folder: Path, tcm: int = 0, driver: str = "mock"):
    path = file_of(folder, "tcm" if tcm else "dram", driver)
    names = ', "tcm"' if tcm else ""
    return read_board(
        "own", BOARD.format(tcm=TCM.format(tcm) if tcm else "", names=names, path=path), place="own.toml"
    )


def compiled(board, **options):
    return compilation(parse_module(MODEL, table()), board=board, cache="none", threads=1, **options)


def scratch(found) -> tuple[str, int]:
    """Return the memory and the bytes of the scratch memory of the only kernel of the device."""
    ((workspace,),) = [
        k.workspaces for k in found.module.kernels.values() if k.body.function.place.device == "npu0"
    ]
    assert workspace.bytes.value is not None
    return workspace.memory, workspace.bytes.value


@pytest.fixture(name="whole", scope="module")
def with_all_that_it_wants(tmp_path_factory) -> tuple[int, int]:
    """Return what the program takes of the memory where nothing is scarce, and what of that the device has."""
    found = compiled(board_of(tmp_path_factory.mktemp("whole")), budget=("ram=1000000",))
    assert found.report.promise is not None
    return found.report.promise.takes["ram"], scratch(found)[1]


@pytest.mark.llvm
def test_tiles_follow_the_budget_and_what_was_promised_holds(tmp_path, whole) -> None:
    """The smaller the budget, the less the stream takes; the result stays."""
    want = inlay.compile(parse_module(MODEL, table()), cache="none")(X)
    takes, seen = whole[0], [whole[1]]
    for less in (3, 6):
        budget = takes - whole[1] * less // 8
        found = compiled(board_of(tmp_path), budget=(f"ram={budget}",))
        exe = executable_of(found.program, threads=1, callbacks=found.functions)
        np.testing.assert_array_equal(exe.run({"x": X})["y"], want)
        assert found.report.promise is not None
        assert found.report.promise.takes["ram"] <= budget
        assert exe.usage().peak_bytes <= budget
        memory, size = scratch(found)
        assert memory == "ram"
        seen.append(size)
    assert seen == sorted(set(seen), reverse=True)


@pytest.mark.llvm
@pytest.mark.slow
def test_tiles_follow_the_size_of_a_memory_of_the_board(tmp_path) -> None:
    seen: list[int] = []
    for size in (1 << 14, 1 << 12):
        board = board_of(tmp_path, tcm=size)
        memory, taken = scratch(compiled(board))
        assert memory == "tcm"
        assert taken <= size
        seen.append(taken)
    assert seen == sorted(set(seen), reverse=True)


@pytest.mark.llvm
def test_without_room_it_says_what_is_free(tmp_path, whole) -> None:
    with pytest.raises(CompileError) as refused:
        compiled(board_of(tmp_path), budget=(f"ram={whole[0] - whole[1] + 8}",))
    assert refused.value.ids == ("accel.no-room",), str(refused.value)
    assert re.search(
        r"\d+ bytes of 'ram' are free there: act has \d+ units, and the smallest tiles take",
        str(refused.value),
    )


@pytest.mark.llvm
def test_a_saved_program_gives_a_driver_its_place(tmp_path, monkeypatch) -> None:
    """The stream of an executable says where in the scratch memory of its kernel the memory of the device is."""
    given: list[list[int]] = []
    run_words = streams.run_words

    def watched(*args, **others):
        given.append([room.size for room in args[6]])
        return run_words(*args, **others)

    monkeypatch.setattr(streams, "run_words", watched)
    found = compiled(board_of(tmp_path, tcm=1 << 14, driver="model"))
    want = inlay.compile(parse_module(MODEL, table()), cache="none")(X)
    exe = executable_of(found.program, threads=1)
    np.testing.assert_array_equal(exe.run({"x": X})["y"], want)
    assert given
    assert all(0 < size <= scratch(found)[1] for (size,) in given)


@pytest.mark.llvm
def test_a_board_that_does_not_share_the_memory_is_refused_with_the_reason(tmp_path) -> None:
    text = SOURCE.replace(
        "act = Memory(act_kib * KiB, unit=block)",
        "tcm = Shared()\n    act = Memory(64 * KiB, unit=block, of=tcm)",
    )
    path = tmp_path / "own.py"
    path.write_text(text, encoding="utf-8")
    board = read_board("own", BOARD.format(tcm="", names="", path=path), place="own.toml")
    said = backend_in_file(str(path)).unavailable(board, "npu0")
    assert "which it does not share with the host" in said


@pytest.mark.llvm
@pytest.mark.slow
def test_the_kit_gives_the_memory_and_finds_nothing_wrong(tmp_path) -> None:
    found = checks(backend_in_file(str(file_of(tmp_path, "dram", "mock"))), 1, 0)
    assert [c for c in found if isinstance(c, Checked) and c.failure] == []


@pytest.mark.parametrize(
    ("of", "message"),
    [
        ("Shared()", "'act' to be a part of a memory that is no attribute of this class"),
        ("act0", "no Shared"),
    ],
)
def test_declarations_that_cannot_be_are_refused(tmp_path, of: str, message: str) -> None:
    text = SOURCE.replace(
        "act = Memory(act_kib * KiB, unit=block)",
        f"act0 = Memory(KiB, unit=16)\n    act = Memory(act_kib * KiB, unit=block, of={of})",
    )
    path = tmp_path / "own.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CompileError) as refused:
        backend_in_file(str(path)).description
    assert message in str(refused.value)


@pytest.mark.llvm
@pytest.mark.slow
def test_explanations_say_the_tiles_and_the_room_that_a_compilation_gives(tmp_path, whole) -> None:
    takes, most = whole
    notes: set[str] = set()
    for budget in (takes, takes - most // 2):
        board, options = board_of(tmp_path), {"budget": (f"ram={budget}",)}
        told = inlay.explain(parse_module(MODEL, table()), board, at="conv_integer", threads=1, **options)
        parts = [p for t in told.told for p in t.parts]
        found = compiled(board, **options)
        assert {p.schedule.why_none.partition(": ")[2] for p in parts} == {
            k.note for k in found.module.kernels.values() if k.workspaces
        }
        assert scratch(found)[1] in {r.stored.bytes.value for p in parts for r in p.results if r.stored}
        notes |= {p.schedule.why_none for p in parts}
    assert len(notes) == 2
    assert all("a stream of" in note for note in notes)
