"""Inlay behind the interface of onnxruntime: sessions for programs that were written for it.

    import inlay.compat.onnxruntime as ort

    session = ort.InferenceSession("model.onnx")
    (y,) = session.run(None, {session.get_inputs()[0].name: x})

Programs that import onnxruntime by themselves get these sessions from `installed`, unchanged:

    with ort.installed():
        from some_package import Model
        model = Model()

onnxruntime itself is not used. `docs/reference/onnxruntime.md` lists which options mean something,
which are accepted as hints, and which are refused; a name that is not here is an `AttributeError`.
"""

from __future__ import annotations

from inlay.compat.onnxruntime.binding import IOBinding
from inlay.compat.onnxruntime.failures import (
    EngineError,
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    ModelLoaded,
    NoModel,
    NoSuchFile,
    NotFound,
    NotOffered,
    RuntimeException,
)
from inlay.compat.onnxruntime.options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from inlay.compat.onnxruntime.session import InferenceSession, get_available_providers
from inlay.compat.onnxruntime.standing_in import install, installed
from inlay.compat.onnxruntime.values import ModelMetadata, NodeArg, OrtValue

__version__ = "1.22.0+inlay"
"""The version of the interface that this follows."""

SessionIOBinding = IOBinding
NotImplemented = NotOffered

__all__ = [
    "EPFail",
    "EngineError",
    "ExecutionMode",
    "ExecutionOrder",
    "Fail",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelLoaded",
    "ModelMetadata",
    "NoModel",
    "NoSuchFile",
    "NodeArg",
    "NotFound",
    "NotImplemented",
    "OrtValue",
    "RunOptions",
    "RuntimeException",
    "SessionIOBinding",
    "SessionOptions",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "get_version_string",
    "install",
    "installed",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
]


def get_all_providers() -> list[str]:
    """Return the providers that a session may have."""
    return get_available_providers()


def get_device() -> str:
    """Return the kind of device of the first provider."""
    return "CPU"


def get_version_string() -> str:
    """Return the version of the interface."""
    return __version__


def disable_telemetry_events() -> None:
    """Do nothing: nothing is ever told to anybody."""


def enable_telemetry_events() -> None:
    """Refuse: nothing is ever told to anybody.

    Raises:
        NotImplemented: always.
    """
    raise NotOffered("Inlay tells nothing to anybody")


def set_default_logger_severity(severity: int) -> None:
    """Accept a hint: nothing is logged."""
    del severity


def set_default_logger_verbosity(verbosity: int) -> None:
    """Accept a hint: nothing is logged."""
    del verbosity
