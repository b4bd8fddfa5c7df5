"""Chooses devices so that the predicted time is least.

Small problems are solved by branch and bound over the tasks in program order: the time of a prefix is
known exactly, and the rest cannot be faster than a bound. Large ones get the best of some simple
plans, a beam search and a local search, and a lower bound on what any plan could reach, so that the
gap is stated. Budgets are numbers of steps, so the same problem gives the same answer everywhere.

**Lower bounds.** (1) No task ends before its operands have been made somewhere and brought, whatever
else happens: `_paths`. (2) The hardware has to do all the work: for any weights of the pieces of
hardware that sum to one, the time is at least the sum over tasks of the least weighted cost:
`_shares` improves the weights by subgradient steps.

**Sets of tasks.** A candidate is a convex set of tasks that a device runs as one, for one cost. Using
candidates contracts the problem; which ones to use is tried for all combinations where there are few,
else one after the other while time falls.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from inlay.placement.schedule import (
    INFINITE,
    Problem,
    State,
    Task,
    advance,
    finish,
    fits,
    predict,
    start,
)

EXACT_STEPS = 100_000
"""Tasks that branch and bound places before it gives up proving."""
SEARCH_STEPS = 1_000_000
"""Tasks that the local search places."""
_BEAM = 12
_EXACT_TASKS = 48
_BEAM_TASKS = 1000
_ALL_SUBSETS = 6


@dataclass(frozen=True, slots=True)
class Candidate:
    """A convex set of tasks that one device can run as one.

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
        time: predicted, in nanoseconds.
        bound: no assignment is faster.
        proved: whether the search showed that none is faster.
        used: the candidates that are used.
        baseline: predicted time where each task is on the first device that can run it.
    """

    assignment: tuple[int, ...]
    time: float
    bound: float
    proved: bool
    used: tuple[Candidate, ...] = ()
    baseline: float = INFINITE

    @property
    def gap(self) -> float:
        """How far the time may be above the best, as a share of the best."""
        if self.proved:
            return 0.0
        return self.time / self.bound - 1 if self.bound > 0 else INFINITE


def optimise(
    problem: Problem, candidates: Sequence[Candidate] = (), starts: Iterable[Sequence[int]] = (),
    *, exact_steps: int = EXACT_STEPS, search_steps: int = SEARCH_STEPS,
) -> Outcome | None:  # fmt: skip
    """Return the best assignment found; None where no assignment fits the memories."""
    budget = (exact_steps, search_steps)
    plain = _solve(problem, tuple(starts), budget)
    best = plain
    usable = [c for c in candidates if _is_convex(problem, c.tasks)]
    if usable:
        subsets: Iterable[tuple[Candidate, ...]]
        if len(usable) <= _ALL_SUBSETS:
            subsets = (s for n in range(1, len(usable) + 1)
                       for s in itertools.combinations(usable, n) if _disjoint(s))  # fmt: skip
            for subset in subsets:
                best = _better(best, _with(problem, subset, budget))
        else:
            chosen: tuple[Candidate, ...] = ()
            for c in sorted(usable, key=lambda c: (-len(c.tasks), c.cost, min(c.tasks))):
                if _disjoint((*chosen, c)):
                    tried = _with(problem, (*chosen, c), budget)
                    if tried is not None and (best is None or tried.time < best.time):
                        best, chosen = tried, (*chosen, c)
    if best is None:
        return None
    bound = best.bound if not best.used else 0.0
    if best.used:  # proved only if every way to use the candidates was
        best = replace(best, bound=bound, proved=best.proved and len(usable) <= _ALL_SUBSETS)
    return replace(best, baseline=predict(problem, first_able(problem)))


def first_able(problem: Problem) -> tuple[int, ...]:
    """Return the assignment in which each task is on the first device that can run it.

    The default device is asked first, then the others in board order: the plan of who does not choose.
    """
    order = sorted(problem.devices, key=lambda d: d != problem.default)
    return tuple(next((d for d in order if t.costs[d] is not None), 0) for t in problem.tasks)


def simple(problem: Problem) -> Outcome | None:
    """Return `first_able` as an outcome; None where it does not fit the memories."""
    assignment = first_able(problem)
    time = predict(problem, assignment)
    if time == INFINITE:
        return None
    return Outcome(assignment, time, lower_bound(problem), proved=False, baseline=time)


def lower_bound(problem: Problem) -> float:
    """Return a time below which no assignment can come."""
    return max(_paths(problem), _shares(problem))


def _better(a: Outcome | None, b: Outcome | None) -> Outcome | None:
    if a is None or b is None:
        return a or b
    if b.time < a.time:
        return replace(b, proved=b.proved and a.proved)
    return replace(a, proved=a.proved and b.proved)


def _solve(
    problem: Problem, starts: tuple[Sequence[int], ...], budget: tuple[int, int]
) -> Outcome | None:
    best: tuple[float, tuple[int, ...]] = (INFINITE, ())
    simple = [first_able(problem), *starts, *_all_on_one(problem), *_beam(problem)]
    for assignment in simple:
        best = min(best, (predict(problem, assignment), tuple(assignment)), key=lambda x: x[0])
    bound = lower_bound(problem)
    search = _Exact(problem, best, budget[0])
    proved = len(problem.tasks) <= _EXACT_TASKS and search.run()
    best = search.best
    if not proved:
        best = _improve(problem, best, budget[1])
    if best[0] == INFINITE:
        return None
    is_tight = best[0] <= bound * (1 + 1e-12)
    return Outcome(best[1], best[0], best[0] if proved else bound, proved or is_tight)


def _all_on_one(problem: Problem) -> list[tuple[int, ...]]:
    """Return for each device the assignment that gives it all it can run."""
    first = first_able(problem)
    return [
        tuple(d if t.costs[d] is not None else f for t, f in zip(problem.tasks, first, strict=True))
        for d in problem.devices
    ]


# --------------------------------------------------------------------------------- exact


class _Exact:
    """Depth first, with the rest bounded by its critical path and by the work that is left."""

    def __init__(self, problem: Problem, best: tuple[float, tuple[int, ...]], steps: int) -> None:
        self.problem = problem
        self.best = best
        self.steps = steps
        self.tails = _tails(problem)
        self.weights = _weights(problem)
        self.rest = _rest(problem, self.weights)

    def run(self) -> bool:
        """Search; return whether the best is proved."""
        order: list[tuple[int, State, tuple[int, ...]]] = [(0, start(self.problem), ())]
        count = len(self.problem.tasks)
        while order:
            index, state, chosen = order.pop()
            if index == count:
                time = finish(self.problem, state.copy())
                if time < self.best[0] and fits(self.problem, chosen):
                    self.best = (time, chosen)
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


def _tails(problem: Problem) -> list[float]:
    """Return for each task the least time from its end to the end of everything."""
    least = [_least_cost(t) for t in problem.tasks]
    tails = [0.0] * len(problem.tasks)
    for index in range(len(problem.tasks) - 1, -1, -1):
        for value in problem.tasks[index].reads:
            maker = problem.items[value].maker
            if 0 <= maker < index:
                tails[maker] = max(tails[maker], least[index] + tails[index])
    return tails


def _least_cost(task: Task) -> float:
    return min((c for c in task.costs if c is not None), default=0.0) * task.weight


def _rest(problem: Problem, weights: Sequence[float]) -> list[float]:
    """Return for each task the weighted work from it on."""
    rest = [0.0] * (len(problem.tasks) + 1)
    for index in range(len(problem.tasks) - 1, -1, -1):
        rest[index] = rest[index + 1] + _weighted(problem, problem.tasks[index], weights)[0]
    return rest


def _weighted(problem: Problem, task: Task, weights: Sequence[float]) -> tuple[float, int]:
    found = [
        (weights[problem.hardware[d]] * c * task.weight, d)
        for d, c in enumerate(task.costs)
        if c is not None
    ]
    return min(found, default=(0.0, 0))


# --------------------------------------------------------------------------------- bounds


def _paths(problem: Problem) -> float:
    """Return the longest chain, each task ending as early as any choice of its operands allows."""
    ends: list[list[float]] = []
    most = 0.0
    least = min((1.0, *(t.weight for t in problem.tasks)))  # a copy in a branch may not be made
    arrival: dict[int, list[float]] = {
        i: _spread(problem, i, [0.0 if d == item.home else INFINITE for d in problem.devices], least)
        for i, item in enumerate(problem.items)
        if item.maker < 0
    }
    for task in problem.tasks:
        end: list[float] = []
        for d in problem.devices:
            cost = task.costs[d]
            begin = max((arrival[v][d] for v in task.reads if v in arrival), default=0.0)
            end.append(INFINITE if cost is None else begin + cost * task.weight)
        ends.append(end)
        most = max(most, min(end))
        for value in task.makes:
            arrival[value] = _spread(problem, value, end, least)
    for value, device in problem.ends:
        if value in arrival:
            most = max(most, arrival[value][device])
    return most


def _spread(problem: Problem, value: int, ends: list[float], least: float) -> list[float]:
    """Return when a value can be on each device, if it is made on some device by then."""
    size = problem.items[value].bytes
    found = list(ends)
    for a in problem.devices:
        if ends[a] == INFINITE:
            continue
        for b in problem.devices:
            route = problem.routes[a][b]
            if route is not None:
                hops = sum(latency + size * per for _, _, latency, per in route)
                time = ends[a] + hops * least
                found[b] = min(found[b], time)
    return found


def _weights(problem: Problem) -> list[float]:
    """Return weights of hardware that make the bound of shared work high; they sum to one."""
    count = max(problem.hardware) + 1
    weights = [1.0 / count] * count
    best, kept = -1.0, weights
    for step in range(60):
        load = [0.0] * count
        total = 0.0
        for task in problem.tasks:
            value, device = _weighted(problem, task, weights)
            total += value
            cost = task.costs[device]
            load[problem.hardware[device]] += (cost or 0.0) * task.weight
        if total > best:
            best, kept = total, weights
        most = max(load)
        if most <= 0:
            break
        rate = 0.5 / (step + 1)
        raised = [w * (1 + rate * x / most) for w, x in zip(weights, load, strict=True)]
        scale = sum(raised)
        weights = [w / scale for w in raised]
    return kept


def _shares(problem: Problem) -> float:
    weights = _weights(problem)
    return sum(_weighted(problem, t, weights)[0] for t in problem.tasks)


# --------------------------------------------------------------------------------- search


def _beam(problem: Problem) -> list[tuple[int, ...]]:
    """Return the assignments of a beam search: the most promising prefixes are kept."""
    if len(problem.tasks) > _BEAM_TASKS:
        return [_greedy(problem)]
    tails = _tails(problem)
    beam: list[tuple[float, tuple[int, ...], State]] = [(0.0, (), start(problem))]
    for index in range(len(problem.tasks)):
        grown: list[tuple[float, tuple[int, ...], State]] = []
        for _, chosen, state in beam:
            for device in problem.devices:
                if problem.tasks[index].costs[device] is None:
                    continue
                after = state.copy()
                end = advance(problem, after, index, device)
                if end < INFINITE:
                    spread = sum(after.hardware) / len(after.hardware)
                    score = max(end + tails[index], after.end) + 0.1 * spread
                    grown.append((score, (*chosen, device), after))
        grown.sort(key=lambda g: (g[0], g[1]))
        beam = grown[:_BEAM]
    return [chosen for _, chosen, _ in beam]


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
                begin = max(begin, _arrival(problem, state, value, device))
            options.append((begin + cost * task.weight, device))
        device = min(options, default=(0.0, 0))[1]
        advance(problem, state, index, device)
        chosen.append(device)
    return tuple(chosen)


def _arrival(problem: Problem, state: State, value: int, device: int) -> float:
    """Return when a value would be on a device, if no engine had anything else to do."""
    found = state.ready.get((value, device))
    if found is not None:
        return found
    home = state.home[value]
    route = problem.routes[home][device]
    if route is None:
        return INFINITE
    size = problem.items[value].bytes
    return state.ready[value, home] + sum(latency + size * per for _, _, latency, per in route)


def _improve(
    problem: Problem, best: tuple[float, tuple[int, ...]], steps: int
) -> tuple[float, tuple[int, ...]]:
    """Move runs of tasks to other devices while that helps: long runs first, then single tasks."""
    time, chosen = best
    count = len(problem.tasks)
    if not chosen:
        time, chosen = INFINITE, first_able(problem)
    changed = True
    while changed and steps > 0:
        changed = False
        length = max(1, count // 4)
        while length >= 1 and steps > 0:
            for begin in range(0, count, max(1, length // 2)):
                for device in problem.devices:
                    tried = tuple(
                        device
                        if begin <= i < begin + length and problem.tasks[i].costs[device] is not None
                        else d
                        for i, d in enumerate(chosen)
                    )
                    if tried == chosen:
                        continue
                    steps -= count
                    found = predict(problem, tried, time * (1 - 1e-12))
                    if found < INFINITE:
                        time, chosen, changed = found, tried, True
                if steps <= 0:
                    break
            length //= 2
    return time, chosen


# --------------------------------------------------------------------------------- candidates


def _disjoint(candidates: Sequence[Candidate]) -> bool:
    seen: set[int] = set()
    for c in candidates:
        if seen & c.tasks:
            return False
        seen |= c.tasks
    return True


def _is_convex(problem: Problem, tasks: frozenset[int]) -> bool:
    """Whether no way leads out of a set of tasks and back into it."""
    outside: set[int] = set()
    for index, task in enumerate(problem.tasks):
        makers = {problem.items[v].maker for v in task.reads}
        if index in tasks:
            if makers & outside:
                return False
        elif makers & (tasks | outside):
            outside.add(index)
    return True


def _with(
    problem: Problem, used: tuple[Candidate, ...], budget: tuple[int, int]
) -> Outcome | None:
    """Solve a problem in which candidates are used: each is one task."""
    contracted, members = contract(problem, used)
    if contracted is None:
        return None
    found = _solve(contracted, (), budget)
    if found is None:
        return None
    assignment = [0] * len(problem.tasks)
    for device, group in zip(found.assignment, members, strict=True):
        for index in group:
            assignment[index] = device
    return replace(found, assignment=tuple(assignment), used=used)


def contract(
    problem: Problem, used: Sequence[Candidate]
) -> tuple[Problem | None, list[tuple[int, ...]]]:
    """Return the problem with each candidate as one task, and the old tasks of each new one.

    None where the candidates cannot be run one after the other.
    """
    owner = {i: c for c in used for i in c.tasks}
    units: list[tuple[int, ...]] = []
    seen: set[int] = set()
    for index in range(len(problem.tasks)):
        if index not in seen:
            group = tuple(sorted(owner[index].tasks)) if index in owner else (index,)
            seen.update(group)
            units.append(group)
    order = _ordered(problem, units)
    if order is None:
        return None, []
    renamed = {old: new for new, group in enumerate(order) for old in group}
    items = tuple(
        replace(item, maker=renamed[item.maker]) if item.maker >= 0 else item
        for item in problem.items
    )
    tasks: list[Task] = []
    for group in order:
        if len(group) == 1 and group[0] not in owner:
            tasks.append(problem.tasks[group[0]])
            continue
        candidate = owner[group[0]]
        makes = tuple(v for i in group for v in problem.tasks[i].makes)
        reads = dict.fromkeys(v for i in group for v in problem.tasks[i].reads)
        costs = tuple(candidate.cost if d == candidate.device else None for d in problem.devices)
        outer = tuple(v for v in reads if v not in set(makes))
        tasks.append(Task(costs, outer, makes, problem.tasks[group[0]].weight))
    return replace(problem, tasks=tuple(tasks), items=items), order


def _ordered(problem: Problem, units: list[tuple[int, ...]]) -> list[tuple[int, ...]] | None:
    """Return the units in an order in which each comes behind what it reads."""
    unit_of = {i: u for u, group in enumerate(units) for i in group}
    waits: list[set[int]] = []
    for u, group in enumerate(units):
        makers = {problem.items[v].maker for i in group for v in problem.tasks[i].reads}
        waits.append({unit_of[m] for m in makers if m >= 0} - {u})
    done: set[int] = set()
    order: list[tuple[int, ...]] = []
    pending = list(range(len(units)))
    while pending:
        ready = next((u for u in pending if waits[u] <= done), None)
        if ready is None:
            return None
        pending.remove(ready)
        done.add(ready)
        order.append(units[ready])
    return order
