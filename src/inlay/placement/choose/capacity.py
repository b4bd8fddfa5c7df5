"""The capacity of memories: whether they hold a placed program, and its makespan if they do.

A value occupies a memory of its device, one that all see who read it without a copy, from the task that
makes it to the last that reads it anywhere, a copy from the first to the last task that reads it there;
where a copy goes over other memories, it is in each of them at the first of these tasks. All count at the
bounds of their dims. A constant occupies one of each device that reads it all the time, a memory for
constants first. Where a device has several memories, each thing goes into the first that has room, the
largest first. So this is a filter, not the memory plan.

Where values may leave a memory while nobody reads them (`Problem.moving`), they count there at the tasks
that make or read them alone, and what else would be there costs its way out and back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from inlay.placement.choose.schedule import INFINITE, Problem, Task, advance, finish, start

Stay = tuple[tuple[int, ...], int, int, float]
"""Memories that something may be in, its first and last task, its bytes."""


def predict(problem: Problem, assignment: Sequence[int], below: float = INFINITE) -> float:
    """Return the predicted time of an assignment; `INFINITE` for one that cannot be.

    Also for one whose time is not below a limit: that shows early, and memories are not looked at.
    """
    state = start(problem)
    for index, device in enumerate(assignment):
        if advance(problem, state, index, device) >= below:
            return INFINITE
    time = finish(problem, state)
    if time >= below or not fits(problem, assignment):
        return INFINITE
    time += moved_ns(problem, assignment)
    return time if time < below else INFINITE


def moved_ns(problem: Problem, assignment: Sequence[int]) -> float:
    """Return what values take that leave memories for a time: at least what is too much at once."""
    if not problem.moving:
        return 0.0
    return sum(
        (need - c) * problem.leaves[m] for m, need, c in too_small(replace(problem, moving=False), assignment)
    )


def peaks(problem: Problem, assignment: Sequence[int]) -> list[float]:
    """Return the most bytes that are needed at once in each memory."""
    capacity = problem.capacity
    memories = [m for places in (*problem.memory, *problem.rom) for m in places]
    count, end = max(len(capacity), max(memories, default=-1) + 1), len(problem.tasks)
    stays = [*_constants(problem, assignment), *_values(problem, assignment)]
    alone = [stay for stay in stays if len(stay[0]) == 1]
    several = sorted((stay for stay in stays if len(stay[0]) > 1), key=lambda stay: -stay[3])
    change = [[0.0] * (end + 2) for _ in range(count)]
    for (memory,), first, last, size in alone:
        change[memory][first] += size
        change[memory][last + 1] -= size
    used = np.cumsum(np.array(change), axis=1)
    for places, first, last, size in several:
        over = INFINITE, places[0]
        for m in places:
            most = float(used[m, first : last + 1].max()) + size
            limit = capacity[m] if m < len(capacity) else None
            over = min(
                over, (-1.0 if limit is None else max(0.0, most - limit), m), key=lambda found: found[0]
            )
            if over[0] <= 0:
                break
        used[over[1], first : last + 1] += size
    return [float(row.max()) for row in used]


def _constants(problem: Problem, assignment: Sequence[int]) -> Iterator[Stay]:
    found: dict[tuple[int, tuple[int, ...]], None] = {}
    for task, device in zip(problem.tasks, assignment, strict=True):
        for constant in task.constants:
            rom = problem.rom[device] if problem.rom else ()
            found[constant, (*rom, *problem.memory[device])] = None
    end = len(problem.tasks)
    return ((places, 0, end, problem.constants[c]) for c, places in found)


def _values(problem: Problem, assignment: Sequence[int]) -> Iterator[Stay]:
    spans = _Spans(problem)
    for at, (task, device) in enumerate(zip(problem.tasks, assignment, strict=True)):
        for value in task.reads:
            spans.read(value, device, at)
        for value in task.makes:
            spans.make(value, device, at)
    for value, device in problem.ends:
        spans.read(value, device, len(problem.tasks))
    for (value, places), first in spans.first.items():
        held = spans.seen.get((value, places), places)
        size = problem.items[value].bound or problem.items[value].bytes
        if problem.moving and all(problem.leaves[m] >= 0 for m in held):
            yield from ((held, at, at, size) for at in spans.touched[value, places])
        else:
            yield held, first, spans.last[value, places], size


_InMemories = tuple[int, tuple[int, ...]]
"""A value in one of these memories."""


class _Spans:
    """From which task to which values are in memories, found task by task.

    Attributes:
        first, last: of a value in memories; `last` is the task that was looked at last.
        touched: all tasks that make or read it there, where values may leave between them.
        seen: a part of these memories, which all see who read it without a copy.
    """

    def __init__(self, problem: Problem) -> None:
        self.first: dict[_InMemories, int] = {}
        self.last: dict[_InMemories, int] = {}
        self.touched: dict[_InMemories, dict[int, None]] = {}
        self.seen: dict[_InMemories, tuple[int, ...]] = {}
        self._problem = problem
        self._home: dict[int, int] = {}
        for i, item in enumerate(problem.items):
            if item.maker < 0:
                self.make(i, item.home, 0)

    def make(self, value: int, device: int, at: int) -> None:
        """A task makes a value on a device."""
        self._home[value] = device
        self._need((value, self._problem.memory[device]), at)

    def read(self, value: int, device: int, at: int) -> None:
        """A task on a device reads a value."""
        problem, home = self._problem, self._home[value]
        here, there = problem.memory[home], problem.memory[device]
        key = value, here
        self._need(key, at)
        route = problem.routes[home][device]
        if route == ():  # it is seen where it is, so it is where both devices see it
            if here is there:
                return
            both = tuple(m for m in self.seen.get(key, here) if m in there)
            if both:
                self.seen[key] = both
            else:  # others see it in a memory that this device does not reach: it gets a copy
                self._need((value, there), at)
            return
        if (value, there) not in self.first:
            for hop in (route or ())[:-1]:
                if hop.memory >= 0:
                    self._need((value, (hop.memory,)), at)
        self._need((value, there), at)

    def _need(self, key: _InMemories, at: int) -> None:
        if key not in self.first:
            self.first[key] = at
        self.last[key] = at
        if self._problem.moving:
            self.touched.setdefault(key, {})[at] = None


def possible(problem: Problem) -> Problem | None:
    """Return a problem without devices of tasks whose own operands and results are too large for them.

    Every assignment that fits is one of both problems. None where a task has no device left, so that there is
    no assignment that fits. Cost: linear.
    """
    holds = [_held_by(problem, device) for device in problem.devices]
    tasks = [_fitting(problem, task, holds) for task in problem.tasks]
    if any(all(cost is None for cost in task.costs) for task in tasks):
        return None
    return replace(problem, tasks=tuple(tasks)) if tasks != list(problem.tasks) else problem


def _held_by(problem: Problem, device: int) -> float:
    """Return the bytes of all memories of a device; `INFINITE` where one has no bound."""
    known = [problem.capacity[m] if m < len(problem.capacity) else None for m in problem.memory[device]]
    return sum(INFINITE if c is None else c for c in known)


def _fitting(problem: Problem, task: Task, holds: Sequence[float]) -> Task:
    """Return a task without the devices that do not hold what it reads and makes, at one time."""
    items = [problem.items[value] for value in {*task.reads, *task.makes}]
    need = sum(item.bound or item.bytes for item in items)
    if need <= min(holds):
        return task
    pairs = zip(task.costs, holds, strict=True)
    return replace(task, costs=tuple(None if need > held else cost for cost, held in pairs))


def excess(problem: Problem, assignment: Sequence[int]) -> float:
    """Return by how many bytes an assignment exceeds the capacities of memories, in all."""
    if all(c is None for c in problem.capacity):
        return 0.0
    return sum(need - c for _, need, c in too_small(problem, assignment))


def fits(problem: Problem, assignment: Sequence[int]) -> bool:
    """Whether an assignment keeps within the capacities of all memories."""
    return excess(problem, assignment) == 0.0


def too_small(problem: Problem, assignment: Sequence[int]) -> list[tuple[int, float, float]]:
    """Return the memories that an assignment exceeds, with the bytes needed at once and there."""
    needs = zip(peaks(problem, assignment), problem.capacity, strict=False)
    return [(m, need, c) for m, (need, c) in enumerate(needs) if c is not None and need > c]


def memory_groups(problem: Problem) -> tuple[list[int], list[float | None]]:
    """Return for each device its group of memories, and the bytes of each group; None for no bound.

    Devices that have a memory in common have one group, which holds what all their memories hold:
    whatever is put where, more does not go in.
    """
    room_of: list[int] = []
    inside: list[set[int]] = []
    for places in problem.memory:
        touched = [r for r, memories in enumerate(inside) if memories & set(places)]
        room = touched[0] if touched else len(inside)
        if not touched:
            inside.append(set())
        inside[room] |= set(places)
        for other in touched[1:]:
            inside[room] |= inside[other]
            inside[other] = set()
            room_of = [room if r == other else r for r in room_of]
        room_of.append(room)
    bounds = problem.capacity
    holds: list[float | None] = []
    for memories in inside:
        found = [bounds[m] if m < len(bounds) else None for m in sorted(memories)]
        known = [c for c in found if c is not None]
        holds.append(sum(known) if len(known) == len(found) else None)
    return room_of, holds
