"""Whether what entries say of state fits the entries."""

from __future__ import annotations

from inlay.base.diagnostics import Collector
from inlay.ir.dims import same_type
from inlay.ir.expr import Function
from inlay.ir.module import EntryNames, Module
from inlay.ir.type_printer import type_text
from inlay.ir.types import ExistsType, TupleType


def check_states(module: Module, findings: Collector) -> None:
    """Find what does not fit: names and types of what stays, and what gives the first values."""
    for name, entry in module.entries.items():
        if (entry.state or entry.first) and name in module.functions:
            _check(module, name, entry, module.functions[name], findings)


def _check(module: Module, name: str, entry: EntryNames, function: Function, findings: Collector) -> None:
    result = function.type.result
    result = result.body if isinstance(result, ExistsType) else result
    single = len(entry.outputs) == 1
    results = result.fields if isinstance(result, TupleType) and not single else (result,)
    takes = dict(zip(entry.inputs, function.type.params, strict=False))
    gives = dict(zip(entry.outputs, results, strict=False))
    for given, made in entry.state:
        if given not in takes or made not in gives:
            findings.error("ir.entry", f"entry {name} has no input '{given}' or no output '{made}'")
        elif not same_type(takes[given], gives[made]):
            findings.error(
                "ir.entry",
                f"entry {name} takes '{given}' as {type_text(takes[given])}, and gives '{made}' as "
                f"{type_text(gives[made])} for the next run",
                span=function.span,
            )
    begins = module.entries.get(entry.first)
    if entry.first and (begins is None or begins.inputs or set(begins.outputs) - set(takes)):
        findings.error(
            "ir.entry",
            f"entry {name} has first values from {entry.first}, which is no entry that gives its inputs",
            span=function.span,
        )
