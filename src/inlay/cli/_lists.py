"""What the compiler is made of, by name: passes and operators."""

from __future__ import annotations

import functools
import importlib

from inlay.base.registry import module_names
from inlay.codegen.backend_table import unavailable
from inlay.machine.board import Board
from inlay.ops.table import table
from inlay.passes.contract import Pass
from inlay.pipeline.detect import find_usable
from inlay.pipeline.devices import runnable
from inlay.pipeline.route import STEPS

_PACKAGES = ("inlay.transforms", "inlay.placement", "inlay.memory", "inlay.pipeline")


__all__ = ["find_usable", "operators", "passes", "route", "stages", "without_code"]


@functools.cache
def passes() -> dict[str, str]:
    """Return the summaries of passes, package by package; files that define none are their helpers."""
    modules = [
        importlib.import_module(m) for p in _PACKAGES for m in module_names(p, packages=False).values()
    ]
    found = [getattr(module, "PASS", None) for module in modules]
    return {p.name: p.summary for p in found if isinstance(p, Pass)}


def route() -> list[str]:
    """Return the names of what a compilation does with a module, in order."""
    return [step.name for step in STEPS]


def stages() -> dict[str, str]:
    """Return the summaries of what a compilation does behind the passes."""
    return {s.name: s.summary for s in STEPS if not isinstance(s, Pass)}


def operators() -> dict[str, str]:
    """Return the documentation of operators."""
    return {definition.name: definition.op.doc for definition in table()}


def without_code(board: Board) -> dict[str, str]:
    """Return for each device of a board for which no code is made the reason."""
    as_run = runnable(board)
    return {d.name: reason for d in board.devices if (reason := unavailable(as_run, d.name))}
