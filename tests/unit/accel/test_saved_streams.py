"""Saved programs run the streams of their devices: words, packed constants and how tensors come are data."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.accel.launch import Launcher
from inlay.accelerators import strawberry
from inlay.api import compilation
from inlay.base.diagnostics import CompileError, RunError
from inlay.bytecode.program import Program
from inlay.cli.main import main
from inlay.ir.expr import Expr
from inlay.ir.parser import parse_module
from inlay.machine.board_file import board_text
from inlay.ops.table import table
from inlay.runtime import streams
from inlay.runtime.driver_arguments import digest_of
from inlay.runtime.session import executable_of, load_executable
from inlay.runtime.streams import STREAMS

MODEL = "inlay.accelerators._strawberry_model"


def constant(dtype: str, shape: tuple[int, ...], seed: int, most: int) -> str:
    """Return drawn integers as text."""
    values = np.random.default_rng(seed).integers(-most, most + 1, shape)
    return f"{dtype}[{', '.join(map(str, shape))}]({', '.join(map(str, values.ravel()))})"


def layer(x: str, seed: int) -> str:
    """Return a convolution, 24 channels to 24, back to bytes."""
    conv = f"conv_integer{{pads=[1, 1, 1, 1]}}({x}, {constant('i8', (24, 24, 3, 3), seed, 127)})"
    bias = constant("i32", (24, 1, 1), seed + 1, 3000)
    return f"requantize{{zero=3}}(add({conv}, {bias}), f32(0.0003))"


PROGRAM = f"""
fn main<n>(x: Tensor[n, 24, 6, 5, i8]) {{
  let a = {layer("x", 1)};
  let b = abs(a);
  {layer("b", 5)}
}}
entry main("x") -> ("y");
"""
MERGED = PROGRAM.replace("abs(a)", "a")
X = np.random.default_rng(3).integers(-128, 128, (3, 24, 6, 5)).astype(np.int8)


def fast_board(folder: Path) -> str:
    """Write a board with the device faster than any host, so that small programs are worth its while."""
    text = board_text("strawberry")
    assert "clock = 1000000000 " in text
    (folder / "fast.toml").write_text(text.replace("clock = 1000000000 ", "clock = 1000000000000 "))
    return str(folder / "fast.toml")


@pytest.fixture(name="program", scope="module")
def compiled_program(tmp_path_factory) -> Program:
    """Return two layers of equal shapes: one stream with two sets of constants."""
    board = fast_board(tmp_path_factory.mktemp("board"))
    return compilation(parse_module(PROGRAM, table()), board=board, cache="none").program


@pytest.fixture(name="want", scope="module")
def result_of_the_host() -> np.ndarray:
    """Return what the host computes."""
    return np.asarray(inlay.compile(parse_module(PROGRAM, table()))(X))


@pytest.mark.llvm
@pytest.mark.parametrize("engine", ["native", "python"])
def test_a_saved_program_runs_its_streams(program, want, tmp_path, engine) -> None:
    said = json.loads(program.properties[STREAMS])
    assert [len(s["images"]) for s in said.values()] == [2], "one stream, two sets of constants"
    executable_of(program).save(tmp_path / "saved.inlay")
    again = load_executable(tmp_path / "saved.inlay", engine=engine)
    np.testing.assert_array_equal(again(X), want)
    np.testing.assert_array_equal(again(X[:1]), want[:1])


@pytest.mark.llvm
def test_a_saved_program_runs_layers_that_are_one_stream(tmp_path) -> None:
    module = parse_module(MERGED, table())
    program = compilation(module, board=fast_board(tmp_path), required=("npu0",), cache="none").program
    assert [len(s["images"]) for s in json.loads(program.properties[STREAMS]).values()] == [1]
    executable_of(program).save(tmp_path / "saved.inlay")
    want = np.asarray(inlay.compile(module)(X))
    np.testing.assert_array_equal(load_executable(tmp_path / "saved.inlay")(X), want)


@pytest.mark.llvm
def test_constants_are_compared_once_where_all_calls_have_one_set(program, tmp_path, monkeypatch) -> None:
    looked: list[str] = []

    def digest(arrays: Sequence[np.ndarray]) -> str:
        looked.append(digest_of(arrays))
        return looked[-1]

    def sources(self: Launcher) -> dict[Expr, None]:
        looked.append("in this process")
        return found(self)

    found = Launcher._sources
    module = parse_module(MERGED, table())
    own = inlay.compile(module, board=fast_board(tmp_path), required=("npu0",), cache="none")
    own.save(tmp_path / "saved.inlay")
    executable_of(program).save(tmp_path / "several.inlay")
    one, several = load_executable(tmp_path / "saved.inlay"), load_executable(tmp_path / "several.inlay")
    own(X)
    monkeypatch.setattr(streams, "digest_of", digest)
    monkeypatch.setattr(Launcher, "_sources", sources)
    want = np.asarray(inlay.compile(module)(X))
    for times in (1, 1):
        np.testing.assert_array_equal(np.asarray(own(X)), want)
        np.testing.assert_array_equal(np.asarray(one(X)), want)
        assert len(looked) == times
    several(X)
    several(X)
    assert len(looked) == 1 + 4


@pytest.mark.llvm
def test_another_process_runs_it_without_the_description(program, want, tmp_path) -> None:
    executable_of(program).save(tmp_path / "saved.inlay")
    np.save(tmp_path / "x.npy", X)
    script = """
import sys
import numpy as np
from inlay.runtime.session import load_executable
np.save("y.npy", load_executable("saved.inlay")(np.load("x.npy")))
assert "inlay.accelerators.strawberry" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), want)


@pytest.mark.llvm
def test_an_absent_driver_is_named(program) -> None:
    text = program.properties[STREAMS].replace(MODEL, "/no/such_model.so")
    with pytest.raises(RunError, match=r"the driver of 'npu0' cannot be loaded: /no/such_model\.so"):
        executable_of(replace(program, properties={**program.properties, STREAMS: text}))


@pytest.mark.llvm
@pytest.mark.parametrize(
    "harm",
    [
        lambda s: s.pop("words"),
        lambda s: s.update(words=10**6),
        lambda s: s.update(images={}),
        lambda s: s.update(result=[0, 0, 10**9, 16, "<i1", [[16, 1]]]),
        lambda s: s.update(result=[99, 0, 16, 16, "<i1", [[16, 1]]]),
        lambda s: s["comes"][0].pop(),
        lambda s: s.update(config=["a"]),
        lambda s: s.update(constants=[-1]),
    ],
)
def test_a_record_that_is_not_of_the_form_is_refused(program, harm) -> None:
    said = json.loads(program.properties[STREAMS])
    for s in said.values():
        harm(s)
    broken = replace(program, properties={**program.properties, STREAMS: json.dumps(said)})
    with pytest.raises(CompileError) as refusal:
        executable_of(broken)
    assert refusal.value.ids == ("container.corrupt",)


@pytest.mark.llvm
def test_constants_that_it_was_not_saved_with_are_an_error(program) -> None:
    said = json.loads(program.properties[STREAMS])
    for s in said.values():
        s["images"] = {"0" * 64: next(iter(s["images"].values()))}
    other = replace(program, properties={**program.properties, STREAMS: json.dumps(said)})
    with pytest.raises(RunError, match="given constants that the program was not saved with"):
        executable_of(other)(X)


@pytest.mark.llvm
def test_a_mock_of_streams_is_only_in_its_process(tmp_path, capsys) -> None:
    text = Path(strawberry.__file__).read_text(encoding="utf-8")
    assert text.count(f'Library("{MODEL}")') == 1
    own = text.replace(f'Library("{MODEL}")', "Mock()").replace("    Library,\n", "    Mock,\n")
    (tmp_path / "own.py").write_text(own)
    board = Path(fast_board(tmp_path))
    board.write_text(
        board.read_text().replace('"strawberry"', '"own"').replace('loader = "own"', 'loader = "own.py"')
    )
    (tmp_path / "p.inl").write_text(PROGRAM.replace("main<n>", "main").replace("[n, 24", "[2, 24"))
    words = ["compile", str(tmp_path / "p.inl"), "--board", str(board), "--cache", "none"]
    assert main([*words, "-o", str(tmp_path / "p.inlay")]) == 0
    assert "runs only where `callbacks` are given: 1 kernel of npu0" in capsys.readouterr().out
    with pytest.raises(CompileError, match="only the process has that compiled it"):
        load_executable(tmp_path / "p.inlay")
