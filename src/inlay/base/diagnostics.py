"""Errors as data: what was found, what was needed, where, and what to do about it.

Every failure is an `InlayError`. Its kinds are kept apart, because their readers differ:

* `CompileError`: the user's program, model, file or option is wrong. The user mends it.
* `UnsupportedError`, a kind of it: the program is right and we cannot do it. The user goes round
  it, or asks.
* `RunError`: a program that was accepted fails while it runs, or is given inputs that it does not
  take. Whoever calls it handles that; another call may succeed. `DeadlineError` and `Cancelled`
  are those that the caller asked for.
* `InternalError`: our own code broke a promise. We mend it; the text says how to show us.

The area of an id decides the class, here and nowhere else (`error_of`): what begins with ``run.`` or
``input.`` is a `RunError`, also where it is found while compiling, as is a device that does not answer.

All carry `Diagnostic` records. A diagnostic has a dotted id such as
``type.rank-mismatch`` whose first part is an area of the catalog (`inlay.base.catalog`), a
one-sentence message with the values in the user's terms, a primary span, further labeled spans,
notes, and one hint that is an action. A phase reports all its independent findings at once: it
adds them to a `Collector` and raises at the end.

    raise error("type.rank-mismatch", f"found rank {a}, needed rank {b}", span=call.span,
                notes=["operator conv2d takes [n, c, h, w]"], hint="add a batch dimension")
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Generator, Iterable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from inlay.base.span import NO_SPAN, Span, excerpt


class Severity(enum.StrEnum):
    """How a diagnostic ends the work; the first two stop it."""

    ERROR = "error"
    UNSUPPORTED = "unsupported"
    WARNING = "warning"
    NOTE = "note"

    @property
    def is_fatal(self) -> bool:
        """Whether no result may be given."""
        return self in (Severity.ERROR, Severity.UNSUPPORTED)


@dataclass(frozen=True, slots=True)
class Label:
    """A further place and why it matters, as in "first constrained here"."""

    span: Span
    message: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding.

    Attributes:
        id: Dotted kebab id with an entry in the catalog.
        message: One sentence, no capital, no period: what was found, what was needed.
        span: The primary place.
        labels: Further places.
        notes: Facts that help, one sentence each.
        hint: One action, or nothing.
        severity: Whether it stops the work.
    """

    id: str
    message: str
    span: Span = NO_SPAN
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    hint: str = ""
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        return render(self)


class InlayError(Exception):
    """What every failure of Inlay is; `diagnostics` says all that was found."""

    def __init__(self, diagnostics: Diagnostic | Iterable[Diagnostic]) -> None:
        found = (diagnostics,) if isinstance(diagnostics, Diagnostic) else tuple(diagnostics)
        assert found, "an error carries at least one diagnostic"
        super().__init__(found)
        self.diagnostics: tuple[Diagnostic, ...] = found

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the diagnostics, in order."""
        return tuple(d.id for d in self.diagnostics)

    def __str__(self) -> str:
        return render_all(self.diagnostics)


class CompileError(InlayError):
    """The program cannot be accepted."""


class UnsupportedError(CompileError):
    """The program is right and this compiler cannot do it; names the missing piece."""


class RunError(InlayError):
    """A program fails while it runs, or is given inputs that it does not take."""


class DeadlineError(RunError, TimeoutError):
    """A run did not end within the time that its caller gave (`run.deadline`)."""


class Cancelled(RunError, CancelledError):
    """A run was given up because somebody asked for that (`run.cancelled`)."""


class InternalError(InlayError):
    """Our own code broke a promise.

    Attributes:
        message: The promise that does not hold.
        where: The pass, function or node at which it was seen.
        reproduce: A command or text that shows it again.
    """

    def __init__(self, message: str, *, where: str = "", reproduce: str = "") -> None:
        notes = tuple(note for note in (where, reproduce) if note)
        super().__init__(Diagnostic("internal", message, notes=notes))
        self.message = message
        self.where = where
        self.reproduce = reproduce

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake_internal, (self.message, self.where, self.reproduce)

    def __str__(self) -> str:
        lines = [f"internal error: {self.message}"]
        if self.where:
            lines.append(f"  at: {self.where}")
        if self.reproduce:
            lines.append(f"  reproduce: {self.reproduce}")
        lines.append("  this is a fault of the compiler, not of the program; please report it")
        return "\n".join(lines)


def _remake_internal(message: str, where: str, reproduce: str) -> InternalError:
    return InternalError(message, where=where, reproduce=reproduce)


class Details(TypedDict, total=False):
    """What a diagnostic may say besides its message, in forms that are pleasant to write."""

    span: Span | None
    labels: Iterable[Label | tuple[Span, str]]
    notes: Iterable[str]
    hint: str


def diagnostic(
    id: str,
    message: str,
    *,
    span: Span | None = None,
    labels: Iterable[Label | tuple[Span, str]] = (),
    notes: Iterable[str] = (),
    hint: str = "",
    severity: Severity = Severity.ERROR,
) -> Diagnostic:
    """Make a diagnostic; see `Details`."""
    made = tuple(x if isinstance(x, Label) else Label(*x) for x in labels)
    return Diagnostic(id, message, span or NO_SPAN, made, tuple(notes), hint, severity)


def error(id: str, message: str, **details: Unpack[Details]) -> InlayError:
    """Return the error of one diagnostic, of the class of its id, to be raised by the caller."""
    return error_of([diagnostic(id, message, **details)])


def unsupported(id: str, message: str, **details: Unpack[Details]) -> UnsupportedError:
    """Return the refusal of one thing that is right and not done, to be raised by the caller."""
    return UnsupportedError(diagnostic(id, message, severity=Severity.UNSUPPORTED, **details))


def error_of(diagnostics: Iterable[Diagnostic]) -> InlayError:
    """Return one error for several findings, of the class that their ids say.

    Where the fatal ones are of several classes, it is a `CompileError`: the program is at fault,
    whatever else is.
    """
    found = tuple(diagnostics)
    kinds = {_kind(d) for d in found if d.severity.is_fatal} or {CompileError}
    if len(kinds) == 1:
        return kinds.pop()(found)
    is_run = all(issubclass(kind, RunError) for kind in kinds)
    return RunError(found) if is_run else CompileError(found)


_KINDS: dict[str, type[InlayError]] = {"run.deadline": DeadlineError, "run.cancelled": Cancelled}
_AREAS_OF_RUNS = ("run", "input")


def _kind(finding: Diagnostic) -> type[InlayError]:
    """Return the class of an error with one finding."""
    if finding.severity is Severity.UNSUPPORTED:
        return UnsupportedError
    is_run = finding.id.partition(".")[0] in _AREAS_OF_RUNS
    return _KINDS.get(finding.id, RunError if is_run else CompileError)


class Collector:
    """Gathers the findings of a phase, so that all are reported and not only the first.

    findings = Collector()
    for node in nodes:
        with findings.catching():
            check(node)
    findings.raise_if_fatal()
    """

    def __init__(self) -> None:
        # A dictionary, not a list: the same finding reached twice is one finding.
        self._found: dict[Diagnostic, None] = {}

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """What was found so far, in order of discovery."""
        return tuple(self._found)

    @property
    def has_fatal(self) -> bool:
        """Whether anything found stops the work."""
        return any(d.severity.is_fatal for d in self._found)

    def add(self, *findings: Diagnostic) -> None:
        """Add findings."""
        self._found.update(dict.fromkeys(findings))

    def error(self, id: str, message: str, **details: Unpack[Details]) -> None:
        """Add an error."""
        self.add(diagnostic(id, message, **details))

    def unsupported(self, id: str, message: str, **details: Unpack[Details]) -> None:
        """Add a refusal."""
        self.absorb(unsupported(id, message, **details))

    def warning(self, id: str, message: str, *, span: Span | None = None, hint: str = "") -> None:
        """Add a warning."""
        self.add(diagnostic(id, message, span=span, hint=hint, severity=Severity.WARNING))

    def absorb(self, failure: InlayError) -> None:
        """Add what an error carries."""
        self.add(*failure.diagnostics)

    @contextlib.contextmanager
    def catching(self) -> Generator[None, None, None]:
        """Turn an error raised in the body into findings, and go on after it."""
        try:
            yield
        except (CompileError, RunError) as failure:
            self.absorb(failure)

    def raise_if_fatal(self) -> None:
        """Raise one error with everything found, if anything found is fatal."""
        if self.has_fatal:
            raise error_of(self._found)


def render(finding: Diagnostic) -> str:
    """Return a diagnostic as text for a person, several lines without a final newline."""
    kind = f"[{finding.id}]" if finding.id else ""
    lines = [f"{finding.severity}{kind}: {printable(finding.message)}"]
    if finding.span:
        lines.append(f"  --> {printable(str(finding.span))}")
    marks = [(finding.span, "")] + [(label.span, printable(label.message)) for label in finding.labels]
    shown = excerpt(marks)
    if shown:
        lines.extend("  " + printable(line) for line in shown.split("\n"))
    for label in finding.labels:
        if not shown or label.span.source is not finding.span.source:
            lines.append(printable(f"  at {label.span}: {label.message}"))
            other = excerpt([(label.span, "")])
            lines.extend("  " + printable(line) for line in other.split("\n") if other)
    lines.extend(printable(f"  note: {note}") for note in finding.notes)
    if finding.hint:
        lines.append(printable(f"  hint: {finding.hint}"))
    return "\n".join(lines)


def printable(text: str, *, lines: bool = False) -> str:
    """Return text as one line (or with `lines`, several) of characters that only show themselves.

    Names come from files. What would command a terminal, turn the direction of writing, or look like
    another line of ours is shown as its escape; so is half a character, which no stream takes.
    """
    if text.isprintable() or (lines and text.replace("\n", "").isprintable()):
        return text
    return "".join(
        c if c.isprintable() or (lines and c == "\n") else c.encode("unicode_escape").decode() for c in text
    )


def render_all(findings: Iterable[Diagnostic]) -> str:
    """Return several diagnostics as text, with a count where there is more than one."""
    found = tuple(findings)
    text = "\n\n".join(render(d) for d in found)
    fatal = sum(d.severity.is_fatal for d in found)
    return f"{text}\n\n{fatal} problems" if fatal > 1 else text


def to_json(finding: Diagnostic) -> dict[str, Any]:
    """Return a diagnostic as plain data; places have a name, and line and column where known."""
    return {
        "id": finding.id,
        "severity": str(finding.severity),
        "message": finding.message,
        "place": _place(finding.span),
        "labels": [{"place": _place(x.span), "message": x.message} for x in finding.labels],
        "notes": list(finding.notes),
        "hint": finding.hint,
    }


def _place(span: Span) -> dict[str, Any] | None:
    if not span:
        return None
    if span.source is None:
        return {"name": span.name}
    line, column = span.source.position(span.start)
    end_line, end_column = span.source.position(span.end)
    return {
        "name": span.source.name,
        "line": line,
        "column": column,
        "end_line": end_line,
        "end_column": end_column,
    }
