"""A kernel that the runtime would not give to several threads has no parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.bytecode.container import read
from inlay.bytecode.program import ImageBody
from inlay.cli.main import main
from inlay.ir.parser import parse_module
from inlay.machine.board import Board
from inlay.ops.table import table
from inlay.runtime.native import Settings
from tests.boards import PARTED

ROW = "fn main(x: Tensor[1, {n}, f32], w: Tensor[{n}, {m}, f32]) {{ matmul(x, w) }}"
SOFTMAX = "fn main(x: Tensor[{n}, {m}, f32]) {{ softmax(x) }}"


def parts(text: str, path: Path, board: Board | str = "host") -> list[bool]:
    """Return which phases of the only kernel have parts."""
    inlay.compile(parse_module(text, table()), board=board, threads=2, cache="none").save(path)
    (kernel,) = read(memoryview(path.read_bytes())).kernels
    assert isinstance(kernel.body, ImageBody)
    return [phase.parallel for phase in kernel.body.phases]


@pytest.mark.parametrize(
    ("text", "n", "m", "expected"),
    [
        (ROW, 64, 160, False),
        (ROW, 256, 256, True),  # short, and goes over its weights piece by piece
        (SOFTMAX, 8, 64, False),
        (SOFTMAX, 512, 512, True),
    ],
    ids=["a row", "many weights", "a few rows", "many rows"],
)
def test_parts(text: str, n: int, m: int, expected: bool, tmp_path: Path) -> None:
    found = parts(text.format(n=n, m=m), tmp_path / "p.inlay")
    assert any(found) == expected
    assert expected or len(found) == 1, "nothing to wait for between parts"


def test_the_board_says_what_is_short(tmp_path: Path) -> None:
    """It says so to the schedule, and to the runtime that opens the file, where nobody says otherwise."""
    path = tmp_path / "p.inlay"
    assert any(parts(SOFTMAX.format(n=8, m=64), path, PARTED))
    said = read(memoryview(path.read_bytes())).properties
    assert Settings().completed(said).least_shared_ns == 0
    assert Settings(hand_off_ns=500).completed(said).least_shared_ns == 500


def test_the_reason_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.inl"
    path.write_text(SOFTMAX.format(n=8, m=64), encoding="utf-8")
    assert main(["explain", str(path), "--view", "loops"]) == 0
    assert "shorter than giving another thread a part" in capsys.readouterr().out


def test_results_are_those_of_parts() -> None:
    x = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    module = parse_module(SOFTMAX.format(n=8, m=64), table())
    found = [inlay.compile(module, threads=n, cache="none")(x) for n in (1, 2)]
    np.testing.assert_array_equal(*found)
