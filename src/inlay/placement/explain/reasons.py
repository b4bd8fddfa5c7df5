"""Why everything is where it is, as data; `report.py` makes text of it.

For each kernel, which is one operation or several that are computed together: its device, the reason,
the predicted time, and for every other device the first thing that speaks against it: it cannot run
the operator or the element types, somebody asked for another place, a memory is too small, or it would
take longer, with numbers. For each copy its size
and engine. For the whole the predicted time, the bound below it, and what the simplest plan takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from inlay.analysis.blocks import values
from inlay.analysis.cost import bytes_of
from inlay.arith.expr import symbols
from inlay.ir.expr import Call, OpRef, Var
from inlay.ir.module import Module
from inlay.machine.board import Board
from inlay.ops.device import DEVICE_COPY, CopyAttrs
from inlay.placement.choose.candidates import Offers
from inlay.placement.choose.capacity import predict, too_small
from inlay.placement.choose.costs import Measured, at_sizes
from inlay.placement.choose.decide import CHOSEN, Decision
from inlay.placement.choose.optimise import TaskSet, contract, is_convex
from inlay.placement.choose.schedule import INFINITE, advance, start
from inlay.placement.choose.transfers import hop_of, route_ns
from inlay.placement.infer.graph import TOGETHER, Edge
from inlay.placement.infer.instance import Capability
from inlay.placement.infer.operations import Operation
from inlay.placement.infer.pins import forms_of, names_of
from inlay.placement.plan_places import Choice, Inferred, Planned, plan

_MOVES = 400
"""Kernels for which every other device is tried; of larger programs the costs alone are shown."""


@dataclass(frozen=True, slots=True)
class Placed:
    """An operation, or several that run as one kernel.

    Attributes:
        operator: its name; of several, joined by `+`.
        where: where it stands in the program or model; of several, the last.
        names: what people may call it, as in pins.
        function: in which function.
        device: where it runs.
        reason: why there.
        ns: predicted time of one run.
        starts: when it starts in the predicted schedule, in nanoseconds.
        others: for each other device the first thing that speaks against it.
    """

    operator: str
    where: str
    names: tuple[str, ...]
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
        bound_ns: no placement is predicted to be faster, with operations started in this order.
        gap: how far the total may be above the best, as a share of the best.
        proved: whether it is known to be the best in this order.
        first_fit_ns: predicted time with every operation on the first device that can run it.
        busy_ns: how long each device computes.
        sizes: what dims were taken to be, and who said so.
        iterations: how often functions that call themselves were taken to run, and who said so.
        module: the placed program.
        is_measured: whether costs were measured, or are the board's figures.
        depends: dims whose size was guessed, with another size that gives another plan.
        threads: of devices that are this processor, how many run their kernels, by name.
        without_code: devices of the board for which no code is made here, with the reason: a plan
            that uses one cannot be compiled.
        batches: those that are computed in parts, a sentence each.
    """

    board: str
    operations: tuple[Placed, ...]
    copies: tuple[Moved, ...]
    total_ns: float
    bound_ns: float
    gap: float
    proved: bool
    first_fit_ns: float
    busy_ns: dict[str, float]
    sizes: dict[str, tuple[int, str]]
    iterations: dict[str, tuple[float, str]]
    module: Module
    is_measured: bool = False
    depends: Mapping[str, int] = field(default_factory=dict[str, int])
    threads: Mapping[str, int] = field(default_factory=dict[str, int])
    without_code: Mapping[str, str] = field(default_factory=dict[str, str])
    batches: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "board": self.board,
            "total_ns": self.total_ns,
            "bound_ns": self.bound_ns,
            "gap": _finite(self.gap),
            "proved": self.proved,
            "measured": self.is_measured,
            "threads": dict(self.threads),
            "depends": dict(self.depends),
            "without_code": dict(self.without_code),
            "batches": list(self.batches),
            "first_fit_ns": _finite(self.first_fit_ns),
            "busy_ns": self.busy_ns,
            "sizes": {n: {"size": s, "from": w} for n, (s, w) in self.sizes.items()},
            "iterations": {n: {"iterations": s, "from": w} for n, (s, w) in self.iterations.items()},
            "operations": [asdict(o) for o in self.operations],
            "copies": [asdict(c) for c in self.copies],
        }


def explain(module: Module, board: Board, capability: Capability, choice: Choice) -> Explanation:
    """Plan a program (in A-normal form, annotations marked) and say why.

    Raises:
        CompileError: as planning does.
    """
    plans: list[Planned] = []
    plan(module, board, capability, choice, plans.append)
    return explanation_of(plans[0])


def explanation_of(planned: Planned) -> Explanation:
    """Say why a plan is as it is: of what `plan` tells who watches it."""
    found, board, placed, choice = planned.found, planned.board, planned.module, planned.choice
    assert choice is not None, "what nobody chose has no reasons"
    decision = found.decision
    if decision is None:
        return Explanation(
            board.name,
            (),
            (),
            0.0,
            0.0,
            0.0,
            proved=True,
            first_fit_ns=0.0,
            busy_ns={},
            sizes={},
            iterations={},
            module=placed,
        )
    unused = _unused(decision)
    decision, taken = as_run(decision)
    # All operations of a unit are pinned to one device; where people pinned it, that one.
    assigned = [found.places.device(decision.operations[u[-1]].atom) for u in decision.units]
    outcome = decision.outcome
    moved = outcome.assignment != tuple(assigned)
    total = predict(decision.problem, assigned) if moved else outcome.time
    names = found.graph.machine.devices
    busy = dict.fromkeys(names, 0.0)
    for task, d in zip(decision.problem.tasks, assigned, strict=True):
        busy[names[d]] += (task.costs[d] or 0.0) * task.weight
    worth = 0.0 if choice.first else choice.worth
    told = _Told(found, decision, assigned, total, taken, unused, choice.offers, worth)
    return Explanation(
        board.name,
        tuple(_operations(told, choice)),
        tuple(_copies(placed, board, decision)),
        total,
        outcome.bound,
        outcome.gap,
        outcome.proved and not moved,
        outcome.baseline,
        busy,
        dict(decision.sizes),
        dict(decision.iterations),
        placed,
        choice.costs.measured != Measured(),
        dict(decision.depends),
    )


@dataclass(frozen=True, slots=True)
class _Told:
    """What is told of each task.

    Attributes:
        found: what inference found.
        decision: what was chosen; what runs as one is one task.
        assigned: the device of each task.
        total: predicted time of the program.
        taken: the candidates that tasks are.
        unused: what is added to refusals, by index of the operation and name of the device.
        offers: what devices that take patterns would run.
        worth: the share that a plan other than the first one has to save, which was searched for.
    """

    found: Inferred
    decision: Decision
    assigned: list[int]
    total: float
    taken: Mapping[int, TaskSet]
    unused: Mapping[tuple[int, str], str]
    offers: Offers | None
    worth: float


def as_run(decision: Decision) -> tuple[Decision, dict[int, TaskSet]]:
    """Return a decision in which each candidate that is used is one task, and which those are.

    What another device offers for just these tasks is the cost of the task there.
    """
    outcome = decision.outcome
    problem, members = contract(decision.problem, outcome.used, free=True)
    assert problem is not None, "candidates that are used can be run one after the other"
    offered: dict[frozenset[int], dict[int, float]] = {}
    for s in decision.sets:
        costs = offered.setdefault(s.tasks, {})
        costs[s.device] = min(s.cost, costs.get(s.device, INFINITE))
    tasks = [
        replace(t, costs=tuple(mine.get(d, c) if c is None else c for d, c in enumerate(t.costs)))
        for t, group in zip(problem.tasks, members, strict=True)
        for mine in (offered.get(frozenset(group), {}),)
    ]
    problem = replace(problem, tasks=tuple(tasks))
    used = {min(c.tasks): c for c in outcome.used}
    taken = {u: used[group[0]] for u, group in enumerate(members) if group[0] in used}
    units = tuple(tuple(sorted(i for t in group for i in decision.units[t])) for group in members)
    assignment = tuple(outcome.assignment[group[0]] for group in members)
    made = replace(decision, problem=problem, units=units, outcome=replace(outcome, assignment=assignment))
    return made, taken


def _operations(told: _Told, choice: Choice) -> list[Placed]:
    starts = _starts(told.decision, told.assigned)
    annotations, forms = _annotations(told.found), forms_of(choice.operators)
    return [_placed(told, index, start, annotations, forms) for index, start in enumerate(starts)]


def _unused(decision: Decision) -> dict[tuple[int, str], str]:
    """Return why operations are in no candidate of a device that takes them together with others."""
    said: dict[tuple[int, str], str] = {}
    for x in decision.located:
        if len(x.candidate.calls) > 1:
            why = "which no plan that was tried is faster with"
            if not is_convex(decision.problem, x.tasks):
                why = f"and what is not in {x.candidate.name} would run in the middle of it"
            said.update({(i, x.candidate.device): f", {why}" for i in x.operations})
    return said


def _refusals(told: _Told, index: int, members: Sequence[Operation], names: Sequence[str]) -> dict[int, str]:
    """Return why devices do not take what runs as one: of the operation that a pattern came nearest to."""
    supports = [told.found.graph.supports[m.atom] for m in members]
    found = {d: why for x in reversed(supports) for d, why in x.refusals}
    if (offers := told.offers) is None:
        return found
    for d, why in found.items():
        near = [m for o in members if (m := offers.misses.get((id(o.call), names[d]))) is not None]
        if near:
            found[d] = offers.refusal(max(near, key=lambda m: m.depth).call, names[d]) or why
        elif TOGETHER in why:
            found[d] += told.unused.get((told.decision.units[index][-1], names[d]), "")
    return found


def _placed(
    told: _Told, index: int, begins: float, annotations: dict[int, str], forms: Mapping[str, str]
) -> Placed:
    found, decision, assigned = told.found, told.decision, told.assigned
    units = decision.units[index]
    members = [decision.operations[i] for i in units]
    o, graph = members[-1], found.graph
    names = graph.machine.devices
    device = assigned[index]
    supports = [graph.supports[m.atom] for m in members]
    annotation = next((w for m in members if (w := annotations.get(graph.classes.find(m.atom)))), None)
    group = told.taken.get(index)
    refusals = _refusals(told, index, members, names)
    task = decision.problem.tasks[index]
    if annotation is not None:
        reason = annotation
    elif group is not None:
        note = next(
            x.candidate.note
            for x in decision.located
            if (x.tasks, x.candidate.name, x.candidate.device) == (group.tasks, group.name, names[device])
        )
        reason = f"taken as one, {group.name}: least predicted time of the program" + (
            f"; {note}" if note else ""
        )
    elif len(supports[0].allowed) == 1 and not any((i, d) in told.unused for i in units for d in names):
        reason = "no other device can run it" if len(names) > 1 else "there is no other device"
    else:
        reason = "least predicted time of the program"
    others: dict[str, str] = {}
    for d, name in enumerate(names):
        if d == device:
            continue
        if d in refusals and task.costs[d] is None:
            others[name] = refusals[d]
        elif annotation is not None:
            others[name] = annotation
        else:
            others[name] = _against(told, index, d)
    own = o.instance.name
    called = dict.fromkeys(n for m in members for n in names_of(m, forms))
    return Placed(
        "+".join(m.name for m in members),
        str(o.call.span) if o.call.span else "",
        tuple(called),
        own.name if isinstance(own, Var) else own or "",
        names[device],
        reason,
        task.costs[device] or 0.0,
        begins,
        others,
    )


def _against(told: _Told, index: int, device: int) -> str:
    """Return what the program would take with one operation somewhere else."""
    problem, assigned, memories = (
        told.decision.problem,
        told.assigned,
        told.found.graph.machine.board.memories,
    )
    cost = problem.tasks[index].costs[device]
    own = problem.tasks[index].costs[assigned[index]] or 0.0
    if cost is None:
        return "another place was asked for"
    alone = f"{time_text(cost)} there, {time_text(own)} here"
    if len(assigned) > _MOVES:
        return f"cost: it takes {alone}"
    moved = [*assigned]
    moved[index] = device
    small = too_small(problem, moved)
    if small:
        memory, need, has = small[0]
        return (
            f"capacity: the values would not fit in {memories[memory].name}, which has {round(has)} "
            f"bytes: {round(need)} are needed at once ({alone})"
        )
    time = predict(problem, moved)
    if time == INFINITE:
        return "no link leads there"
    more = time - told.total
    if more > 0:
        return f"cost: the program would take {time_text(more)} more (it takes {alone})"
    if more < 0 and told.worth:
        return (
            f"cost: the program would take {time_text(-more)} less, and another plan has to save "
            f"{told.worth:.0%} of {time_text(told.total)}, as predictions err (it takes {alone})"
        )
    if more < 0:
        return f"cost: the program would take {time_text(-more)} less (it takes {alone})"
    return f"cost: the program would take as long (it takes {alone})"


def _starts(decision: Decision, assigned: Sequence[int]) -> list[float]:
    state = start(decision.problem)
    found: list[float] = []
    for index, device in enumerate(assigned):
        task = decision.problem.tasks[index]
        end = advance(decision.problem, state, index, device)
        found.append(end - (task.costs[device] or 0.0) * task.weight)
    return found


def _annotations(found: Inferred) -> dict[int, str]:
    """Return for classes what people said of them; what the search chose is no annotation."""
    graph = found.graph
    said: dict[int, str] = {}
    for pin in graph.pins:
        if not pin.reason.text.endswith(CHOSEN):
            said.setdefault(graph.classes.find(pin.atom), f"annotation: {pin.reason.text}")
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
            known = {s: decision.sizes[s.name][0] for s in symbols(size) if s.name in decision.sizes}
            count = round(at_sizes(size, known))
            link = next(
                (
                    x
                    for x in board.links
                    if x.engine == attrs.engine
                    and attrs.src_memory in ("", x.source)
                    and attrs.dst_memory in ("", x.target)
                ),
                None,
            )
            ns = 0.0 if link is None else route_ns([hop_of(link, 0, 0)], count)
            arg = value.args[0]
            name = arg.name if isinstance(arg, Var) else "a constant"
            found.append(Moved(name, count, attrs.src, attrs.dst, attrs.engine, ns))
    return found


def time_text(ns: float) -> str:
    """Return a time in the unit that fits."""
    return f"{ns / 1000:.2f} us" if ns < 1e6 else f"{ns / 1e6:.3f} ms"


def _finite(x: float) -> float | None:
    return None if x == INFINITE else x
