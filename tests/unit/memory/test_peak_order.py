"""Orders of tasks that need little memory, beside all orders of small problems."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.memory.peak_order import Problem, Task, find_order, peak_of
from tests.examples import examples


def problem(sizes: list[int], reads: list[list[int]], kept: set[int]) -> Problem:
    """Return tasks each of which makes the value of its number."""
    tasks = [
        Task(frozenset(read), tuple(read), n, lambda _, size=sizes[n]: size) for n, read in enumerate(reads)
    ]
    return Problem(tasks, sizes, frozenset(kept))


def plain_peak(p: Problem, order: tuple[int, ...]) -> int:
    """Return the peak of an order, counted anew at each task."""
    place = {task: at for at, task in enumerate(order)}
    most = 0
    for at in range(len(order)):
        live = 0
        for value, size in enumerate(p.sizes):
            readers = [place[n] for n, t in enumerate(p.tasks) if value in t.reads]
            end = len(order) if value in p.kept else max([place[value], *readers])
            live += size * (place[value] <= at <= end)
        most = max(most, live)
    return most


def is_legal(p: Problem, order: tuple[int, ...]) -> bool:
    place = {task: at for at, task in enumerate(order)}
    return all(place[m] < place[n] for n, t in enumerate(p.tasks) for m in t.needs)


@st.composite
def problems(draw) -> Problem:
    count = draw(st.integers(1, 6))
    sizes = [draw(st.integers(0, 9)) for _ in range(count)]
    reads = [sorted(draw(st.sets(st.integers(0, n - 1), max_size=3))) if n else [] for n in range(count)]
    kept = draw(st.sets(st.integers(0, count - 1), max_size=2))
    return problem(sizes, reads, kept)


@settings(max_examples=examples(60))
@given(problems())
def test_no_order_needs_less(p):
    found = tuple(find_order(p, 100_000))
    assert sorted(found) == list(range(len(p.tasks)))
    assert is_legal(p, found)
    best = min(plain_peak(p, order) for order in permutations(range(len(p.tasks))) if is_legal(p, order))
    assert plain_peak(p, found) == best == peak_of(p, found)


@settings(max_examples=examples(60))
@given(problems(), st.integers(0, 40))
def test_few_steps_are_never_worse_than_none(p, steps):
    found = tuple(find_order(p, steps))
    assert is_legal(p, found)
    assert plain_peak(p, found) <= plain_peak(p, tuple(range(len(p.tasks))))


def test_branches_one_after_the_other():
    """Wide results that become narrow: first all that are wide were made, then all that are narrow."""
    count = 40
    reads = [[] for _ in range(count)] + [[n] for n in range(count)] + [list(range(count, 2 * count))]
    p = problem([100] * count + [1] * count + [1], reads, {2 * count})
    found = find_order(p, 20_000)
    assert peak_of(p, range(2 * count + 1)) == 100 * count + 1
    assert peak_of(p, found) == 100 + count  # the last wide one, and all narrow ones
    assert find_order(p, 20_000) == found
