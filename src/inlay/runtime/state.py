"""What a program keeps from run to run, as its file says: pairs of an input and an output, and first values.

The pairs are facts of the entries and stand in the property `STATE` as JSON:

    {"main": {"pairs": [["h", "h:next"]], "first": "begin"}}

where `begin` is an entry without inputs that gives first values by name. What it does not give begins with
zeros. An output that is an input with more behind it can stay, too; then there is an entry that adds to it
where it is (`inlay.runtime.growing`):

    {"main": {..., "grown": "main.grow", "grows": [["past", "present", 1, true]]}}

or that replaces parts of it (`inlay.runtime.updating`): `"updates": [["table", "next"]]`, by the same entry.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, cast

import numpy as np

from inlay.arith.dtype import BY_NAME
from inlay.base.diagnostics import error
from inlay.bytecode.program import Entry
from inlay.bytecode.spec import TensorSpec

STATE = "state"
"""The property of executables."""
MOST_GROWING = 512
"""As many states that grow as the runtime takes in one call."""


@dataclass(frozen=True, slots=True)
class Growing:
    """A state that runs add to.

    Attributes:
        given, made: the input and the output.
        axis: along which it is longer.
        is_first: whether the entry that adds to it takes and gives it with that axis first.
    """

    given: str
    made: str
    axis: int
    is_first: bool


@dataclass(frozen=True, slots=True)
class State:
    """What an entry keeps.

    Attributes:
        pairs: input and output.
        first: the entry that gives first values, "" for none.
        grown: the entry that adds to what grows, "" for none.
        grows: what that is.
        updates: input and output of what it updates, which is given with parts replaced.
    """

    pairs: tuple[tuple[str, str], ...] = ()
    first: str = ""
    grown: str = ""
    grows: tuple[Growing, ...] = ()
    updates: tuple[tuple[str, str], ...] = ()

    @property
    def all_pairs(self) -> tuple[tuple[str, str], ...]:
        """Input and output of all that can stay."""
        return (*self.pairs, *((g.given, g.made) for g in self.grows))

    def is_carried(self, carry: Mapping[str, str]) -> bool:
        """Return whether a session that carries these has state that `grown` keeps in place."""
        if len(self.grows) + len(self.updates) > MOST_GROWING:
            return False
        updated = any(carry.get(made) == given for given, made in self.updates)
        return bool(self.grows or updated) and all(carry.get(g.made) == g.given for g in self.grows)

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        said: dict[str, Any] = {"pairs": [list(pair) for pair in self.pairs], "first": self.first}
        if self.grown:
            said |= {"grown": self.grown, "grows": [list(astuple(g)) for g in self.grows]}
        if self.updates:
            said |= {"updates": [list(pair) for pair in self.updates]}
        return said

    @staticmethod
    def of_json(said: dict[str, Any]) -> State:
        """Return what plain data says; ValueError, TypeError or KeyError where it is not of the form."""
        grows = [(str(a), str(b), int(axis), bool(first)) for a, b, axis, first in said.get("grows", ())]
        pairs, updates = (
            tuple((str(a), str(b)) for a, b in x) for x in (said["pairs"], said.get("updates", ()))
        )
        grown = tuple(Growing(*g) for g in grows)
        return State(pairs, str(said["first"]), str(said.get("grown", "")), grown, updates)


def states_of(properties: Mapping[str, str]) -> dict[str, State]:
    """Return what entries keep, by name.

    Raises:
        CompileError: `container.corrupt` for a property that is not of the form.
    """
    try:
        found: Any = json.loads(properties.get(STATE, "{}"))
        return {str(name): State.of_json(said) for name, said in cast("dict[str, Any]", found).items()}
    except (ValueError, TypeError, KeyError, AttributeError) as fault:
        raise error(
            "container.corrupt", f"found a property '{STATE}' that does not say what stays"
        ) from fault


def first_values(
    entry: Entry, state: State, run: Callable[[str], Mapping[str, Any]], names: Sequence[str]
) -> dict[str, Any]:
    """Return first values of inputs that an entry keeps.

    Args:
        entry: that takes them.
        state: what it keeps.
        run: calls an entry without inputs.
        names: of the inputs.

    Raises:
        CompileError: `input.missing` for an input that is no tensor of a known size.
    """
    given = dict(run(state.first)) if state.first and names else {}
    grows = {g.given: g.axis for g in state.grows}
    return {n: given[n] if n in given else _zeros(entry, n, grows.get(n)) for n in names}


def _zeros(entry: Entry, name: str, axis: int | None) -> np.ndarray:
    """Return zeros for an input; none along the axis along which it grows."""
    spec = next((s for s in entry.inputs if s.name == name), None)
    shape = None if not isinstance(spec, TensorSpec) else list(spec.shape)
    if shape is not None and axis is not None and 0 <= axis < len(shape):
        shape[axis] = 0
    if not isinstance(spec, TensorSpec) or not all(isinstance(d, int) for d in shape or ()):
        raise error(
            "input.missing",
            f"the session has no first value for '{name}', whose size is not known",
            hint=f"give one, `session(state={{'{name}': ...}})`, or compile for sizes with `dims`",
        )
    return np.zeros([int(d) for d in shape or ()], BY_NAME[spec.dtype].numpy)
