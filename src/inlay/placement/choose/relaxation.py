"""A Lagrangian lower bound on the makespan, which counts copies.

Hardware and engines are *resources*. For any weights of them that sum to one, a program takes at least
the weighted time for which an assignment keeps them busy, so at least the least such time of all
assignments. To find that is still hard: a task wants its cheapest device, and the values that it reads
and makes want it where the other ends are. So it is relaxed. Each value becomes a problem of its own,
in which the task that makes it and those that read it choose devices, and it pays for its copies; each
task pays for its device apart from that. Tasks may choose differently in each of these problems, at
a *price* by device that one side pays the other: whatever the prices, the sum of the least costs of all
problems is a bound (Lagrangian decomposition). Prices are improved by averaging: every value hands what
it would cost to have a task on a device to the task, which shares it out among all of its values; the
bound never falls. Meanwhile the weights move towards the resources that are busiest.

Memories are bounded at each point of the program, and what lives there at a point is known but for its
device. At some points every byte in a bounded memory has a *rent*, which whoever makes the value pays;
what the memory holds at that rent is given back. Rents rise where too much is in a memory.

A value is made on one device and is afterwards on a set of them; there are few devices, so all sets are
tried. The copies on the way to several devices are counted once, as `schedule.bring` makes them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inlay.placement.choose.capacity import memory_groups
from inlay.placement.choose.schedule import Problem
from inlay.placement.choose.transfers import times_copied, transfer_ns

Floats = NDArray[np.float64]

_NEVER = 1e15
"""The cost of what cannot be: more than any program takes, and small enough to be added to."""
_MOST_DEVICES = 6
_ROUNDS = 150
_TASKS_IN_ALL = 150_000
_PATIENCE = 50
_POINTS = 32


@dataclass(frozen=True, slots=True)
class Relaxed:
    """What the relaxation found.

    Attributes:
        bound: no assignment takes less, in nanoseconds.
        regrets: for each task and device, how much more than on its best device it costs to have it
            there, copies counted, in nanoseconds of the whole program.
    """

    bound: float
    regrets: list[list[float]]


def relax(problem: Problem, known: float) -> Relaxed:
    """Bound the time of every assignment from below. Cost: linear, times two to the devices.

    Boards of more than six devices are not relaxed: the bound is zero there.

    Args:
        problem: what is to be placed.
        known: the time of some assignment, by which steps are measured.
    """
    count, devices = len(problem.tasks), len(problem.hardware)
    if count == 0 or devices > _MOST_DEVICES:
        return Relaxed(0.0, [[0.0] * devices for _ in problem.tasks])
    values, room = _Values(problem), _Capacities(problem)
    weights = np.full(values.resources, 1.0 / values.resources)
    best, costs, since = 0.0, np.zeros((count, devices)), 0
    busy = np.zeros(values.resources)
    for step in range(max(20, min(_ROUNDS, _TASKS_IN_ALL // count))):
        bound, found = values.improve(weights, room.rent())
        bound -= room.given_back()
        since = 0 if bound > best * (1 + 1e-4) else since + 1
        if bound > best or step == 0:
            best, costs = bound, found
        if since > _PATIENCE:
            break
        room.watch(found.argmin(1))
        if step % 4 == 3:
            room.raise_rents(0.02 * max(known - bound, 0.0) / (1 + step / 30))
        if step % 5 == 4:
            now = values.busy(found.argmin(1))
            busy = now if not busy.any() else 0.7 * busy + 0.3 * now
            weights = weights * np.exp(0.3 / (1 + step / 40) * (busy / max(busy.max(), 1e-9) - 1))
            weights = weights / weights.sum()
    # Rounded, so that the last bits of a sum do not decide which of two plans is taken.
    above = np.minimum(costs - costs.min(1)[:, None], _NEVER)
    return Relaxed(best * (1 - 1e-9), [[float(round(r)) for r in row] for row in above])


class _Values:
    """The problems of all values, and the prices between them and the tasks.

    Arrays are indexed by value, reading (a task that reads a value), task, device, set of devices (as
    bits) and resource: hardware first, then engines.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        devices = len(problem.hardware)
        self._sets = 1 << devices
        self._inside = (np.arange(self._sets) >> np.arange(devices)[:, None] & 1) == 1
        costs = [[0.0 if c is None else c * t.weight for c in t.costs] for t in problem.tasks]
        self._cost = np.array(costs)
        never = [[0.0 if c is not None else _NEVER for c in t.costs] for t in problem.tasks]
        self._never = np.array(never)
        self._piece = np.array(problem.hardware)
        self._pieces = max(problem.hardware) + 1
        hops = [h for row in problem.routes for route in row for h in route or ()]
        self.resources = self._pieces + max((h.engine for h in hops), default=-1) + 1
        self._list_values()
        self._list_copies()
        self._of_reader = np.zeros((len(self._reader), devices))
        self._of_maker = np.zeros((len(self._values), devices))

    def _list_values(self) -> None:
        problem = self._problem
        readers: dict[int, list[int]] = {}
        for index, task in enumerate(problem.tasks):
            for value in dict.fromkeys(task.reads):
                readers.setdefault(value, []).append(index)
        needed = {value for value, _ in problem.ends}
        self._values = sorted(needed.union(readers))
        self._number = {v: i for i, v in enumerate(self._values)}
        pairs = [(self._number[v], t) for v in self._values for t in readers.get(v, ())]
        self._read = np.array([v for v, _ in pairs], dtype=np.intp)
        self._reader = np.array([t for _, t in pairs], dtype=np.intp)
        makers = [problem.items[v].maker for v in self._values]
        self._is_made = np.array([m >= 0 for m in makers], dtype=bool)
        self._maker = np.array([max(m, 0) for m in makers], dtype=np.intp)
        count = len(self._values)
        self._members = np.bincount(self._read, minlength=count) + self._is_made
        made = np.bincount(self._maker[self._is_made], minlength=len(problem.tasks))
        self._shares = np.maximum(1, np.bincount(self._reader, minlength=len(made)) + made)
        runs = {v: [problem.tasks[t].weight for t in readers.get(v, ())] for v in self._values}
        for value in needed:
            runs[value].append(1.0)
        often = [times_copied(problem.items[v].often, *runs[v]) for v in self._values]
        self._often = np.array(often)
        self._bytes = np.array([problem.items[v].bytes for v in self._values])

    def _list_copies(self) -> None:
        """Say how long copies keep resources busy: per copy and per byte, by home and set."""
        problem, devices = self._problem, len(self._problem.hardware)
        shape = (self.resources, devices, self._sets)
        self._latency, self._per_byte = np.zeros(shape), np.zeros(shape)
        reached = np.zeros((devices, self._sets), dtype=bool)
        for home in range(devices):
            for copies in range(self._sets):
                routes = [problem.routes[home][d] for d in range(devices) if copies >> d & 1]
                if not copies >> home & 1 or None in routes:
                    continue
                reached[home, copies] = True
                hops = {hop for route in routes for hop in route or ()}
                ways = Counter(hop.device for hop in hops)
                for hop in sorted(hops):
                    if ways[hop.device] > 1:  # which way is taken is decided by who comes first
                        continue
                    held = [self._pieces + hop.engine]
                    if problem.occupies and problem.occupies[hop.engine] >= 0:
                        held.append(problem.occupies[hop.engine])
                    for resource in held:
                        self._latency[resource, home, copies] += hop.latency
                        self._per_byte[resource, home, copies] += hop.per_byte
        self._refused = np.repeat(np.where(reached, 0.0, _NEVER)[None], len(self._values), 0)
        for index, value in enumerate(self._values):
            item = problem.items[value]
            if item.maker < 0:
                self._refused[index, np.arange(devices) != item.home] = _NEVER
        for value, device in problem.ends:
            self._refused[self._number[value]][:, ~self._inside[device]] = _NEVER

    def improve(self, weights: Floats, rent: Floats) -> tuple[float, Floats]:
        """Return the bound, and what each task costs on each device; then improve the prices."""
        own_costs = weights[self._piece] * self._cost + rent
        latency = np.tensordot(weights, self._latency, 1)
        per_byte = np.tensordot(weights, self._per_byte, 1)
        total = self._refused + transfer_ns(
            latency, per_byte, self._bytes[:, None, None], self._often[:, None, None]
        )
        own = self._of_reader + self._never[self._reader]
        nearest = np.stack([own[:, self._inside[:, s]].min(1, initial=_NEVER) for s in range(self._sets)], 1)
        together = np.zeros((len(self._values), self._sets))
        np.add.at(together, self._read, nearest)
        never = np.where(self._is_made[:, None], self._never[self._maker], 0.0)
        total += together[:, None, :] + (self._of_maker + never)[:, :, None]
        task = self._left(own_costs)
        bound = float(total.min((1, 2)).sum() + (task + self._never).min(1).sum())
        # What a value costs at least with one of its tasks on a device.
        made = total.min(2)
        others = total.min(1)[self._read] - nearest
        read = own + np.stack([others[:, inside].min(1) for inside in self._inside], 1)
        costs = task + self._never
        np.add.at(costs, self._reader, read)
        np.add.at(costs, self._maker[self._is_made], made[self._is_made])
        self._average(
            own_costs,
            np.where(read < _NEVER / 2, read, 0.0),
            np.where((made < _NEVER / 2) & self._is_made[:, None], made, 0.0),
        )
        return bound, costs

    def _average(self, own_costs: Floats, read: Floats, made: Floats) -> None:
        """Hand to tasks a fair part of what values cost, and back to values in equal shares."""
        self._of_reader -= read / self._members[self._read][:, None]
        self._of_maker -= made / self._members[:, None]
        share = self._left(own_costs) / self._shares[:, None]
        self._of_reader += share[self._reader]
        self._of_maker[self._is_made] += share[self._maker[self._is_made]]

    def _left(self, own_costs: Floats) -> Floats:
        """Return what tasks pay by device beside the prices."""
        left = own_costs.copy()
        np.subtract.at(left, self._reader, self._of_reader)
        np.subtract.at(left, self._maker[self._is_made], self._of_maker[self._is_made])
        return left

    def busy(self, assignment: NDArray[np.intp]) -> Floats:
        """Return how long an assignment keeps each resource busy."""
        found = np.zeros(self.resources)
        np.add.at(found, self._piece[assignment], self._cost[np.arange(len(assignment)), assignment])
        inputs = np.array([self._problem.items[v].home for v in self._values], dtype=np.intp)
        home = np.where(self._is_made, assignment[self._maker], inputs)
        copies = 1 << home
        np.bitwise_or.at(copies, self._read, 1 << assignment[self._reader])
        for value, device in self._problem.ends:
            copies[self._number[value]] |= 1 << device
        latency, per_byte = self._latency[:, home, copies], self._per_byte[:, home, copies]
        found += transfer_ns(latency, per_byte, self._bytes, self._often).sum(1)
        return found


class _Capacities:
    """Rents of bounded memories at some points of the program.

    Arrays are indexed by point and memory, or by point and task; a memory here is a group of them
    (`memory_groups`).
    """

    def __init__(self, problem: Problem) -> None:
        count = len(problem.tasks)
        room_of, bounds = memory_groups(problem)
        self._memory = np.array(room_of, dtype=np.intp)
        bounded = [m for m in sorted(set(room_of)) if bounds[m] is not None]
        self._bounded = np.array(bounded, dtype=np.intp)
        points = sorted({i * (count - 1) // (_POINTS - 1) for i in range(_POINTS if bounded else 0)})
        self._points = np.array(points, dtype=np.intp)
        self._held = np.zeros((len(self._points), count))
        room = [float(bounds[m] or 0.0) for m in bounded]
        self._room = np.tile(np.array(room), (len(self._points), 1))
        if bounded:
            self._list_values(problem)
        self._rents = np.zeros(self._room.shape)
        self._where = np.zeros((count, len(bounded)))

    def _list_values(self, problem: Problem) -> None:
        last = {v: t for t, task in enumerate(problem.tasks) for v in task.reads}
        last |= {v: len(problem.tasks) for v, _ in problem.ends}
        for v, item in enumerate(problem.items):
            size = item.bound or item.bytes
            lives = (self._points >= item.maker) & (self._points <= last.get(v, item.maker))
            if item.maker >= 0:
                self._held[lives, item.maker] += size
            elif v in last:
                here = self._bounded == self._memory[item.home]
                self._room[np.ix_(lives, here)] -= size
        if any(problem.rom):
            return
        readers: dict[int, list[int]] = {}
        for index, task in enumerate(problem.tasks):
            for constant in task.constants:
                readers.setdefault(constant, []).append(index)
        for constant, tasks in readers.items():
            if len(tasks) == 1:  # of several it need not be on the device of each
                self._held[:, tasks[0]] += problem.constants[constant]

    def rent(self) -> Floats:
        """Return what each task pays for the values that it makes, by device."""
        paid = self._held.T @ self._rents
        every = np.zeros((self._held.shape[1], max(self._memory, default=0) + 1))
        every[:, self._bounded] = paid
        return every[:, self._memory]

    def given_back(self) -> float:
        """Return the rent of all the room there is."""
        return float((self._rents * self._room).sum())

    def watch(self, assignment: NDArray[np.intp]) -> None:
        """Take note of where tasks are, on average over the last assignments."""
        now = self._memory[assignment][:, None] == self._bounded
        self._where = 0.8 * self._where + 0.2 * now

    def raise_rents(self, step: float) -> None:
        """Raise rents where assignments hold too much, lower them where they leave room."""
        over = self._held @ self._where - self._room
        over = np.where((over < 0) & (self._rents == 0), 0.0, over)
        size = float((over**2).sum())
        if size > 0 and np.isfinite(step):
            self._rents = np.maximum(0.0, self._rents + step / size * over)
