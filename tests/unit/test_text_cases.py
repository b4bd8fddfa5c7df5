"""The runner of cases of passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import text_cases
from tests.text_cases import Case, CaseError, read_cases, run_case, update

BEFORE = "fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {\n  add(x, f32(0.0))\n}\n"
AFTER = "fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] { x }\n"
PASSES = "to-anf,simplify-algebra,eliminate-dead"


def test_text_is_compared() -> None:
    run_case(Case("zero", BEFORE, AFTER, PASSES))
    with pytest.raises(CaseError, match="needed\nfn other"):
        run_case(Case("zero", BEFORE, AFTER.replace("main", "other"), PASSES))


def test_meaning_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("one", BEFORE.replace("0.0", "1.0"), AFTER, PASSES)
    before, _ = text_cases.done(case)
    after = text_cases.done(Case("zero", BEFORE, AFTER, PASSES))[1]
    monkeypatch.setattr(text_cases, "done", lambda _: (before, after))
    with pytest.raises(AssertionError, match="not equal"):
        run_case(case)
    run_case(Case("not run", "// NOT RUN\n" + case.before, AFTER, PASSES))


def test_update_writes_what_passes_make(tmp_path: Path) -> None:
    path = tmp_path / "a.inl"
    path.write_text(f"// PASSES: {PASSES}\n\n// ---- zero\n{BEFORE}")
    assert update(path)
    assert not update(path)
    (case,) = read_cases(path)
    assert (case.title, case.after) == ("zero", AFTER)
    run_case(case)


def test_elements_of_inputs_can_be_given() -> None:
    text = "// GIVEN x = [0, 127]\n" + BEFORE
    (inputs,) = text_cases._inputs(text_cases.done(Case("x", text, "", PASSES))[0], {"x": [0, 127]})
    assert list(inputs[0]) == [0, 127, 0, 127, 0, 127]
