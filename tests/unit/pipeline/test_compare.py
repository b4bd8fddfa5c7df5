"""Kernels of devices against the host, one by one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from inlay.accelerators import vanilla
from inlay.api import compilation, load
from inlay.base.instrument import SILENT
from inlay.cli.main import main
from inlay.machine.board_file import board_text
from inlay.pipeline.compare import Compared, comparing
from inlay.pipeline.differences import difference
from inlay.pipeline.options import CompileOptions
from inlay.runtime.session import Executable, executable_of

RNG = np.random.default_rng(8)
WIDE, BACK = RNG.integers(-128, 128, (256, 128)), RNG.integers(-128, 128, (128, 256))


def listed(dtype: str, values: np.ndarray) -> str:
    return f"{dtype}[{', '.join(map(str, values.shape))}]({', '.join(map(str, values.ravel()))})"


PROGRAM = f"""
fn main<n>(x: Tensor[n, 256, i8]) {{
  let a = add(matmul_integer(x, {listed("i8", WIDE)}), {listed("i32", np.arange(128))});
  let h = requantize{{zero=3}}(a, f32(0.0005));
  add(matmul_integer(h, {listed("i8", BACK)}), {listed("i32", np.arange(256))})
}}
entry main("x") -> ("y");
"""
PROGRAM_FILE = "p.inl"
X = RNG.integers(-128, 128, (3, 256)).astype(np.int8)


@pytest.fixture
def files(tmp_path, monkeypatch) -> Path:
    """A program, and a board whose device adds one bias twice."""
    text = Path(vanilla.__file__).read_text(encoding="utf-8")
    old = "            y[n, k] = b[k]\n"
    assert text.count(old) == 1
    text = text.replace(old, "            y[n, k] = b[k] + b[k] // 128\n")
    text = text.replace('Library("inlay.accelerators._vanilla_model")', "Mock()")
    (tmp_path / "wrong.py").write_text(text.replace("Library,", "Mock,", 1), encoding="utf-8")
    board = board_text("vanilla").replace('loader = "vanilla"', 'loader = "wrong.py"')
    (tmp_path / "wrong.toml").write_text(board.replace('"vanilla"', '"wrong"'), encoding="utf-8")
    (tmp_path / "p.inl").write_text(PROGRAM, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def compared(board: str) -> tuple[Executable, list[Compared]]:
    options = CompileOptions(board=board, cache="none")
    found = compilation(load(PROGRAM_FILE), board=board, cache="none")
    return comparing(found, options, ["npu0"], SILENT, 1)


@pytest.mark.llvm
def test_a_device_that_is_right_differs_nowhere(files) -> None:
    exe, seen = compared("vanilla")
    exe.run({"x": X})
    assert [(x.device, [(d.elements, d.differing) for d in x.results]) for x in seen] == [
        ("npu0", [(3 * 128, 0)]),
        ("npu0", [(3 * 256, 0)]),
    ]
    assert seen[0].predicted_ns == pytest.approx((3 * 256 * 128 // 256 + 100) * 2)
    exe.run({"x": X[:0]})
    assert [d.elements for x in seen[2:] for d in x.results] == [0, 0]


@pytest.mark.llvm
def test_each_kernel_is_alone_and_the_program_gets_what_the_host_gives(files) -> None:
    here = compilation(load(PROGRAM_FILE), cache="none")
    exe, seen = compared("wrong.toml")
    np.testing.assert_array_equal(exe.run({"x": X})["y"], executable_of(here.program).run({"x": X})["y"])
    first, second = (x.results[0] for x in seen)
    assert first.differing == 0
    # b is beyond 127 in half of the columns, and there the device is off by one.
    assert (second.differing, second.most, second.unit, second.first) == (3 * 128, 1.0, "steps", (0, 128))
    assert second.got == second.want + 1


@pytest.mark.llvm
def test_the_command_prints_a_table_and_data(files, capsys) -> None:
    np.savez(files / "x.npz", x=X)
    words = ["run", "p.inl", "--board", "wrong.toml", "--cache", "none", "--inputs", "x.npz"]
    assert main([*words, "--compare", "cpu,npu0"]) == 0
    said = capsys.readouterr().out
    assert "384 of 768" in said
    assert "first at [0, 128]: " in said
    assert "1 kernel run of 2 differ" in said
    assert main([*words, "--compare", "cpu,npu0", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["differing"] == 1
    assert [x["results"][0]["first"] for x in record["compared"]] == [None, [0, 128]]


@pytest.mark.sample(2)
@pytest.mark.llvm
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--compare npu0", "needed cpu, which is the host, and others after it"),
        ("--compare npu0,cpu", "needed cpu, which is the host"),
        ("--compare cpu,npu0,npu0", "needed cpu, which is the host"),
        ("--compare cpu,npu1", "found no device named 'npu1'"),
        ("--compare cpu,npu0 --pin *=cpu", "found nothing to compare on 'npu0': it runs nothing"),
        ("--compare cpu,npu0 --pin *=cpu", "hint: `inlay explain --all` says of each operation why"),
        ("--compare cpu,npu0 --profile", "--profile, which does nothing beside --compare"),
    ],
)
def test_what_cannot_be_compared_is_said(files, capsys, words, said) -> None:
    assert main(["run", "p.inl", "--board", "vanilla", "--cache", "none", *words.split()]) != 0
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("want", "got", "unit", "most"),
    [
        (np.int8([1, -128]), np.int8([1, 127]), "steps", 255),
        (np.int64([-(2**63)]), np.int64([2**63 - 1]), "steps", 2.0**64),
        (np.bool_([True]), np.bool_([False]), "steps", 1),
        (np.float32([1.0]), np.nextafter(np.float32([1.0]), np.float32(2)), "ulp", 1),
        (np.float32([0.0]), np.float32([1e-45]), "ulp", 1),
        (np.float32([-1e-45]), np.float32([1e-45]), "ulp", 2),
        (np.float16([1.0]), np.float16([-1.0]), "ulp", 2 * 0x3C00),
        (np.float32([1.0]), np.float32([np.nan]), "ulp", np.inf),
    ],
)
def test_distances(want, got, unit, most) -> None:
    found = difference(want, got)
    assert (found.unit, found.most, found.differing) == (unit, most, 1)


def test_what_is_the_same_does_not_differ() -> None:
    x = np.float32([np.nan, np.inf, 0.0])
    found = difference(x, np.float32([np.nan, np.inf, -0.0]))
    assert (found.differing, found.most, found.first) == (0, 0.0, None)
