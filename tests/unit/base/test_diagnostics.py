"""Diagnostics: kinds of failure, collecting, text and JSON."""

from __future__ import annotations

import concurrent.futures
import pickle

import pytest

import inlay
from inlay.base.diagnostics import (
    Cancelled,
    Collector,
    CompileError,
    DeadlineError,
    Diagnostic,
    InlayError,
    InternalError,
    Label,
    RunError,
    Severity,
    UnsupportedError,
    diagnostic,
    error,
    error_of,
    render,
    to_json,
    unsupported,
)
from inlay.base.span import Source, Span

SOURCE = Source("model.inl", "let x = 1;\nlet y = f(x);\n")


def test_text_shows_place_labels_notes_and_hint() -> None:
    failure = error(
        "type.rank-mismatch",
        "found rank 2, needed rank 3",
        span=SOURCE.span(19, 20),
        labels=[(SOURCE.span(4, 5), "first constrained here"), Label(Span.named("node 'a'"), "by")],
        notes=["f takes [n, c, w]"],
        hint="add a batch dimension",
    )
    assert str(failure).split("\n") == [
        "error[type.rank-mismatch]: found rank 2, needed rank 3",
        "  --> model.inl:2:9",
        "    |",
        "  1 | let x = 1;",
        "    |     - first constrained here",
        "  2 | let y = f(x);",
        "    |         ^",
        "  at node 'a': by",
        "  note: f takes [n, c, w]",
        "  hint: add a batch dimension",
    ]


def test_a_label_in_another_text_is_shown_with_its_own_excerpt() -> None:
    other = Source("lib.inl", "def f")
    found = diagnostic("a.b", "m", span=SOURCE.span(4), labels=[(other.span(4, 5), "declared here")])
    assert "  at lib.inl:1:5: declared here\n    |\n  1 | def f\n    |     ^" in render(found)


def test_an_error_without_a_place_is_one_line() -> None:
    assert str(error("a.b", "found x")) == "error[a.b]: found x"


def test_json_has_everything() -> None:
    failure = error("a.b", "m", span=SOURCE.span(11, 14), notes=["n"], hint="h")
    (record,) = map(to_json, failure.diagnostics)
    assert record == {
        "id": "a.b",
        "severity": "error",
        "message": "m",
        "place": {"name": "model.inl", "line": 2, "column": 1, "end_line": 2, "end_column": 4},
        "labels": [],
        "notes": ["n"],
        "hint": "h",
    }
    named = Diagnostic("a.b", "m", Span.named("node 'c'"))
    assert to_json(named)["place"] == {"name": "node 'c'"}


def test_the_collector_reports_all_and_repeats_nothing() -> None:
    findings = Collector()
    findings.error("a.one", "1")
    with findings.catching():
        raise error("a.two", "2")
    findings.error("a.one", "1")
    findings.warning("a.three", "3")
    with pytest.raises(CompileError) as caught:
        findings.raise_if_fatal()
    assert caught.value.ids == ("a.one", "a.two", "a.three")
    assert not isinstance(caught.value, UnsupportedError)
    assert str(caught.value).endswith("2 problems")


def test_only_refusals_make_an_unsupported_error() -> None:
    findings = Collector()
    findings.warning("a.w", "w")
    findings.raise_if_fatal()
    findings.unsupported("a.u", "u")
    with pytest.raises(UnsupportedError):
        findings.raise_if_fatal()
    findings.error("a.e", "e")
    with pytest.raises(CompileError) as caught:
        findings.raise_if_fatal()
    assert not isinstance(caught.value, UnsupportedError)


def test_catching_lets_other_failures_through() -> None:
    findings = Collector()
    with pytest.raises(InternalError), findings.catching():
        raise InternalError("broken")


def test_failures_survive_pickling() -> None:
    failure = pickle.loads(pickle.dumps(unsupported("a.b", "m", notes=["n"])))
    assert isinstance(failure, UnsupportedError)
    assert failure.diagnostics[0].severity is Severity.UNSUPPORTED
    internal = pickle.loads(pickle.dumps(InternalError("m", where="pass x", reproduce="cmd")))
    assert (internal.message, internal.where, internal.reproduce) == ("m", "pass x", "cmd")


def test_an_internal_error_says_whose_fault_it_is() -> None:
    shown = str(InternalError("types disagree", where="fuse-ops", reproduce="inlay opt x.inl"))
    assert "fault of the compiler" in shown
    assert "at: fuse-ops" in shown
    assert "reproduce: inlay opt x.inl" in shown


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (error("type.rank-mismatch", "m"), CompileError),
        (unsupported("run.device-absent", "m"), UnsupportedError),
        (error("run.check-failed", "m"), RunError),
        (error("input.rank", "m"), RunError),
        (error("run.deadline", "m"), DeadlineError),
        (error("run.cancelled", "m"), Cancelled),
        (InternalError("m", where="here"), InternalError),
    ],
)
def test_the_area_of_an_id_decides_the_class_and_all_are_of_inlay(failure, kind) -> None:
    assert type(failure) is kind
    assert isinstance(failure, InlayError)
    assert failure.diagnostics[0].message == "m"
    copied = pickle.loads(pickle.dumps(failure))
    assert (type(copied), str(copied), copied.ids) == (kind, str(failure), failure.ids)
    assert getattr(inlay, kind.__name__) is kind


def test_what_a_caller_asked_for_is_also_what_python_calls_it() -> None:
    assert issubclass(DeadlineError, TimeoutError)
    assert issubclass(Cancelled, concurrent.futures.CancelledError)
    assert not issubclass(RunError, CompileError)
    assert not issubclass(InternalError, CompileError)


def test_several_findings_have_the_class_that_fits_all() -> None:
    rank, race = diagnostic("input.rank", "a"), diagnostic("run.deadline", "b")
    assert type(error_of([rank, rank])) is RunError
    assert type(error_of([rank, race])) is RunError
    assert type(error_of([race, race])) is DeadlineError
    assert type(error_of([rank, diagnostic("type.x", "c")])) is CompileError
