"""What commands write: never over what they read, and nothing where they fail."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys

import numpy as np
import onnx
import pytest

import inlay
from inlay.base.diagnostics import CompileError, InlayError
from inlay.cli.main import main
from inlay.runtime.serve import make_key
from tests.unit.test_api import X, Z, tiny_model

PROGRAM = "fn main(x: Tensor[3, f32]) { neg(x) }\n"


@pytest.fixture
def folder(tmp_path, monkeypatch, tmp_path_factory):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INLAY_CACHE", str(tmp_path_factory.getbasetemp() / "inlay-cache"))
    tiny_model(tmp_path / "t.onnx")
    (tmp_path / "t.inl").write_text(PROGRAM)
    np.savez(tmp_path / "in.npz", x=X, z=Z)
    shutil.copy(inlay.__path__[0] + "/machine/boards/host_two.toml", tmp_path / "b.toml")
    (tmp_path / "own.py").write_text(
        "import inlay\ntwice = inlay.extern('twice', '(x: Tensor[n, f32]) -> Tensor[n, f32]', "
        "python=lambda x: 2 * x)\n"
    )
    return tmp_path


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


OVER = [
    "compile t.onnx -o t.onnx",
    "compile t.onnx -o ./t.onnx",
    "compile t.onnx -o link",
    "compile t.onnx -o hard",
    "compile link -o t.onnx",
    "compile t.inl -o t.inl",
    "compile t.inl --extern own.py -o own.py",
    "compile t.inl --board b.toml -o b.toml",
    "run t.onnx --output t.onnx",
    "run t.onnx --trace t.onnx",
    "run t.onnx --inputs in.npz --output in.npz",
    "run t.onnx --inputs in.npz --trace in.npz",
    "run t.onnx --output both --trace ./both",
    "opt t.inl -o t.inl",
    "opt t.onnx -o hard",
    "opt t.inl --extern own.py -o own.py",
    "opt t.inl --passes plan-places --board b.toml -o b.toml",
    "bench t.onnx --calibrate host_two -o t.onnx",
    "bench --calibrate b.toml -o b.toml",
]


@pytest.mark.parametrize("line", OVER)
def test_no_output_replaces_an_input(line, folder, capsys):
    words = line.split()
    (folder / "link").symlink_to("t.onnx")
    (folder / "hard").hardlink_to("t.onnx")
    if words[1] == "link":  # the end of a name says what is in a file
        (folder / "link").rename(folder / "link.onnx")
        words[1] = "link.onnx"
    before = contents(folder)
    assert main(words) == 1
    assert "[save.over-input]" in capsys.readouterr().err
    assert contents(folder) == before


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "line",
    [
        "compile w.onnx -o w.bin",
        "opt w.onnx -o w.bin",
        "run w.onnx --output w.bin",
        "run w.onnx --trace w.bin",
    ],
)
def test_weights_beside_a_model_are_inputs_too(line, folder, capsys):
    model = onnx.load("t.onnx")
    weights = onnx.numpy_helper.from_array(np.ones((4, 512), np.float32), "w")
    model.graph.initializer.append(weights)
    model.graph.node.append(onnx.helper.make_node("MatMul", ["y", "w"], ["v"]))
    model.graph.output.append(onnx.helper.make_tensor_value_info("v", onnx.TensorProto.FLOAT, ["n", 512]))
    onnx.save(model, "w.onnx", save_as_external_data=True, location="w.bin", size_threshold=100)
    before = contents(folder)
    assert "w.bin" in before
    assert main(line.split()) == 1
    assert "[save.over-input]" in capsys.readouterr().err
    assert contents(folder) == before
    for made in (inlay.compile("w.onnx"), inlay.compile(inlay.load("w.onnx"))):
        for name in ("w.bin", "w.onnx"):
            with pytest.raises(CompileError) as failure:
                made.save(name)
            assert failure.value.ids == ("save.over-input",)
    assert contents(folder) == before


@pytest.mark.parametrize(
    "line", ["compile t.onnx -o x", "run t.onnx --output x", "run t.onnx --trace x", "opt t.onnx -o x"]
)
@pytest.mark.parametrize("old", [None, b"old"])
def test_a_full_disk_leaves_what_was_there(line, old, folder, capsys, monkeypatch):
    monkeypatch.setenv("INLAY_CACHE", "none")
    if old:
        (folder / "x").write_bytes(old)
    before = contents(folder)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        assert main(line.split()) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "x: File too large" in capsys.readouterr().err
    assert contents(folder) == before


@pytest.mark.parametrize(
    "line",
    [
        "compile t.onnx -o",
        "run t.onnx --output",
        "run t.onnx --trace",
        "opt t.onnx -o",
        "bench --calibrate host_two -o",
    ],
)
def test_what_cannot_be_written_is_said_before_anything_is_done(line, folder, capsys, monkeypatch):
    monkeypatch.setattr("inlay.api.load", None)
    (folder / "sub").mkdir()
    for name, reason in (("sub", "this is a folder"), ("no/x", "there is no folder")):
        assert main([*line.split(), name]) == 1
        assert f"error: {name}: {reason}" in capsys.readouterr().err


def test_outputs_may_go_to_devices_and_streams(folder, capfd):
    assert main(["opt", "t.inl", "-o", "/dev/stdout"]) == 0
    assert "fn main" in capfd.readouterr().out
    assert main(["run", "t.onnx", "--output", "/dev/null", "--trace", "/dev/null"]) == 0
    assert main(["compile", "t.onnx", "-o", "/dev/null"]) == 0


def test_a_saved_executable_may_be_saved_over_itself_and_others(folder):
    made = inlay.compile("t.onnx")
    made.save("t.inlay")
    made.save("t.inlay")
    loaded = inlay.load_executable("t.inlay")
    loaded.save("t.inlay")
    np.testing.assert_array_equal(loaded(X, Z), made(X, Z))


def test_a_key_is_made_whole_or_not_at_all(folder):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(InlayError):
            make_key(folder / "key")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(folder.glob("*key*"))
    assert make_key(folder / "key")[1]
    key = (folder / "key").read_text()
    assert not make_key(folder / "key")[1]
    assert (folder / "key").read_text() == key
    assert (folder / "key").stat().st_mode & 0o777 == 0o600


def test_refusals_are_objects_for_programs_too(folder, capsys):
    assert main(["compile", "t.onnx", "-o", "t.onnx", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["errors"][0]["id"] == "save.over-input"


def test_a_command_that_is_told_to_end_leaves_nothing(folder):
    """SIGTERM unwinds what runs: no half of a file is left."""
    script = """if True:
        import os, signal
        from pathlib import Path
        from inlay.base.files import writing
        from inlay.cli import main as command

        def run(words):
            with writing(Path("y.inlay")) as stream:
                stream.write(b"half")
                stream.flush()
                os.kill(os.getpid(), signal.SIGTERM)
                stream.write(b"more")
            return 0

        command._run = run
        command.main(["targets"])
    """
    before = contents(folder)
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, check=False)
    assert done.returncode == 143, done.stderr
    assert contents(folder) == before
