"""Finds an order of tasks that needs little memory: which independent results are computed when.

Tasks read values and make values; a value takes bytes from the task that makes it until the last one that
reads it. The bytes in use between two tasks follow from the *set* of tasks that are done, so an order is
a path through sets that are closed under what tasks need, and its peak is the largest number on the way.

The search for a path of least peak takes the set with the least peak so far first (a shortest path whose
length is a maximum), so that the first path that is complete is the best one. Two things keep it small:

* A task that takes no more bytes than what a path has had already, and leaves no more in use than there
  were before, is done at once: every order can be changed to do it there, and none becomes larger.
* The effort is counted in steps (tasks that are tried). When half of it is gone, a *beam* goes on: of
  the sets of each size, those with the least peak and then the least in use are kept.

The problem is NP-hard even for trees of unit sizes with shared results (R. Sethi, "Complete register
allocation problems", 1975), so there is a number of steps after which nothing better may be known. For
trees J. W. H. Liu's merging of hills and valleys (1987) is exact and fast; neural networks are small
enough that paths through sets with the rule above find the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

BEAM = 24
"""How many sets of one size the beam keeps at most; fewer where there are not steps for so many."""


Extra = Callable[[frozenset[int]], int]
"""The most bytes that a task takes while it runs, given the values that nobody reads after it."""


@dataclass(frozen=True, slots=True)
class Task:
    """A step of a program.

    Attributes:
        needs: numbers of the tasks that come before it.
        reads: numbers of the values that it reads.
        makes: the value that it makes; None for none.
        extra: what it takes beside what is in use before it.
    """

    needs: frozenset[int]
    reads: tuple[int, ...]
    makes: int | None
    extra: Extra


@dataclass(frozen=True, slots=True)
class Problem:
    """Tasks in the order in which they are given.

    Attributes:
        tasks: all of them; each needs earlier ones only.
        sizes: bytes of each value.
        kept: values that are in use after the last task.
    """

    tasks: Sequence[Task]
    sizes: Sequence[int]
    kept: frozenset[int]


class _State:
    """What is known of a set of tasks: peak and bytes in use, and how it was reached."""

    __slots__ = ("before", "done", "live", "peak", "task")

    def __init__(self, done: int, peak: int, live: int, before: _State | None, task: int) -> None:
        self.done = done
        self.peak = peak
        self.live = live
        self.before = before
        self.task = task

    def order(self) -> list[int]:
        """Return the tasks in the order in which they were done."""
        found: list[int] = []
        state = self
        while state.before is not None:
            found.append(state.task)
            state = state.before
        return found[::-1]


def peak_of(problem: Problem, order: Sequence[int]) -> int:
    """Return the bytes that an order needs at once; what is there before the first task included."""
    search = _Search(problem, 0)
    state = search.start()
    for task in order:
        state = search.after(state, task)
    return state.peak


def find_order(problem: Problem, steps: int) -> list[int]:
    """Return an order of small peak: the best one where the steps are enough; never worse than given.

    Args:
        problem: the tasks.
        steps: how many tasks may be tried.
    """
    given = list(range(len(problem.tasks)))
    search = _Search(problem, steps // 2)
    found = search.exact()
    if found is None:
        search.steps = steps - steps // 2
        found = search.beam()
    return given if found is None or peak_of(problem, given) <= found.peak else found.order()


class _Search:
    """A search for one problem, with so many steps left."""

    def __init__(self, problem: Problem, steps: int) -> None:
        self.steps = steps
        self._tasks = problem.tasks
        self._sizes = problem.sizes
        self._needs = [_mask(t.needs) for t in problem.tasks]
        self._followers: list[list[int]] = [[] for _ in problem.tasks]
        readers = [0] * len(problem.sizes)
        for number, task in enumerate(problem.tasks):
            for needed in task.needs:
                self._followers[needed].append(number)
            for value in task.reads:
                readers[value] |= 1 << number
        self._readers = [-1 if v in problem.kept else mask for v, mask in enumerate(readers)]
        # What a task leaves in use, if it is the last one that reads what it reads.
        self._least_gain = [
            (0 if t.makes is None else self._sizes[t.makes]) - sum(self._sizes[v] for v in t.reads)
            for t in problem.tasks
        ]
        made = {t.makes for t in problem.tasks}
        self._live_first = sum(size for v, size in enumerate(problem.sizes) if v not in made)
        self._all = (1 << len(problem.tasks)) - 1

    def start(self) -> _State:
        """Return the state in which nothing is done."""
        return _State(0, self._live_first, self._live_first, None, -1)

    def after(self, state: _State, number: int) -> _State:
        """Return the state after one more task."""
        self.steps -= 1
        task = self._tasks[number]
        done = state.done | 1 << number
        dying = frozenset(v for v in task.reads if self._readers[v] >= 0 and not self._readers[v] & ~done)
        during = state.live + task.extra(dying)
        live = state.live - sum(self._sizes[v] for v in dying)
        if task.makes is not None and self._readers[task.makes]:
            live += self._sizes[task.makes]
        return _State(done, max(state.peak, during), live, state, number)

    def _ready(self, done: int) -> list[int]:
        return [n for n in self._candidates(done) if not self._needs[n] & ~done]

    def _candidates(self, done: int) -> list[int]:
        rest = self._all & ~done
        found: list[int] = []
        while rest:
            low = rest & -rest
            found.append(low.bit_length() - 1)
            rest ^= low
        return found

    def _settled(self, state: _State, ready: list[int]) -> tuple[_State, list[int]]:
        """Do all that costs nothing; return the state then, and what is ready in it."""
        progress = True
        while progress and self.steps > 0:
            progress = False
            for number in ready:
                if self._least_gain[number] > 0:
                    continue
                then = self.after(state, number)
                if then.peak <= state.peak and then.live <= state.live:
                    more = [f for f in self._followers[number] if not self._needs[f] & ~then.done]
                    state, ready = then, sorted([n for n in ready if n != number] + more)
                    progress = True
                    break
        return state, ready

    def exact(self) -> _State | None:
        """Return the best complete state, None where the steps are not enough."""
        first, ready = self._settled(self.start(), self._ready(0))
        waiting = [(first.peak, first.live, 0, first, ready)]
        known = {first.done: first.peak}
        count = 0
        while waiting:
            _, _, _, state, ready = heapq.heappop(waiting)
            if state.done == self._all:
                return state
            if state.peak > known[state.done]:
                continue
            for number in ready:
                if self.steps <= 0:
                    return None
                then, open_ = self._step(state, ready, number)
                if then.peak < known.get(then.done, then.peak + 1):
                    known[then.done] = then.peak
                    count += 1
                    heapq.heappush(waiting, (then.peak, then.live, count, then, open_))
        return None

    def _step(self, state: _State, ready: list[int], number: int) -> tuple[_State, list[int]]:
        then = self.after(state, number)
        more = [f for f in self._followers[number] if not self._needs[f] & ~then.done]
        return self._settled(then, sorted([n for n in ready if n != number] + more))

    def beam(self) -> _State | None:
        """Return a complete state; None where the steps are not enough."""
        level: list[tuple[_State, list[int]]] = [self._settled(self.start(), self._ready(0))]
        best: _State | None = None
        left = len(self._tasks)
        while level:
            reached: dict[int, tuple[_State, list[int]]] = {}
            for state, ready in level:
                if state.done == self._all:
                    best = state if best is None or state.peak < best.peak else best
                    continue
                for number in ready:
                    if self.steps <= 0:
                        return best
                    then, open_ = self._step(state, ready, number)
                    old = reached.get(then.done)
                    if old is None or then.peak < old[0].peak:
                        reached[then.done] = then, open_
            kept = sorted(reached.values(), key=lambda x: (x[0].peak, x[0].live, x[0].done))
            widest = max((len(ready) for _, ready in kept[:BEAM]), default=0) or 1
            left = max(left - 1, 1)
            level = kept[: max(1, min(BEAM, self.steps // (left * widest)))]
        return best


def _mask(numbers: frozenset[int]) -> int:
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask
