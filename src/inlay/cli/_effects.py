"""Arguments that were given and would do nothing: each is a mistake, and none is passed over.

A command says of which arguments, in which situation, nothing would come; `refuse` finds those that
were really written. What is already as somebody wishes is no mistake: `--mode sequential` says what is
so anyway.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, cast

from inlay.base.diagnostics import Collector
from inlay.cli._usage import UsageError
from inlay.importers.limits import ImportLimits
from inlay.pipeline.options import CompileOptions

COMPILING = (*(f.name for f in fields(CompileOptions)), "timings")
"""What says how a model is compiled."""
LIMITS = tuple(f.name for f in fields(ImportLimits))
"""What says how large a model may be."""


def refuse(arguments: argparse.Namespace, *rules: tuple[bool, Iterable[str], str]) -> None:
    """Refuse arguments that were given where they do nothing.

    Args:
        arguments: what was parsed.
        rules: whether one holds, the arguments that then do nothing, and why.

    Raises:
        UsageError: all `option.no-effect` at once.
    """
    given = cast("dict[str, str]", getattr(arguments, "given", {}))
    findings = Collector()
    for holds, names, why in rules:
        for name in names if holds else ():
            if name in given:
                findings.error("option.no-effect", f"found {given[name]}, which does nothing {why}")
    if findings.has_fatal:
        raise UsageError(findings.diagnostics)


def of_model(arguments: argparse.Namespace) -> tuple[tuple[bool, Iterable[str], str], ...]:
    """Return the rules of commands that run a model."""
    suffix = "" if arguments.model is None else arguments.model.suffix.lower()
    running: dict[str, Any] = vars(arguments)
    return (
        (running.get("mode") != "replay", ("schedule",), "without --mode replay"),
        (running.get("inputs") is not None, ("dim", "seed"), "beside --inputs"),
        (suffix == ".inlay", (*COMPILING, *LIMITS), f"for {arguments.model}: it is compiled already"),
        (suffix == ".inl", LIMITS, f"for {arguments.model}: it is a limit of ONNX models"),
    )
