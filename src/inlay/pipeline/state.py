"""What entries keep from run to run, for the file of an executable."""

from __future__ import annotations

import json

from inlay.ir.entry_state import has_axis_first
from inlay.ir.module import EntryNames, Module
from inlay.ir.types import TensorType
from inlay.runtime.state import STATE, Growing, State


def state_properties(module: Module) -> dict[str, str]:
    """Return the property that says what entries keep; none where nothing stays."""
    kept = {
        name: State(e.state, e.first, e.grown, _growing(module, name, e), e.updates).to_json()
        for name, e in module.entries.items()
        if e.state or e.grows or e.updates
    }
    return {STATE: json.dumps(kept, sort_keys=True)} if kept else {}


def _growing(module: Module, name: str, entry: EntryNames) -> tuple[Growing, ...]:
    takes = dict(zip(entry.inputs, module.functions[name].type.params, strict=True))
    found: list[Growing] = []
    for g in entry.grows:
        t = takes[g.given]
        assert isinstance(t, TensorType), "only tensors grow"
        found.append(Growing(g.given, g.made, g.axis, has_axis_first(t, g.axis)))
    return tuple(found)
