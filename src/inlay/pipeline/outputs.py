"""Outputs by choice: a program that computes some of its outputs, and nothing for the others.

The entry gets a body that takes the chosen fields of what it gave before. What only the others needed
is then dead, and falls to the passes that look for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

from inlay.base.diagnostics import Collector, unsupported
from inlay.base.registry import suggestion
from inlay.ir import make, walk
from inlay.ir.existentials import open_exists
from inlay.ir.expr import GlobalVar
from inlay.ir.module import EntryNames, Module
from inlay.vm.signature import entry_names


def with_outputs(module: Module, names: Sequence[str]) -> Module:
    """Return a module whose entry gives these outputs alone, in this order; all if none is named.

    Raises:
        CompileError: `option.bad-value` for a name that no output has, or that comes twice.
        UnsupportedError: `entry.called` where the program calls its entry itself.
    """
    if not names:
        return module
    function = module.functions[module.entry]
    named = entry_names(function, module.entries.get(module.entry))
    known = named.outputs
    _check(names, known)
    if tuple(names) == known:
        return module
    require_uncalled(
        module,
        "whose outputs are chosen",
        hint="compile all outputs, and choose when it runs: run(..., outputs=[...])",
    )
    opened, _ = open_exists(function.body.type)
    given = make.var("given", opened, function.body.span)
    chosen = [make.project(given, known.index(name)) for name in names]
    result = chosen[0] if len(chosen) == 1 else make.tuple_(chosen)
    entry = make.function(
        function.params,
        make.let(given, function.body, result),
        dims=function.dims,
        param_types=function.type.params,
        type_vars=function.type.type_vars,
        span=function.span,
        place=function.place,
    )
    # What is not computed does not stay either: its input is an ordinary one then.
    state = tuple(pair for pair in named.state if pair[1] in names)
    chosen_names = EntryNames(named.inputs, tuple(names), state, named.first if state else "")
    entries = {**module.entries, module.entry: chosen_names}
    changed = replace(module, entries=MappingProxyType(entries))
    return changed.with_functions({**module.functions, module.entry: entry})


def _check(names: Sequence[str], known: Sequence[str]) -> None:
    findings = Collector()
    for name in dict.fromkeys(names):
        if name not in known:
            findings.error(
                "option.bad-value",
                f"found outputs with '{name}', which is no output; there are {', '.join(known)}",
                hint=suggestion(name, known),
            )
        elif list(names).count(name) > 1:
            findings.error("option.bad-value", f"found output '{name}' twice", hint="name it once")
    findings.raise_if_fatal()


def require_uncalled(module: Module, why: str, *, hint: str) -> None:
    """Refuse to change the entry of a program that calls it itself.

    Args:
        module: the program.
        why: what changes, as a relative clause.
        hint: what to do instead.

    Raises:
        UnsupportedError: `entry.called`.
    """
    below = (e for f in module.functions.values() for e in walk.postorder(f))
    if any(isinstance(e, GlobalVar) and e.name == module.entry for e in below):
        raise unsupported(
            "entry.called",
            f"found the program calling its entry '{module.entry}', {why}",
            span=module.functions[module.entry].span,
            hint=hint,
        )
