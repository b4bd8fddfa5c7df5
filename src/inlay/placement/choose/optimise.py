"""The assignment of tasks to devices with the least predicted makespan.

Small problems are solved by branch and bound over the tasks in program order: the time of a prefix is
known exactly, and the rest has a lower bound. Large ones get the best of some simple plans, a beam
search and local search (`search.py`), and a Lagrangian lower bound on the makespan (`relaxation.py`),
so that the optimality gap is stated. Budgets are numbers of steps, so the same problem gives the same
answer everywhere.

**Sets of tasks.** A candidate of a device is a convex set of tasks that it runs as one, for one cost.
Using candidates contracts the problem. Where there are few, all combinations are tried. Of many, sets that
do not overlap are tasks, on any device that offers the same set; which sets is climbed to, from the largest
ones and from the smallest ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from inlay.base.graph import dependency_order
from inlay.placement.choose.bounds import cheapest_cut, lower_bound, rest_of, tails_of, weights_of
from inlay.placement.choose.capacity import excess, fits, moved_ns, possible, predict
from inlay.placement.choose.relaxation import relax
from inlay.placement.choose.schedule import INFINITE, Problem, State, Task, advance, finish, start
from inlay.placement.choose.search import all_on_one, beam, climb, first_fit

EXACT_STEPS = 100_000
"""Tasks that branch and bound places before it gives up proving."""
SEARCH_STEPS = 1_000_000
"""Tasks that the local search places."""
_EXACT_TASKS = 48
_ALL_SUBSETS = 6
_QUICK = 2_000
"""Tasks that the local search places for a choice of candidates that is only compared with others."""
_NEAR = 1.001
"""Over a lower bound: what is that near is not searched any longer."""
_MOST_TRIED = 5_000
"""Tasks of all problems that are solved to choose among many candidates."""


@dataclass(frozen=True, slots=True)
class TaskSet:
    """A convex set of tasks that one device can run as one: a candidate, to the search.

    Attributes:
        tasks: their indices.
        device: index of the device.
        cost: nanoseconds for all of it.
        name: for reports.
    """

    tasks: frozenset[int]
    device: int
    cost: float
    name: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """An assignment and what is known of it.

    Attributes:
        assignment: the device of each task.
        time: predicted makespan, in nanoseconds.
        bound: a lower bound on the makespan of every assignment.
        proved: whether the search showed that none is faster.
        used: the candidates that are used.
        baseline: predicted time where each task is on the first device that can run it.
    """

    assignment: tuple[int, ...]
    time: float
    bound: float
    proved: bool
    used: tuple[TaskSet, ...] = ()
    baseline: float = INFINITE

    @property
    def gap(self) -> float:
        """How far the time may be above the best, as a share of the best."""
        if self.proved:
            return 0.0
        return self.time / self.bound - 1 if self.bound > 0 else INFINITE


def optimise(
    problem: Problem,
    candidates: Sequence[TaskSet] = (),
    starts: Iterable[Sequence[int]] = (),
    *,
    exact_steps: int = EXACT_STEPS,
    search_steps: int = SEARCH_STEPS,
) -> Outcome | None:
    """Return the best assignment found; None where no assignment fits the memories."""
    budget = (exact_steps, search_steps)
    plain = _solve(problem, tuple(starts), budget)
    best = plain
    usable = [c for c in candidates if is_convex(problem, c.tasks)]
    if usable:
        subsets: Iterable[tuple[TaskSet, ...]]
        if len(usable) <= _ALL_SUBSETS:
            subsets = (
                s
                for n in range(1, len(usable) + 1)
                for s in itertools.combinations(usable, n)
                if _disjoint(s)
            )
            for subset in subsets:
                best = _better(best, _with(problem, subset, budget))
        else:
            best = _better(best, _of_many(problem, usable, budget))
    if best is None:
        return None
    if usable:  # proved only if every way to use the candidates was
        bound = cheapest_cut(problem, _cheapest(usable))
        proved = (best.proved and len(usable) <= _ALL_SUBSETS) or best.time <= bound * (1 + 1e-12)
        best = replace(best, bound=best.time if proved else bound, proved=proved)
    return replace(best, baseline=predict(problem, first_fit(problem)))


def simple(problem: Problem) -> Outcome | None:
    """Return `first_fit` as an outcome; None where it does not fit the memories."""
    assignment = first_fit(problem)
    time = predict(problem, assignment)
    if time == INFINITE:
        return None
    return Outcome(assignment, time, lower_bound(problem), proved=False, baseline=time)


def _better(a: Outcome | None, b: Outcome | None) -> Outcome | None:
    if a is None or b is None:
        return a or b
    if b.time < a.time:
        return replace(b, proved=b.proved and a.proved)
    return replace(a, proved=a.proved and b.proved)


def _solve(whole: Problem, starts: tuple[Sequence[int], ...], budget: tuple[int, int]) -> Outcome | None:
    if (problem := possible(whole)) is None:
        return None
    best: tuple[float, tuple[int, ...]] = (INFINITE, ())

    nearest: tuple[float, tuple[int, ...]] = (INFINITE, ())

    def try_all(assignments: Iterable[Sequence[int]]) -> None:
        nonlocal best, nearest
        for assignment in assignments:
            time = predict(problem, assignment)
            best = min(best, (time, tuple(assignment)), key=lambda x: x[0])
            over = excess(problem, assignment) if time == INFINITE else 0.0  # else it fits
            if over:
                nearest = min(nearest, (over, tuple(assignment)), key=lambda x: x[0])

    try_all([first_fit(problem), *starts, *all_on_one(problem)])
    small = len(problem.tasks) <= _EXACT_TASKS
    if small:
        try_all(beam(problem, [[0.0] * len(problem.hardware)] * len(problem.tasks)))
        search = _Exact(problem, best, budget[0])
        proved, best = search.run(), search.best
        if proved:
            return None if best[0] == INFINITE else Outcome(best[1], best[0], best[0], proved=True)
    known = predict(replace(problem, capacity=()), first_fit(problem))
    relaxed = relax(problem, min(best[0], known))
    try_all(beam(problem, relaxed.regrets))
    steps = budget[1]
    if nearest[1]:  # something of the steps for making fit what nearly does
        repaired = climb(problem, nearest[1], steps // 8)
        best, steps = min(best, repaired, key=lambda x: x[0]), steps - steps // 8
    best = climb(problem, best[1] or first_fit(problem), steps)
    if best[0] == INFINITE:
        return None
    bound = max(lower_bound(problem), relaxed.bound)
    return Outcome(best[1], best[0], bound, proved=best[0] <= bound * (1 + 1e-12))


# --------------------------------------------------------------------------------- exact


class _Exact:
    """Depth first, with the rest bounded by its critical path and by the work that is left."""

    def __init__(self, problem: Problem, best: tuple[float, tuple[int, ...]], steps: int) -> None:
        self.problem = problem
        self.best = best
        self.steps = steps
        # Whether memories hold a plan takes a walk over all tasks.
        self.look = 0 if all(c is None for c in problem.capacity) else len(problem.tasks)
        self.tails = tails_of(problem)
        self.weights = weights_of(problem)
        self.rest = rest_of(problem, self.weights)

    def run(self) -> bool:
        """Search; return whether the best is proved."""
        order: list[tuple[int, State, tuple[int, ...]]] = [(0, start(self.problem), ())]
        count = len(self.problem.tasks)
        while order:
            index, state, chosen = order.pop()
            if index == count:
                time = finish(self.problem, state.copy())
                if time < self.best[0]:
                    self.steps -= self.look
                    if fits(self.problem, chosen):
                        time += moved_ns(self.problem, chosen)
                        self.best = min(self.best, (time, chosen), key=lambda found: found[0])
                continue
            if self._least(index, state) >= self.best[0]:
                continue
            options: list[tuple[float, int, State]] = []
            for device in self.problem.devices:
                self.steps -= 1
                if self.steps < 0:
                    return False
                after = state.copy()
                end = advance(self.problem, after, index, device)
                if end + self.tails[index] < self.best[0]:
                    options.append((end, device, after))
            options.sort(key=lambda o: (-o[0], -o[1]))  # the earliest end is popped first
            order.extend((index + 1, after, (*chosen, device)) for _, device, after in options)
        return True

    def _least(self, index: int, state: State) -> float:
        work = sum(w * t for w, t in zip(self.weights, state.hardware, strict=True))
        return max(state.end, work + self.rest[index])


# --------------------------------------------------------------------------------- candidates


def _of_many(problem: Problem, usable: Sequence[TaskSet], budget: tuple[int, int]) -> Outcome | None:
    """Return the best plan that is found with some of many candidates."""
    same: dict[frozenset[int], list[TaskSet]] = {}
    for c in sorted(usable, key=lambda c: (c.cost, c.device)):
        same.setdefault(c.tasks, []).append(c)
    sets = sorted(same, key=lambda s: (-len(s), same[s][0].cost, min(s)))

    left = _MOST_TRIED

    def tried(chosen: Sequence[frozenset[int]]) -> float:
        nonlocal left
        left -= len(problem.tasks)
        contracted, _ = contract(problem, tuple(c for s in chosen for c in same[s]), free=True)
        return INFINITE if contracted is None else _estimate(contracted)

    starts = [_cover((), sets), _cover((), sets[::-1]), ()]
    time, chosen = min(((tried(x), x) for x in starts), key=lambda found: found[0])
    least, helped = cheapest_cut(problem, _cheapest(usable)), True
    while helped and left > 0 and time > least * _NEAR:
        helped = False
        for other in _neighbors(chosen, sets):
            if left > 0 and (found := tried(other)) < time:
                time, chosen, helped = found, other, True
                break
    return _with(problem, tuple(c for s in chosen for c in same[s]), budget, free=True)


def _estimate(problem: Problem) -> float:
    """Return the time of a plan that few steps of search find."""
    plain = [[0.0] * len(problem.hardware)] * len(problem.tasks)
    plans = [first_fit(problem), *all_on_one(problem), *beam(problem, plain)]
    return climb(problem, min(plans, key=lambda plan: predict(problem, plan)), _QUICK)[0]


def _neighbors(
    chosen: tuple[frozenset[int], ...], sets: Sequence[frozenset[int]]
) -> Iterator[tuple[frozenset[int], ...]]:
    """Yield choices of sets that differ in one, and in those that overlap it."""
    for s in (s for s in sets if s not in chosen):
        kept = (s, *(x for x in chosen if x.isdisjoint(s)))
        yield from dict.fromkeys((_cover(kept, sets), _cover(kept, sets[::-1]), kept))
    for s in chosen:
        yield tuple(x for x in chosen if x is not s)


def _cover(chosen: tuple[frozenset[int], ...], sets: Sequence[frozenset[int]]) -> tuple[frozenset[int], ...]:
    """Return sets, and further ones in order that overlap with none of those before."""
    made, taken = list(chosen), {i for s in chosen for i in s}
    for s in sets:
        if taken.isdisjoint(s):
            made.append(s)
            taken |= s
    return tuple(made)


def _cheapest(candidates: Sequence[TaskSet]) -> dict[frozenset[int], float]:
    """Return what each set of tasks takes on the device that is fastest for it."""
    return {c.tasks: c.cost for c in sorted(candidates, key=lambda c: -c.cost)}


def _disjoint(candidates: Sequence[TaskSet]) -> bool:
    seen: set[int] = set()
    for c in candidates:
        if seen & c.tasks:
            return False
        seen |= c.tasks
    return True


def is_convex(problem: Problem, tasks: frozenset[int]) -> bool:
    """Whether no way leads out of a set of tasks and back into it. Cost: linear in what it spans."""
    outside: set[int] = set()
    for index in range(min(tasks), max(tasks) + 1):
        task = problem.tasks[index]
        makers = {problem.items[v].maker for v in task.reads}
        if index in tasks:
            if makers & outside:
                return False
        elif makers & (tasks | outside):
            outside.add(index)
    return True


def _with(
    problem: Problem, used: tuple[TaskSet, ...], budget: tuple[int, int], *, free: bool = False
) -> Outcome | None:
    """Solve a problem in which candidates are used: each is one task; `free` as for `contract`."""
    contracted, members = contract(problem, used, free=free)
    if contracted is None:
        return None
    found = _solve(contracted, (), budget)
    if found is None:
        return None
    assignment = [0] * len(problem.tasks)
    for device, group in zip(found.assignment, members, strict=True):
        for index in group:
            assignment[index] = device
    taken: dict[frozenset[int], TaskSet] = {}
    for c in sorted(used, key=lambda c: c.cost):
        if all(assignment[i] == c.device for i in c.tasks):
            taken.setdefault(c.tasks, c)
    return replace(found, assignment=tuple(assignment), used=tuple(taken.values()))


def contract(
    problem: Problem, used: Sequence[TaskSet], *, free: bool = False
) -> tuple[Problem | None, list[tuple[int, ...]]]:
    """Return the problem with each candidate as one task, and the old tasks of each new one.

    Args:
        problem: to be contracted.
        used: the candidates; those of the same tasks are one task, on any of their devices.
        free: whether each may as well be on another device that can run all of its tasks, one after
            the other; else it is on its own.

    Returns:
        None where the candidates cannot be run one after the other.
    """
    owner = {i: c.tasks for c in used for i in c.tasks}
    cost = {(c.tasks, c.device): c.cost for c in sorted(used, key=lambda c: -c.cost)}
    units: list[tuple[int, ...]] = []
    seen: set[int] = set()
    for index in range(len(problem.tasks)):
        if index not in seen:
            group = tuple(sorted(owner[index])) if index in owner else (index,)
            seen.update(group)
            units.append(group)
    order = _ordered(problem, units)
    if order is None:
        return None, []
    renamed = {old: new for new, group in enumerate(order) for old in group}
    items = tuple(
        replace(item, maker=renamed[item.maker]) if item.maker >= 0 else item for item in problem.items
    )
    tasks: list[Task] = []
    for group in order:
        if len(group) == 1 and group[0] not in owner:
            tasks.append(problem.tasks[group[0]])
            continue
        makes = tuple(v for i in group for v in problem.tasks[i].makes)
        own = set(makes)
        reads = dict.fromkeys(v for i in group for v in problem.tasks[i].reads)
        costs = tuple(
            cost[owner[group[0]], d]
            if (owner[group[0]], d) in cost
            else _together([problem.tasks[i] for i in group], d)
            if free
            else None
            for d in problem.devices
        )
        outer = tuple(v for v in reads if v not in own)
        constants = tuple(dict.fromkeys(c for i in group for c in problem.tasks[i].constants))
        tasks.append(Task(costs, outer, makes, problem.tasks[group[0]].weight, constants))
    return replace(problem, tasks=tuple(tasks), items=items), order


def _together(tasks: Sequence[Task], device: int) -> float | None:
    """Return what tasks cost on a device one after the other; None where it cannot run all."""
    costs = [task.costs[device] for task in tasks]
    known = [c for c in costs if c is not None]
    return sum(known) if len(known) == len(costs) else None


def _ordered(problem: Problem, units: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]] | None:
    """Return the units in an order in which each comes behind what it reads."""
    unit_of = {i: u for u, group in enumerate(units) for i in group}
    waits: list[set[int]] = []
    for u, group in enumerate(units):
        makers = {problem.items[v].maker for i in group for v in problem.tasks[i].reads}
        waits.append({unit_of[m] for m in makers if m >= 0} - {u})
    order = dependency_order(waits, range(len(units)))
    return None if order is None else [units[u] for u in order]
