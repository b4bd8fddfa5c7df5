"""From a program to a problem of schedules: tasks, values, constants, routes.

Every unit of operations (`infer/operations.py`) of every instance is a task, in the order in which the
program would run it; calls count where they stand, branches by the number of their arms, and loops by
their iterations where the program says them. Values flow through parameters, branches, data types and
cells: a task reads whatever operations can have made its operand. Inputs and outputs are where the
program says, else on the host. Constants are prepared where they are used: nothing copies them, and
they take room there all the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from inlay.analysis.cost import bytes_of
from inlay.analysis.loops import Loop, loops_of
from inlay.arith.bounds import Range, bounds
from inlay.arith.expr import Int, Sym, symbols
from inlay.arith.solve import Facts
from inlay.base.usual_sizes import planned_size
from inlay.ir.conform import dim_range
from inlay.ir.expr import Const, Var
from inlay.ir.module import Module
from inlay.ir.types import AdtType, ExistsType, FuncType, TensorType, TupleType, Type
from inlay.ir.walk import bound_symbols
from inlay.machine.board import Board
from inlay.machine.memory import Pool, PoolKind
from inlay.ops.table import OperatorTable
from inlay.placement.choose.costs import Costs, Predictor
from inlay.placement.choose.schedule import Item, Problem, Task
from inlay.placement.choose.transfers import Route, byte_away, hop_of
from inlay.placement.infer.domains import Domain, Leaf, Parts, leaves
from inlay.placement.infer.graph import Edge, Graph, Machine
from inlay.placement.infer.instance import Instance
from inlay.placement.infer.operations import Operation, often, units_of

GUESS = "a guess"
"""Who said a size that nobody said."""
_ITERATIONS = 10.0
"""How often the body of a function that calls itself is thought to run, where nothing says it."""
_FOR_VALUES = (PoolKind.HEAP, PoolKind.STATIC)
"""Kinds of memories that hold values: neither stacks, which are for temporaries, nor constants' own."""


class ProblemMaker:
    """Makes the problem of a program.

    Attributes:
        sizes: what dims were taken to be, and who said so.
        iterations: how often functions that call themselves were taken to run, and who said so.
        pinned: the device of each class of atoms that people decided.
        units: the operations of each task.
    """

    def __init__(
        self,
        module: Module,
        board: Board,
        graph: Graph,
        instances: Sequence[Instance],
        operations: Sequence[Operation],
        operators: OperatorTable,
        costs: Costs,
    ) -> None:
        self.module, self.board, self.graph = module, board, graph
        self.machine: Machine = graph.machine
        self._host = self.machine.device_index[board.host.name]
        self.instances, self.operations = instances, operations
        self.sizes: dict[str, tuple[int, str]] = {}
        self.iterations: dict[str, tuple[float, str]] = {}
        self.pinned = self._pinned()
        self._ranges = self._ranges_of_dims()
        self._typical_sizes = costs.typical
        self._predictor = Predictor(board, operators, costs, self._typical())
        self._loops = self._loops_by_var()
        self._iterations_of: dict[int, float] = {}
        known: dict[int, float] = {}
        self._often = [often(o.block, self._iterations, known) for o in operations]
        groups: Mapping[int, int] = {} if costs.groups is None else costs.groups(module)
        able = [(graph.supports[o.atom].allowed, self._pin_of(o)) for o in operations]
        self.units = units_of(operations, groups, able)
        self.unit_of = {i: u for u, members in enumerate(self.units) for i in members}
        self._sources: dict[int, tuple[int, ...]] = {}
        self._inputs = self._input_bytes()
        self._into: dict[int, list[int]] = {}
        for a, b, _, port in graph.edges:
            if port == -1:
                self._into.setdefault(graph.values.find(b), []).append(graph.values.find(a))
        for a, b in graph.aliases:
            self._into.setdefault(graph.values.find(b), []).append(graph.values.find(a))

    def problem(self) -> Problem:
        """Return the problem."""
        graph, machine = self.graph, self.machine
        by_value: dict[int, int] = {}
        items: list[Item] = []
        for index, o in enumerate(self.operations):
            size, most = self._sizes_of(o.call.type)
            items.append(Item(size, self.unit_of[index], 0, most, self._often[index]))
            for atom in leaves(o.instance.domains[id(o.call)]):
                by_value[graph.values.find(atom)] = index
        again: dict[int, dict[int, None]] = {}
        reads = self._unit_reads(by_value, items, again)
        ends = self._ends(by_value)
        read = {v for found in reads for v in found} | {v for v, _ in ends} | again.keys()
        constants, used = self._constants()
        tasks = tuple(
            Task(
                self._task_costs(members),
                tuple(reads[u]),
                tuple(i for i in members if i in read) or members[-1:],
                self._often[members[-1]],
                used[u],
            )
            for u, members in enumerate(self.units)
        )
        for value, readers in again.items():
            items[value] = replace(items[value], again=tuple(tasks[u].makes[0] for u in readers))
        board = self.board
        engines = {e.name: i for i, e in enumerate(board.engines)}
        pieces = {h: i for i, h in enumerate(dict.fromkeys(d.hardware for d in board.devices))}
        hardware = tuple(pieces[d.hardware] for d in board.devices)
        occupies = tuple(hardware[machine.device_index[e.device]] if e.device else -1 for e in board.engines)
        return Problem(
            tasks,
            tuple(items),
            hardware,
            self._routes(engines),
            occupies,
            ends,
            tuple(self._memories(d, _FOR_VALUES) for d in machine.devices),
            tuple(None if m.bytes is None else float(m.bytes) for m in board.memories),
            machine.default,
            constants,
            tuple(self._memories(d, (PoolKind.ROM,)) for d in machine.devices),
            tuple(self._leaves(m) for m in board.memories),
        )

    def _leaves(self, memory: Pool) -> float:
        """Return what a byte takes out of a memory of a fixed size and back; negative for no way."""
        if memory.kind is not PoolKind.STATIC:
            return -1.0
        links = self.board.links
        pairs = [
            byte_away(out, back)
            for out in links
            for back in links
            if out.source == back.target == memory.name and out.target == back.source
        ]
        return min(pairs, default=-1.0)

    def _memories(self, device: str, kinds: Sequence[PoolKind]) -> tuple[int, ...]:
        """Return the memories of a device of some kinds; a device has one for values in any case."""
        kind = {m.name: m.kind for m in self.board.memories}
        found = [m for m in self.board.devices_by_name[device].memories if kind[m] in kinds]
        if not found and PoolKind.HEAP in kinds:
            found = list(self.board.writable(device)[:1])
        return tuple(self.machine.memory_index[m] for m in found)

    def _constants(self) -> tuple[tuple[float, ...], list[tuple[int, ...]]]:
        """Return the bytes of the constants, and which of them each unit reads."""
        sizes: list[float] = []
        numbers: dict[int, int] = {}
        used: list[dict[int, None]] = [{} for _ in self.units]
        for index, o in enumerate(self.operations):
            for arg in o.call.args:
                if not isinstance(arg, Const) or not isinstance(arg.type, TensorType):
                    continue
                if id(arg.held) not in numbers:
                    numbers[id(arg.held)] = len(sizes)
                    sizes.append(self._predictor.number(bytes_of(arg.type)))
                used[self.unit_of[index]][numbers[id(arg.held)]] = None
        return tuple(sizes), [tuple(u) for u in used]

    def _unit_reads(
        self, by_value: Mapping[int, int], items: list[Item], again: dict[int, dict[int, None]]
    ) -> list[dict[int, None]]:
        """Return the values that each unit reads; inputs are added to the items.

        What comes round a loop is not waited for: `again` gets the units that read it.
        """
        inputs: dict[int, int] = {}
        found: list[dict[int, None]] = [{} for _ in self.units]
        for index, own in enumerate(self._reads()):
            unit = self.unit_of[index]
            for atom in own:
                for source in self._makers(self.graph.values.find(atom), by_value):
                    if source >= 0:
                        if self.unit_of[source] < unit:
                            found[unit][source] = None
                        elif self.unit_of[source] > unit:
                            again.setdefault(source, {})[unit] = None
                        continue
                    key = -1 - source
                    if key not in inputs:
                        size, most = self._inputs[key]
                        inputs[key] = len(items)
                        items.append(Item(size, -1, self._home(key), most))
                    found[unit][inputs[key]] = None
        return found

    def carried(self) -> list[tuple[int, Operation]]:
        """Return atoms that a recursive function hands to itself, with what makes them inside."""
        by_value = {
            self.graph.values.find(a): i
            for i, o in enumerate(self.operations)
            for a in leaves(o.instance.domains[id(o.call)])
        }
        found: list[tuple[int, Operation]] = []
        for instance in self.instances:
            if id(instance) not in self._iterations_of:
                continue
            for domain in instance.params:
                for atom in leaves(domain):
                    makers = self._makers(self.graph.values.find(atom), by_value)
                    own = [m for m in makers if m >= 0 and self._is_inside(m, instance)]
                    if own:
                        found.append((atom, self.operations[own[-1]]))
        return found

    def _is_inside(self, index: int, instance: Instance) -> bool:
        home: Instance | None = self.operations[index].instance
        while home is not None and home is not instance:
            home = home.parent
        return home is instance

    def _reads(self) -> list[list[int]]:
        """Return for each operation the atoms of its operands; constants have none."""
        found: list[list[int]] = [[] for _ in self.operations]
        atoms = {o.atom: i for i, o in enumerate(self.operations)}
        for a, b, _, port in self.graph.edges:
            if port != -1 and b in atoms:
                found[atoms[b]].append(a)
        return found

    def _makers(self, value: int, by_value: Mapping[int, int]) -> tuple[int, ...]:
        """Return the operations that can have made a value; inputs as negative numbers.

        What neither is there is a constant: it is prepared where it is used.
        """
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
            if here in self._inputs:
                found[-1 - here] = None
            for other in self._into.get(here, ()):
                if other not in seen:
                    seen.add(other)
                    pending.append(other)
        self._sources[value] = tuple(found)
        return self._sources[value]

    def _home(self, value: int) -> int:
        return self.pinned.get(self.graph.classes.find(value), self._host)

    def _entries(self) -> Iterator[Instance]:
        """Yield the functions that are called from outside."""
        names = {self.module.entry, *self.module.entries}
        return (i for i in self.instances if i.name in names and not i.sites)

    def _sizes_of(self, t: Type) -> tuple[float, float]:
        """Return the typical bytes of a value, and the most; where a dim has no bound, the typical ones.

        Arithmetic on shapes may bound a size far beyond any machine (`min(n, 1000000000)`): that is no
        promise of the program.
        """
        size = bytes_of(t)
        typical = self._predictor.number(size)
        if any(s not in self._ranges or self._ranges[s].high is None for s in symbols(size)):
            return typical, typical
        most = bounds(size, self._ranges).high
        return typical, typical if most is None else float(most)

    def _input_bytes(self) -> dict[int, tuple[float, float]]:
        """Return the bytes of each tensor that the program is given, typical and most, by its value."""
        find = self.graph.values.find
        return {
            find(atom): self._sizes_of(t)
            for instance in self._entries()
            for p, domain in zip(instance.function.params, instance.params, strict=True)
            for atom, t in _tensors(domain, p.type)
        }

    def _ends(self, by_value: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
        found: dict[tuple[int, int], None] = {}
        for instance in self._entries():
            for atom in leaves(instance.result):
                device = self.pinned.get(self.graph.classes.find(atom), self._host)
                for maker in self._makers(self.graph.values.find(atom), by_value):
                    if maker >= 0:
                        found[maker, device] = None
        return tuple(found)

    def _routes(self, engines: Mapping[str, int]) -> tuple[tuple[Route | None, ...], ...]:
        machine, board = self.machine, self.board

        def route(a: int, b: int) -> Route | None:
            if a == b or machine.shared[a][b]:
                return ()
            names = machine.devices
            links = board.routes(board.writable(names[a]), board.writable(names[b]))
            hops = [
                hop_of(
                    x,
                    machine.device_index[board.owner_of(x.target)],
                    engines[x.engine],
                    machine.memory_index[x.target],
                )
                for x in links
            ]
            return (*hops[:-1], hops[-1]._replace(device=b)) if hops else None

        every = range(len(machine.devices))
        return tuple(tuple(route(a, b) for b in every) for a in every)

    # ------------------------------------------------------------------------ costs

    def _task_costs(self, members: tuple[int, ...]) -> tuple[float | None, ...]:
        first = self.operations[members[0]]
        allowed, pin = self.graph.supports[first.atom].allowed, self._pin_of(first)
        steps = [(self.operations[i].var, self.operations[i].call) for i in members]
        return tuple(
            self._predictor.kernel(steps, name) if d in allowed and pin in (None, d) else None
            for d, name in enumerate(self.machine.devices)
        )

    def cost(self, indices: Sequence[int], device: str) -> float:
        """Return the nanoseconds of operations that run as one kernel on a device."""
        steps = [(self.operations[i].var, self.operations[i].call) for i in indices]
        return self._predictor.kernel(steps, device)

    def number(self, e: Int) -> float:
        """Return a formula over dims at the typical sizes."""
        return self._predictor.number(e)

    def factor(self, name: str, device: str) -> float:
        """Return measured over predicted time of a candidate on a device; 1 where nothing was measured."""
        return self._predictor.factor(name, device)

    def may_be(self, indices: Sequence[int], device: str) -> bool:
        """Whether no pin keeps operations from a device."""
        here = self.machine.device_index[device]
        return all(self._pin_of(self.operations[i]) in (None, here) for i in indices)

    def _pin_of(self, o: Operation) -> int | None:
        return self.pinned.get(self.graph.classes.find(o.atom))

    def _pinned(self) -> dict[int, int]:
        """Return what people decided: facts, and annotations about operations that can be met."""
        find = self.graph.classes.find
        found = {find(p.atom): p.device for p in self.graph.pins}
        for a, b, kind, _ in self.graph.edges:
            if kind == Edge.STRONG and find(b) in found and find(a) not in found:
                support = self.graph.supports.get(a)
                if support is not None and found[find(b)] in support.allowed:
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
                if d.sym.name in self._typical_sizes:
                    size, who = self._typical_sizes[d.sym.name], "the user"
                elif d.typical is not None:
                    size, who = d.typical, "the program"
                elif high is not None:
                    size, who = high, "its bound"
                else:
                    size, who = planned_size(d.sym.name), GUESS
                found[d.sym] = size
                if not instance.sites:
                    self.sizes.setdefault(d.sym.name, (size, who))
            for s in bound_symbols(instance.function.body) if not instance.sites else ():
                found.setdefault(s, self._typical_sizes.get(s.name, planned_size(s.name)))
        return found

    def _ranges_of_dims(self) -> dict[Sym, Range]:
        """Return what values dims of functions may have."""
        found: dict[Sym, Range] = {}
        for instance in self.instances:
            t = instance.function.type
            assert isinstance(t, FuncType)
            for d in t.dims:
                found[d.sym] = dim_range(d, Facts(found))
        return found

    # ------------------------------------------------------------------------ iterations

    def _loops_by_var(self) -> dict[Var, Loop]:
        roots = {id(i.function): i.function for i in self.instances if i.parent is None}
        return {loop.var: loop for f in roots.values() for loop in loops_of(f)}

    def _iterations(self, instance: Instance) -> float:
        """Return how often a function that calls itself runs each time; note who says so."""
        known = self._iterations_of.get(id(instance))
        if known is not None:
            return known
        name = instance.name
        loop = self._loops.get(name) if isinstance(name, Var) else None
        iterations, who = _ITERATIONS, GUESS
        if loop is not None and loop.bound is not None:
            bound = self._predictor.number(loop.bound)
            iterations, who = (bound, "the program") if loop.exact else (min(bound, _ITERATIONS), who)
        self._iterations_of[id(instance)] = iterations
        spelled = name.name if isinstance(name, Var) else name or ""
        self.iterations.setdefault(spelled, (iterations, who))
        return iterations


def _tensors(domain: Domain, t: Type) -> Iterator[tuple[int, Type]]:
    """Yield the atoms of a value with the types of their tensors; of a list, that of an element."""
    pending: list[tuple[Domain, Type]] = [(domain, t)]
    while pending:
        domain, t = pending.pop()
        match domain, t:
            case _, ExistsType(body=body):
                pending.append((domain, body))
            case Leaf(atom=atom), _:
                yield atom, t
            case Parts(parts=parts), TupleType(fields=types) | AdtType(args=types):
                pending.extend(zip(parts, types, strict=False))
                for part in parts[len(types) :]:
                    yield from ((atom, TupleType(())) for atom in leaves(part))
            case _:
                yield from ((atom, TupleType(())) for atom in leaves(domain))
