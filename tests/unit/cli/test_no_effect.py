"""Nothing that a person wrote is passed over: what is unknown or would do nothing is a mistake."""

from __future__ import annotations

import numpy as np
import pytest

import inlay
from inlay.base.diagnostics import CompileError
from inlay.cli.main import main
from inlay.runtime.session import executable_of, load_executable
from tests.unit.test_api import tiny_model

PROGRAM = """
fn main<n>(x: Tensor[n, 8, f32], w: Tensor[8, 8, f32]) -> Tensor[n, 8, f32] { tanh(matmul(x, w)) }
entry main("x", "w") -> ("y");
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("effects")
    (folder / "p.inl").write_text(PROGRAM)
    np.savez(folder / "x.npz", x=np.ones((3, 8), np.float32), w=np.ones((8, 8), np.float32))
    inlay.compile(folder / "p.inl", cache="none").save(folder / "p.inlay")
    return folder


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run p.inl --inputs x.npz --dim n=3", "--dim, which does nothing beside --inputs"),
        ("run p.inl --inputs x.npz --seed 4", "--seed, which does nothing beside --inputs"),
        ("run p.inl --schedule 3", "--schedule, which does nothing without --mode replay"),
        ("run p.inl --mode parallel --schedule 3", "--schedule, which does nothing without"),
        ("run p.inlay --board host_two", "--board, which does nothing for p.inlay"),
        ("run p.inlay --pin matmul=cpu", "--pin, which does nothing for p.inlay"),
        ("run p.inlay --typical n=4", "--typical, which does nothing for p.inlay"),
        ("run p.inlay --fix-dim n=4", "--fix-dim, which does nothing for p.inlay"),
        ("run p.inlay --cache none --verify", "--verify, which does nothing for p.inlay"),
        ("run p.inlay --timings", "--timings, which does nothing for p.inlay"),
        ("run p.inl --max-nodes 3", "--max-nodes, which does nothing for p.inl: it is a limit of ONNX"),
        ("compile p.inl -o q.inlay --mode parallel", "unrecognized arguments: --mode"),
        ("compile p.inl -o q.inlay --schedule 1", "unrecognized arguments: --schedule"),
        ("bench p.inl -o c.json", "--output, which does nothing without --calibrate"),
        ("bench p.inl --atol 1e-3", "--atol, which does nothing without --against"),
        ("bench --calibrate host --threads 2", "--threads, which does nothing beside --calibrate"),
        ("bench --calibrate host --rounds 2", "--rounds, which does nothing beside --calibrate"),
        ("bench --calibrate host --dim n=3", "--dim, which does nothing without a model"),
        (
            "opt p.inl --passes to-anf --board host",
            "without the pass plan-places, unroll-loops, split-batch or build-kernels",
        ),
        ("explain p.inl --at matmul --all", "--all, which does nothing beside --at"),
        ("explain p.inl --view loops --op matmul", "--op, which does nothing with --view loops"),
        ("targets check host --operators", "--operators, which does nothing beside check"),
        ("targets show host --passes", "--passes, which does nothing beside show"),
        ("explain p.inl --op matmul --all", "--op, which does nothing beside --all"),
        ("explain p.inl --batch", "--batch, which does nothing with --view placement: it is about kernels"),
    ],
)
def test_what_would_do_nothing_is_wrong_usage(files, monkeypatch, capsys, words, said):
    monkeypatch.chdir(files)
    assert main(words.split()) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run p.inl --pin foo", "needed PATTERN=DEVICE"),
        ("run p.inl --pin MatMul=nodev", "found the device 'nodev', which board 'host' does not have"),
        ("run p.inl --pin MatMull=cpu", "did you mean matmul"),
        ("run p.inl --typical q=3", "--typical q, which is no dim of the program"),
        ("run p.inl --fix-dim q=3", "--fix-dim q, which is no dim of the inputs"),
        ("run p.inl --dim q=3", "--dim q, which is no dim of the inputs"),
        ("explain p.inl --typical q=3", "--typical q, which is no dim of the program"),
        ("explain p.inl --typical n=3 --typical n=4", "found two sizes of n: 3 and 4"),
        ("run p.inl --dim n=3 --dim n=4", "found two sizes of n: 3 and 4"),
        ("opt p.inl --passes link", "found 'link', which makes no module"),
        ("explain p.inl --at matmull", "did you mean matmul"),
        ("explain p.inl --op Nope", "found no kernel named 'Nope'"),
        ("explain p.inl --op matmull", "did you mean matmul"),
        ("explain p.inl --op tahn --json", "did you mean tanh"),
    ],
)
def test_what_is_unknown_is_named(files, monkeypatch, capsys, words, said):
    monkeypatch.chdir(files)
    assert main(words.split()) == 1
    found = capsys.readouterr()
    assert said in found.out + found.err


def test_what_has_its_effect_is_taken(files, monkeypatch, capsys):
    monkeypatch.chdir(files)
    assert main("run p.inl --mode replay --schedule 3 --dim n=3 --seed 1 --pin tanh=cpu".split()) == 0
    assert main("run p.inlay --mode sequential --threads 1 --inputs x.npz".split()) == 0
    assert main("explain p.inl --op matmul --typical n=5".split()) == 0
    assert "size n = 5, from the user" in capsys.readouterr().out


def test_options_of_the_environment_are_those_of_all_commands(files, monkeypatch, capsys):
    monkeypatch.chdir(files)
    monkeypatch.setenv("INLAY_BOARD", "host_two")
    assert main("explain p.inl".split()) == 0
    assert "board host_two" in capsys.readouterr().out


def test_a_variable_of_the_environment_that_means_nothing(files, monkeypatch, capsys):
    monkeypatch.chdir(files)
    monkeypatch.setenv("INLAY_BORD", "host_two")
    for words in ("explain p.inl", "compile p.inl -o q.inlay"):
        assert main(words.split()) == 1
        said = capsys.readouterr().err
        assert "found the environment variable INLAY_BORD, which means nothing" in said
        assert "did you mean board" in said


def test_outputs_that_are_explained(files, capsys, monkeypatch):
    text = """fn main(x: Tensor[4, f32]) -> (Tensor[4, f32], Tensor[4, f32]) { (exp(x), tanh(x)) }
    entry main("x") -> ("a", "b");"""
    (files / "two.inl").write_text(text)
    operators = [o.operator for o in inlay.explain(files / "two.inl", outputs=("b",)).operations]
    assert operators == ["tanh"]
    monkeypatch.chdir(files)
    assert main("explain two.inl --only c".split()) == 1
    assert "found outputs with 'c', which is no output" in capsys.readouterr().err


def test_limits_below_nothing(files, monkeypatch, capsys):
    monkeypatch.chdir(files)
    with pytest.raises(CompileError, match="found max_nodes=-1, needed at least 0"):
        inlay.load(files / "p.inl", max_nodes=-1)
    tiny_model(files / "t.onnx")
    assert main("run t.onnx --max-nodes=-1".split()) == 1
    assert "needed at least 0" in capsys.readouterr().err


def test_functions_that_the_program_does_not_ask_for(files):
    program = inlay.compile(files / "p.inl", cache="none").program
    with pytest.raises(CompileError, match="no Python function of this program named 'f'"):
        executable_of(program, callbacks={"f": lambda arrays, sizes: None})
    with pytest.raises(CompileError, match="no C function of this program named 'g'"):
        executable_of(program, symbols={"g": 1})


def test_keywords_that_would_do_nothing(files):
    with pytest.raises(CompileError, match="a seed, which does nothing") as failure:
        load_executable(files / "p.inlay", seed=3)
    assert failure.value.ids == ("option.no-effect",)
    program = inlay.compile(files / "p.inl", cache="none").program
    with pytest.raises(CompileError, match="a seed, which does nothing"):
        executable_of(program, mode="parallel", seed=3)
    with pytest.raises(CompileError, match="max_nodes, which does nothing"):
        inlay.load(files / "p.inl", max_nodes=3)
    with pytest.raises(CompileError, match="did you mean typical") as failure:
        inlay.explain(files / "p.inl", typicl=("n=3",))
    assert failure.value.ids == ("option.unknown",)


def test_a_dim_that_is_not_there_is_told_before_a_compilation(files, monkeypatch, capsys):
    monkeypatch.chdir(files)
    monkeypatch.setattr("inlay.cli._compiling.compilation", None)
    assert main(["run", "p.inl", "--dim", "q=3"]) == 1
    assert "--dim q, which is no dim of the inputs" in capsys.readouterr().err
