"""What a program keeps from run to run: said in its text, kept in its file, tied by a session."""

from __future__ import annotations

import io

import numpy as np
import pytest

import inlay
from inlay.base.diagnostics import CompileError, InlayError
from inlay.ir.printer import print_module

TEXT = """
fn main(x: Tensor[2, f32], s: Tensor[2, f32], n: Tensor[2, f32]) -> (Tensor[2, f32], Tensor[2, f32]) {
  (add(add(x, s), n), add(s, x))
}
fn begin() -> Tensor[2, f32] { f32[2](1.0, 2.0) }
entry main("x", "s", "n") -> ("y", "s:next") state("s", "s:next") state("n", "y")%s;
entry begin() -> ("s");
"""


def compiled(tmp_path, text: str):
    path = tmp_path / "program.inlay"
    inlay.compile(io.StringIO(text), threads=1).save(path)
    return inlay.load_executable(path)


def test_a_session_needs_no_telling(tmp_path):
    executable = compiled(tmp_path, TEXT % " first begin")
    assert executable.state == {"s": "s:next", "n": "y"}
    session = executable.session()
    for _ in range(2):
        assert session.run({"x": np.ones(2, np.float32)}) == {}
    np.testing.assert_array_equal(session.state["s"], [3, 4])
    np.testing.assert_array_equal(session.state["n"], [5, 7])


def test_without_first_values_it_begins_with_zeros_or_what_is_given(tmp_path):
    executable = compiled(tmp_path, TEXT % "")
    np.testing.assert_array_equal(executable.session().state["s"], [0, 0])
    given = executable.session(state={"s": np.full(2, 7, np.float32)}).state
    np.testing.assert_array_equal(given["s"], [7, 7])
    np.testing.assert_array_equal(given["n"], [0, 0])
    with pytest.raises(InlayError, match="'x', which is not carried"):
        executable.session(state={"x": np.zeros(2, np.float32)})


@pytest.mark.parametrize("by_name", [False, True])
def test_a_call_without_it_is_told_of_sessions(tmp_path, by_name):
    executable, x = compiled(tmp_path, TEXT % ""), np.ones(2, np.float32)
    with pytest.raises(InlayError) as caught:
        executable.run({"x": x}) if by_name else executable(x)
    assert [d.id for d in caught.value.diagnostics] == ["input.missing"] * 2
    assert all("executable.session()" in d.hint for d in caught.value.diagnostics)
    with pytest.raises(InlayError) as caught:
        executable.run({"s": x, "n": x})
    assert [d.hint for d in caught.value.diagnostics] == [""], "x is no state"


def test_text_keeps_it():
    module = inlay.load(io.StringIO(TEXT % " first begin"))
    again = inlay.load(io.StringIO(print_module(module)))
    assert again.entries == module.entries
    assert again.entries["main"].state == (("s", "s:next"), ("n", "y"))


def test_outputs_that_are_not_computed_do_not_stay(tmp_path):
    executable = inlay.compile(io.StringIO(TEXT % " first begin"), threads=1, outputs=["y"])
    assert executable.state == {"n": "y"}


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ('state("n", "y")', 'state("z", "y")', "no input 'z'"),
        ("n: Tensor[2, f32]", "n: Tensor[1, f32]", "takes 'n' as Tensor\\[1, f32\\]"),
        ("first begin", "first main", "first values from main"),
    ],
)
def test_what_does_not_fit_is_refused(old, new, found):
    with pytest.raises(CompileError, match=found):
        inlay.load(io.StringIO((TEXT % " first begin").replace(old, new)))
