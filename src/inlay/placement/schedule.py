"""How long a placed program takes: a model of devices and engines that work side by side.

A *problem* is a list of tasks in program order over values. A task runs on the device it is assigned
to, after the tasks before it on the same piece of hardware and when its operands are there; devices
that share hardware take turns. A value that is needed on another device is copied there once, over
the links of the board, each engine doing one copy after the other, in the order in which values are
first needed. `predict` is exactly this, so the time of a prefix does not depend on what follows:
that is what the search builds on.

Memory: a value occupies the memory of its device from the task that makes it to the last that reads
it anywhere, a copy from the first to the last task that reads it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

INFINITE = float("inf")
Hop = tuple[int, int, float, float]
"""Where a link leads (a device), its engine, its latency and its nanoseconds for a byte."""


@dataclass(frozen=True, slots=True)
class Item:
    """A value.

    Attributes:
        bytes: its size, by which copies are timed.
        maker: the task that makes it; -1 for an input.
        home: the device of an input.
        bound: its greatest size, by which capacities are tested.
    """

    bytes: float
    maker: int = -1
    home: int = 0
    bound: float = 0.0


@dataclass(frozen=True, slots=True)
class Task:
    """An operation, or a set of operations that one device runs as one.

    Attributes:
        costs: nanoseconds by device; None where the device cannot run it.
        reads: indices of values.
        makes: indices of values.
        weight: how often it runs.
    """

    costs: tuple[float | None, ...]
    reads: tuple[int, ...]
    makes: tuple[int, ...]
    weight: float = 1.0


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
        memory: for each device the memory that its values are in.
        capacity: bytes of each memory; None for no bound.
        default: the device for what nothing else decides.
    """

    tasks: tuple[Task, ...]
    items: tuple[Item, ...]
    hardware: tuple[int, ...]
    routes: tuple[tuple[tuple[Hop, ...] | None, ...], ...]
    occupies: tuple[int, ...] = ()
    ends: tuple[tuple[int, int], ...] = ()
    memory: tuple[int, ...] = ()
    capacity: tuple[float | None, ...] = ()
    default: int = 0

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
        return State(
            self.hardware.copy(), self.engines.copy(), self.ready.copy(), self.home.copy(), self.end
        )


def start(problem: Problem) -> State:
    """Return the state before the first task: inputs are where they are."""
    engines = max((h[1] for row in problem.routes for r in row for h in r or ()), default=-1) + 1
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
    size = problem.items[value].bytes * weight
    for to, engine, latency, per_byte in route:
        known = state.ready.get((value, to))
        if known is None:
            begin = max(time, state.engines[engine])
            busy = problem.occupies[engine] if problem.occupies else -1
            if busy >= 0:
                begin = max(begin, state.hardware[busy])
            known = begin + latency * weight + size * per_byte
            state.engines[engine] = known
            if busy >= 0:
                state.hardware[busy] = known
            state.ready[value, to] = known
        time, at = known, to
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
    state.end = max(state.end, end)
    return end


def finish(problem: Problem, state: State) -> float:
    """Bring results to where they are needed; return when everything is done."""
    for value, device in problem.ends:
        state.end = max(state.end, bring(problem, state, value, device))
    return max(state.end, *state.engines, 0.0) if state.engines else state.end


def predict(problem: Problem, assignment: Sequence[int], below: float = INFINITE) -> float:
    """Return the predicted time of an assignment; `INFINITE` for one that cannot be.

    Also for one whose time is not below a limit: that shows early, and memories are not looked at.
    """
    state = start(problem)
    for index, device in enumerate(assignment):
        if advance(problem, state, index, device) >= below:
            return INFINITE
    time = finish(problem, state)
    return time if time < below and fits(problem, assignment) else INFINITE


def peaks(problem: Problem, assignment: Sequence[int]) -> list[float]:
    """Return the most bytes that are needed at once in each memory."""
    count = max(problem.memory, default=-1) + 1
    first: dict[tuple[int, int], int] = {}
    last: dict[tuple[int, int], int] = {}
    end = len(problem.tasks)

    def need(value: int, memory: int, at: int) -> None:
        key = value, memory
        first[key] = min(first.get(key, at), at)
        last[key] = max(last.get(key, at), at)

    home = {i: item.home for i, item in enumerate(problem.items) if item.maker < 0}
    for i in home:
        need(i, problem.memory[home[i]], 0)
    for at, (task, device) in enumerate(zip(problem.tasks, assignment, strict=True)):
        for value in task.reads:
            need(value, problem.memory[device], at)
            need(value, problem.memory[home[value]], at)
        for value in task.makes:
            home[value] = device
            need(value, problem.memory[device], at)
    for value, device in problem.ends:
        need(value, problem.memory[device], end)
        need(value, problem.memory[home[value]], end)
    change = [[0.0] * (end + 2) for _ in range(count)]
    for (value, memory), at in first.items():
        size = problem.items[value].bound or problem.items[value].bytes
        change[memory][at] += size
        change[memory][last[value, memory] + 1] -= size
    found: list[float] = []
    for row in change:
        now = most = 0.0
        for step in row:
            now += step
            most = max(most, now)
        found.append(most)
    return found


def excess(problem: Problem, assignment: Sequence[int]) -> float:
    """Return by how many bytes an assignment exceeds the capacities of memories, in all."""
    if all(c is None for c in problem.capacity):
        return 0.0
    needs = zip(peaks(problem, assignment), problem.capacity, strict=False)
    return sum(max(0.0, need - c) for need, c in needs if c is not None)


def fits(problem: Problem, assignment: Sequence[int]) -> bool:
    """Whether an assignment keeps within the capacities of all memories."""
    return excess(problem, assignment) == 0.0
