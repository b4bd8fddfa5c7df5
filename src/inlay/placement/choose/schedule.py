"""The makespan of a placed program: a model of devices and engines that work side by side.

A *problem* is a list of tasks in program order over values. A task runs on the device it is assigned
to, after the tasks before it on the same piece of hardware and when its operands are there; devices
that share hardware exclude each other. A value that is needed on another device is copied there once,
over the links of the board, each engine doing one copy after the other, in the order in which values
are first needed. `predict` is exactly this, so the time of a prefix does not depend on what follows:
that is what the search builds on.

A copy is made as often as the value is made or as the task runs that it is for, whichever is less:
what a loop reads from outside is copied before it. What a loop hands to its next turn is copied when
it is made, to those that read it there; they do not wait for it. Memory is in `capacity.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from inlay.placement.choose.transfers import Route, times_copied, transfer_ns

INFINITE = float("inf")


@dataclass(frozen=True, slots=True)
class Item:
    """A value.

    Attributes:
        bytes: its size, by which copies are timed.
        maker: the task that makes it; -1 for an input.
        home: the device of an input.
        bound: its greatest size, by which capacities are tested.
        often: how often it is made.
        again: values of the tasks that read it in the next turn of a loop.
    """

    bytes: float
    maker: int = -1
    home: int = 0
    bound: float = 0.0
    often: float = 1.0
    again: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """An operation, or a set of operations that one device runs as one.

    Attributes:
        costs: nanoseconds by device; None where the device cannot run it.
        reads: indices of values.
        makes: indices of values.
        weight: how often it runs.
        constants: indices of constants that it reads.
    """

    costs: tuple[float | None, ...]
    reads: tuple[int, ...]
    makes: tuple[int, ...]
    weight: float = 1.0
    constants: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """What is to be placed.

    Attributes:
        tasks: in program order.
        items: the values.
        hardware: for each device, the piece of hardware it occupies.
        routes: for each pair of devices the hops between them; empty where values need no copy,
            None where there is no way.
        occupies: for each engine the piece of hardware that is busy while it copies; -1 for none.
        ends: values that are needed on a device at the end.
        memory: for each device the memories that its values may be in, the preferred one first.
        capacity: bytes of each memory; None for no bound.
        default: the device for what nothing else decides.
        constants: the bytes of each constant.
        rom: for each device further memories, which hold constants alone.
        leaves: for each memory the nanoseconds that a byte takes to another one and back; negative where
            values cannot leave it for a time.
        moving: whether values leave such memories while nobody reads them.
    """

    tasks: tuple[Task, ...]
    items: tuple[Item, ...]
    hardware: tuple[int, ...]
    routes: tuple[tuple[Route | None, ...], ...]
    occupies: tuple[int, ...] = ()
    ends: tuple[tuple[int, int], ...] = ()
    memory: tuple[tuple[int, ...], ...] = ()
    capacity: tuple[float | None, ...] = ()
    default: int = 0
    constants: tuple[float, ...] = ()
    rom: tuple[tuple[int, ...], ...] = ()
    leaves: tuple[float, ...] = ()
    moving: bool = False

    @property
    def devices(self) -> range:
        """Indices of the devices."""
        return range(len(self.hardware))


@dataclass(slots=True)
class State:
    """What a prefix of the tasks leaves behind.

    Attributes:
        hardware: when each piece of hardware is free.
        engines: when each engine is free.
        ready: when a value is on a device.
        home: where the task of a value made it.
        end: when the last thing ends.
    """

    hardware: list[float]
    engines: list[float]
    ready: dict[tuple[int, int], float] = field(default_factory=dict[tuple[int, int], float])
    home: dict[int, int] = field(default_factory=dict[int, int])
    end: float = 0.0

    def copy(self) -> State:
        """Return a state of its own."""
        return State(self.hardware.copy(), self.engines.copy(), self.ready.copy(), self.home.copy(), self.end)


def start(problem: Problem) -> State:
    """Return the state before the first task: inputs are where they are."""
    engines = max((h.engine for row in problem.routes for r in row for h in r or ()), default=-1) + 1
    state = State([0.0] * (max(problem.hardware) + 1), [0.0] * max(engines, len(problem.occupies)))
    for i, item in enumerate(problem.items):
        if item.maker < 0:
            state.home[i] = item.home
            state.ready[i, item.home] = 0.0
    return state


def bring(problem: Problem, state: State, value: int, device: int, weight: float = 1.0) -> float:
    """Bring a value to a device; return when it is there, `INFINITE` where there is no way."""
    found = state.ready.get((value, device))
    if found is not None:
        return found
    home = state.home[value]
    route = problem.routes[home][device]
    if route is None:
        return INFINITE
    time, at = state.ready[value, home], home
    item = problem.items[value]
    times = times_copied(item.often, weight)
    for hop in route:
        known = state.ready.get((value, hop.device))
        if known is None:
            begin = max(time, state.engines[hop.engine])
            busy = problem.occupies[hop.engine] if problem.occupies else -1
            if busy >= 0:
                begin = max(begin, state.hardware[busy])
            known = begin + transfer_ns(hop.latency, hop.per_byte, item.bytes, times)
            state.engines[hop.engine] = known
            if busy >= 0:
                state.hardware[busy] = known
            state.ready[value, hop.device] = known
        time, at = known, hop.device
    if at != device:  # the same bytes, seen by another device
        state.ready[value, device] = time
    return time


def advance(problem: Problem, state: State, index: int, device: int) -> float:
    """Run a task on a device; return when it ends, `INFINITE` where that cannot be."""
    task = problem.tasks[index]
    cost = task.costs[device]
    if cost is None:
        return INFINITE
    begin = 0.0
    for value in task.reads:
        begin = max(begin, bring(problem, state, value, device, task.weight))
    hardware = problem.hardware[device]
    end = max(begin, state.hardware[hardware]) + cost * task.weight
    state.hardware[hardware] = end
    for value in task.makes:
        state.home[value] = device
        state.ready[value, device] = end
    last = end
    for value in task.makes:
        for reader in problem.items[value].again:
            there = state.home.get(reader, device)
            if there != device:
                last = max(last, bring(problem, state, value, there, problem.items[reader].often))
    state.end = max(state.end, last)
    return end if last < INFINITE else INFINITE


def finish(problem: Problem, state: State) -> float:
    """Bring results to where they are needed; return when everything is done."""
    for value, device in problem.ends:
        state.end = max(state.end, bring(problem, state, value, device))
    return max(state.end, *state.engines, 0.0) if state.engines else state.end
