"""Chooses devices: rounds of connected components, which no order of anything can influence.

In a round, free classes joined by its edges form components. A component whose neighbours across
such edges are on one device goes there; one with none waits as a whole for later rounds; one between
several is *contested*. If it contains an operation, it goes to the default device if that is among
them, else to the first in board order, the host last. Otherwise it goes where it is consumed, the
first in board order, or else where it is made. What is free at the end goes to the default device.

Rounds: strong edges (what people asked for), edges between containers, ordinary edges, and last the
edges of operations that only one device can run: those say nothing about their neighbours before, and
then only about what is no operation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from inlay.placement.infer.graph import Edge, Graph, Machine, Support

_FREE = -1


@dataclass(slots=True)
class _Boundary:
    """Devices around a component: those that consume from it, and those that make what it gets."""

    consumers: set[int] = field(default_factory=set[int])
    makers: set[int] = field(default_factory=set[int])


class Solution:
    """Devices by atom."""

    def __init__(self, graph: Graph, device: list[int]) -> None:
        self._graph = graph
        self._device = device

    def of(self, atom: int) -> int:
        """Return the index of the device of an atom."""
        return self._device[self._graph.classes.find(atom)]


def first(devices: Iterable[int]) -> int:
    """Return the first device in board order, the host last."""
    return min(devices, key=lambda d: (d == 0, d))


def preferred(machine: Machine, devices: Iterable[int]) -> int:
    """Return the default device if it is there, else the first in board order."""
    found = set(devices)
    return machine.default if machine.default in found else min(found)


def solve(graph: Graph) -> Solution:
    """Choose a device for every class. Requires facts without contradiction. Cost: nearly linear."""
    return _Solver(graph).run()


class _Solver:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.machine = graph.machine
        n = len(graph.about)
        self.device = [_FREE] * n
        self.late = [False] * n
        self.component = list(range(n))
        self.has_operation = [False] * n
        self.allowed: dict[int, tuple[int, ...]] = {}
        for atom, support in graph.supports.items():
            c = graph.classes.find(atom)
            self.has_operation[c] = True
            if len(support.allowed) < len(self.machine.devices):
                self.allowed[c] = common(self.allowed.get(c), support)
        find = graph.classes.find
        self.edges = [(find(a), find(b), kind) for a, b, kind, _ in graph.edges]

    def run(self) -> Solution:
        for pin in self.graph.pins:
            self.device[self.graph.classes.find(pin.atom)] = pin.device
        self._only_choices()
        for kind in Edge:
            self._round([(a, b) for a, b, k in self.edges if k == kind], late=False)
        self._round([(a, b) for a, b, _ in self.edges if self.late[a] or self.late[b]], late=True)
        for c, device in enumerate(self.device):
            if device == _FREE and self.graph.classes.parent[c] == c:
                self._put(c, self.machine.default)
        return Solution(self.graph, self.device)

    def _only_choices(self) -> None:
        """Put operations that one device alone can run there, and keep that from spreading."""
        asked: dict[int, set[int]] = {}
        for a, b, kind in self.edges:
            if kind == Edge.STRONG and self.device[b] != _FREE:
                asked.setdefault(a, set()).add(self.device[b])
        for c, devices in self.allowed.items():
            if len(devices) == 1 and self.device[c] == _FREE:
                self.device[c] = devices[0]
                self.late[c] = devices[0] not in asked.get(c, ())

    def _round(self, edges: list[tuple[int, int]], *, late: bool) -> None:
        """Join free classes, then decide every component that has a neighbour."""
        free: list[tuple[int, int]] = []
        across: list[tuple[int, int]] = []
        for a, b in edges:
            if self.device[a] == _FREE and self.device[b] == _FREE:
                free.append((a, b))
            elif self.device[a] == _FREE or self.device[b] == _FREE:
                across.append((a, b))
        for a, b in free:
            self._merge(a, b)
        around: dict[int, _Boundary] = {}
        for a, b in across:
            inner, outer = (a, b) if self.device[a] == _FREE else (b, a)
            if self.late[outer] and not late:
                continue
            boundary = around.setdefault(self._root(inner), _Boundary())
            (boundary.consumers if outer == b else boundary.makers).add(self.device[outer])
        decided: dict[int, int] = {}
        for root, boundary in around.items():
            if not (late and self.has_operation[root]):
                decided[root] = self._choose(root, boundary)
        if decided:
            for c, device in enumerate(self.device):
                if device == _FREE and self.graph.classes.parent[c] == c:
                    chosen = decided.get(self._root(c))
                    if chosen is not None:
                        self._put(c, chosen)

    def _choose(self, root: int, boundary: _Boundary) -> int:
        devices = boundary.consumers | boundary.makers
        if len(devices) == 1:
            return next(iter(devices))
        if self.has_operation[root]:
            if self.machine.default in devices:
                return self.machine.default
            return first(devices)
        return min(boundary.consumers or boundary.makers)

    def _put(self, c: int, device: int) -> None:
        allowed = self.allowed.get(c)
        if allowed is not None and device not in allowed:
            device = preferred(self.machine, allowed)
        self.device[c] = device

    def _root(self, c: int) -> int:
        component = self.component
        while component[c] != c:
            component[c] = c = component[component[c]]
        return c

    def _merge(self, a: int, b: int) -> None:
        a, b = self._root(a), self._root(b)
        if a > b:
            a, b = b, a
        self.component[b] = a
        self.has_operation[a] = self.has_operation[a] or self.has_operation[b]


def common(before: tuple[int, ...] | None, support: Support) -> tuple[int, ...]:
    """Return the devices that can run an operation and what was asked before."""
    return tuple(d for d in support.allowed if before is None or d in before)
