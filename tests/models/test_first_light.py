"""Real models through the compiled path, against their stored results."""

from __future__ import annotations

import importlib.util

import numpy as np
import onnx
import pytest

import inlay
from inlay.ir.expr import If
from inlay.ir.walk import postorder
from tests.data import REPOSITORY, cases, data_path, minilm, model_case

MODELS = ("mnist8", "micro_kws_fp32", "gen_early_exit_script_onnx", "gen_scan_rnn_onnx")


OTHERS = [case.id for case in cases("onnx") if case.id not in MODELS]


CONTROLLED = [c.id for c in cases("onnx") if {"if", "loop", "while", "scan", "rnn"} & set(c.tags)]


@pytest.mark.data
@pytest.mark.parametrize("id", CONTROLLED)
def test_control_flow_is_kept(id):
    """Loops are functions that call themselves or not: a branch for each, none written out."""
    module = inlay.load(model_case(id).model)
    nodes = [x for f in module.functions.values() for x in postorder(f.body)]
    assert any(isinstance(x, If) for x in nodes)


@pytest.mark.sample(2)
@pytest.mark.llvm
@pytest.mark.data
@pytest.mark.parametrize("id", [*MODELS, *(pytest.param(m, marks=pytest.mark.slow) for m in OTHERS)])
def test_stored_results(id, tmp_path):
    case = model_case(id)
    compiled = inlay.compile(case.model, threads=1, cache=str(tmp_path / "cache"))
    path = tmp_path / "model.inlay"
    compiled.save(path)
    for executable in (compiled, inlay.load_executable(path, threads=2)):
        for run in case.runs():
            case.check(executable.run(run.inputs), run.outputs)
    assert executable.live_objects() == 0


@pytest.mark.slow
@pytest.mark.llvm
@pytest.mark.data
def test_sentence_embeddings_of_any_batch_and_length(tmp_path):
    """MiniLM with batch and sequence symbolic: one executable for all stored runs."""
    minilm()  # skips where the weights are not installed
    source = REPOSITORY / "examples" / "sentence_embedding" / "build_minilm.py"
    spec = importlib.util.spec_from_file_location("build_minilm", source)
    builder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    path = tmp_path / "minilm.onnx"
    onnx.save(builder.build(), path)
    executable = inlay.compile(path, threads=2, cache=str(tmp_path / "cache"))
    with np.load(data_path("minilm", "runs.npz")) as stored:
        for run in range(3):
            inputs = {
                name: stored[f"run{run}/in/{name}"]
                for name in ("input_ids", "attention_mask", "token_type_ids")
            }
            found = executable.run(inputs)["embedding"]
            np.testing.assert_allclose(found, stored[f"run{run}/out/embedding"], atol=1e-5)
    assert executable.live_objects() == 0
