"""Chooses memories still allowed, once devices are chosen: sets that only shrink.

A *node* is a value or the port of an operation. Sets flow over edges between nodes on one device, and
between devices that share a coherent memory, but never through an operation. Nodes that can all be in
common memories form one *group* with the intersection. Where they cannot, the memory that most of the
nodes allow is taken, the nodes that allow it form groups, and the rest are asked again: between groups
there is a copy.
"""

from __future__ import annotations

from collections import Counter

from inlay.base.diagnostics import Collector
from inlay.placement.infer.graph import Graph, Limit, Reason
from inlay.placement.infer.solve import Solution


class Places:
    """Device and memories of every atom; sets of memories may be narrowed later, by group."""

    def __init__(self, graph: Graph, solution: Solution) -> None:
        n = len(graph.about)
        self.graph = graph
        self.has_narrowed = False
        self.machine = graph.machine
        self._device = [solution.of(a) for a in range(n)]
        self._node = [graph.values.find(a) for a in range(n)]
        self._group = list(range(n))
        self._mask = [self.machine.reach[d] for d in self._device]
        self._ports: dict[tuple[int, int], int] = {}
        self._fixed: set[int] = set()

    def device(self, atom: int) -> int:
        """Return the index of the device of an atom."""
        return self._device[atom]

    def mask(self, atom: int) -> int:
        """Return the memories still allowed for an atom, as bits."""
        return self._mask[self.group(atom)]

    def group(self, atom: int) -> int:
        """Return what stands for all atoms that have one set of memories."""
        group, g = self._group, self._node[atom]
        while group[g] != g:
            group[g] = g = group[group[g]]
        return g

    def narrow(self, atom: int, bits: int) -> None:
        """Allow fewer memories."""
        if atom in self._fixed:
            return
        group = self.group(atom)
        before, after = self._mask[group], self._mask[group] & bits
        if after and after != before:
            self._mask[group] = after
            self.has_narrowed = self.has_narrowed or group < len(self.graph.about)  # not of copies alone

    def merge(self, a: int, b: int) -> None:
        """Give two atoms one set, the intersection."""
        a, b = self.group(a), self.group(b)
        if a != b:
            self._group[max(a, b)] = min(a, b)
            self._mask[min(a, b)] &= self._mask[max(a, b)]

    def stay(self, value: int, use: int) -> None:
        """Note that a value is used where it is: both are in one memory from now on."""
        if self.group(value) == self.group(use):
            return
        own, there = self._device[value], self._device[use]
        if use in self._fixed:
            self.narrow(value, self.mask(use) & self.machine.shared[own][there])
        else:
            self.narrow(value, self.machine.shared[own][there])
            self.merge(value, use)

    def add(self, device: int, mask: int) -> int:
        """Return a new atom: of a copy."""
        self._device.append(device)
        self._node.append(len(self._group))
        self._group.append(len(self._group))
        self._mask.append(mask)
        return len(self._device) - 1

    def port(self, device: int, mask: int) -> int:
        """Return the atom of operands that an operation needs at a place; it is never narrowed."""
        found = self._ports.get((device, mask))
        if found is None:
            found = self._ports[device, mask] = self.add(device, mask & self.machine.reach[device])
            self._fixed.add(found)
        return found

    def meets(self, value: int, use: int) -> bool:
        """Whether a value can be used somewhere without a copy."""
        shared = self.machine.shared[self._device[value]][self._device[use]]
        return bool(self.mask(value) & self.mask(use) & shared)

    def assign(self, nodes: list[int], mask: int) -> None:
        """Make nodes one group."""
        first = min(nodes)
        for node in nodes:
            self._group[node] = first
        self._mask[first] = mask


def find_scopes(graph: Graph, solution: Solution, findings: Collector) -> Places:
    """Solve the sets. Findings: `memory.scope-empty`. Cost: linear, times memories where they clash."""
    places = Places(graph, solution)
    machine = graph.machine
    limited: dict[int, list[Limit]] = {}
    for limit in graph.limits:
        limited.setdefault(graph.values.find(limit.atom), []).append(limit)
    plain = all(r & (r - 1) == 0 for r in machine.reach)
    if plain and not limited and len(set(machine.reach)) == len(machine.reach):
        return places
    sets = {
        v: machine.reach[places.device(v)] for v in range(len(graph.about)) if graph.values.parent[v] == v
    }
    for node, limits in sorted(limited.items()):
        found = sets[node]
        for limit in limits:
            found &= limit.memories
        if not found:
            _report(graph, places.device(node), limits, findings)
            continue
        sets[node] = found
    _Sets(graph, places, sets).run(findings)
    return places


class _Sets:
    """Components of nodes, and their groups."""

    def __init__(self, graph: Graph, places: Places, sets: dict[int, int]) -> None:
        self.graph = graph
        self.places = places
        self.sets = sets
        self.links: dict[int, list[tuple[int, int]]] = {}
        self.ports = len(graph.about)

    def run(self, findings: Collector) -> None:
        """Solve all sets. Findings: `memory.scope-empty`."""
        graph, places, machine = self.graph, self.places, self.graph.machine
        next_port = self.ports
        for a, b, _, port in graph.edges:
            va, da, db = graph.values.find(a), places.device(a), places.device(b)
            shared = machine.shared[da][db]
            if port == -1:
                vb = graph.values.find(b)
            else:
                vb, next_port = next_port, next_port + 1
                reached = machine.reach[db] & port
                if not reached:
                    _report(graph, db, [_port_limit(graph, a, b, port)], findings)
                    continue
                self.sets[vb] = reached
            if shared and va != vb and self.sets[vb]:
                self.links.setdefault(va, []).append((vb, shared))
                self.links.setdefault(vb, []).append((va, shared))
        for component in self._components(self.sets, -1):
            self._group(component)

    def _components(self, nodes: dict[int, int] | list[int], memory: int) -> list[list[int]]:
        """Return what hangs together among nodes; if a memory is given, over links that allow it."""
        inside = set(nodes)
        seen: set[int] = set()
        found: list[list[int]] = []
        for start in nodes:
            if start in seen:
                continue
            seen.add(start)
            component = [start]
            for node in component:
                for other, shared in self.links.get(node, ()):
                    if other in inside and other not in seen:
                        if memory < 0 or shared >> memory & 1:
                            seen.add(other)
                            component.append(other)
            found.append(component)
        return found

    def _common(self, nodes: list[int], memory: int = -1) -> int:
        inside = set(nodes)
        common = -1
        for node in nodes:
            common &= self.sets[node]
            for other, shared in self.links.get(node, ()):
                if other in inside and (memory < 0 or shared >> memory & 1):
                    common &= shared
        return common

    def _group(self, component: list[int]) -> None:
        pending = [component]
        while pending:
            nodes = pending.pop()
            common = self._common(nodes)
            if common:
                self._assign(nodes, common)
                continue
            count: Counter[int] = Counter()
            for node in nodes:
                bits = self.sets[node]
                for m in range(bits.bit_length()):
                    count[m] += bits >> m & 1
            best = min(count, key=lambda m: (-count[m], m))
            inside = [n for n in nodes if self.sets[n] >> best & 1]
            for part in self._components(inside, best):
                self._assign(part, self._common(part, best))
            rest = [n for n in nodes if not self.sets[n] >> best & 1]
            pending.extend(self._components(rest, -1))

    def _assign(self, nodes: list[int], mask: int) -> None:
        values = [n for n in nodes if n < self.ports]
        if values:
            self.places.assign(values, mask)


def _port_limit(graph: Graph, operand: int, result: int, port: int) -> Limit:
    support, names = graph.supports[result], ", ".join(graph.machine.names(port))
    return Limit(operand, port, Reason(f"{support.name} reads it in {names}", support.span))


def _report(graph: Graph, device: int, limits: list[Limit], findings: Collector) -> None:
    machine = graph.machine
    about = graph.about[limits[0].atom]
    reach = machine.reach[device]
    facts = sorted(limits, key=lambda x: (x.reason.span.start, x.reason.text))

    def text(limit: Limit) -> str:
        every = ", ".join(machine.names(limit.memories)) or "none"
        reached = ", ".join(machine.names(limit.memories & reach)) or "none"
        name = machine.devices[device]
        return f"{limit.reason.text}: {{{every}}}, of which {name} reaches {{{reached}}}"

    findings.error(
        "memory.scope-empty",
        f"found no memory for {about.text}: what is asked of it excludes all of them",
        span=facts[0].reason.span,
        labels=[(x.reason.span, text(x)) for x in facts if x.reason.span],
        notes=[text(x) for x in facts],
        hint="drop one of these, or put a copy between the two",
    )
