"""Real models through the compiled path, against their stored results."""

from __future__ import annotations

import pytest

import inlay
from tests.data import model_case

MODELS = (
    "mnist8",
    "ultraface_rfb320",
    "super_resolution",
    "micro_kws_fp32",
    "gen_early_exit_script_onnx",
    "gen_scan_rnn_onnx",
)


@pytest.mark.llvm
@pytest.mark.data
@pytest.mark.parametrize("id", MODELS)
def test_stored_results(id, tmp_path):
    case = model_case(id)
    compiled = inlay.compile(case.model, threads=1, cache=str(tmp_path / "cache"))
    path = tmp_path / "model.inlay"
    compiled.save(path)
    for executable in (compiled, inlay.load_executable(path, threads=2)):
        for run in case.runs():
            case.check(executable.run(run.inputs), run.outputs)
    assert executable.live_objects() == 0
