"""Models whose sizes are open: the report and the runtime agree for every size, from the command line too."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import inlay
from inlay.base.diagnostics import InlayError
from inlay.cli.main import main
from inlay.runtime.session import load_executable

pytestmark = pytest.mark.llvm

N = (1, 33, 512)


@pytest.fixture(name="model", scope="module")
def written_model(tmp_path_factory) -> Path:
    """Write a model over (batch, tokens, 32): two products, attention over tokens, and two results."""
    random = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array((random.standard_normal((32, 32)) / 8).astype(np.float32), name)
        for name in ("wq", "wk")
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "wq"], ["q"]),
        helper.make_node("MatMul", ["x", "wk"], ["k"]),
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "x"], ["y"]),
        helper.make_node("ReduceSum", ["p"], ["z"], keepdims=0, noop_with_empty_axes=0),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "attention",
        [value("x", TensorProto.FLOAT, ["batch", "tokens", 32])],
        [value("y", TensorProto.FLOAT, ["batch", "tokens", 32]), value("z", TensorProto.FLOAT, [])],
        weights,
    )
    path = tmp_path_factory.mktemp("sizes") / "attention.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def explained(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict:
    assert main(words) == 0
    (host,) = json.loads(capsys.readouterr().out)["takes"]
    return host


def test_what_is_explained_is_what_every_size_takes(model, tmp_path, capsys):
    made = tmp_path / "m.inlay"
    words = ["--fix-dim", "batch=2", "--threads", "1"]
    assert main(["compile", str(model), "-o", str(made), *words]) == 0
    exe = load_executable(made, threads=1)
    storages = set()
    capsys.readouterr()
    for n in N:
        x = np.ones((2, n, 32), np.float32)
        exe.run({"x": x})
        before = exe.usage()
        exe.run({"x": x})
        after = exe.usage()
        said = explained(
            ["explain", str(model), "--view", "memory", "--json", "--typical", f"tokens={n}", *words], capsys
        )
        assert (said["is_exact"], said["peak"]) == (True, after.peak_bytes)
        assert after.allocations - before.allocations == len(exe.outputs)  # in steady state: results alone
        storages.add(after.storages)
    assert len(storages) == 1


def test_a_bound_from_the_command_line_is_a_promise_for_all_sizes_below(model, tmp_path, capsys):
    made = tmp_path / "m.inlay"
    view = ["explain", str(model), "--view", "memory", "--json", "--threads", "1"]
    bounds = ["--bound-dim", "tokens=512", "--bound-dim", "batch=2"]
    most = explained([*view, *bounds], capsys)
    fixed = explained([*view, "--fix-dim", "tokens=512", "--fix-dim", "batch=2"], capsys)
    assert most["peak"] >= fixed["peak"]
    words = [*bounds, "--threads", "1", "--budget", f"host={most['total']}"]
    assert main(["compile", str(model), "-o", str(made), *words]) == 0
    exe = load_executable(made, threads=1)
    for n in N:
        for batch in (1, 2):
            exe.run({"x": np.ones((batch, n, 32), np.float32)})
            assert exe.usage().peak_bytes <= most["peak"]
    with pytest.raises(InlayError, match="tokens <= 512; found tokens = 513"):
        exe.run({"x": np.ones((1, 513, 32), np.float32)})
    words[-1] = f"host={most['total'] - 1}"
    capsys.readouterr()
    assert main(["compile", str(model), "-o", str(made), *words]) == 1
    assert "price: --fix-dim tokens=511 (it may be 512): saves" in capsys.readouterr().err


def test_a_dim_without_a_bound_is_named_with_the_flag_that_bounds_it(model, capsys):
    assert main(["explain", str(model), "--view", "memory", "--budget", "host=1GB"]) == 1
    said = capsys.readouterr().err
    assert "the dim 'batch' has no bound; the dim 'tokens' has no bound" in said
    assert "hint: bound the dim: --bound-dim batch=SIZE; or fix it: --fix-dim batch=SIZE" in said


def test_budgets_of_several_memories_and_of_more_than_there_is(tmp_path, capsys):
    path = tmp_path / "p.inl"
    path.write_text(
        "fn main(x: Tensor[16, 64, f32], w: Tensor[64, 64, f32]) -> Tensor[16, 64, f32] "
        '{ softmax(matmul(softmax(matmul(x, w)), w)) }\nentry main("x", "w") -> ("y");'
    )
    words = ["explain", str(path), "--board", "mcu_dma", "--view", "memory", "--plan", "parallel"]
    budgets = ["--budget", "sram0=1MiB", "--budget", "sram1=20KiB"]
    assert main([*words, *budgets]) == 0
    said = capsys.readouterr().out
    assert "it has no more than 131,072, so the budget has no effect" in said
    assert "budget of sram1, 20,480 bytes: nothing is there, so it has no effect" in said
    found = inlay.explain(path, view="memory", board="mcu_dma", budget=("sram0=6KiB", "sram1=24KiB"))
    assert {
        a.memory: a.total <= n for a in found.accounts for n in [found.budgets.get(a.memory, 1 << 40)]
    } == {a.memory: True for a in found.accounts}
