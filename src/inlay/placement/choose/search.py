"""Heuristic assignments of large problems: first fit, beam search and local search.

The beam keeps the most promising prefixes. What makes a prefix promising is when it ends, and how much
its choices cost the rest of the program: the regrets of `relaxation.py`. Then tasks are moved: long
runs, a task with what it reads or with those that read it, single tasks. A prefix that a move leaves
alone is not computed again. All budgets are steps: tasks placed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from inlay.placement.choose.bounds import tails_of
from inlay.placement.choose.capacity import excess, predict
from inlay.placement.choose.schedule import INFINITE, Problem, State, advance, finish, start
from inlay.placement.choose.transfers import route_ns, times_copied

_BEAM = 12
_BEAM_TASKS = 1000
_CAUTION = (0.0, 1.0, 4.0)
"""How much a nanosecond of regret counts against one of the prefix."""
_APART = 16
"""Tasks between two states that are kept."""
_RUNS = (32, 16, 8, 4, 2)


def first_fit(problem: Problem) -> tuple[int, ...]:
    """Return the assignment in which each task is on the first device that can run it.

    The default device is asked first, then the others in board order: the plan of who does not choose.
    """
    order = sorted(problem.devices, key=lambda d: d != problem.default)
    return tuple(next((d for d in order if t.costs[d] is not None), 0) for t in problem.tasks)


def all_on_one(problem: Problem) -> list[tuple[int, ...]]:
    """Return for each device the assignment that gives it all it can run."""
    first = first_fit(problem)
    return [
        tuple(d if t.costs[d] is not None else f for t, f in zip(problem.tasks, first, strict=True))
        for d in problem.devices
    ]


def beam(problem: Problem, regrets: Sequence[Sequence[float]]) -> list[tuple[int, ...]]:
    """Return the assignments of beam searches; of a very large problem, a greedy one."""
    if len(problem.tasks) > _BEAM_TASKS:
        return [_greedy(problem)]
    tails = tails_of(problem)
    cautions = _CAUTION if any(map(any, regrets)) else _CAUTION[:1]
    return [a for caution in cautions for a in _beam(problem, regrets, tails, caution)]


def _beam(
    problem: Problem, regrets: Sequence[Sequence[float]], tails: Sequence[float], caution: float
) -> list[tuple[int, ...]]:
    kept: list[tuple[float, float, tuple[int, ...], State]] = [(0.0, 0.0, (), start(problem))]
    for index, task in enumerate(problem.tasks):
        grown: list[tuple[float, float, tuple[int, ...], State]] = []
        for _, before, chosen, state in kept:
            for device in problem.devices:
                if task.costs[device] is None:
                    continue
                after = state.copy()
                end = advance(problem, after, index, device)
                if end < INFINITE:
                    regret = before + caution * regrets[index][device]
                    spread = sum(after.hardware) / len(after.hardware)
                    score = max(end + tails[index], after.end) + 0.1 * spread + regret
                    grown.append((score, regret, (*chosen, device), after))
        grown.sort(key=lambda g: (g[0], g[2]))
        kept = grown[:_BEAM]
    return [chosen for _, _, chosen, _ in kept]


def _greedy(problem: Problem) -> tuple[int, ...]:
    """Return the assignment that ends each task as early as the ones before allow."""
    state = start(problem)
    chosen: list[int] = []
    for index, task in enumerate(problem.tasks):
        options: list[tuple[float, int]] = []
        for device, cost in enumerate(task.costs):
            if cost is None:
                continue
            begin = state.hardware[problem.hardware[device]]
            for value in task.reads:
                begin = max(begin, _arrival(problem, state, value, device, task.weight))
            options.append((begin + cost * task.weight, device))
        device = min(options, default=(0.0, 0))[1]
        advance(problem, state, index, device)
        chosen.append(device)
    return tuple(chosen)


def _arrival(problem: Problem, state: State, value: int, device: int, weight: float) -> float:
    """Return when a value would be on a device, if no engine had anything else to do."""
    found = state.ready.get((value, device))
    if found is not None:
        return found
    home = state.home[value]
    route = problem.routes[home][device]
    if route is None:
        return INFINITE
    item = problem.items[value]
    return state.ready[value, home] + route_ns(route, item.bytes, times_copied(item.often, weight))


def climb(problem: Problem, assignment: tuple[int, ...], steps: int) -> tuple[float, tuple[int, ...]]:
    """Move tasks while that helps; return the time and the assignment.

    One that does not fit the memories is first made to fit; its time is `INFINITE` if that fails.
    """
    climbing = _Climbing(problem, assignment, steps)
    climbing.run()
    return predict(problem, climbing.chosen), climbing.chosen


class _Climbing:
    """An assignment that is improved.

    What counts first is by how many bytes it exceeds memories, then its time.
    """

    def __init__(self, problem: Problem, chosen: tuple[int, ...], steps: int) -> None:
        self.problem = problem
        self.chosen = chosen
        self._steps = steps
        self._kept: list[State] = []
        self._is_bounded = any(c is not None for c in problem.capacity)
        self._excess = excess(problem, chosen)
        self._time = self._keep(0)

    def run(self) -> None:
        """Try all moves until none helps or the steps are used up."""
        moves = list(_moves(self.problem))
        index = failed = 0
        while self._steps > 0 and failed < len(moves):
            helped = [d for d in self.problem.devices if self._try(moves[index], d)]
            failed = 0 if helped else failed + 1
            index = (index + 1) % len(moves)

    def _try(self, move: Sequence[int], device: int) -> bool:
        tried = list(self.chosen)
        for index in move:
            if self.problem.tasks[index].costs[device] is not None:
                tried[index] = device
        assignment = tuple(tried)
        if self._steps <= 0 or assignment == self.chosen:
            return False
        if not self._excess:
            time = self._time_of(assignment, move[0], self._time * (1 - 1e-12))
            if time == INFINITE or self._excess_of(assignment):
                return False
        else:
            more = self._excess_of(assignment)
            if more > self._excess:
                return False
            time = self._time_of(assignment, move[0], INFINITE)
            if time == INFINITE or (more == self._excess and time >= self._time):
                return False
            self._excess = more
        self.chosen = assignment
        self._time = self._keep(move[0])
        return True

    def _excess_of(self, assignment: Sequence[int]) -> float:
        """Return by how many bytes it exceeds memories: as much work as to place half of the tasks."""
        if self._is_bounded:
            self._steps -= len(assignment) // 2
        return excess(self.problem, assignment)

    def _time_of(self, assignment: Sequence[int], first: int, below: float) -> float:
        """Return the time of an assignment that is new from some task on, if it is below one."""
        begin = first // _APART
        state = self._kept[begin].copy()
        for index in range(begin * _APART, len(assignment)):
            self._steps -= 1
            if advance(self.problem, state, index, assignment[index]) >= below:
                return INFINITE
        time = finish(self.problem, state)
        return time if time < below else INFINITE

    def _keep(self, first: int) -> float:
        """Keep states of the assignment, which is new from some task on; return its time."""
        begin = first // _APART
        state = self._kept[begin].copy() if self._kept else start(self.problem)
        del self._kept[begin:]
        for index in range(begin * _APART, len(self.chosen)):
            if index % _APART == 0:
                self._kept.append(state.copy())
            advance(self.problem, state, index, self.chosen[index])
        return finish(self.problem, state)


def _moves(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Yield sets of tasks that may better be somewhere else, each in program order."""
    count = len(problem.tasks)
    for length in (count // 2, count // 4, count // 8, *_RUNS):
        if length:
            for begin in range(0, count, max(1, length // 2)):
                yield tuple(range(begin, min(count, begin + length)))
    readers: dict[int, list[int]] = {}
    for index, task in enumerate(problem.tasks):
        for maker in dict.fromkeys(problem.items[v].maker for v in task.reads):
            if 0 <= maker < index:
                readers.setdefault(maker, []).append(index)
    for index, task in enumerate(problem.tasks):
        if index in readers:
            yield (index, *readers[index])
        for maker in dict.fromkeys(problem.items[v].maker for v in task.reads):
            if 0 <= maker < index:
                yield (maker, index)
        yield (index,)
