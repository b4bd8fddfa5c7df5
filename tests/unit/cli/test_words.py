"""What commands say of a run: counts, sizes and times that are what they claim."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from onnx import TensorProto, helper, save

from inlay.bytecode.program import Program
from inlay.cli import run
from inlay.cli._command import print_json
from inlay.cli.main import main
from inlay.cli.run import _MOST_RUNS


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("INLAY_CACHE", str(tmp_path_factory.getbasetemp() / "inlay-cache"))


def shown(capsys, *words):
    assert main(list(words)) == 0
    return capsys.readouterr().out


def model_with_dim(path, dim):
    nodes = [
        helper.make_node("Softmax", ["x"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=[1, 0]),
        helper.make_node("Softmax", ["b"], ["c"]),
        helper.make_node("Transpose", ["c"], ["d"], perm=[1, 0]),
        helper.make_node("Softmax", ["d"], ["y"]),
    ]
    sizes = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [dim, 100]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", sizes[:1], sizes[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    save(made, path)
    return str(path)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "dim", ["n", "?", "", "a.b", "in", "row count", "a`b", "\u00e4\ufb01", "min(a,b)", "2*n", "-"]
)
def test_the_peak_of_memory_is_known_whatever_a_dim_is_called(dim, tmp_path, capsys):
    model = model_with_dim(tmp_path / "m.onnx", dim)
    text = shown(capsys, "run", model)
    assert re.search(r"memory plan: peak [1-9][0-9.]* KiB for \d+ buffers?", text), text
    record = json.loads(shown(capsys, "run", model, "--json"))
    assert record["memory"][0]["peak_bytes"] >= 3200


def test_what_only_an_inner_function_knows_is_shown_as_it_is(tmp_path, capsys):
    program = tmp_path / "p.inl"
    program.write_text(
        "fn grow<k>(x: Tensor[k, f32], turns: Tensor[i64]) -> Tensor[f32] {\n"
        "  if (to_control(greater(turns, i64(0)))) {\n"
        "    @grow(concat{axis=0}(softmax(x), softmax(neg(x))), sub(turns, i64(1)))\n"
        "  } else { reduce_sum{axes=[0], keepdims=false}(softmax(x)) }\n}\n"
        "fn main(x: Tensor[4, f32]) { @grow(x, i64(3)) }\n"
    )
    text = shown(capsys, "run", str(program))
    inner = [line for line in text.splitlines() if "memory plan of grow" in line]
    assert not any("peak 0 B for" in line and "for 0 buffers" not in line for line in inner), text


def test_nested_calls_are_counted_and_one_is_one(tmp_path, capsys):
    program = tmp_path / "p.inl"
    program.write_text("fn main(x: Tensor[2, f32]) { tanh(neg(x)) }")
    assert "p.inl: 2 operators (1 neg, 1 tanh)\n" in shown(capsys, "run", str(program))
    program.write_text("fn main(x: Tensor[2, f32]) { tanh(x) }")
    text = shown(capsys, "run", str(program))
    assert "p.inl: 1 operator (1 tanh)\n" in text
    assert "  cpu: 1 invocation of 1 kernel\n" in text


def test_each_device_counts_its_own_kernels(tmp_path, capsys):
    program = tmp_path / "p.inl"
    program.write_text("fn main(x: Tensor[2, f32]) { softmax(softmax(exp(x))) }")
    words = ["run", str(program), "--board", "host_two", "--pin", "exp=cpu1"]
    found = re.findall(r"  (cpu[01]): .* of (\d+) kernels?\n", shown(capsys, *words))
    kernels = json.loads(shown(capsys, *words, "--json"))["report"]["kernels"]
    assert len(found) == 2
    assert all(int(n) == sum(k["device"] == device for k in kernels) for device, n in found)


def test_times_are_the_best_of_a_few_runs_and_effects_happen_once(tmp_path, capsys):
    program, calls = tmp_path / "p.inl", tmp_path / "calls"
    program.write_text("fn main(x: Tensor[2, f32]) { noted(x) }")
    (tmp_path / "own.py").write_text(
        "import inlay\n"
        "def noted(x):\n"
        f"    with open({str(calls)!r}, 'a') as f: f.write('.')\n"
        "    return x\n"
        "op = inlay.extern('noted', '(x: Tensor[n, f32]) -> Tensor[n, f32]', python=noted)\n"
    )
    shown(capsys, "run", str(program), "--extern", str(tmp_path / "own.py"))
    assert calls.read_text() == "."
    program.write_text("fn main(x: Tensor[2, f32]) { neg(x) }")
    record = json.loads(shown(capsys, "run", str(program), "--json"))
    assert 1 <= record["runs"] <= _MOST_RUNS
    assert record["run_seconds"] <= record["first_run_seconds"]
    events = json.loads(shown(capsys, "run", str(program), "--json", "--profile"))["kernels"]
    assert sum(kernel["runs"] for kernel in events) == 1


def test_a_profile_is_of_the_fastest_run(monkeypatch):
    class Runs:
        program = Program(())
        made = 0

        def run(self, inputs):
            self.made += 1

        def events(self):
            return [self.made]

    times = iter([0.0, 0.05, 0.1, 0.12, 0.2, 0.23, 0.3, 0.4])
    monkeypatch.setattr(run.time, "perf_counter", times.__next__)
    assert run._best(Runs(), {}, 0.09) == (pytest.approx(0.02), 5, [2])


def test_numbers_are_numbers_in_what_programs_get(tmp_path, capsys):
    print_json({"a": np.float32(0.5), "b": np.int64(3), "c": (tmp_path,), "d": float("nan")})
    found = json.loads(capsys.readouterr().out)
    assert found == {"schema": 1, "a": 0.5, "b": 3, "c": [str(tmp_path)], "d": None}
    program = tmp_path / "p.inl"
    program.write_text("fn main(x: Tensor[2, 100, f32]) { softmax(transpose{perm=[1, 0]}(softmax(x))) }")
    record = json.loads(shown(capsys, "run", str(program), "--json"))
    assert all(isinstance(p["block_bytes"], int) for p in record["report"]["memory"])
