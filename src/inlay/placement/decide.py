"""From a program to a problem of schedules, and from its solution to facts.

Every operation of every instance is a task, in the order in which the program would run it; calls
count where they stand, branches half, and what a recursive function does as often as `_TURNS` says.
Values flow through parameters, branches, data types and cells: a task reads whatever operations can
have made its operand. Inputs and outputs are where the program says, else on the host.

The devices found become facts with a reason, and inference does the rest: it writes the same program
as if a person had asked for them.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from inlay.analysis.blocks import nested
from inlay.analysis.cost import Work, bytes_of, work_of
from inlay.arith.expr import Int, Sym, evaluate, symbols
from inlay.base.diagnostics import Collector, error
from inlay.base.registry import nearest
from inlay.ir.expr import Call, Expr, If, Match, Var
from inlay.ir.module import Module
from inlay.ir.types import FuncType, TensorType
from inlay.ir.walk import bound_symbols, spine
from inlay.machine.board import Board
from inlay.ops.table import OperatorTable
from inlay.placement._domains import leaves
from inlay.placement._graph import Edge, Graph, Machine, Reason
from inlay.placement._instance import Instance
from inlay.placement.optimise import Candidate, Outcome, optimise
from inlay.placement.schedule import Hop, Item, Problem, Task

_TURNS = 10.0
"""How often the body of a recursive function is thought to run."""
CHOSEN = ("is cheapest there", "makes it there in every turn")
"""How facts end that come from here and not from people."""
_UNKNOWN_SIZE = 64
"""What a dim is thought to be that says nothing about itself."""

CostHook = Callable[[Call, Mapping[Sym, int]], float | None]
"""An architecture's own prediction of a call, in nanoseconds; None leaves it to the roofline."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Where predictions come from.

    Attributes:
        hooks: an architecture's own function, by name of the architecture.
        factors: measured over predicted time, by names of device and operator; `*` for all others.
        typical: sizes of dims by name, where the user says them.
    """

    hooks: Mapping[str, CostHook] = field(default_factory=dict[str, CostHook])
    factors: Mapping[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    typical: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(slots=True, eq=False)
class Operation:
    """A task and what it came from.

    Attributes:
        call: the operation.
        instance: of which function.
        atom: of its result.
        name: of the operator.
    """

    call: Call
    instance: Instance
    atom: int
    name: str


CandidateSource = Callable[[Sequence[Operation], Problem], Sequence[Candidate]]
"""Gives the sets of operations that a device can run as one."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What was chosen, and from what.

    Attributes:
        operations: the tasks, in program order.
        problem: what was solved.
        outcome: the solution.
        sizes: what dims were taken to be, and who said so.
    """

    operations: tuple[Operation, ...]
    problem: Problem
    outcome: Outcome
    sizes: Mapping[str, tuple[int, str]]


def apply_pins(
    graph: Graph, instances: Sequence[Instance], pins: Sequence[str], findings: Collector
) -> None:
    """Turn `PATTERN=DEVICE` into facts.

    A pattern matches the name of an operator or the name of a node of the model, with `*`; `@f`
    matches all operations of a function.

    Findings: `placement.bad-pin`, `placement.unknown-device`.
    """
    operations = operations_of(graph, instances)
    devices = graph.machine.device_index
    for text in pins:
        pattern, sign, device = text.partition("=")
        if not sign or not pattern:
            findings.error("placement.bad-pin", f"found --pin {text}, needed PATTERN=DEVICE")
            continue
        if device not in devices:
            close = nearest(device, devices)
            findings.error(
                "placement.unknown-device",
                f"found the device '{device}', which board '{graph.machine.board.name}' does not have",
                hint=f"did you mean {' or '.join(close)}?" if close
                else f"its devices are {', '.join(devices)}",
            )  # fmt: skip
            continue
        hit = [o for o in operations if _matches(o, pattern)]
        if not hit:
            names = list(dict.fromkeys(o.name for o in operations))
            close = nearest(pattern.strip("*"), names)
            findings.error(
                "placement.bad-pin",
                f"found --pin {text}, which matches no operation",
                hint=f"did you mean {' or '.join(close)}?" if close
                else f"operations are {', '.join(names[:8])}",
            )  # fmt: skip
        for o in hit:
            graph.pin(o.atom, devices[device], Reason(f"pinned by {text}", o.call.span))


def _matches(o: Operation, pattern: str) -> bool:
    if pattern.startswith("@"):
        name = o.instance.name
        return (name.name if isinstance(name, Var) else name) == pattern[1:]
    spelled = o.call.span.name
    return fnmatch.fnmatchcase(o.name, pattern) or (
        bool(spelled) and (fnmatch.fnmatchcase(spelled, pattern) or f"'{pattern}'" in spelled)
    )


def decide(
    module: Module, board: Board, graph: Graph, instances: Sequence[Instance],
    operators: OperatorTable, costs: Costs, candidates: CandidateSource | None = None,
) -> Decision | None:  # fmt: skip
    """Choose devices for what nobody placed, and make facts of them.

    Args:
        module, board, graph, instances: the program, the machine, and what was gathered of both.
        operators: what the program uses.
        costs: where predictions come from.
        candidates: gives sets of operations that a device can run as one.

    Returns:
        None where there is nothing to choose.

    Raises:
        CompileError: `placement.over-capacity` where no choice fits the memories.
    """
    operations = operations_of(graph, instances)
    if not operations:
        return None
    maker = _Problem(module, board, graph, instances, operations, operators, costs)
    problem = maker.problem()
    sets = () if candidates is None else candidates(operations, problem)
    outcome = optimise(problem, sets)
    if outcome is None:
        raise _over_capacity(problem, graph.machine, operations)
    for o, device in zip(operations, outcome.assignment, strict=True):
        if graph.classes.find(o.atom) not in maker.pinned:
            graph.pin(o.atom, device, Reason(f"{o.name} {CHOSEN[0]}", o.call.span))
            maker.pinned[graph.classes.find(o.atom)] = device
    maker.pin_carried()
    return Decision(tuple(operations), problem, outcome, maker.sizes)


def operations_of(graph: Graph, instances: Sequence[Instance]) -> list[Operation]:
    """Return the operations of all instances in the order in which the program runs them."""
    found: list[Operation] = []
    done: set[int] = set()
    pending: list[tuple[Expr, Instance]] = []  # values still to visit, the next one last

    def enter(instance: Instance) -> None:
        if id(instance) not in done and instance.function.primitive is None:
            done.add(id(instance))
            push((instance.function.body,), instance)

    def push(blocks: Sequence[Expr], instance: Instance) -> None:
        values: list[Expr] = []
        for root in blocks:
            lets, tail = spine(root)
            values.extend(x.value for x in lets)
            values.append(tail)
        pending.extend((v, instance) for v in reversed(values))

    for root in instances:
        enter(root)
        while pending:
            value, instance = pending.pop()
            if not isinstance(value, Call):
                if isinstance(value, If | Match):
                    push(nested(value), instance)
                continue
            atoms = list(leaves(instance.domains.get(id(value))))
            if atoms and atoms[0] in graph.operations:
                name = graph.operations[atoms[0]].name
                found.append(Operation(value, instance, atoms[0], name))
            for index in range(len(value.args), -1, -1):  # the callee is written out first
                child = instance.children.get((id(value), index))
                if child is not None:
                    enter(child)
    return found


class _Problem:
    """Makes the problem of a program."""

    def __init__(
        self, module: Module, board: Board, graph: Graph, instances: Sequence[Instance],
        operations: list[Operation], operators: OperatorTable, costs: Costs,
    ) -> None:  # fmt: skip
        self.module, self.board, self.graph = module, board, graph
        self.machine: Machine = graph.machine
        self.instances, self.operations = instances, operations
        self.operators, self.costs = operators, costs
        self.sizes: dict[str, tuple[int, str]] = {}
        self.pinned = self._pinned()
        self._dims = self._typical()
        self._weights = _weights(instances)
        self._sources: dict[int, tuple[int, ...]] = {}
        self._into: dict[int, list[int]] = {}
        for a, b, _, port in graph.edges:
            if port == -1:
                self._into.setdefault(graph.values.find(b), []).append(graph.values.find(a))
        for a, b in graph.aliases:
            self._into.setdefault(graph.values.find(b), []).append(graph.values.find(a))

    def problem(self) -> Problem:
        graph, machine = self.graph, self.machine
        by_value: dict[int, int] = {}
        items: list[Item] = []
        for index, o in enumerate(self.operations):
            size = self._number(bytes_of(o.call.type), o.call)
            items.append(Item(size, index, 0, size))
            for atom in leaves(o.instance.domains[id(o.call)]):
                by_value[graph.values.find(atom)] = index
        tasks: list[Task] = []
        inputs: dict[int, int] = {}
        reads_of = self._reads()
        for index, o in enumerate(self.operations):
            reads: dict[int, None] = {}
            for atom, size in reads_of[index]:
                for source in self._makers(graph.values.find(atom), by_value):
                    if source >= 0:
                        if source < index:  # what comes round a loop is not waited for
                            reads[source] = None
                    else:
                        key = -1 - source
                        if key not in inputs:
                            inputs[key] = len(items)
                            items.append(Item(size, -1, self._home(key), size))
                        reads[inputs[key]] = None
            tasks.append(
                Task(self._task_costs(o), tuple(reads), (index,), self._weight(o))
            )
        board = self.board
        engines = {e.name: i for i, e in enumerate(board.engines)}
        pieces = {h: i for i, h in enumerate(dict.fromkeys(d.hardware for d in board.devices))}
        hardware = tuple(pieces[d.hardware] for d in board.devices)
        occupies = tuple(
            hardware[machine.device_index[e.device]] if e.device else -1 for e in board.engines
        )
        memory = tuple(machine.memory_index[d.memories[0]] for d in board.devices)
        return Problem(
            tuple(tasks), tuple(items), hardware, self._routes(engines), occupies,
            self._ends(by_value), memory, tuple(
                None if m.bytes is None else float(m.bytes) for m in board.memories
            ),
        )  # fmt: skip

    def pin_carried(self) -> None:
        """Put what a recursive function hands to itself where it makes it: copies stay outside."""
        find = self.graph.classes.find
        by_value = {
            self.graph.values.find(a): i
            for i, o in enumerate(self.operations)
            for a in leaves(o.instance.domains[id(o.call)])
        }
        for instance in self.instances:
            if self._weights.get(id(instance), 1.0) <= 1.0:
                continue
            for domain in instance.params:
                for atom in leaves(domain):
                    if find(atom) in self.pinned:
                        continue
                    makers = self._makers(self.graph.values.find(atom), by_value)
                    own = [m for m in makers if m >= 0 and self._is_inside(m, instance)]
                    if own:
                        o = self.operations[own[-1]]
                        device = self.pinned[find(o.atom)]
                        said = Reason(f"{o.name} {CHOSEN[1]}", o.call.span)
                        self.graph.pin(atom, device, said)
                        self.pinned[find(atom)] = device

    def _is_inside(self, index: int, instance: Instance) -> bool:
        home: Instance | None = self.operations[index].instance
        while home is not None and home is not instance:
            home = home.parent
        return home is instance

    def _reads(self) -> list[list[tuple[int, float]]]:
        found: list[list[tuple[int, float]]] = []
        atoms = {o.atom: i for i, o in enumerate(self.operations)}
        by_operation: dict[int, list[int]] = {}
        for a, b, _, port in self.graph.edges:
            if port != -1 and b in atoms:
                by_operation.setdefault(atoms[b], []).append(a)
        for index, o in enumerate(self.operations):
            tensors = [x for x in o.call.args if isinstance(x.type, TensorType)]
            total = sum(self._number(bytes_of(x.type), o.call) for x in tensors)
            own = by_operation.get(index, [])
            found.append([(a, total / max(1, len(own))) for a in own])
        return found

    def _makers(self, value: int, by_value: Mapping[int, int]) -> tuple[int, ...]:
        """Return the operations that can have made a value; inputs as negative numbers."""
        known = self._sources.get(value)
        if known is not None:
            return known
        seen = {value}
        pending, found = [value], dict[int, None]()
        while pending:
            here = pending.pop()
            if here in by_value:
                found[by_value[here]] = None
                continue
            before = self._into.get(here, ())
            if not before:
                found[-1 - here] = None
            for other in before:
                if other not in seen:
                    seen.add(other)
                    pending.append(other)
        self._sources[value] = tuple(found)
        return self._sources[value]

    def _home(self, value: int) -> int:
        return self.pinned.get(self.graph.classes.find(value), 0)

    def _ends(self, by_value: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
        found: dict[tuple[int, int], None] = {}
        names = {self.module.entry, *self.module.entries}
        for instance in self.instances:
            if instance.name in names and not instance.sites:
                for atom in leaves(instance.result):
                    device = self.pinned.get(self.graph.classes.find(atom), 0)
                    for maker in self._makers(self.graph.values.find(atom), by_value):
                        if maker >= 0:
                            found[maker, device] = None
        return tuple(found)

    def _routes(self, engines: Mapping[str, int]) -> tuple[tuple[tuple[Hop, ...] | None, ...], ...]:
        machine, board = self.machine, self.board

        def route(a: int, b: int) -> tuple[Hop, ...] | None:
            if a == b or machine.shared[a][b]:
                return ()
            links = board.routes(board.devices[a].memories, board.devices[b].memories)
            hops = [
                (
                    machine.device_index[board.owner_of(x.target)],
                    engines[x.engine],
                    x.latency_ns,
                    1.0 / x.bytes_per_ns,
                )
                for x in links
            ]
            if not hops:
                return None
            return (*hops[:-1], (b, *hops[-1][1:]))

        every = range(len(machine.devices))
        return tuple(tuple(route(a, b) for b in every) for a in every)

    # ------------------------------------------------------------------------ costs

    def _task_costs(self, o: Operation) -> tuple[float | None, ...]:
        operation = self.graph.operations[o.atom]
        pin = self.pinned.get(self.graph.classes.find(o.atom))
        work = work_of(o.call, self.operators)
        return tuple(
            self.cost(o, work, d)
            if d in operation.allowed and (pin is None or pin == d)
            else None
            for d in range(len(self.machine.devices))
        )

    def cost(self, o: Operation, work: Work, device: int) -> float:
        """Return the predicted nanoseconds of an operation on a device."""
        d = self.board.devices[device]
        arch = self.board.arch_of(d.name)
        hook = self.costs.hooks.get(arch.name)
        if hook is not None:
            found = hook(o.call, self._dims)
            if found is not None:
                return found
        speed, memory = arch.speed, self.board.memory(d.memories[0])
        assert memory is not None
        compute = (
            self._number(work.macs, o.call) / speed.macs_per_ns
            + self._number(work.cheap, o.call) / speed.elements_per_ns
            + self._number(work.costly, o.call) / speed.costly_per_ns
        )
        moved = self._number(work.bytes, o.call) / memory.bytes_per_ns
        factors = self.costs.factors
        factor = factors.get((d.name, o.name)) or factors.get((d.name, "*")) or 1.0
        return speed.launch_ns + max(compute, moved) * factor + 1.0

    def _pinned(self) -> dict[int, int]:
        """Return what people decided: facts, and wishes about operations that can be met."""
        find = self.graph.classes.find
        found = {find(p.atom): p.device for p in self.graph.pins}
        for a, b, kind, _ in self.graph.edges:
            if kind == Edge.STRONG and find(b) in found and find(a) not in found:
                operation = self.graph.operations.get(a)
                if operation is not None and found[find(b)] in operation.allowed:
                    found[find(a)] = found[find(b)]
        return found

    # ------------------------------------------------------------------------ sizes

    def _typical(self) -> dict[Sym, int]:
        """Return sizes of dims: as the user says, as the program says, the bound, or a guess."""
        found: dict[Sym, int] = {}
        for instance in self.instances:
            t = instance.function.type
            assert isinstance(t, FuncType)
            for d in t.dims:
                high = None if d.high is None else d.high.value
                if d.sym.name in self.costs.typical:
                    size, who = self.costs.typical[d.sym.name], "the user"
                elif d.typical is not None:
                    size, who = d.typical, "the program"
                elif high is not None:
                    size, who = high, "its bound"
                else:
                    size, who = _UNKNOWN_SIZE, "a guess"
                found[d.sym] = size
                if not instance.sites:
                    self.sizes.setdefault(d.sym.name, (size, who))
            for s in bound_symbols(instance.function.body) if not instance.sites else ():
                found.setdefault(s, self.costs.typical.get(s.name, _UNKNOWN_SIZE))
        return found

    def _number(self, e: Int, call: Call) -> float:
        del call
        if e.value is not None:
            return float(e.value)
        dims = {s: self._dims.get(s, _UNKNOWN_SIZE) for s in symbols(e)}
        return float(max(0, evaluate(e, dims)))

    def _weight(self, o: Operation) -> float:
        return self._weights.get(id(o.instance), 1.0)


def _weights(instances: Sequence[Instance]) -> dict[int, float]:
    """Return how often each instance is thought to run: recursive ones several times."""
    found: dict[int, float] = {}
    for instance in instances:
        outer, recursive = 1.0, False
        for where, _, _ in instance.sites:
            home: Instance | None = where
            while home is not None and home is not instance:
                home = home.parent
            if home is instance:
                recursive = True
            else:
                outer = max(outer, found.get(id(where), 1.0))
        found[id(instance)] = outer * (_TURNS if recursive else 1.0)
    return found


def _bound(problem: Problem, index: int) -> int:
    return round(problem.items[index].bound)


def _over_capacity(
    problem: Problem, machine: Machine, operations: Sequence[Operation]
) -> Exception:
    sizes = [
        f"{m.name}: {m.bytes} bytes" for m in machine.board.memories if m.bytes is not None
    ]
    largest = max(range(len(operations)), key=lambda i: problem.items[i].bound)
    o = operations[largest]
    return error(
        "placement.over-capacity",
        f"found no placement on board '{machine.board.name}' that keeps within its memories",
        span=o.call.span,
        notes=[*sizes, f"the largest value is that of {o.name}: {_bound(problem, largest)} bytes"],
        hint="give a board with more memory, smaller sizes, or drop wishes",
    )  # fmt: skip

