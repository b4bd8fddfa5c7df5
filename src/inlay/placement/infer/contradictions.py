"""Finds facts that contradict each other, before anything is chosen.

Two facts of different devices about one class can only come from people: copies may be written
between classes and not within one. The message shows both facts and how they come to be about the
same value.
"""

from __future__ import annotations

from collections import deque

from inlay.base.diagnostics import Collector
from inlay.placement.infer.graph import TOGETHER, Graph, Pin, Reason, Support
from inlay.placement.infer.solve import common


def check_facts(graph: Graph, findings: Collector) -> None:
    """Find contradictions. Findings: `placement.contradiction`, `placement.unsupported-op`."""
    pins: dict[int, list[Pin]] = {}
    for pin in graph.pins:
        pins.setdefault(graph.classes.find(pin.atom), []).append(pin)
    _check_operations(graph, pins, findings)
    clashing = [found for found in pins.values() if len({p.device for p in found}) > 1]
    for found in sorted(clashing, key=lambda f: (min(p.reason.span.start for p in f), f[0].atom)):
        _contradiction(graph, found, findings)


def _contradiction(graph: Graph, pins: list[Pin], findings: Collector) -> None:
    one = min(pins, key=lambda p: (p.reason.span.start, p.atom))
    other = min((p for p in pins if p.device != one.device), key=lambda p: (p.reason.span.start, p.atom))
    names = graph.machine.devices
    root = graph.classes.find(one.atom)
    support = next((o for a, o in graph.supports.items() if graph.classes.find(a) == root), None)
    is_cell = any(graph.classes.find(c) == root for c in graph.cells)
    subject = graph.about[one.atom].text
    if is_cell:
        cell = next(
            (
                graph.about[a]
                for a in sorted(graph.cells)
                if graph.classes.find(a) == root and graph.about[a].text == "the cell"
            ),
            graph.about[one.atom],
        )
        subject, why = cell.text, "a reference has one place and cannot be copied"
        subject += f" made at {cell.span.text}" if cell.span.text else ""
        hint = "write the content into a second cell"
    elif support is not None:
        subject, why = support.name, f"{support.name} runs on one device"
        hint = "drop `result=true` on one of them, so that a copy may be written between"
        if any(p.reason.text.startswith("pinned by") for p in (one, other)):
            hint = "drop one of the two"
    else:
        why, hint = "it is one value", "drop one of the two, or put a device_copy between"
    chain = [r for r in _chain(graph, one.atom, other.atom) if r.span]
    labels = [(p.reason.span, p.reason.text) for p in (one, other) if p.reason.span]
    findings.error(
        "placement.contradiction",
        f"found {subject} on {names[one.device]} and on {names[other.device]}: {why}",
        span=one.reason.span,
        labels=[*labels, *((r.span, r.text) for r in chain)],
        notes=[f"{one.reason.text}, and {other.reason.text}", *(r.text for r in chain)],
        hint=hint,
    )


def _chain(graph: Graph, start: int, end: int) -> list[Reason]:
    """Return why two atoms are on one device: the shortest chain of links between them."""
    near: dict[int, list[tuple[int, Reason]]] = {}
    for a, b, reason in graph.links:
        near.setdefault(a, []).append((b, reason))
        near.setdefault(b, []).append((a, reason))
    before: dict[int, tuple[int, Reason] | None] = {start: None}
    front = deque([start])
    while front and end not in before:
        here = front.popleft()
        for there, reason in near.get(here, ()):
            if there not in before:
                before[there] = (here, reason)
                front.append(there)
    found: list[Reason] = []
    step = before.get(end)
    while step is not None:
        found.append(step[1])
        step = before[step[0]]
    return found[::-1]


def _check_operations(graph: Graph, pins: dict[int, list[Pin]], findings: Collector) -> None:
    names = graph.machine.devices
    together: dict[int, tuple[int, ...]] = {}
    for atom, support in graph.supports.items():
        c = graph.classes.find(atom)
        together[c] = common(together.get(c), support)
        why = dict(support.refusals)
        if not support.allowed:
            findings.error(
                "placement.unsupported-op",
                f"found {support.name}, which no device of board '{graph.machine.board.name}' can run",
                span=support.span,
                notes=[f"{names[d]}: {reason}" for d, reason in sorted(why.items())],
                hint="choose another board, or give one of the devices the operator",
            )
            continue
        for pin in pins.get(c, ()):
            if pin.device in why:
                _wrong_device(support, names[pin.device], why[pin.device], pin, names, findings)
                break


def _wrong_device(
    support: Support, device: str, why: str, pin: Pin, names: tuple[str, ...], findings: Collector
) -> None:
    hint = f"put it on {' or '.join(names[d] for d in support.allowed)}"
    if TOGETHER in why:
        hint = f"say nothing of it: it runs on {device} with the rest of the pattern where that is fastest"
    findings.error(
        "placement.unsupported-op",
        f"found {support.name} on {device}, which cannot run it: {why}",
        span=support.span or pin.reason.span,
        labels=[(pin.reason.span, pin.reason.text)] if pin.reason.span else (),
        notes=[pin.reason.text],
        hint=hint,
    )
