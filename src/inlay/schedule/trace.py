"""Traces: record, print, read back, replay.

A trace is what was done to one function, as names and numbers. Its text is one primitive per line,
in the syntax of Python calls with literal arguments, and reads back without running anything.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Iterable
from typing import Any

from inlay.base.diagnostics import error
from inlay.loop.func import LoopFunction
from inlay.schedule.state import Schedule, Step


def find_primitive(name: str) -> Callable[..., Any]:
    """Return a primitive by name: the function of that name in the file of that name.

    Raises:
        CompileError: `schedule.name`.
    """
    try:
        module = importlib.import_module(f"inlay.schedule.primitives.{name}")
    except ModuleNotFoundError:
        raise error("schedule.name", f"found no schedule primitive named {name}") from None
    return getattr(module, name)


def replay(function: LoopFunction, trace: Iterable[Step]) -> Schedule:
    """Apply a trace to a function and return the schedule.

    Raises:
        Illegal: a step does not apply to this function.
    """
    s = Schedule(function)
    for step in trace:
        find_primitive(step.primitive)(s, *step.args, **dict(step.keywords))
    return s


def print_trace(trace: Iterable[Step]) -> str:
    """Return the text of a trace."""
    return "".join(f"{step}\n" for step in trace)


def parse_trace(text: str) -> tuple[Step, ...]:
    """Read the text of a trace.

    Raises:
        CompileError: `schedule.trace`.
    """
    try:
        module = ast.parse(text)
        return tuple(_step(s) for s in module.body)
    except (SyntaxError, ValueError) as failure:
        raise error("schedule.trace", f"found a trace that cannot be read: {failure}") from None


def _step(s: ast.stmt) -> Step:
    if not isinstance(s, ast.Expr) or not isinstance(s.value, ast.Call):
        raise ValueError("needed one call in each line")  # noqa: TRY004 - the text is wrong
    call = s.value
    if not isinstance(call.func, ast.Name):
        raise ValueError("needed the name of a primitive")  # noqa: TRY004
    args = tuple(ast.literal_eval(a) for a in call.args)
    keywords = tuple((str(k.arg), ast.literal_eval(k.value)) for k in call.keywords)
    return Step(call.func.id, args, keywords)
