"""Candidates: sets of operations that a device runs as one, for one cost.

A device whose code is made operation by operation needs none: each operation that it can run is a
candidate by itself. A device that takes patterns says which sets of operations it would run
(`CandidateSource`); it runs nothing else. Here they meet the units of planning:

* units are split where a candidate ends, so each candidate is a set of whole units (`split_groups`);
* one that is chosen is a region: its operations carry its name from then on (`Place.region`).

An operation that is a candidate alone is a unit that the device can run, like any other. One that is
in larger candidates only cannot be put there by itself. In a function of several occurrences a
candidate is chosen for each of them; where that makes them differ, the function is specialised.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from inlay.analysis.candidates import Candidate, Miss
from inlay.ir.expr import Call
from inlay.ir.module import Module
from inlay.placement.choose.optimise import TaskSet
from inlay.placement.infer.graph import TOGETHER, Machine
from inlay.placement.infer.instance import Regions
from inlay.placement.infer.operations import GroupSource, Operation

CandidateSource = Callable[[Module], Sequence[Candidate | Miss] | None]
"""Gives the candidates of a device in a module in A-normal form, and what speaks against what it does not
take; None where it takes no patterns."""


@dataclass(frozen=True, eq=False)
class Offers:
    """What the devices of a board offer to run in one module.

    Attributes:
        devices: that run candidates and nothing else.
        candidates: of all of them, of operations that are in no region yet.
        misses: reasons why operations are in none, by operation and device.
    """

    devices: frozenset[str]
    candidates: tuple[Candidate, ...]
    misses: Mapping[tuple[int, str], Miss]

    @functools.cached_property
    def _by_call(self) -> Mapping[int, Sequence[int]]:
        """The indices of the candidates that an operation is in, by its identity."""
        found: dict[int, list[int]] = {}
        for index, c in enumerate(self.candidates):
            for call in c.calls:
                found.setdefault(id(call), []).append(index)
        return found

    def refusal(self, call: Call, device: str) -> str:
        """Return why a device does not take an operation by itself, or nothing."""
        if device not in self.devices:
            return ""
        having = [
            c for c in (self.candidates[i] for i in self._by_call.get(id(call), ())) if c.device == device
        ]
        if any(len(c.calls) == 1 for c in having):
            return ""
        if having:
            return f"{device} {TOGETHER} {having[0].name}"
        miss = self.misses.get((id(call), device))
        return f"no pattern of {device} takes it" + ("" if miss is None else f": {miss.reason}")

    def split_groups(self, groups: GroupSource | None, module: Module) -> Mapping[int, int]:
        """Return groups of operations, none of which reaches across the end of a candidate."""
        numbers: dict[tuple[int, tuple[int, ...]], int] = {}
        together: Mapping[int, int] = {} if groups is None else groups(module)
        return {
            call: numbers.setdefault((group, tuple(self._by_call.get(call, ()))), len(numbers))
            for call, group in together.items()
        }


def offers_of(module: Module, sources: Mapping[str, CandidateSource]) -> Offers | None:
    """Return what devices offer for a module, asked by their names; None where none is asked."""
    offered = {device: source(module) for device, source in sources.items()}
    found = {device: candidates for device, candidates in offered.items() if candidates is not None}
    if not found:
        return None
    offered_all = [x for own in found.values() for x in own]
    candidates = (c for c in offered_all if isinstance(c, Candidate))
    free = (c for c in candidates if not any(x.place and x.place.region for x in c.calls))
    misses = {(id(m.call), m.device): m for m in offered_all if isinstance(m, Miss)}
    return Offers(frozenset(found), tuple(free), misses)


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """A candidate among the operations of a program.

    Attributes:
        candidate: what was offered.
        operations: indices of its operations.
        tasks: indices of the units that they are.
    """

    candidate: Candidate
    operations: tuple[int, ...]
    tasks: frozenset[int]


def locate(
    offers: Offers | None, operations: Sequence[Operation], unit_of: Mapping[int, int]
) -> list[Located]:
    """Return where candidates are in a program: at each occurrence of the function that they are in."""
    if offers is None:
        return []
    places: dict[int, dict[int, int]] = {}
    for index, o in enumerate(operations):
        places.setdefault(id(o.call), {})[id(o.instance)] = index
    found: list[Located] = []
    for c in offers.candidates:
        indices = [places.get(id(call), {}) for call in c.calls]
        for instance in indices[0]:
            members = tuple(x[instance] for x in indices)
            found.append(Located(c, members, frozenset(unit_of[i] for i in members)))
    return found


def task_sets(
    located: Sequence[Located], machine: Machine, cost: Callable[[Located], float]
) -> list[TaskSet]:
    """Return candidates of several units as the search for a placement takes them."""
    return [
        TaskSet(x.tasks, machine.device_index[x.candidate.device], cost(x), x.candidate.name)
        for x in located
        if len(x.candidate.calls) > 1
    ]


def regions_of(
    located: Sequence[Located],
    used: Sequence[TaskSet],
    device_of: Callable[[int], str],
    operations: Sequence[Operation],
) -> Regions:
    """Return the regions that were chosen.

    Args:
        located: the candidates.
        used: those of several units that were chosen.
        device_of: gives the device of an operation, by its index.
        operations: of the program.
    """
    taken = {(u.tasks, u.name) for u in used}
    chosen = [
        x
        for x in located
        if (x.tasks, x.candidate.name) in taken and device_of(x.operations[0]) == x.candidate.device
    ]
    inside = {i for x in chosen for i in x.operations}
    for x in located:
        first = x.operations[0]
        if len(x.operations) == 1 and first not in inside and device_of(first) == x.candidate.device:
            chosen.append(x)
            inside.add(first)
    chosen.sort(key=lambda x: x.operations[-1])
    # One candidate has one name: occurrences of a function that chose the same stay one function.
    numbers: dict[int, int] = {}
    found: dict[tuple[int, int], str] = {}
    for x in chosen:
        name = f"{x.candidate.name}_{numbers.setdefault(id(x.candidate), len(numbers) + 1)}"
        members = (operations[i] for i in x.operations)
        found.update({(id(o.instance), id(o.call)): name for o in members})
    return found
