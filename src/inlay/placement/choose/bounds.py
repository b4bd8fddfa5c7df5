"""Lower bounds on the makespan of an assignment.

(1) No task ends before its operands have been made somewhere and brought, whatever else happens:
`paths`. (2) The hardware has to do all the work: for any weights of the pieces of hardware that sum to
one, the time is at least the sum over tasks of the least weighted cost: `weights_of` improves the
weights by subgradient steps. (3) With copies, and engines for hardware: `relaxation.py`. (4) Where devices
take sets of tasks as one, the cheapest way to cut a chain into parts that something runs: `cheapest_cut`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inlay.placement.choose.schedule import INFINITE, Problem, Task
from inlay.placement.choose.transfers import route_ns, times_copied


def lower_bound(problem: Problem) -> float:
    """Return a lower bound on the makespan, copies that compete left aside."""
    return max(paths(problem), _shares(problem))


def tails_of(problem: Problem) -> list[float]:
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


def rest_of(problem: Problem, weights: Sequence[float]) -> list[float]:
    """Return for each task the weighted work from it on."""
    rest = [0.0] * (len(problem.tasks) + 1)
    for index in range(len(problem.tasks) - 1, -1, -1):
        rest[index] = rest[index + 1] + _weighted(problem, problem.tasks[index], weights)[0]
    return rest


def _weighted(problem: Problem, task: Task, weights: Sequence[float]) -> tuple[float, int]:
    found = [
        (weights[problem.hardware[d]] * c * task.weight, d) for d, c in enumerate(task.costs) if c is not None
    ]
    return min(found, default=(0.0, 0))


def paths(problem: Problem) -> float:
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


def cheapest_cut(problem: Problem, sets: Mapping[frozenset[int], float]) -> float:
    """Return a lower bound on the makespan with any of some convex sets of tasks as one.

    Of a chain a convex set takes neighbors, and what takes one part waits for what takes the part before. So
    no plan is faster than the cheapest way to cut the chain that takes longest; copies are left aside.

    Args:
        problem: the tasks.
        sets: of tasks, with the least that one of them takes.
    """
    alone = [_least_cost(t) if any(c is not None for c in t.costs) else INFINITE for t in problem.tasks]
    parts = {tasks: cost * problem.tasks[min(tasks)].weight for tasks, cost in sets.items()}
    least = list(alone)
    for tasks, cost in parts.items():
        for t in tasks:
            least[t] = min(least[t], cost / len(tasks))
    at = {task: n for n, task in enumerate(_longest_chain(problem, least))}
    cut = {(n, n): alone[task] for task, n in at.items()}
    for tasks, cost in parts.items():
        inside = [at[t] for t in tasks if t in at]
        if inside:
            ends = min(inside), max(inside)
            cut[ends] = min(cost, cut.get(ends, INFINITE))
    until = [0.0, *[INFINITE] * len(at)]
    for (first, last), cost in sorted(cut.items()):
        until[last + 1] = min(until[last + 1], until[first] + cost)
    return until[-1]


def _longest_chain(problem: Problem, lengths: Sequence[float]) -> list[int]:
    """Return the tasks of the chain with the greatest sum of lengths, in order."""
    until, before = list(lengths), [-1] * len(lengths)
    for index, task in enumerate(problem.tasks):
        for value in task.reads:
            maker = problem.items[value].maker
            if 0 <= maker < index and until[maker] + lengths[index] > until[index]:
                until[index], before[index] = until[maker] + lengths[index], maker
    chain: list[int] = []
    last = max(range(len(until)), key=until.__getitem__, default=-1)
    while last >= 0:
        chain.append(last)
        last = before[last]
    return chain[::-1]


def _spread(problem: Problem, value: int, ends: list[float], least: float) -> list[float]:
    """Return when a value can be on each device, if it is made on some device by then."""
    item = problem.items[value]
    times = times_copied(item.often, least)
    found = list(ends)
    for a in problem.devices:
        if ends[a] == INFINITE:
            continue
        for b in problem.devices:
            route = problem.routes[a][b]
            if route is not None:
                found[b] = min(found[b], ends[a] + route_ns(route, item.bytes, times))
    return found


def weights_of(problem: Problem) -> list[float]:
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
    weights = weights_of(problem)
    return sum(_weighted(problem, t, weights)[0] for t in problem.tasks)
