"""Constraints of `on_device` and `device_copy`: domains of their results, and what is asked of them.

The result of an annotation is a *twin* of its operand: a domain of the same shape with atoms of its
own, about which only the annotation says something. Cells have identity, so they have no twins, and
functions have no place.
"""

from __future__ import annotations

from inlay.ir.expr import Call, Const, Expr
from inlay.ops.device import CopyAttrs, OnDeviceAttrs, Position
from inlay.placement.infer.constraints import Constraints, Fact
from inlay.placement.infer.domains import Domain, Kind, Leaf, Parts, leaves
from inlay.placement.infer.graph import Edge, Reason


def fixes_uses(constraints: Constraints, value: Expr, annotation: OnDeviceAttrs) -> bool:
    """Whether an annotation fixes what uses it; one that asks for nothing is what it is about."""
    if not annotation.body and not annotation.result:
        return isinstance(value, Call) and constraints.is_rigid(value.args[0])
    return annotation.result and annotation.position is not Position.DEFINITION


def annotate(constraints: Constraints, call: Call, annotation: OnDeviceAttrs, operand: Domain) -> Domain:
    """Add the constraints of an annotation; return the domain of its result."""
    fact = _fact_of(constraints, call, annotation)
    if fact is None:
        return operand
    arg, own = call.args[0], operand
    if isinstance(arg, Const) and own is None:
        own = constraints.domain(call.type, "the constant", call.span)
        _fix_all(constraints, own, fact)
        assert constraints.now is not None
        constraints.now.constants[id(call)] = own
    asks_nothing = not annotation.body and not annotation.result
    if asks_nothing or (isinstance(own, Parts) and own.kind is Kind.FUNCTION):
        return own
    constraints.about = Reason(f"{call.span.text or 'the value'}", call.span)
    if annotation.position is Position.DEFINITION:
        made = _twin(constraints, own, fact)
        _ask(constraints, own, made, fact, annotation)
        constraints.keep(arg, own, made, fact.reason)
        return made
    if annotation.body:
        asked = _twin(constraints, own, fact)
        _ask(constraints, own, asked, fact, annotation)
        constraints.keep(arg, own, asked, fact.reason)
    made = _twin(constraints, own, Fact(None, None, fact.reason))
    _alias(constraints, own, made)
    if annotation.result and not annotation.body:
        constraints.keep(arg, own, made, fact.reason)
    if annotation.result:
        _fix_all(constraints, made, fact)
    return made


def copy(constraints: Constraints, call: Call, attrs: CopyAttrs, operand: Domain) -> Domain:
    """Add the constraints of a copy that a person wrote; return the domain of its result."""
    said = Reason(f"copied from {attrs.src} to {attrs.dst}", call.span)
    constraints.about = said
    ends: list[Fact] = []
    for device, memory in ((attrs.src, attrs.src_memory), (attrs.dst, attrs.dst_memory)):
        index = constraints.device(device, call.span) if device else None
        bits = constraints.memories((memory,), call.span) if memory else None
        ends.append(Fact(index, bits, said))
    source = _twin(constraints, operand, ends[0])
    for a, b in zip(leaves(operand), leaves(source), strict=False):
        if a != b:
            constraints.graph.edge(a, b, Edge.STRONG)
    constraints.keep(call.args[0], operand, source, said)
    made = _twin(constraints, operand, ends[1])
    _alias(constraints, operand, made)
    if operand is None:
        made = constraints.domain(call.type, "the copy", call.span)
        _fix_all(constraints, made, ends[1])
    return made


def _fact_of(constraints: Constraints, call: Call, annotation: OnDeviceAttrs) -> Fact | None:
    """Return what an annotation asks for; None where it names what the board does not have."""
    device = constraints.device(annotation.device, call.span) if annotation.device else None
    bits = constraints.memories(annotation.memories, call.span) if annotation.memories else None
    if (annotation.device and device is None) or (annotation.memories and bits is None):
        return None
    what = getattr(call.args[0], "name", "the value")
    memories = f"[{', '.join(annotation.memories)}]" if annotation.memories else ""
    word = "fixed" if annotation.result else "asked for"
    text = f"{what} is {word} on {annotation.device}{memories}"
    return Fact(device, bits, Reason(text, call.span))


def _fix_all(constraints: Constraints, domain: Domain, fact: Fact) -> None:
    for atom in leaves(domain):
        constraints.fix(atom, fact)


def _twin(constraints: Constraints, domain: Domain, fact: Fact) -> Domain:
    """Return a new domain of the same shape, of which a fact holds."""
    match domain:
        case Leaf():
            atom = constraints.new_atom()
            constraints.fix(atom, fact)
            return Leaf(atom)
        case Parts(kind=Kind.CELL):
            _fix_all(constraints, domain, fact)
            return domain
        case Parts(kind=Kind.FUNCTION):
            return domain
        case Parts(kind=Kind.DATA):
            return _twin_data(constraints, domain, fact)
        case Parts(kind=kind, parts=parts):
            return Parts(kind, tuple(_twin(constraints, p, fact) for p in parts))
        case None:
            return None


def _twin_data(constraints: Constraints, data: Parts, fact: Fact) -> Parts:
    twins: dict[int, Domain] = {}
    made = Parts(Kind.DATA, ())
    twins[id(data)] = made

    def twin(d: Domain) -> Domain:
        if d is None:
            return None
        if isinstance(d, Leaf):
            key = -1 - d.atom
            if key not in twins:
                twins[key] = _twin(constraints, d, fact)
            return twins[key]
        if id(d) not in twins:
            inner = Parts(d.kind, ())
            twins[id(d)] = inner
            inner.parts = tuple(map(twin, d.parts))
            inner.fields = {n: tuple(map(twin, f)) for n, f in d.fields.items()}
        return twins[id(d)]

    made.parts = tuple(map(twin, data.parts))
    made.fields = {n: tuple(map(twin, f)) for n, f in data.fields.items()}
    return made


def _alias(constraints: Constraints, operand: Domain, made: Domain) -> None:
    """Say that a value about which nothing is inferred stands for another one."""
    pairs = zip(leaves(operand), leaves(made), strict=False)
    constraints.graph.aliases.extend((a, b) for a, b in pairs if a != b)


def _ask(
    constraints: Constraints, operand: Domain, asked: Domain, fact: Fact, annotation: OnDeviceAttrs
) -> None:
    if not annotation.body:
        constraints.flow(operand, asked, fact.reason)
        return
    for a, b in zip(leaves(operand), leaves(asked), strict=False):
        if a != b:
            constraints.graph.edge(a, b, Edge.STRONG if annotation.device else Edge.ORDINARY)
            _refuse(constraints, a, fact)


def _refuse(constraints: Constraints, atom: int, fact: Fact) -> None:
    """Find that a device which is asked for cannot run what makes a value."""
    support, names = constraints.graph.supports.get(atom), constraints.machine.devices
    if support is None or fact.device is None or fact.device in support.allowed:
        return
    why = dict(support.refusals)[fact.device]
    able = [names[d] for d in support.allowed]
    constraints.findings.error(
        "placement.unsupported-op",
        f"found {support.name} on {names[fact.device]}, which cannot run it: {why}",
        span=fact.reason.span,
        labels=[(support.span, f"{support.name} is here")] if support.span else (),
        hint=f"put it on {' or '.join(able)}" if able else "",
    )
