"""Pins: what people say on a command line about where operations run, `PATTERN=DEVICE`.

Of two pins that mean one operation the more specific one decides: the one that means fewer operations,
all of which the other one means too. Of two that mean the same it is the one that names a node, an
operator or a function over one with `*`. Where neither is, they contradict each other.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from inlay.base.diagnostics import Collector, error
from inlay.base.registry import did_you_mean, nearest, suggestion
from inlay.base.span import Span
from inlay.ir.expr import Var
from inlay.ops._define import FusionPattern
from inlay.ops.table import OperatorTable
from inlay.placement.infer.graph import Graph, Reason
from inlay.placement.infer.instance import Instance
from inlay.placement.infer.operations import Operation, operations_of

_NODE = re.compile(r"node '(?P<name>.*)' \((?P<operator>[^()]*)\)")
"""How the importer of a model names where an operation comes from."""
_ADDED = frozenset({"transpose", "reshape", "pad", "check_indices", "index_extremes"})
"""Operators that lowering writes around others: layouts, borders, checks."""


def apply_pins(
    graph: Graph,
    instances: Sequence[Instance],
    pins: Sequence[str],
    operators: OperatorTable,
    findings: Collector,
) -> None:
    """Turn `PATTERN=DEVICE` into facts.

    Args:
        graph, instances: what was gathered of the program.
        pins: as people write them. A pattern, with `*`, matches any name in `names_of`; `@f` matches
            all operations of a function.
        operators: what the program uses.
        findings: gets what is wrong, all at once.

    Findings: `placement.bad-pin`, `placement.unknown-device`.
    """
    operations, forms = operations_of(graph, instances), forms_of(operators)
    administered = frozenset(d.name for d in operators if d.pattern is FusionPattern.CONTROL)
    devices = graph.machine.device_index
    meant: list[_Pin] = []
    for text in pins:
        pattern, sign, device = text.rpartition("=")
        if not sign or not pattern:
            findings.error(
                "placement.bad-pin",
                f"found --pin {text}, needed PATTERN=DEVICE",
                hint=f"as in --pin 'Conv={graph.machine.devices[-1]}'",
            )
            continue
        if device not in devices:
            findings.error(
                "placement.unknown-device",
                f"found the device '{device}', which board '{graph.machine.board.name}' does not have",
                hint=suggestion(device, devices, f"its devices are {', '.join(devices)}"),
            )
            continue
        hit = {i: o for i, o in enumerate(operations) if matches(o, pattern, forms)}
        kept = [
            i
            for i, o in hit.items()
            if devices[device] in graph.supports[o.atom].allowed or _is_meant(o, pattern, administered)
        ]
        if not hit:
            _nothing_matches(text, pattern, operations, forms, findings)
        elif not kept:
            o = next(iter(hit.values()))
            why = dict(graph.supports[o.atom].refusals)[devices[device]]
            findings.error(
                "placement.bad-pin", f"found --pin {text}, which has no effect: {why}", span=o.call.span
            )
        meant.append(_Pin(text, pattern, devices[device], frozenset(kept)))
    _apply(graph, operations, meant, findings)


@dataclass(frozen=True, slots=True)
class _Pin:
    """A pin and the operations that it means, by index."""

    text: str
    pattern: str
    device: int
    operations: frozenset[int]

    def is_over(self, other: _Pin) -> bool:
        """Whether this one decides where both mean an operation."""
        if self.operations == other.operations:
            return "*" not in self.pattern and "*" in other.pattern
        return self.operations < other.operations


def _apply(graph: Graph, operations: Sequence[Operation], meant: Sequence[_Pin], findings: Collector) -> None:
    """Make facts of pins, of each operation those over which none is."""
    of: dict[int, list[_Pin]] = {}
    for pin in meant:
        for index in sorted(pin.operations):
            of.setdefault(index, []).append(pin)
    above = {id(pin): [p for p in meant if p.is_over(pin)] for pin in meant}
    used: set[int] = set()
    for index, pins in of.items():
        o = operations[index]
        for pin in pins:
            over = next((p for p in above[id(pin)] if index in p.operations), None)
            if over is None or over.device == pin.device:
                used.add(id(pin))
            if over is None:
                graph.pin(o.atom, pin.device, Reason(f"pinned by {pin.text}", o.call.span))
    for pin in meant:
        if pin.operations and id(pin) not in used:
            over = ", ".join(p.text for p in above[id(pin)])
            findings.error(
                "placement.bad-pin",
                f"found --pin {pin.text}, which has no effect: others say more of all that it means",
                notes=[f"those are {over}"],
                hint="leave it out",
            )


def _is_meant(o: Operation, pattern: str, administered: frozenset[str]) -> bool:
    """Whether a pin speaks of an operation, or only of what that is a part of.

    What lowering adds to a node of a model is a part of it. What the virtual machine itself runs, sizes
    and rows of lists, is a part of a node, of a function and of everything.
    """
    if o.name in administered:
        return "*" not in pattern and _is_operator(o.name, pattern)
    return o.name not in _ADDED or not o.call.span.name or _is_operator(o.name, pattern)


def find_operations(
    operations: Sequence[Operation], pattern: str, forms: Mapping[str, str]
) -> list[Operation]:
    """Return the operations that a pattern means.

    Raises:
        CompileError: `name.unknown`, with near names.
    """
    found = [o for o in operations if matches(o, pattern, forms)]
    if not found:
        names = dict.fromkeys(n for o in operations for n in names_of(o, forms))
        hint = did_you_mean(near_names(pattern, names), "--at '*' shows all of them")
        raise error("name.unknown", f"found no operation named '{pattern}'", hint=hint)
    return found


def matches(o: Operation, pattern: str, forms: Mapping[str, str]) -> bool:
    """Whether a pattern means an operation."""
    return means(pattern, names_of(o, forms), (o.name, forms.get(o.name, o.name)))


def means(pattern: str, names: Sequence[str], operators: Sequence[str]) -> bool:
    """Whether a pattern is one of these names; operators are spelled in any case (`MatMul`)."""
    return any(fnmatch.fnmatchcase(name, pattern) for name in names) or any(
        _is_operator(name, pattern) for name in operators
    )


def near_names(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names nearest to a pattern, the same in another case first."""
    known, bare = list(names), pattern.strip("*")
    same = {n.lower(): n for n in known}.get(bare.lower())
    return nearest(bare, known) if same is None else [same]


def _is_operator(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name.replace("_", ""), pattern.lower().replace("_", ""))


def forms_of(operators: OperatorTable) -> dict[str, str]:
    """Return for operators that lowering chooses the operator that they are a form of."""
    return {d.name: d.form_of for d in operators if d.form_of}


def names_of(o: Operation, forms: Mapping[str, str]) -> tuple[str, ...]:
    """Return what people may call an operation.

    The operator as it runs (`conv_nhwc_packed`), what that is a form of (`conv`), the node of the
    model (`/layer1/Conv_3`) and its operator (`Conv`), and the function (`@f`).
    """
    found = [o.name]
    if o.name in forms:
        found.append(forms[o.name])
    found += names_of_span(o.call.span)
    name = o.instance.name
    found.append(f"@{name.name if isinstance(name, Var) else name}")
    return tuple(found)


def names_of_span(span: Span) -> tuple[str, ...]:
    """Return what people may call what comes from a place without text: a node and its operator."""
    node = _NODE.search(span.name)
    if node is not None:
        return (node["name"], node["operator"])
    return (span.name,) if span.name else ()


def _nothing_matches(
    text: str, pattern: str, operations: Sequence[Operation], forms: Mapping[str, str], findings: Collector
) -> None:
    names = dict.fromkeys(n for o in operations for n in names_of(o, forms))
    close = near_names(pattern, names)
    findings.error(
        "placement.bad-pin",
        f"found --pin {text}, which matches no operation",
        hint=did_you_mean(
            close, f"operations are {', '.join(dict.fromkeys(o.name for o in operations))}"[:200]
        ),
    )
