"""Inlay: a tensor compiler for machines made of different parts.

    module = inlay.load("model.onnx")
    executable = inlay.compile(module, board="host", threads=1)
    outputs = executable.run({"x": x})
    executable.save("model.inlay")
    executable = inlay.load_executable("model.inlay")     # needs no compiler

Names are resolved when they are first used: importing the package imports nothing else.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inlay.api import compile, explain, load, tensor_type
    from inlay.base.diagnostics import (
        Cancelled,
        CompileError,
        DeadlineError,
        InlayError,
        InternalError,
        RunError,
        UnsupportedError,
    )
    from inlay.ir.module import Module
    from inlay.runtime.extern import Extern, extern
    from inlay.runtime.headers import get_include
    from inlay.runtime.session import Executable, load_executable

__version__ = "0.1.0.dev0"

_HOMES = {
    "compile": "inlay.api",
    "explain": "inlay.api",
    "load": "inlay.api",
    "load_executable": "inlay.runtime.session",
    "tensor_type": "inlay.api",
    "extern": "inlay.runtime.extern",
    "Extern": "inlay.runtime.extern",
    "get_include": "inlay.runtime.headers",
    "Executable": "inlay.runtime.session",
    "Module": "inlay.ir.module",
    "Cancelled": "inlay.base.diagnostics",
    "CompileError": "inlay.base.diagnostics",
    "DeadlineError": "inlay.base.diagnostics",
    "InlayError": "inlay.base.diagnostics",
    "InternalError": "inlay.base.diagnostics",
    "RunError": "inlay.base.diagnostics",
    "UnsupportedError": "inlay.base.diagnostics",
}

__all__ = [
    "Cancelled",
    "CompileError",
    "DeadlineError",
    "Executable",
    "Extern",
    "InlayError",
    "InternalError",
    "Module",
    "RunError",
    "UnsupportedError",
    "compile",
    "explain",
    "extern",
    "get_include",
    "load",
    "load_executable",
    "tensor_type",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        message = f"module 'inlay' has no attribute '{name}'"
        raise AttributeError(message, name=name, obj=importlib.import_module(__name__))
    found = getattr(importlib.import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
