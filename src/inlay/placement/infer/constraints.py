"""Constraints on places: atoms, facts about them and edges, added while a program is walked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from inlay.base.diagnostics import Collector
from inlay.base.registry import suggestion
from inlay.base.span import Span
from inlay.ir.expr import Expr, Var
from inlay.ir.module import Module
from inlay.ir.place import Origin, Place
from inlay.ir.types import Type
from inlay.placement.infer.domains import Domain, Kind, Leaf, Parts, Shapes, leaves
from inlay.placement.infer.graph import Edge, Graph, Reason
from inlay.placement.infer.instance import Instance


class Fact(NamedTuple):
    """On which device something is, in which memories (as bits), and why; None leaves either open."""

    device: int | None
    memories: int | None
    reason: Reason


class Constraints:
    """The constraints of a program while it is walked (`gather.py`).

    Attributes:
        now: the instance whose body is walked; new atoms are its own.
        rigid_vars: variables whose uses are where they are, with no copy between.
        shapes: makes domains.
    """

    def __init__(self, module: Module, graph: Graph, findings: Collector) -> None:
        self.graph = graph
        self.machine = graph.machine
        self.findings = findings
        self.now: Instance | None = None
        self.about = Reason("a value")
        self.rigid_vars: set[Var] = set()
        self.shapes = Shapes(module.adts, self.new_atom)

    # ------------------------------------------------------------------------ atoms and facts

    def new_atom(self) -> int:
        """Return a new atom of the instance that is walked."""
        atom = self.graph.atom(self.about)
        if self.now is not None:
            self.now.atoms.append(atom)
        return atom

    def domain(self, t: Type, about: str, span: Span) -> Domain:
        """Return a new domain for a type; `about` says of what."""
        assert self.now is not None
        self.about = Reason(about, span)
        return self.shapes.of(t, self.now.types)

    def device(self, name: str, span: Span) -> int | None:
        """Return the index of a device; None, and a finding, where the board has none such."""
        found = self.machine.device_index.get(name)
        if found is None:
            known = self.machine.devices
            self.findings.error(
                "placement.unknown-device",
                f"found the device '{name}', which board '{self.machine.board.name}' does not have",
                span=span,
                hint=suggestion(name, known, f"its devices are {', '.join(known)}"),
            )
        return found

    def memories(self, names: Sequence[str], span: Span) -> int | None:
        """Return the memories that a scope names, as bits.

        A scope is a memory, or one of `workspace` (no stack), `stack`, `global` (no restriction), or a
        device or engine, for what that addresses: `[npu0, dma0]` is what all of them share.
        """
        board, bits = self.machine.board, 0
        everything = (1 << len(board.memories)) - 1
        restricted = everything
        stacks = self.machine.bits([m.name for m in board.memories if m.kind == "stack"])
        parties = {d.name: d.memories for d in board.devices}
        parties.update({e.name: e.memories for e in board.engines})
        for name in names:
            if name in self.machine.memory_index:
                bits |= 1 << self.machine.memory_index[name]
            elif name in ("workspace", "stack", "global"):
                scope = {"workspace": everything & ~stacks, "stack": stacks, "global": everything}
                restricted &= scope[name]
            elif name in parties:
                restricted &= self.machine.bits(parties[name])
            else:
                known = [*self.machine.memory_index, *parties, "workspace", "stack", "global"]
                self.findings.error(
                    "placement.unknown-memory",
                    f"found the memory '{name}', which board '{board.name}' does not have",
                    span=span,
                    hint=suggestion(name, known, f"its memories are {', '.join(self.machine.memory_index)}"),
                )
                return None
        return (bits or everything) & restricted

    def place(self, domain: Domain, place: Place | None, what: str, span: Span) -> None:
        """Take the place written on a value as a fact."""
        if place is None or domain is None:
            return
        said = "!" if place.origin is Origin.USER else ""
        device = self.device(place.device, span) if place.device else None
        bits = None
        if place.memories is not None:
            bits = self.memories(place.memories, span)
        inner = domain.parts if isinstance(domain, Parts) else ()
        if not place.fields and isinstance(domain, Parts) and domain.kind is Kind.FUNCTION:
            return
        whole = not place.fields
        for index, p in enumerate(inner if not whole else ()):
            own = place.fields[index] if index < len(place.fields) else None
            self.place(p, own, f"part {index} of {what}", span)
        if not whole:
            return
        text = place.device + (f"[{', '.join(place.memories)}]" if place.memories else "")
        fact = Fact(device, bits, Reason(f"{what} is @{text}{said}", span))
        for atom in leaves(domain):
            self.fix(atom, fact)

    def fix(self, atom: int, fact: Fact) -> None:
        """Say that a fact holds of an atom."""
        if fact.device is not None:
            self.graph.pin(atom, fact.device, fact.reason)
        if fact.memories is not None:
            self.graph.limit(atom, fact.memories, fact.reason)

    def flow(self, a: Domain, b: Domain, reason: Reason, kind: Edge = Edge.ORDINARY) -> None:
        """Say that a value of one domain becomes one of another, where a copy may be written.

        Between two values whose type is a variable none may: a copy needs the size of what it
        copies, so those who know the type copy, before they call and behind.
        """
        match a, b:
            case Leaf(atom=x), Leaf(atom=y):
                if x != y and self.now is not None and self.now.types and {x, y} <= self.shapes.open:
                    self.graph.same_value(x, y, reason)
                elif x != y:
                    self.graph.edge(x, y, kind)
            case Parts(kind=Kind.CELL, parts=xs), Parts(kind=Kind.CELL, parts=ys):
                for x, y in zip(xs, ys, strict=True):
                    self.unify(x, y, reason, cell=True)
            case Parts(kind=one, parts=xs), Parts(kind=other, parts=ys) if one == other:
                if a is b or len(xs) != len(ys):
                    return
                inner = kind if one is Kind.TUPLE else min(kind, Edge.CONTAINER)
                for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
                    if one is Kind.FUNCTION and i < len(xs) - 1:
                        self.flow(y, x, reason, inner)
                    else:
                        self.flow(x, y, reason, inner)
            case Leaf(atom=x), Parts():
                for y in leaves(b):
                    self.graph.edge(x, y, kind)
            case Parts(), Leaf(atom=y):
                for x in leaves(a):
                    self.graph.edge(x, y, kind)
            case _:
                pass

    def unify(self, a: Domain, b: Domain, reason: Reason, *, cell: bool = False) -> None:
        """Say that two domains are of one value."""
        for x, y in zip(leaves(a), leaves(b), strict=False):
            self.graph.same_value(x, y, reason)
            if cell:
                self.graph.cells.update((x, y))

    def rigid(self, a: Domain, b: Domain, reason: Reason) -> None:
        """Say that two domains are on the same devices."""
        for x, y in zip(leaves(a), leaves(b), strict=False):
            self.graph.same_device(x, y, reason)

    def hand_on(self, arg: Expr, own: Domain, there: Domain, reason: Reason) -> None:
        """Say that an operand becomes a value; where its result is fixed, with no copy between."""
        self.keep(arg, own, there, reason)
        self.flow(own, there, reason)

    def keep(self, arg: Expr, own: Domain, there: Domain, reason: Reason) -> None:
        """Say that what an operand becomes is where the operand is, if that is fixed."""
        if self.is_rigid(arg):
            self.rigid(own, there, reason)

    def is_rigid(self, arg: Expr) -> bool:
        """Whether uses of an operand are where it is, with no copy between."""
        return isinstance(arg, Var) and arg in self.rigid_vars
