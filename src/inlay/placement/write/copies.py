"""Which copies there are, where they stand and by which links they go.

A use of a value somewhere else is a *demand*. All demands for one value at one device are met by one
copy if their memories intersect, else by as many as it takes. It stands in the innermost block that
holds all its uses, before the first. Where no link leads directly, each hop is a copy of its own and
serves whoever else needs the value there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from inlay.base.diagnostics import Collector
from inlay.base.span import Span
from inlay.machine.board_check import coherence_hint
from inlay.machine.device import Link
from inlay.placement.infer.scopes import Places


@dataclass(slots=True, eq=False)
class OpenBlock:
    """A block that is written: of a function, a branch, an arm.

    Attributes:
        parent: the block around it, None for a global function.
        at: the statement of the parent that it is in.
        function: the block of the body of the function that it is in.
        depth: number of blocks around it.
        number: how many blocks were opened before: the same in every walk.
        here: the statement that is being written.
    """

    parent: OpenBlock | None
    at: int
    number: int
    function: OpenBlock | None = None
    depth: int = 0
    here: int = 0

    @property
    def home(self) -> OpenBlock:
        """The block of the body of the function."""
        return self.function or self


Spot = tuple[OpenBlock, int]
"""A block and the number of a statement in it."""


def common_spot(a: Spot, b: Spot) -> Spot:
    """Return the first spot of the innermost block that holds both."""
    (one, i), (other, j) = a, b
    while one is not other:
        if one.depth >= other.depth:
            assert one.parent is not None, "blocks of one function have a common root"
            one, i = one.parent, one.at
        else:
            assert other.parent is not None, "blocks of one function have a common root"
            other, j = other.parent, other.at
    return one, min(i, j)


def lifted(spot: Spot, owner: OpenBlock) -> Spot:
    """Return where a use counts for a value of an outer function: where the literal stands."""
    block, at = spot
    while block.home is not owner.home:
        outer = block.home
        assert outer.parent is not None, "a value is bound in a function around its use"
        block, at = outer.parent, outer.at
    return block, at


class ValuePath(NamedTuple):
    """One tensor, or one whole of a data type: a bound value and the fields that lead into it."""

    key: int
    path: tuple[int, ...] = ()


@dataclass(slots=True, eq=False)
class Demand:
    """That a value is needed at a device in one of some memories.

    Attributes:
        want: an atom of the place; -1 on the way to somewhere else.
        mask: the memories.
        spot: where it is used.
        span: of the use.
        name: of the value, for messages.
    """

    want: int
    mask: int
    spot: Spot
    span: Span
    name: str


@dataclass(slots=True)
class Copy:
    """A copy that is written.

    Attributes:
        value: what is copied.
        device: where to.
        mask: memories of the result.
        spot: where it stands.
        source: the copy that it is made from; None for the value itself.
        link: by which it goes; None until it is known.
        depth: how many copies it is away from the value.
        atom: of the result.
    """

    value: ValuePath
    device: int
    mask: int
    spot: Spot
    source: Copy | None = None
    link: Link | None = None
    depth: int = 1
    atom: int = -1


@dataclass(slots=True)
class Wanted:
    """A value that is needed elsewhere: the atom of its home, and the demands by device."""

    atom: int
    demands: dict[int, list[Demand]] = field(default_factory=dict[int, "list[Demand]"])


class CopyPlan:
    """The copies of one function: demands first, then `settle`, then look-ups.

    Copies narrow sets of memories, which may change what other functions can do: `settle` is called
    for all of them again until nothing is narrowed.
    """

    def __init__(self, places: Places) -> None:
        self.places = places
        self.machine = places.machine
        self.findings = Collector()
        self.wanted: dict[ValuePath, Wanted] = {}
        self.copies: list[Copy] = []
        self.decisions: list[object] = []
        self.taken_apart: dict[tuple[int, int], list[ValuePath]] = {}
        self._by_use: dict[Demand, Copy] = {}
        self._at: dict[tuple[int, int], list[Copy]] = {}

    def demand(self, value: ValuePath, atom: int, device: int, demand: Demand) -> None:
        """Note that a value with that home is needed somewhere else."""
        wanted = self.wanted.setdefault(value, Wanted(atom))
        wanted.demands.setdefault(device, []).append(demand)

    def copy_for(self, demand: Demand) -> Copy:
        """Return the copy that serves a use."""
        return self._by_use[demand]

    def at(self, block: OpenBlock, statement: int) -> list[Copy]:
        """Return the copies that stand before a statement, nearest to their value first."""
        return self._at.get((block.number, statement), [])

    def settle(self, findings: Collector) -> None:
        """Decide all copies. Findings: `device.no-path`."""
        self.findings = findings
        self.copies.clear()
        self._by_use.clear()
        self._at.clear()
        for value, wanted in self.wanted.items():
            self._settle(value, wanted)
        for copy in sorted(self.copies, key=lambda c: c.depth):
            self._at.setdefault((copy.spot[0].number, copy.spot[1]), []).append(copy)

    def _settle(self, value: ValuePath, wanted: Wanted) -> None:
        for device, demands in list(wanted.demands.items()):
            own = [d for d in demands if d.want >= 0]
            for d in own:
                d.mask = self.places.mask(d.want)
            wanted.demands[device] = own
            if not own:
                del wanted.demands[device]
        targets = self._targets(wanted)
        while self._add_hops(wanted, targets):  # each adds a device and a memory, so this ends
            targets = self._targets(wanted)
        made: dict[int, list[Copy]] = {}
        for device, parts in targets.items():
            for mask, demands in parts:
                copy = Copy(value, device, mask, demands[0].spot)
                for d in demands[1:]:
                    copy.spot = common_spot(copy.spot, d.spot)
                for d in demands:
                    self._by_use[d] = copy
                made.setdefault(device, []).append(copy)
        for copies in made.values():
            for copy in copies:
                self._route(copy, wanted, made)
        for device, parts in targets.items():
            for (_, demands), copy in zip(parts, made[device], strict=True):
                for d in demands:
                    if d.want >= 0:
                        self.places.narrow(d.want, copy.mask)
        self.copies.extend(c for copies in made.values() for c in copies if c.link is not None)

    @staticmethod
    def _targets(wanted: Wanted) -> dict[int, list[tuple[int, list[Demand]]]]:
        return {d: _partition(demands) for d, demands in sorted(wanted.demands.items())}

    def _links(self, atom: int, mask: int) -> tuple[Link, ...]:
        names = self.machine.names
        return self.machine.board.routes(names(self.places.mask(atom)), names(mask))

    def _add_hops(self, wanted: Wanted, targets: dict[int, list[tuple[int, list[Demand]]]]) -> bool:
        """Demand the value on the way to where it is demanded; whether that was new."""
        added = False
        for parts in list(targets.values()):
            for mask, demands in parts:
                for link in self._links(wanted.atom, mask)[:-1]:
                    between = self.machine.device_index[self.machine.board.owner_of(link.target)]
                    bits = 1 << self.machine.memory_index[link.target]
                    if between == self.places.device(wanted.atom) and (bits & self.places.mask(wanted.atom)):
                        continue
                    known = wanted.demands.setdefault(between, [])
                    for d in demands:
                        if not any(k.mask == bits and k.spot == d.spot for k in known):
                            known.append(Demand(-1, bits, d.spot, d.span, d.name))
                            added = True
        return added

    def _route(self, copy: Copy, wanted: Wanted, made: dict[int, list[Copy]]) -> None:
        """Find how a value comes to its copy: directly, or from the copy at the last hop."""
        links = self._links(wanted.atom, copy.mask)
        if not links:
            self._no_path(copy, wanted)
            return
        last = links[-1]
        copy.link, copy.depth = last, len(links)
        copy.mask &= self._ends(last, lambda x: x.source == last.source, lambda x: x.target)
        if len(links) == 1:
            into = self._ends(
                last, lambda x: bool(1 << self.machine.memory_index[x.target] & copy.mask), lambda x: x.source
            )
            if into & self.places.mask(wanted.atom):
                self.places.narrow(wanted.atom, into)
            return
        bits = 1 << self.machine.memory_index[last.source]
        between = self.machine.device_index[self.machine.board.owner_of(last.source)]
        for other in made.get(between, ()):
            if other.mask & bits:
                copy.source = other
                other.mask &= bits

    def _ends(self, like: Link, keep: Callable[[Link], bool], end: Callable[[Link], str]) -> int:
        """Return the memories at the ends of links of the same engine."""
        found = 0
        for link in self.machine.board.links:
            if link.engine == like.engine and keep(link):
                found |= 1 << self.machine.memory_index[end(link)]
        return found

    def _no_path(self, copy: Copy, wanted: Wanted) -> None:
        names, machine = self.machine.names, self.machine
        here = names(self.places.mask(wanted.atom))
        there = names(copy.mask)
        demand = wanted.demands[copy.device][0]
        near = next((x for x in machine.board.links if x.target in there or x.source in here), None)
        hint = f"a link {here[0]} -> {there[0]} would do"
        both = [m for m in here if m in there]
        if both:
            ends = machine.devices[self.places.device(wanted.atom)], machine.devices[copy.device]
            hint = f"both address {both[0]}; {coherence_hint(both[0], *ends)}"
        elif near is not None:
            hint = f"there is {near.source} -> {near.target} by {near.engine}; {hint}"
        self.findings.error(
            "device.no-path",
            f"found no way for {demand.name} from {machine.devices[self.places.device(wanted.atom)]} "
            f"({', '.join(here)}) to {machine.devices[copy.device]} ({', '.join(there)})",
            span=demand.span,
            notes=[f"it is made in {', '.join(here)}", f"it is used in {', '.join(there)}"],
            hint=hint,
        )


def _partition(demands: list[Demand]) -> list[tuple[int, list[Demand]]]:
    """Put demands together that one copy can serve: those for the memory most of them allow first."""
    found: list[tuple[int, list[Demand]]] = []
    rest = demands
    while rest:
        common = _intersection(d.mask for d in rest)
        if common:
            found.append((common, rest))
            break
        count: Counter[int] = Counter()
        for d in rest:
            for m in range(d.mask.bit_length()):
                count[m] += d.mask >> m & 1
        best = min(count, key=lambda m: (-count[m], m))
        inside = [d for d in rest if d.mask >> best & 1]
        found.append((_intersection(d.mask for d in inside), inside))
        rest = [d for d in rest if not d.mask >> best & 1]
    return found


def _intersection(masks: Iterable[int]) -> int:
    common = -1
    for mask in masks:
        common &= mask
    return common
