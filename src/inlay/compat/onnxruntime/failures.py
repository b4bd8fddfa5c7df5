"""The exceptions of onnxruntime, and which of them a diagnostic of Inlay is.

Programs catch them by name. Each carries the whole text of the diagnostics; the error of Inlay with
its records is the cause (`__cause__`). What is no fault of the caller (`InternalError`) stays as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from inlay.base.diagnostics import InlayError, InternalError, UnsupportedError


class Fail(Exception):
    """Something else went wrong."""


class InvalidArgument(Exception):
    """An input, an output, an option or a provider is not what the model or the session takes."""


class NoSuchFile(Exception):
    """There is no file of that name, or it cannot be read."""


class InvalidProtobuf(Exception):
    """The bytes are no ONNX model."""


class InvalidGraph(Exception):
    """The model is wrong."""


class NotOffered(Exception):
    """The model or the option is right, and Inlay does not have it; in onnxruntime `NotImplemented`."""


NotOffered.__name__ = NotOffered.__qualname__ = "NotImplemented"


class RuntimeException(Exception):
    """Running the model failed."""


class EPFail(Exception):
    """A provider failed; never raised here."""


class EngineError(Exception):
    """An engine failed; never raised here."""


class NoModel(Exception):
    """A session has no model; never raised here."""


class NotFound(Exception):
    """Something was not found; never raised here."""


class ModelLoaded(Exception):
    """A session has a model already; never raised here."""


_BY_ID: dict[str, type[Exception]] = {
    "import.unreadable": NoSuchFile,
    "import.not-onnx": InvalidProtobuf,
    "run.cancelled": Fail,
}
_BY_AREA: dict[str, type[Exception]] = {
    "input": InvalidArgument,
    "option": InvalidArgument,
    "name": InvalidArgument,
    "board": InvalidArgument,
    "import": InvalidGraph,
    "type": InvalidGraph,
    "run": RuntimeException,
}


def failure_of(problem: InlayError) -> Exception:
    """Return the exception of onnxruntime that says the same."""
    first = problem.ids[0]
    kind = _BY_ID.get(first)
    if kind is None and isinstance(problem, UnsupportedError):
        kind = NotOffered
    if kind is None:
        kind = _BY_AREA.get(first.partition(".")[0], Fail)
    return kind(str(problem))


@contextlib.contextmanager
def as_theirs() -> Generator[None]:
    """Raise what Inlay refuses inside as exceptions of onnxruntime."""
    try:
        yield
    except InternalError:
        raise
    except InlayError as problem:
        raise failure_of(problem) from problem
