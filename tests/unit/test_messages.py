"""What the Python interface says of what people get wrong: what was found, in their terms, and a way on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.base.diagnostics import InlayError
from inlay.cli.main import main
from inlay.machine.board_file import board_text
from tests.unit.test_api import tiny_model

PROGRAM = "fn main<n>(x: Tensor[n, f32]) { softmax(x) }\n"
X = np.ones(3, np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("messages")
    (path / "p.inl").write_text(PROGRAM)
    (path / "Marked.INL").write_bytes(b"\xef\xbb\xbf" + PROGRAM.encode())
    (path / "folder.onnx").mkdir()
    (path / "b.toml").write_bytes(b"\xef\xbb\xbf" + board_text("host").encode())
    return path


@pytest.fixture(scope="module")
def exe(folder):
    return inlay.compile(folder / "p.inl", cache=folder / "cache")


def said(call, *arguments, **options):
    with pytest.raises(InlayError) as failure:
        call(*arguments, **options)
    return str(failure.value)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (None, "expected an array of f32; found None"),
        ({}, "found dict"),
        ([None, 1.0], "found list with None"),
        (np.array([1.5, {}], object), "found ndarray with float"),
        ("abc", "found string"),
        ([[1], [1, 2]], "found list"),
    ],
)
def test_what_is_no_array_is_called_what_it_is(exe, value, found):
    assert found in said(exe.run, {"x": value})
    assert found in said(exe, value)


@pytest.mark.parametrize("inputs", [None, [X], X, 3, "x"])
def test_inputs_come_by_name(exe, inputs):
    text = said(exe.run, inputs)
    assert "needed a mapping from names to arrays" in text
    assert "needed a mapping" in said(exe.submit(inputs).result)


def test_a_missing_input_names_what_is_there(exe, folder, capsys):
    assert "found nothing of this name among 'y', 'z'" in said(exe.run, {"y": X, "z": X})
    np.savez(folder / "in.npz", images=X, labels=X)
    words = ["run", str(folder / "p.inl"), "--cache", str(folder / "cache")]
    assert main([*words, "--inputs", str(folder / "in.npz")]) != 0
    assert "nothing of this name among 'images', 'labels'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "meant"),
    [("thread", "threads"), ("modes", "mode"), ("extern", "externs"), ("boards", "board"), ("pin", "pins")],
)
def test_an_unknown_option_suggests_every_argument_of_the_call(folder, option, meant):
    if option != "extern":
        assert f"did you mean {meant}" in said(inlay.compile, folder / "p.inl", **{option: 2})
    assert meant in said(inlay.compile, folder / "p.inl", **{option: 2})


def test_options_take_paths_and_say_what_they_need(folder):
    assert inlay.compile(folder / "p.inl", cache=None)
    assert inlay.compile(folder / "p.inl", cache=folder / "other")
    assert (folder / "other").is_dir()
    assert inlay.compile(folder / "p.inl", board=folder / "b.toml", cache=folder / "cache")
    assert inlay.compile(folder / "p.inl", typical={"n": 3}, cache=folder / "cache")
    for options, needed in (
        ({"pins": 3}, "needed a list of texts"),
        ({"typical": 3}, "needed a list of texts"),
        ({"threads": "2"}, "needed an integer from 1"),
        ({"threads": 0}, "needed an integer from 1"),
        ({"threads": 10**9}, "needed an integer from 1"),
        ({"mode": "paralel"}, "needed one of sequential, parallel"),
        ({"cache": folder / "p.inl"}, "which is a file, needed a folder"),
    ):
        assert needed in said(inlay.compile, folder / "p.inl", **options)


def test_files_are_known_by_any_case_and_with_a_mark(folder):
    assert inlay.load(folder / "Marked.INL").functions
    for found in (folder, folder / "folder.onnx"):
        assert f"found the folder {found}" in said(inlay.load, found)
    assert f"found no file {folder / 'absent.onnx'}" in said(inlay.load, folder / "absent.onnx")


def test_a_model_is_known_by_any_case(tmp_path, capsys):
    model = tiny_model(tmp_path / "T.ONNX")
    assert inlay.load(model).functions
    made = tmp_path / "T.INLAY"
    assert main(["compile", str(model), "-o", str(made), "--cache", "none"]) == 0
    assert main(["run", str(made)]) == 0


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("float32", "f32"),
        ("int64", "i64"),
        ("uint8", "u8"),
        ("bfloat16", "bf16"),
        ("double", "f64"),
        ("int8_t", "i8"),
        ("half", "f16"),
        ("f23", "f"),
        ("F32", "f32"),
        ("str", "string"),
    ],
)
def test_names_of_element_types_elsewhere_suggest_ours(name, meant, tmp_path):
    hint = f"did you mean {meant}"
    assert hint in said(inlay.tensor_type, (2,), name)
    program = tmp_path / "p.inl"
    program.write_text(f"fn main(x: Tensor[2, {name}]) {{ neg(x) }}")
    text = said(inlay.load, program)
    assert f"found no element type {name}" in text and hint in text
    rule = f"(x: Tensor[n, {name}]) -> Tensor[n, {name}]"
    program.write_text("fn main(x: Tensor[2, f32]) { mine(x) }")
    mine = inlay.extern("mine", rule, python=lambda x: x)
    assert hint in said(inlay.load, program, externs=[mine])


def test_a_name_that_the_package_lacks_knows_where_it_was_looked_for():
    with pytest.raises(AttributeError) as failure:
        inlay.lode
    assert (failure.value.name, failure.value.obj) == ("lode", inlay)


def test_numpy_types_are_no_element_types():
    assert "did you mean f32" in said(inlay.tensor_type, (2,), np.float32)


def test_lists_of_boards_mark_what_is_only_described(capsys):
    assert main(["targets"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.split()}
    assert "npu0 (strawberry, described only)" in lines["soc_npus"]
    assert "described only" not in lines["host_two"] + lines["opencl"] + lines["remote"]


def test_a_path_of_a_program_may_be_any_path(folder):
    assert inlay.load(str(folder / "p.inl")).functions
    assert inlay.load(Path(folder / "p.inl")).functions
