"""What a program keeps from run to run, as its file says: pairs of an input and an output, and first values.

The pairs are facts of the entries and stand in the property `STATE` as JSON:

    {"main": {"pairs": [["h", "h:next"]], "first": "begin"}}

where `begin` is an entry without inputs that gives first values by name. What it does not give begins with
zeros.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from inlay.arith.dtype import BY_NAME
from inlay.base.diagnostics import error
from inlay.bytecode.program import Entry
from inlay.bytecode.spec import TensorSpec

STATE = "state"
"""The property of executables."""


@dataclass(frozen=True, slots=True)
class State:
    """What an entry keeps.

    Attributes:
        pairs: input and output.
        first: the entry that gives first values, "" for none.
    """

    pairs: tuple[tuple[str, str], ...] = ()
    first: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {"pairs": [list(pair) for pair in self.pairs], "first": self.first}


def states_of(properties: Mapping[str, str]) -> dict[str, State]:
    """Return what entries keep, by name.

    Raises:
        CompileError: `container.corrupt` for a property that is not of the form.
    """
    try:
        found: Any = json.loads(properties.get(STATE, "{}"))
        return {
            str(name): State(tuple((str(a), str(b)) for a, b in said["pairs"]), str(said["first"]))
            for name, said in cast("dict[str, Any]", found).items()
        }
    except (ValueError, TypeError, KeyError, AttributeError) as fault:
        raise error(
            "container.corrupt", f"found a property '{STATE}' that does not say what stays"
        ) from fault


def first_values(entry: Entry, state: State, run: Callable[[str], Mapping[str, Any]]) -> dict[str, Any]:
    """Return first values of the inputs that an entry keeps.

    Args:
        entry: that takes them.
        state: what it keeps.
        run: calls an entry without inputs.

    Raises:
        CompileError: `input.missing` for an input that is no tensor of a known size.
    """
    given = dict(run(state.first)) if state.first else {}
    return {n: given[n] if n in given else _zeros(entry, n) for n, _ in state.pairs}


def _zeros(entry: Entry, name: str) -> np.ndarray:
    spec = next((s for s in entry.inputs if s.name == name), None)
    if not isinstance(spec, TensorSpec) or not all(isinstance(d, int) for d in spec.shape):
        raise error("input.missing", f"the session has no first value for '{name}', whose size is not known")
    return np.zeros([int(d) for d in spec.shape], BY_NAME[spec.dtype].numpy)
