"""Candidates: sets of operations that a device runs as one, for one cost.

A device whose code is made operation by operation needs none: each operation that it can run is a
candidate by itself. A device that takes patterns says which sets of operations it would run
(`CandidateSource`); it runs nothing else. Here they meet the units of planning:

* units are split where a candidate ends, so each candidate is a set of whole units (`split_groups`);
* one that is chosen is a region: its operations carry its name from then on (`Place.region`).

An operation that is a candidate alone is a unit that the device can run, like any other. One that is
in larger candidates only cannot be put there by itself. A candidate in a function of which several
occurrences are told apart is left out: it would be chosen for one and not for another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from inlay.analysis.candidates import Candidate
from inlay.ir.expr import Call
from inlay.ir.module import Module
from inlay.placement.choose.optimise import TaskSet
from inlay.placement.infer.graph import Machine
from inlay.placement.infer.operations import GroupSource, Operation

CandidateSource = Callable[[Module], Sequence[Candidate] | None]
"""Gives the candidates of a device in a module in A-normal form; None where it takes no patterns."""


@dataclass(frozen=True, slots=True, eq=False)
class Offers:
    """What the devices of a board offer to run in one module.

    Attributes:
        devices: that run candidates and nothing else.
        candidates: of all of them.
    """

    devices: frozenset[str]
    candidates: tuple[Candidate, ...]

    def refusal(self, call: Call, device: str) -> str:
        """Return why a device does not take an operation by itself, or nothing."""
        if device not in self.devices:
            return ""
        having = [c for c in self.candidates if c.device == device and call in c.calls]
        if any(len(c.calls) == 1 for c in having):
            return ""
        if having:
            return f"{device} takes it only as a part of {having[0].name}"
        return f"no pattern of {device} takes it"

    def split_groups(self, groups: GroupSource | None, module: Module) -> Mapping[int, int]:
        """Return groups of operations, none of which reaches across the end of a candidate."""
        own: dict[int, list[int]] = {}
        for index, c in enumerate(self.candidates):
            for call in c.calls:
                own.setdefault(id(call), []).append(index)
        numbers: dict[tuple[int, tuple[int, ...]], int] = {}
        together: Mapping[int, int] = {} if groups is None else groups(module)
        return {
            call: numbers.setdefault((group, tuple(own.get(call, ()))), len(numbers))
            for call, group in together.items()
        }


def offers_of(module: Module, sources: Mapping[str, CandidateSource]) -> Offers | None:
    """Return what devices offer for a module, asked by their names; None where none is asked."""
    offered = {device: source(module) for device, source in sources.items()}
    found = {device: candidates for device, candidates in offered.items() if candidates is not None}
    if not found:
        return None
    return Offers(frozenset(found), tuple(c for own in found.values() for c in own))


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
    """Return where candidates are in a program."""
    if offers is None:
        return []
    places: dict[int, list[int]] = {}
    for index, o in enumerate(operations):
        places.setdefault(id(o.call), []).append(index)
    found: list[Located] = []
    for c in offers.candidates:
        indices = [places.get(id(call), []) for call in c.calls]
        if all(len(x) == 1 for x in indices):
            members = tuple(x[0] for x in indices)
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
) -> dict[int, str]:
    """Return for each operation that is in a region, by identity of the call, its name.

    Args:
        located: the candidates.
        used: those of several units that were chosen.
        device_of: gives the device of an operation, by its index.
        operations: of the program.
    """
    taken = {(u.tasks, u.name) for u in used}
    chosen = [x for x in located if (x.tasks, x.candidate.name) in taken]
    inside = {i for x in chosen for i in x.operations}
    for x in located:
        first = x.operations[0]
        if len(x.operations) == 1 and first not in inside and device_of(first) == x.candidate.device:
            chosen.append(x)
            inside.add(first)
    chosen.sort(key=lambda x: x.operations[-1])
    names = [f"{x.candidate.name}_{n}" for n, x in enumerate(chosen, 1)]
    return {id(operations[i].call): name for x, name in zip(chosen, names, strict=True) for i in x.operations}
