"""Saved programs call the drivers of their devices again, and say what is absent."""

from __future__ import annotations

import importlib.util
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.accelerators import vanilla
from inlay.bytecode.formula import Arg
from inlay.bytecode.program import ImageTarget, Program
from inlay.ir.parser import parse_module
from inlay.machine.board_file import board_text
from inlay.ops.table import table
from inlay.runtime.calls import CALLS, Code, DriverCall, LibraryFunction, opened
from inlay.runtime.driver_arguments import Number
from inlay.runtime.session import executable_of, load_executable

RNG = np.random.default_rng(15)
W, B = RNG.integers(-128, 128, (256, 128)), RNG.integers(-5000, 5000, 128)
PROGRAM = f"""
fn main<n>(x: Tensor[n, 256, i8]) {{
  add(matmul_integer(x, i8[256, 128]({", ".join(map(str, W.ravel()))})), i32[128]({", ".join(map(str, B))}))
}}
entry main("x") -> ("y");
"""
X = RNG.integers(-128, 128, (4, 256)).astype(np.int8)
WANT = (X.astype(np.int64) @ W + B).astype(np.int32)
MODEL = "inlay.accelerators._vanilla_model"


def compiled(board: str) -> inlay.Executable:
    module = parse_module(PROGRAM, table())
    return inlay.compile(module, board=board, required=("npu0",), cache="none")


def own_board(folder: Path, driver: str) -> str:
    """Write a description that is vanilla with another driver, and a board whose loader is that file."""
    text = Path(vanilla.__file__).read_text(encoding="utf-8")
    assert f'Library("{MODEL}")' in text
    text = text.replace(f'Library("{MODEL}")', driver)
    (folder / "own.py").write_text(text.replace("Library,", "Library, Mock,", 1), encoding="utf-8")
    board = board_text("vanilla").replace('loader = "vanilla"', 'loader = "own.py"')
    (folder / "own.toml").write_text(board.replace('"vanilla"', '"own"'), encoding="utf-8")
    return str(folder / "own.toml")


@pytest.mark.llvm
@pytest.mark.parametrize("engine", ["native", "python"])
def test_a_saved_program_calls_the_library_again(tmp_path, engine) -> None:
    exe = compiled("vanilla")
    np.testing.assert_array_equal(exe(X), WANT)
    exe.save(tmp_path / "saved.inlay")
    again = load_executable(tmp_path / "saved.inlay", engine=engine)
    np.testing.assert_array_equal(again(X), WANT)
    np.testing.assert_array_equal(again(X[:1]), WANT[:1])
    assert '"library": "inlay.accelerators._vanilla_model"' in again.program.properties[CALLS]


@pytest.mark.llvm
def test_a_mock_is_saved_with_the_program(tmp_path) -> None:
    exe = compiled(own_board(tmp_path, "Mock()"))
    np.testing.assert_array_equal(exe(X), WANT)
    exe.save(tmp_path / "saved.inlay")
    (tmp_path / "own.py").unlink()
    np.testing.assert_array_equal(load_executable(tmp_path / "saved.inlay")(X), WANT)


@pytest.mark.llvm
def test_a_library_beside_the_description_is_found_from_everywhere(tmp_path, monkeypatch) -> None:
    found = importlib.util.find_spec(MODEL)
    assert found is not None
    assert found.origin is not None
    shutil.copy(found.origin, tmp_path / "own_model.so")
    exe = compiled(own_board(tmp_path, 'Library("own_model.so")'))
    exe.save(tmp_path / "saved.inlay")
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(load_executable(tmp_path / "saved.inlay")(X), WANT)


@pytest.mark.llvm
def test_an_absent_library_is_named(program) -> None:
    said = program.properties[CALLS].replace(MODEL, "/no/such_model.so")
    with pytest.raises(
        inlay.RunError, match="driver of 'npu0' cannot be loaded: .*/no/such_model.so"
    ) as absent:
        executable_of(replace(program, properties={**program.properties, CALLS: said}))
    assert absent.value.ids == ("run.device-absent",)


@pytest.mark.llvm
def test_a_function_that_is_given_stands_for_the_call(tmp_path) -> None:
    exe = compiled("vanilla")
    exe.save(tmp_path / "saved.inlay")
    (name,) = json.loads(exe.program.properties[CALLS])

    def given(arrays: list[np.ndarray], _: list[int]) -> None:
        arrays[-1][...] = 7

    again = load_executable(tmp_path / "saved.inlay", callbacks={name: given})
    assert (again(X) == 7).all()


@pytest.fixture(scope="module")
def program() -> Program:
    return compiled("vanilla").program


WRONG = [
    ('"tensor": 0', '"tensor": 9'),
    ('"tensor": 0', '"tensor": true'),
    ('"tensor": 0', '"tensor": "0"'),
    ('"tensor": 0', '"tensor": 0, "number": [1]'),
    ('"tensor"', '"register"'),
    ('"function"', '"symbol"'),
    ('"number": [[0]]', '"number": [[4]]'),
    ('"number": [[0]]', '"number": ["mul"]'),
    ('"number": [[0]]', '"number": [1.5]'),
    ('"number": [[0]]', '"number": [1e400]'),
    ('"number": [[0]]', '"constant": -1'),
    ('"args"', '"of"'),
    ("{", "["),
]


@pytest.mark.llvm
@pytest.mark.parametrize(("old", "new"), WRONG)
def test_properties_that_say_no_call_are_refused(program, old, new) -> None:
    said = program.properties[CALLS]
    assert old in said
    wrong = replace(program, properties={**program.properties, CALLS: said.replace(old, new, 1)})
    with pytest.raises(inlay.CompileError) as refused:
        executable_of(wrong)
    assert refused.value.ids == ("container.corrupt",)


def test_code_for_another_processor_is_refused() -> None:
    call = DriverCall("npu0", Code(b"\xc3", (0,), ImageTarget("z80-none-elf")), ())
    with pytest.raises(inlay.CompileError, match="z80"):
        opened(call)


def test_a_number_that_is_not_defined_is_a_fault_of_the_run() -> None:
    quotient = Number((7, Arg(0), "floordiv"))
    run = opened(DriverCall("npu0", LibraryFunction(MODEL, "vanilla_multiply"), (quotient,)))
    with pytest.raises(inlay.RunError, match="a number in a command of 'npu0' is not defined"):
        run([], [0])
