"""Lower bounds on the makespan of an assignment.

(1) No task ends before its operands have been made somewhere and brought, whatever else happens:
`paths`. (2) The hardware has to do all the work: for any weights of the pieces of hardware that sum to
one, the time is at least the sum over tasks of the least weighted cost: `weights_of` improves the
weights by subgradient steps. (3) With copies, and engines for hardware: `relaxation.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

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
