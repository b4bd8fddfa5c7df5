"""Whether what entries say of state fits the entries."""

from __future__ import annotations

from inlay.base.diagnostics import Collector
from inlay.ir.dims import same_type
from inlay.ir.expr import Function
from inlay.ir.module import EntryNames, Module
from inlay.ir.type_printer import type_text
from inlay.ir.types import ExistsType, TensorType, TupleType, Type


def check_states(module: Module, findings: Collector) -> None:
    """Find what does not fit: names and types of what stays, and what gives the first values."""
    for name, entry in module.entries.items():
        if (entry.state or entry.first or entry.grows or entry.updates) and name in module.functions:
            _check(module, name, entry, module.functions[name], findings)


def has_axis_first(t: TensorType, axis: int) -> bool:
    """Return whether what grows along an axis is kept with that axis first: others stand before it."""
    return any(d != 1 for d in t.shape[:axis])


def _is_longer(takes: Type | None, gives: Type | None, axis: int) -> bool:
    if not isinstance(takes, TensorType) or not isinstance(gives, TensorType):
        return False
    if takes.dtype is not gives.dtype or len(takes.shape) != len(gives.shape):
        return False
    pairs = zip(takes.shape, gives.shape, strict=True)
    return 0 <= axis < len(takes.shape) and all(a == b for d, (a, b) in enumerate(pairs) if d != axis)


def _does(grown: EntryNames, entry: EntryNames) -> bool:
    """Whether an entry takes and gives what another one does; more only where that has updates."""
    if not entry.updates:
        return (grown.inputs, grown.outputs) == (entry.inputs, entry.outputs)
    takes, gives = grown.inputs[: len(entry.inputs)], grown.outputs[: len(entry.outputs)]
    return (takes, gives) == (entry.inputs, entry.outputs)


def _check(module: Module, name: str, entry: EntryNames, function: Function, findings: Collector) -> None:
    result = function.type.result
    result = result.body if isinstance(result, ExistsType) else result
    single = len(entry.outputs) == 1
    results = result.fields if isinstance(result, TupleType) and not single else (result,)
    takes = dict(zip(entry.inputs, function.type.params, strict=False))
    gives = dict(zip(entry.outputs, results, strict=False))
    for given, made in (*entry.state, *entry.updates):
        if given not in takes or made not in gives:
            findings.error("ir.entry", f"entry {name} has no input '{given}' or no output '{made}'")
        elif not same_type(takes[given], gives[made]):
            findings.error(
                "ir.entry",
                f"entry {name} takes '{given}' as {type_text(takes[given])}, and gives '{made}' as "
                f"{type_text(gives[made])} for the next run",
                span=function.span,
            )
    for g in entry.grows:
        if not _is_longer(takes.get(g.given), gives.get(g.made), g.axis):
            findings.error(
                "ir.entry", f"entry {name} has no output '{g.made}' that is an input '{g.given}' and more"
            )
    grown = module.entries.get(entry.grown)
    if entry.grown and (grown is None or not _does(grown, entry)):
        findings.error("ir.entry", f"entry {name} is not done by {entry.grown}, which takes or gives another")
    begins = module.entries.get(entry.first)
    if entry.first and (begins is None or begins.inputs or set(begins.outputs) - set(takes)):
        findings.error(
            "ir.entry",
            f"entry {name} has first values from {entry.first}, which is no entry that gives its inputs",
            span=function.span,
        )
