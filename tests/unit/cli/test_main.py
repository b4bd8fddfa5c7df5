"""The command line: results, exit codes, JSON."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import onnx
import pytest

import inlay
from inlay.base.catalog.table import find
from inlay.base.diagnostics import error, unsupported
from inlay.base.metadata import Metadata
from inlay.cli._command import Output
from inlay.cli._model import describe_metadata
from inlay.cli.main import commands, exit_code, main
from inlay.machine.board_file import board_names, find_board
from tests.unit.test_api import X, Y, Z, tiny_model


@pytest.fixture
def model(tmp_path):
    return tiny_model(tmp_path / "tiny.onnx")


@pytest.fixture
def cache(tmp_path_factory):
    return str(tmp_path_factory.getbasetemp() / "inlay-cache")


def run_json(capsys, *words: str) -> dict:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_run_with_inputs_from_a_file(model, tmp_path, cache, capsys):
    np.savez(tmp_path / "in.npz", x=X, z=Z)
    out = tmp_path / "out.npz"
    words = ["run", str(model), "--inputs", str(tmp_path / "in.npz"), "--output", str(out)]
    assert main([*words, "--cache", cache]) == 0
    with np.load(out) as found:
        np.testing.assert_allclose(found["y"], Y)
    text = capsys.readouterr().out
    assert "cpu" in text
    assert "memory plan" in text


def test_run_with_operations_pinned_to_devices(model, cache, capsys):
    words = ["run", str(model), "--board", "host_two", "--cache", cache]
    assert main([*words, "--pin", "*=cpu1"]) == 0
    assert "  cpu1: " in capsys.readouterr().out
    assert main([*words, "--pin", "*=cpu9"]) == 1
    assert "[placement.unknown-device]" in capsys.readouterr().err


def test_run_with_strings(tmp_path, cache, capsys):
    program = tmp_path / "up.inl"
    program.write_text('fn main<n>(x: Tensor[n, string]) { string_upper(x) }\nentry main("x") -> ("y");')
    np.savez(tmp_path / "in.npz", x=np.array(["a", "\u00e4"]))
    words = ["run", str(program), "--cache", cache, "--output", str(tmp_path / "out.npz")]
    assert main([*words, "--inputs", str(tmp_path / "in.npz")]) == 0
    with np.load(tmp_path / "out.npz", allow_pickle=False) as found:
        assert found["y"].tolist() == ["A", "\u00c4"]
    assert main(words) == 0
    assert "output y: string[8]" in capsys.readouterr().out
    np.savez(tmp_path / "in.npz", x=np.array(["a\0b"]))
    assert main([*words, "--inputs", str(tmp_path / "in.npz")]) == 0


def test_run_makes_inputs_of_the_right_type(model, cache, capsys):
    record = run_json(capsys, "run", str(model), "--cache", cache, "--dim", "n=5")
    assert record["inputs"]["x"] == {"dtype": "f32", "shape": [5, 4]}
    assert record["outputs"]["y"] == {"dtype": "f32", "shape": [5, 4]}
    assert {k["device"] for k in record["report"]["kernels"]} == {"cpu"}


def test_compile_writes_what_run_runs(model, tmp_path, cache, capsys):
    path = tmp_path / "tiny.inlay"
    record = run_json(capsys, "compile", str(model), "-o", str(path), "--cache", cache)
    assert record["bytes"] == path.stat().st_size
    assert "run" in commands()
    record = run_json(capsys, "run", str(path))
    assert record["report"]["kernels"]


def test_bench_compares_before_it_measures(model, cache, capsys):
    pytest.importorskip("onnxruntime")
    words = ["--against", "onnxruntime", "--rounds", "2", "--seconds", "0.01", "--cache", cache]
    record = run_json(capsys, "bench", str(model), *words)
    assert record["ratio"] > 0
    assert record["largest_difference"] <= 1e-6


def test_targets_and_errors(capsys):
    listed = run_json(capsys, "targets", "--passes", "--operators")
    assert {"to-anf", "plan-places", "plan-memory"} <= set(listed["passes"])
    assert listed["route"][-3:] == ["spill-values", "plan-memory", "link"]
    assert "tanh" in listed["operators"]
    assert "host" in run_json(capsys, "targets")["boards"]
    assert run_json(capsys, "errors", "load.missing")["remedy"]
    assert "load.missing" in run_json(capsys, "errors")["errors"]


def test_a_file_that_the_system_refuses_is_an_object_for_programs_too(tmp_path, capsys):
    missing = tmp_path / "nowhere" / "out"
    assert main(["opt", str(tmp_path / "p.inl"), "-o", str(missing), "--json"]) == 1
    (only,) = json.loads(capsys.readouterr().out)["errors"]
    assert str(missing) in only["message"]


@pytest.mark.parametrize("name", board_names())
def test_a_board_that_is_shown_is_the_board(name, tmp_path, capsys):
    assert main(["targets", "show", name]) == 0
    file = tmp_path / f"{name}.toml"
    file.write_text(capsys.readouterr().out)
    assert find_board(str(file)) == find_board(name)


@pytest.mark.parametrize(
    ("words", "code", "id"),
    [
        (["run", "absent.onnx"], 1, "load.missing"),
        (["errors", "load.missin"], 1, "name.unknown"),
        (["run", "absent.onnx", "--board", "nowhere"], 1, "load.missing"),
    ],
)
def test_the_users_faults_are_words_and_code_1(words, code, id, capsys):
    assert main(words) == code
    captured = capsys.readouterr()
    assert f"[{id}]" in captured.err
    assert "Traceback" not in captured.err
    assert main([*words, "--json"]) == code
    assert json.loads(capsys.readouterr().out)["errors"][0]["id"] == id


@pytest.mark.parametrize("words", ["run", "explain", "compile -o out.inlay", "opt --passes infer-types"])
@pytest.mark.parametrize("text", ["", "fn other(x: Tensor[4, f32]) { relu(x) }"])
def test_a_program_without_a_function_to_begin_with(words, text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("p.inl").write_text(text)
    command, *options = words.split()
    assert main([command, "p.inl", *options]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error[name.unknown]: found no function named 'main' to begin with")
    assert ("entry NAME" in said) == bool(text)
    Path("p.inl").write_text(
        f'{text} entry other("x") -> ("y");' if text else "fn main(x: Tensor[4, f32]) { x }"
    )
    assert main([command, "p.inl", *options]) == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nonsense", "found no command 'nonsense'"),
        ("rnu x.onnx", "did you mean run?"),
        ("run", "usage: inlay run [options] model"),
        ("run x.onnx --thredas 2", "did you mean --threads?"),
        ("run x.onnx more", "unrecognized arguments: more"),
        ("run x.onnx --threads", "expected one argument"),
        ("run x.onnx --threads many", "found many, needed an integer"),
        ("compile x.onnx", "usage: inlay compile [options] -o OUTPUT model"),
        ("targets chekc", "did you mean check?"),
        ("--verbose", "unrecognized arguments: --verbose"),
    ],
)
def test_wrong_usage_is_code_2_and_short(line, said, capsys):
    assert main(line.split()) == 2
    text = capsys.readouterr().err
    assert said in text
    assert text.startswith("error[option.usage]: ") and len(text.splitlines()) <= 3
    assert main([*line.split(), "--json"]) == 2
    shown = json.loads(capsys.readouterr().out)
    assert shown["schema"] == 1
    assert shown["errors"][0]["id"] == "option.usage"


def test_no_command_lists_them_and_the_version_is_said(capsys):
    assert main([]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in commands() if name != "main")
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"inlay {inlay.__version__}\n"
    assert run_json(capsys, "--version") == {"schema": 1, "version": inlay.__version__}


def test_every_object_for_programs_says_its_form(model, tmp_path, cache, capsys):
    program = tmp_path / "p.inl"
    program.write_text("fn main(x: Tensor[2, f32]) { neg(x) }")
    for words in (
        ["run", str(model), "--cache", cache],
        ["compile", str(model), "-o", str(tmp_path / "m.inlay"), "--cache", cache],
        ["explain", str(model)],
        ["opt", str(program)],
        ["bench", str(model), "--rounds", "1", "--seconds", "0", "--cache", cache],
        ["targets"],
        ["targets", "show", "host"],
        ["targets", "check", "host_two"],
        ["errors"],
        ["errors", "load.missing"],
    ):
        assert run_json(capsys, *words)["schema"] == 1


def test_our_fault_is_code_70(model, cache, capsys, monkeypatch):
    import inlay.cli.run as command

    def broken(*_):
        raise ValueError("boom")

    monkeypatch.setattr(command, "inputs_of", broken)
    words = ["run", str(model), "--cache", cache]
    assert main(words) == 70
    shown = capsys.readouterr().err
    assert "internal error: ValueError: boom" in shown
    assert f"reproduce: inlay {' '.join(words)} --traceback" in shown
    assert "Traceback" not in shown
    assert main([*words, "--json"]) == 70
    (finding,) = json.loads(capsys.readouterr().out)["errors"]
    assert finding["id"] == "internal"


def test_every_command_has_a_summary():
    table = commands()
    for name in table:
        if name != "main":
            start, found, summary = table.summary(name).partition("`: ")
            assert start.startswith(f"`inlay {name}") and found and summary


def test_operators_from_a_file(tmp_path, cache, capsys):
    (tmp_path / "own.py").write_text(
        "import inlay\n"
        "twice = inlay.extern('twice', '(x: Tensor[n, f32]) -> Tensor[n, f32]', python=lambda x: 2 * x)\n"
    )
    (tmp_path / "p.inl").write_text("fn main<n>(x: Tensor[n, f32]) { twice(neg(x)) }")
    own = ["--extern", str(tmp_path / "own.py")]
    np.savez(tmp_path / "in.npz", x=np.ones(3, np.float32))
    inputs = ["--inputs", str(tmp_path / "in.npz"), "--output", str(tmp_path / "out.npz")]
    run_json(capsys, "run", str(tmp_path / "p.inl"), *own, *inputs, "--cache", cache)
    with np.load(tmp_path / "out.npz") as found:
        (result,) = (found[name] for name in found.files)
    np.testing.assert_array_equal(result, -2 * np.ones(3))
    path = str(tmp_path / "p.inlay")
    run_json(capsys, "compile", str(tmp_path / "p.inl"), *own, "-o", path, "--cache", cache)
    run_json(capsys, "run", path, *own, *inputs)
    assert main(["run", path, *inputs]) == 1
    assert "externs=" in capsys.readouterr().err
    for text in ("x = 1", "1 / 0"):
        (tmp_path / "own.py").write_text(text)
        assert main(["run", path, *own]) == 1
        assert "extern.file" in capsys.readouterr().err


def test_a_peer_that_refuses_the_model_says_why(model, cache, capsys, tmp_path):
    pytest.importorskip("onnxruntime")
    newer = onnx.load(model)
    newer.ir_version = 1000
    onnx.save(newer, tmp_path / "newer.onnx")
    words = ["bench", str(tmp_path / "newer.onnx"), "--against", "onnxruntime", "--cache", cache]
    assert main(words) == 1
    assert "error[bench.peer-format]: onnxruntime refuses newer.onnx" in capsys.readouterr().err


def test_what_has_no_hint_of_its_own_shows_the_remedy_of_its_kind(tmp_path, capsys):
    words = ["run", str(tmp_path / "absent.onnx")]
    assert main(words) == 1
    remedy = find("load.missing").remedy
    assert f"hint: {remedy}" in capsys.readouterr().err
    assert main([*words, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["errors"][0]["hint"] == remedy


def test_the_exit_code_says_which_kind_of_failure(model, tmp_path, cache, capsys):
    np.savez(tmp_path / "in.npz", x=X[:0], z=Z)
    words = ["run", str(model), "--inputs", str(tmp_path / "in.npz"), "--cache", cache]
    assert main(words) == 3
    assert "error[input." in capsys.readouterr().err
    codes = {"type.x": 1, "input.rank": 3, "run.check-failed": 3, "run.deadline": 124, "run.cancelled": 130}
    assert {id: exit_code(error(id, "m")) for id in codes} == codes
    assert exit_code(unsupported("run.device-absent", "m")) == 1


def test_what_a_model_says_of_itself_is_shown(capsys):
    said = Metadata(
        graph="g\x1b[2J",
        producer="torch",
        producer_version="2.1",
        version=7,
        properties={"labels": "a\nb", "long": "x" * 300},
    )
    describe_metadata(said, Output(as_json=False))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["  graph: g\\x1b[2J", "  producer: torch 2.1", "  model version: 7"]
    assert lines[3] == "  'labels': a\\nb"
    assert lines[4].endswith("... (300 characters)")


def test_races_are_looked_for_in_the_order_that_is_named(model, tmp_path, cache, capsys):
    np.savez(tmp_path / "in.npz", x=X, z=Z)
    words = ["run", str(model), "--inputs", str(tmp_path / "in.npz"), "--cache", cache, "--races"]
    assert main([*words, "--schedule", "7"]) == 0
    assert main([*words, "--mode", "parallel"]) == 0
    (tmp_path / "own.py").write_text(
        "import inlay\n"
        "MINE = inlay.extern('mine', '(x: Tensor[n, f32]) -> Tensor[n, f32]', python=lambda x: x)\n"
    )
    (tmp_path / "p.inl").write_text("fn main<n>(x: Tensor[n, f32]) { mine(x) }")
    words = ["run", str(tmp_path / "p.inl"), "--extern", str(tmp_path / "own.py"), "--races"]
    assert main([*words, "--dim", "n=3", "--cache", cache]) == 0


def test_a_server_leaves_signals_as_they_were():
    """Whoever runs a command inside a program of his own keeps what interrupts it."""
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    assert main(["serve", "--listen", "nowhere", "--anyone"]) != 0
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before
