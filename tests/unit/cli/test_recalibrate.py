"""`inlay run --compare ... --calibrate FILE`: measured over predicted time goes into the costs of a board."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.base.diagnostics import CompileError
from inlay.cli._compared import recalibrated
from inlay.cli.main import main
from inlay.machine.board_file import board_text
from inlay.pipeline.compare import Compared
from inlay.placement.choose.costs import Measured

W = np.random.default_rng(1).integers(-128, 128, (256, 64))
PROGRAM = f"""
fn main(x: Tensor[64, 256, i8]) {{
  let a = add(matmul_integer(x, i8[256, 64]({", ".join(map(str, W.ravel()))})), i32[64]({", ".join(["7"] * 64)}));
  requantize(a, f32(0.001))
}}
entry main("x") -> ("y");
"""


def seen(device: str, predicted: float | None, took: int, clock: float | None) -> Compared:
    return Compared(device, "k", "matmul", (), predicted, took, 1, clock)


def test_a_factor_is_of_all_kernels_of_a_device_and_replaces_what_was_known_of_it() -> None:
    known = Measured(factors={("npu0", "conv"): 3.0, ("cpu", "*"): 1.5}, launches={"cpu": 200.0})
    runs = [seen("npu0", 100.0, 900, 150.0), seen("npu0", 300.0, 850, None), seen("npu1", None, 5, None)]
    found = recalibrated(known, runs)
    assert found.factors == {("cpu", "*"): 1.5, ("npu0", "*"): 2.5}
    assert found.launches == {"cpu": 200.0}


def test_nothing_predicted_is_an_error() -> None:
    with pytest.raises(CompileError, match="found no kernel with a predicted time"):
        recalibrated(Measured(), [seen("npu0", None, 5, None)])


@pytest.fixture(name="board")
def board_with_a_fast_device(tmp_path: Path) -> str:
    text = board_text("strawberry")
    assert "clock = 1000000000 " in text
    (tmp_path / "fast.toml").write_text(text.replace("clock = 1000000000 ", "clock = 1000000000000 "))
    (tmp_path / "p.inl").write_text(PROGRAM)
    return str(tmp_path / "fast.toml")


@pytest.mark.llvm
def test_what_was_measured_is_written_and_read_by_name_alone(board, tmp_path, capsys) -> None:
    out = tmp_path / "costs.json"
    words = ["run", str(tmp_path / "p.inl"), "--board", board, "--compare", "cpu,npu0"]
    assert main([*words, "--calibrate", str(out)]) == 0
    assert "npu0 takes " in capsys.readouterr().out
    assert list(json.loads(out.read_text())["factors"]) == ["npu0"]
    assert inlay.explain(inlay.load(str(tmp_path / "p.inl")), board=board, calibration=str(out)).operations


@pytest.mark.llvm
def test_candidates_obey_the_factors_of_their_device(board, tmp_path) -> None:
    module = inlay.load(str(tmp_path / "p.inl"))
    (tmp_path / "slow.json").write_text(json.dumps({"factors": {"npu0": {"dense": 1e9}}}))
    for calibration, device in (("", "npu0"), (str(tmp_path / "slow.json"), "cpu")):
        found = inlay.explain(module, board=board, calibration=calibration)
        (only,) = [o for o in found.operations if "matmul_integer" in o.operator]
        assert only.device == device


def test_without_compare_it_does_nothing(tmp_path, capsys) -> None:
    (tmp_path / "p.inl").write_text(PROGRAM)
    assert main(["run", str(tmp_path / "p.inl"), "--calibrate", "x.json"]) != 0
    assert "--calibrate" in capsys.readouterr().err
