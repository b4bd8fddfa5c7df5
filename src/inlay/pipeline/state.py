"""What entries keep from run to run, for the file of an executable."""

from __future__ import annotations

import json
from collections.abc import Mapping

from inlay.ir.module import EntryNames
from inlay.runtime.state import STATE, State


def state_properties(entries: Mapping[str, EntryNames]) -> dict[str, str]:
    """Return the property that says what entries keep; none where nothing stays."""
    kept = {name: State(e.state, e.first).to_json() for name, e in entries.items() if e.state}
    return {STATE: json.dumps(kept, sort_keys=True)} if kept else {}
