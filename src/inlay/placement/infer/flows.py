"""Says what places have to do with each other: makes atoms, facts about them and edges."""

from __future__ import annotations

from collections.abc import Sequence

from inlay.base.diagnostics import Collector
from inlay.base.registry import nearest
from inlay.base.span import Span
from inlay.ir.expr import Call, Expr, Var
from inlay.ir.module import Module
from inlay.ir.place import Origin, Place
from inlay.ir.types import Type
from inlay.ops.device import OnDeviceAttrs, Position
from inlay.placement.infer.domains import Domain, Kind, Leaf, Parts, Shapes, leaves
from inlay.placement.infer.graph import Edge, Graph, Reason
from inlay.placement.infer.instance import Instance


class Flows:
    """What a walk over a program says; `gather.py` walks."""

    def __init__(self, module: Module, graph: Graph, findings: Collector) -> None:
        self.graph = graph
        self.machine = graph.machine
        self.findings = findings
        self.now: Instance | None = None
        self.about = Reason("a value")
        self.rigid_vars: set[Var] = set()
        self.shapes = Shapes(module.adts, self._new_atom)

    # ------------------------------------------------------------------------ atoms and facts

    def _new_atom(self) -> int:
        atom = self.graph.atom(self.about)
        if self.now is not None:
            self.now.atoms.append(atom)
        return atom

    def _domain(self, t: Type, about: str, span: Span) -> Domain:
        assert self.now is not None
        self.about = Reason(about, span)
        return self.shapes.of(t, self.now.types)

    def device(self, name: str, span: Span) -> int | None:
        """Return the index of a device; None, and a finding, where the board has none such."""
        found = self.machine.device_index.get(name)
        if found is None:
            known = self.machine.devices
            close = nearest(name, known)
            self.findings.error(
                "placement.unknown-device",
                f"found the device '{name}', which board '{self.machine.board.name}' does not have",
                span=span,
                hint=f"did you mean {' or '.join(close)}?" if close
                else f"its devices are {', '.join(known)}",
            )  # fmt: skip
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
                close = nearest(name, known)
                self.findings.error(
                    "placement.unknown-memory",
                    f"found the memory '{name}', which board '{board.name}' does not have",
                    span=span,
                    hint=f"did you mean {' or '.join(close)}?" if close
                    else f"its memories are {', '.join(self.machine.memory_index)}",
                )  # fmt: skip
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
        for atom in leaves(domain):
            if device is not None:
                self.graph.pin(atom, device, Reason(f"{what} is @{text}{said}", span))
            if bits is not None:
                self.graph.limit(atom, bits, Reason(f"{what} is @{text}{said}", span))

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

    # ------------------------------------------------------------------------ annotations

    def _pin(self, atom: int, device: int | None, bits: int | None, said: Reason) -> None:
        if device is not None:
            self.graph.pin(atom, device, said)
        if bits is not None:
            self.graph.limit(atom, bits, said)

    def _twin(self, domain: Domain, device: int | None, bits: int | None, said: Reason) -> Domain:
        """Return a new domain of the same shape, on a device; cells have identity and stay."""
        match domain:
            case Leaf():
                atom = self._new_atom()
                self._pin(atom, device, bits, said)
                return Leaf(atom)
            case Parts(kind=Kind.CELL):
                for atom in leaves(domain):
                    self._pin(atom, device, bits, said)
                return domain
            case Parts(kind=Kind.FUNCTION):
                return domain
            case Parts(kind=Kind.DATA):
                return self._twin_data(domain, device, bits, said)
            case Parts(kind=kind, parts=parts):
                return Parts(kind, tuple(self._twin(p, device, bits, said) for p in parts))
            case None:
                return None

    def _twin_data(self, data: Parts, device: int | None, bits: int | None, said: Reason) -> Parts:
        twins: dict[int, Domain] = {}
        made = Parts(Kind.DATA, ())
        twins[id(data)] = made

        def twin(d: Domain) -> Domain:
            if d is None:
                return None
            if isinstance(d, Leaf):
                key = -1 - d.atom
                if key not in twins:
                    twins[key] = self._twin(d, device, bits, said)
                return twins[key]
            if id(d) not in twins:
                copy = Parts(d.kind, ())
                twins[id(d)] = copy
                copy.parts = tuple(map(twin, d.parts))
                copy.fields = {n: tuple(map(twin, f)) for n, f in d.fields.items()}
            return twins[id(d)]

        made.parts = tuple(map(twin, data.parts))
        made.fields = {n: tuple(map(twin, f)) for n, f in data.fields.items()}
        return made

    def _ask(self, inner: Domain, asked: Domain, said: Reason, annotation: OnDeviceAttrs) -> None:
        if not annotation.body:
            self.flow(inner, asked, said)
            return
        for a, b in zip(leaves(inner), leaves(asked), strict=False):
            if a == b:
                continue
            self.graph.edge(a, b, Edge.STRONG if annotation.device else Edge.ORDINARY)
            self._refuse_annotation(a, annotation, said)

    def _stands_for(self, inner: Domain, made: Domain) -> None:
        pairs = zip(leaves(inner), leaves(made), strict=False)
        self.graph.aliases.extend((a, b) for a, b in pairs if a != b)

    def _refuse_annotation(self, atom: int, annotation: OnDeviceAttrs, said: Reason) -> None:
        operation = self.graph.operations.get(atom)
        device = self.machine.device_index.get(annotation.device)
        if operation is None or device is None or device in operation.allowed:
            return
        why = dict(operation.refusals)[device]
        able = [self.machine.devices[d] for d in operation.allowed]
        self.findings.error(
            "placement.unsupported-op",
            f"found {operation.name} on {annotation.device}, which cannot run it: {why}",
            span=said.span,
            labels=[(operation.span, f"{operation.name} is here")] if operation.span else (),
            hint=f"put it on {' or '.join(able)}" if able else "",
        )

    def _rigid(self, a: Domain, b: Domain, reason: Reason) -> None:
        for x, y in zip(leaves(a), leaves(b), strict=False):
            self.graph.same_device(x, y, reason)

    def _hand_on(self, arg: Expr, own: Domain, there: Domain, reason: Reason) -> None:
        """Say that an operand becomes a value; where its result is fixed, with no copy between."""
        self._keep(arg, own, there, reason)
        self.flow(own, there, reason)

    def _keep(self, arg: Expr, own: Domain, there: Domain, reason: Reason) -> None:
        if self._is_rigid(arg):
            self._rigid(own, there, reason)

    def _fixes(self, value: Expr, annotation: OnDeviceAttrs) -> bool:
        """Whether an annotation fixes what uses it; one that asks for nothing is what it is about."""
        if not annotation.body and not annotation.result:
            return isinstance(value, Call) and self._is_rigid(value.args[0])
        return annotation.result and annotation.position is not Position.DEFINITION

    def _is_rigid(self, arg: Expr) -> bool:
        return isinstance(arg, Var) and arg in self.rigid_vars
