"""Why everything is where it is, as data: for reports and for people.

For each operation: its device, the reason, the predicted time, and for every other device the first
thing that speaks against it: it cannot run the operator or the element types, somebody asked for
another place, a memory is too small, or it would take longer, with numbers. For each copy its size
and engine. For the whole the predicted time, the bound below it, and what the simplest plan takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from inlay.analysis.blocks import values
from inlay.analysis.cost import bytes_of
from inlay.arith.expr import evaluate, symbols
from inlay.base.diagnostics import Collector
from inlay.ir.expr import Call, OpRef, Var
from inlay.ir.module import Module
from inlay.machine.board import Board
from inlay.ops.device import DEVICE_COPY, CopyAttrs
from inlay.placement._capture import capture
from inlay.placement._graph import Edge
from inlay.placement._instance import Capability
from inlay.placement.decide import CHOSEN, Decision
from inlay.placement.plan_places import Choice, Inferred, infer
from inlay.placement.schedule import INFINITE, advance, fits, predict, start

_MOVES = 400
"""Operations for which every other device is tried; of larger programs the costs alone are shown."""


@dataclass(frozen=True, slots=True)
class Placed:
    """An operation.

    Attributes:
        operator: its name.
        where: where it stands in the program or model.
        function: in which function.
        device: where it runs.
        reason: why there.
        ns: predicted time of one run.
        starts: when it starts in the predicted schedule, in nanoseconds.
        others: for each other device the first thing that speaks against it.
    """

    operator: str
    where: str
    function: str
    device: str
    reason: str
    ns: float
    starts: float
    others: dict[str, str]


@dataclass(frozen=True, slots=True)
class Moved:
    """A copy: what, how many bytes at typical sizes, from where to where, by whom, how long."""

    value: str
    bytes: int
    source: str
    target: str
    engine: str
    ns: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """See the module docstring.

    Attributes:
        board: its name.
        operations: in program order.
        copies: in program order.
        total_ns: predicted time of the program.
        bound_ns: no placement is predicted to be faster.
        gap: how far the total may be above the best, as a share of the best.
        proved: whether it is known to be the best.
        first_able_ns: predicted time with every operation on the first device that can run it.
        busy_ns: how long each device computes.
        sizes: what dims were taken to be, and who said so.
        module: the placed program.
    """

    board: str
    operations: tuple[Placed, ...]
    copies: tuple[Moved, ...]
    total_ns: float
    bound_ns: float
    gap: float
    proved: bool
    first_able_ns: float
    busy_ns: dict[str, float]
    sizes: dict[str, tuple[int, str]]
    module: Module

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "board": self.board,
            "total_ns": self.total_ns,
            "bound_ns": self.bound_ns,
            "gap": _finite(self.gap),
            "proved": self.proved,
            "first_able_ns": _finite(self.first_able_ns),
            "busy_ns": self.busy_ns,
            "sizes": {n: {"size": s, "from": w} for n, (s, w) in self.sizes.items()},
            "operations": [asdict(o) for o in self.operations],
            "copies": [asdict(c) for c in self.copies],
        }


def explain(
    module: Module, board: Board, capability: Capability, choice: Choice
) -> Explanation:
    """Plan a program (in A-normal form, wishes marked) and say why.

    Raises:
        CompileError: as planning does.
    """
    findings = Collector()
    found = infer(module, board, capability, findings, choice)
    placed = capture(module, found.instances, found.places, findings)
    findings.raise_if_fatal()
    decision = found.decision
    if decision is None:
        return Explanation(
            board.name, (), (), 0.0, 0.0, 0.0, proved=True, first_able_ns=0.0, busy_ns={}, sizes={},
            module=placed,
        )  # fmt: skip
    assigned = [found.places.device(o.atom) for o in decision.operations]
    outcome = decision.outcome
    moved = outcome.assignment != tuple(assigned)
    total = predict(decision.problem, assigned) if moved else outcome.time
    names = found.graph.machine.devices
    busy = dict.fromkeys(names, 0.0)
    for task, d in zip(decision.problem.tasks, assigned, strict=True):
        busy[names[d]] += (task.costs[d] or 0.0) * task.weight
    return Explanation(
        board.name,
        tuple(_operations(found, decision, assigned, total)),
        tuple(_copies(placed, board, decision)),
        total,
        outcome.bound,
        outcome.gap,
        outcome.proved and not moved,
        outcome.baseline,
        busy,
        dict(decision.sizes),
        placed,
    )


def _operations(
    found: Inferred, decision: Decision, assigned: list[int], total: float
) -> list[Placed]:
    starts = _starts(decision, assigned)
    wishes = _wishes(found)
    return [
        _placed(found, decision, assigned, index, total, starts[index], wishes)
        for index in range(len(decision.operations))
    ]


def _placed(
    found: Inferred, decision: Decision, assigned: list[int], index: int, total: float,
    begins: float, wishes: dict[int, str],
) -> Placed:  # fmt: skip
    o, graph = decision.operations[index], found.graph
    names = graph.machine.devices
    device = assigned[index]
    operation = graph.operations[o.atom]
    wish = wishes.get(graph.classes.find(o.atom))
    group = next((c for c in decision.outcome.used if index in c.tasks), None)
    refusals = dict(operation.refusals)
    task = decision.problem.tasks[index]
    if wish is not None:
        reason = wish
    elif group is not None:
        reason = f"part of {group.name}, which takes {_us(group.cost)} as one"
    elif len(operation.allowed) == 1:
        reason = "no other device can run it"
    else:
        reason = "least predicted time of the program"
    others: dict[str, str] = {}
    for d, name in enumerate(names):
        if d == device:
            continue
        if d in refusals:
            others[name] = refusals[d]
        elif wish is not None:
            others[name] = wish
        else:
            others[name] = _against(decision, assigned, index, d, total)
    own = o.instance.name
    where = str(o.call.span) if o.call.span else ""
    return Placed(
        o.name, where, own.name if isinstance(own, Var) else own or "", names[device], reason,
        task.costs[device] or 0.0, begins, others,
    )  # fmt: skip


def _against(
    decision: Decision, assigned: list[int], index: int, device: int, total: float
) -> str:
    """Return what the program would take with one operation somewhere else."""
    problem = decision.problem
    cost = problem.tasks[index].costs[device]
    own = problem.tasks[index].costs[assigned[index]] or 0.0
    if cost is None:
        return "another place was asked for"
    alone = f"{_us(cost)} there, {_us(own)} here"
    if len(assigned) > _MOVES:
        return f"cost: it takes {alone}"
    moved = [*assigned]
    moved[index] = device
    if not fits(problem, moved):
        return f"capacity: the values would not fit ({alone})"
    time = predict(problem, moved)
    if time == INFINITE:
        return "no link leads there"
    more = time - total
    if more > 0:
        return f"cost: the program would take {_us(more)} more (it takes {alone})"
    return f"cost: the program would take as long (it takes {alone})"


def _starts(decision: Decision, assigned: Sequence[int]) -> list[float]:
    state = start(decision.problem)
    found: list[float] = []
    for index, device in enumerate(assigned):
        task = decision.problem.tasks[index]
        end = advance(decision.problem, state, index, device)
        found.append(end - (task.costs[device] or 0.0) * task.weight)
    return found


def _wishes(found: Inferred) -> dict[int, str]:
    """Return for classes what people said of them; what the search chose is no wish."""
    graph = found.graph
    said: dict[int, str] = {}
    for pin in graph.pins:
        if not pin.reason.text.endswith(CHOSEN):
            said.setdefault(graph.classes.find(pin.atom), f"wish: {pin.reason.text}")
    for a, b, kind, _ in graph.edges:
        text = said.get(graph.classes.find(b))
        if kind == Edge.STRONG and text is not None:
            same = found.places.device(a) == found.places.device(b)
            if same:
                said.setdefault(graph.classes.find(a), text)
    return said


def _copies(module: Module, board: Board, decision: Decision) -> list[Moved]:
    found: list[Moved] = []
    for function in module.functions.values():
        for value in values(function.body):
            if not isinstance(value, Call) or not isinstance(value.callee, OpRef):
                continue
            attrs = value.callee.attrs
            if value.callee.op is not DEVICE_COPY or not isinstance(attrs, CopyAttrs):
                continue
            size = bytes_of(value.type)
            sizes = {s: decision.sizes.get(s.name, (64, ""))[0] for s in symbols(size)}
            count = max(0, evaluate(size, sizes))
            link = next((x for x in board.links if x.engine == attrs.engine
                         and attrs.src_memory in ("", x.source)
                         and attrs.dst_memory in ("", x.target)), None)  # fmt: skip
            ns = 0.0 if link is None else link.latency_ns + count / link.bytes_per_ns
            arg = value.args[0]
            name = arg.name if isinstance(arg, Var) else "a constant"
            found.append(Moved(name, count, attrs.src, attrs.dst, attrs.engine, ns))
    return found


def describe(e: Explanation) -> list[str]:
    """Return an explanation as lines for a person."""
    lines = [f"board {e.board}: predicted {_us(e.total_ns)}" + _quality(e)]
    if e.first_able_ns < INFINITE and e.first_able_ns > 0:
        share = (1 - e.total_ns / e.first_able_ns) * 100
        lines.append(f"  first device that can: {_us(e.first_able_ns)} ({share:.0f} % saved)")
    for name, (size, who) in e.sizes.items():
        lines.append(f"  size {name} = {size}, from {who}")
    for device, ns in e.busy_ns.items():
        lines.append(f"  {device} computes for {_us(ns)}")
    lines.append("operations:")
    for o in e.operations:
        inside = "" if o.function == "main" else f" in {o.function}"
        lines.append(f"  {o.device:8} {o.operator}{inside} {_us(o.ns)}  {o.where}: {o.reason}")
        lines.extend(f"    not {d}: {why}" for d, why in o.others.items())
    lines.append(f"copies: {len(e.copies)}" if e.copies else "copies: none")
    return lines + [
        f"  {c.value}: {c.bytes} bytes, {c.source} -> {c.target} by {c.engine}, {_us(c.ns)}"
        for c in e.copies
    ]


def _quality(e: Explanation) -> str:
    if e.proved:
        return ", proved to be the least"
    if e.gap == INFINITE:
        return ", with no bound below it"
    return f", at most {e.gap * 100:.1f} % above the least (bound {_us(e.bound_ns)})"


def _us(ns: float) -> str:
    return f"{ns / 1000:.2f} us" if ns < 1e6 else f"{ns / 1e6:.3f} ms"


def _finite(x: float) -> float | None:
    return None if x == INFINITE else x


