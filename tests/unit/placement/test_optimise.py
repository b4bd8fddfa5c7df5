"""The optimiser: as good as trying everything on small problems, with a true bound on large ones."""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import replace

import pytest

from inlay.placement.choose.bounds import cheapest_cut, lower_bound
from inlay.placement.choose.capacity import fits, peaks, possible, predict
from inlay.placement.choose.optimise import TaskSet, contract, is_convex, optimise
from inlay.placement.choose.relaxation import relax
from inlay.placement.choose.schedule import INFINITE, Item, Problem, Task
from inlay.placement.choose.search import first_fit
from inlay.placement.choose.transfers import Hop


def problem(
    rng: random.Random,
    size: int,
    devices: int,
    *,
    slow: float = 1.0,
    holes: float = 0.2,
    capacity: float | None = None,
) -> Problem:
    """Return a random series-parallel problem; `slow` makes copies expensive."""
    reads: dict[int, set[int]] = {}
    for t in range(size):  # grow: in series behind, or in parallel to, what is there
        reads[t] = set()
        if t and rng.random() < 0.8:
            reads[t].add(rng.randrange(max(0, t - 4), t))
        if t and rng.random() < 0.4:
            reads[t].add(rng.randrange(t))
    items = [Item(rng.choice((64, 4096, 65536)), -1, 0)]
    tasks: list[Task] = []
    for t in range(size):
        values = tuple(sorted(r + 1 for r in reads[t])) or (0,)
        costs = [
            None if d and rng.random() < holes else float(rng.choice((100, 1000, 5000, 20000)))
            for d in range(devices)
        ]
        tasks.append(Task(tuple(costs), values, (t + 1,)))
        items.append(Item(rng.choice((64, 4096, 65536)), t))
    read = {v for t in tasks for v in t.reads}
    hop = lambda b: (Hop(b, 0, 200.0 * slow, 0.05 * slow),)  # noqa: E731
    routes = tuple(
        tuple(() if a == b else hop(b) if a == 0 or b == 0 else (*hop(0), *hop(b)) for b in range(devices))
        for a in range(devices)
    )
    outputs = tuple((i, 0) for i in range(1, size + 1) if i not in read)
    hardware = tuple(min(d, 1) if rng.random() < 0.2 else d for d in range(devices))
    return Problem(
        tuple(tasks),
        tuple(items),
        hardware,
        routes,
        (-1,),
        outputs,
        tuple((d,) for d in range(devices)),
        (None,) + (capacity,) * (devices - 1),
    )


def brute(p: Problem) -> float:
    return min((predict(p, a) for a in itertools.product(p.devices, repeat=len(p.tasks))), default=INFINITE)


@pytest.mark.parametrize("seed", range(12))
def test_small_problems_are_solved(seed):
    rng = random.Random(seed)
    p = problem(rng, rng.randint(2, 7), 3, slow=rng.choice((0.1, 1, 10)))
    found = optimise(p)
    assert found is not None
    assert found.proved
    assert found.time == pytest.approx(brute(p))
    assert predict(p, found.assignment) == found.time
    assert lower_bound(p) <= found.time * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_twelve_operations_on_three_devices(seed):
    p = problem(random.Random(100 + seed), 12, 3)
    found = optimise(p)
    assert found is not None
    assert found.time == pytest.approx(brute(p))


@pytest.mark.parametrize("seed", range(8))
def test_capacities_are_kept(seed):
    rng = random.Random(seed)
    p = problem(rng, 6, 3, slow=0.01, capacity=70_000)
    found, best = optimise(p), brute(p)
    if best == INFINITE:
        assert found is None
        return
    assert found is not None
    assert found.time == pytest.approx(best)
    assert fits(p, found.assignment)
    assert all(x <= 70_000 for x in peaks(p, found.assignment)[1:])


def test_only_devices_that_cannot_hold_a_task_are_left_out():
    """What fits is the same with and without them: several memories, and values that leave, included."""
    rng, left_out, without = random.Random(5), 0, 0
    for _ in range(40):
        p = problem(rng, rng.randint(2, 4), 3, capacity=rng.choice((5_000, 60_000, 140_000)))
        leaves = rng.random() < 0.5
        shapes = (((0,), (1,), (2,)), ((0,), (1, 2), (2,)), ((0,), (2, 1), (1, 0)))
        p = replace(p, memory=rng.choice(shapes), leaves=(-1.0, 0.01, 0.01), moving=leaves)
        if rng.random() < 0.3:  # nowhere is there all the room that is asked for
            p = replace(p, capacity=(70_000.0, *p.capacity[1:]))
        found = possible(p)
        for chosen in itertools.product(p.devices, repeat=len(p.tasks)):
            time = predict(p, chosen)
            assert time == (INFINITE if found is None else predict(found, chosen)), f"{p}: {chosen}"
        without += found is None
        left_out += found is not None and found is not p
    assert left_out > 5
    assert without > 0


@pytest.mark.parametrize("slow", [0.2, 5.0])
def test_large_problems_have_a_gap_and_beat_the_first_device(slow):
    p = problem(random.Random(7), 120, 3, slow=slow)
    found = optimise(p, search_steps=60_000, exact_steps=5_000)
    assert found is not None
    first = predict(p, first_fit(p))
    assert found.time <= first == found.baseline
    assert found.bound <= found.time
    assert found.gap >= 0
    assert optimise(p, search_steps=60_000, exact_steps=5_000) == found


def test_where_copies_are_expensive_the_first_device_that_can_is_poor():
    """Operations that only an accelerator has in between make greedy ping-pong."""
    tasks, items = [], [Item(65536.0, -1, 0)]
    for t in range(40):
        fast = t % 4 == 0
        tasks.append(Task((2000.0 if fast else 1000.0, 200.0 if fast else None), (t,), (t + 1,)))
        items.append(Item(65536.0, t))
    hop = lambda b: (Hop(b, 0, 1000.0, 0.1),)  # noqa: E731
    routes = (((), hop(1)), (hop(0), ()))
    p = Problem(tuple(tasks), tuple(items), (0, 1), routes, (-1,), ((40, 0),), ((0,), (1,)), (None, None))
    turned = Problem(  # the accelerator comes first, so that "first device that can" takes it
        tuple(Task(tuple(reversed(t.costs)), t.reads, t.makes) for t in p.tasks),
        tuple(Item(i.bytes, i.maker, 1) for i in p.items),
        (0, 1),
        routes,
        (-1,),
        ((40, 1),),
        ((0,), (1,)),
        (None, None),
    )
    found = optimise(turned)
    assert found is not None
    assert found.time <= 0.9 * found.baseline


@pytest.mark.slow
@pytest.mark.parametrize("capacity", [None, 120_000, 500_000])
def test_five_hundred_operations_in_ten_seconds(capacity):
    p = problem(random.Random(3), 500, 3, slow=2, capacity=capacity)
    begin = time.process_time()
    found = optimise(p)
    assert found is not None
    assert time.process_time() - begin < 10
    assert found.bound > 0
    assert found.time <= found.baseline
    assert fits(p, found.assignment)
    assert found.gap < (1.5 if capacity is None else 5)


@pytest.mark.sample(12)
@pytest.mark.parametrize("seed", range(40))
def test_relaxing_a_problem_bounds_it(seed):
    rng = random.Random(seed)
    capacity = rng.choice((None, 70_000, 140_000))
    p = problem(rng, rng.randint(2, 6), 3, slow=rng.choice((0.1, 1, 10)), capacity=capacity)
    found = relax(p, predict(p, first_fit(p)))
    assert 0 < found.bound <= brute(p)
    for regrets, task in zip(found.regrets, p.tasks, strict=True):
        assert min(regrets) == 0
        assert all(c is not None or r > 1e9 for r, c in zip(regrets, task.costs, strict=True))


def test_copies_that_compete_are_in_the_bound():
    """One engine brings forty inputs: no hardware is busy for as long, and no path is as long."""
    items = [*(Item(1000, -1, 0) for _ in range(40)), *(Item(8, t) for t in range(40))]
    tasks = tuple(Task((None, 10.0), (t,), (40 + t,)) for t in range(40))
    routes = (((), (Hop(1, 0, 0.0, 1.0),)), ((Hop(0, 0, 0.0, 1.0),), ()))
    p = Problem(tasks, tuple(items), (0, 1), routes, (-1,), ((79, 1),), ((0,), (1,)), (None, None))
    assert lower_bound(p) < 2_000
    assert 37_000 < relax(p, predict(p, first_fit(p))).bound <= predict(p, (1,) * 40)


def test_small_memories_raise_the_bound():
    """What is kept to the end is fast to make on a device that can hold a tenth of it."""
    items = [Item(8, -1, 0), *(Item(1000, t) for t in range(40))]
    tasks = tuple(Task((1000.0, 10.0), (0,), (1 + t,)) for t in range(40))
    routes = (((), ()), ((), ()))
    ends = tuple((1 + t, 0) for t in range(40))
    p = Problem(tasks, tuple(items), (0, 1), routes, (), ends, ((0,), (1,)), (None, None))
    small = replace(p, capacity=(None, 5000.0))
    assert relax(p, 40_000.0).bound < 1_000
    assert 10_000 < relax(small, 40_000.0).bound <= predict(small, (0,) * 36 + (1,) * 4)


def test_a_set_of_tasks_can_be_one_candidate():
    items = (Item(64, -1, 0), Item(64, 0), Item(64, 1), Item(64, 2))
    tasks = tuple(Task((100.0, 90.0), (i,), (i + 1,)) for i in range(3))
    routes = (((), (Hop(1, 0, 10.0, 0.0),)), ((Hop(0, 0, 10.0, 0.0),), ()))
    p = Problem(tasks, items, (0, 1), routes, (-1,), ((3, 0),), ((0,), (1,)), (None, None))
    alone = optimise(p)
    together = optimise(p, [TaskSet(frozenset({0, 1, 2}), 1, 50.0, "all three")])
    assert alone is not None
    assert together is not None
    assert together.time == 70.0 < alone.time
    assert together.assignment == (1, 1, 1)
    assert together.used[0].name == "all three"
    kept = optimise(p, [TaskSet(frozenset({0, 2}), 1, 1.0, "not convex")])
    assert kept is not None
    assert kept.used == ()
    contracted, members = contract(p, [TaskSet(frozenset({0, 1}), 1, 50.0)])
    assert contracted is not None
    assert members == [(0, 1), (2,)]


def drawn_sets(rng: random.Random, p: Problem) -> list[TaskSet]:
    """Return sets of neighbors, each on one or two devices, for less than their tasks take together."""
    found: list[TaskSet] = []
    while len(found) < 9:
        first, length = rng.randrange(len(p.tasks)), rng.randint(1, 3)
        tasks = frozenset(range(first, min(first + length, len(p.tasks))))
        alone = sum(t.costs[0] or 0.0 for t in (p.tasks[i] for i in tasks))
        for d in rng.sample((1, 2), rng.randint(1, 2)):
            found.append(TaskSet(tasks, d, alone * rng.uniform(0.2, 1.1), f"set{len(found)}"))
    return found


def brute_with(p: Problem, sets: list[TaskSet]) -> float:
    """Return the time of the best plan with any sets that do not overlap."""
    best = brute(p)
    usable = [s for s in sets if is_convex(p, s.tasks)]
    for n in range(1, 4):
        for chosen in itertools.combinations(usable, n):
            if len(frozenset().union(*(s.tasks for s in chosen))) == sum(len(s.tasks) for s in chosen):
                contracted, _ = contract(p, chosen)
                if contracted is not None:
                    best = min(best, brute(contracted))
    return best


@pytest.mark.parametrize("seed", range(12))
def test_many_candidates_are_chosen_within_a_twentieth_of_the_best(seed):
    rng = random.Random(seed)
    p = problem(rng, rng.randint(4, 5), 3, slow=rng.choice((0.1, 1)))
    sets = drawn_sets(rng, p)
    found = optimise(p, sets)
    assert found is not None
    assert found.time <= 1.05 * brute_with(p, sets)


def test_equal_devices_share_candidates_that_are_many():
    items = (Item(64, -1, 0), *(Item(64, t) for t in range(8)))
    tasks = tuple(Task((1000.0, None, None), (0,), (t + 1,)) for t in range(8))
    routes = (((), (), ()),) * 3
    ends = tuple((t + 1, 0) for t in range(8))
    p = Problem(tasks, items, (0, 1, 2), routes, (), ends, ((0,), (1,), (2,)), (None,) * 3)
    sets = [TaskSet(frozenset({t}), d, 100.0, "one") for t in range(8) for d in (1, 2)]
    found = optimise(p, sets)
    assert found is not None
    assert found.time == 400.0
    assert sorted(c.device for c in found.used) == [1] * 4 + [2] * 4


def test_devices_that_share_hardware_take_turns():
    items = (Item(64, -1, 0), Item(64, 0), Item(64, 1))
    tasks = tuple(Task((None, 100.0, 100.0), (0,), (i + 1,)) for i in range(2))
    routes = (((), (), ()), ((), (), ()), ((), (), ()))
    apart = Problem(tasks, items, (0, 1, 2), routes, (), (), ((0,), (1,), (2,)), (None,) * 3)
    shared = Problem(tasks, items, (0, 1, 1), routes, (), (), ((0,), (1,), (2,)), (None,) * 3)
    one, other = optimise(apart), optimise(shared)
    assert one is not None
    assert other is not None
    assert (one.time, other.time) == (100.0, 200.0)


def test_looking_at_memories_is_paid_for(monkeypatch):
    """Where no plan fits, branch and bound does not look at more plans than its steps allow."""
    looks = []

    def look(p, assignment):
        looks.append(assignment)
        return False

    monkeypatch.setattr("inlay.placement.choose.optimise.fits", look)
    p = problem(random.Random(1), 20, 3, slow=0.01, capacity=70_000)
    optimise(p, search_steps=1_000, exact_steps=2_000)
    assert 0 < len(looks) <= 2_000 // 20


@pytest.mark.parametrize("seed", range(12))
def test_no_plan_with_sets_is_faster_than_the_cheapest_cut_of_a_chain(seed):
    rng = random.Random(seed)
    p = problem(rng, rng.randint(4, 5), 3, slow=rng.choice((0.1, 1)))
    sets = drawn_sets(rng, p)
    least = {s.tasks: s.cost for s in sorted(sets, key=lambda s: -s.cost) if is_convex(p, s.tasks)}
    best = brute_with(p, sets)
    assert cheapest_cut(p, least) <= best * (1 + 1e-9)
    found = optimise(p, sets)
    assert found is not None
    assert found.bound <= best * (1 + 1e-9)
    assert not found.proved or found.time <= best * (1 + 1e-9)
