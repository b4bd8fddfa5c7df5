"""The portfolio: several algorithms, the smallest plan, always checked.

    plan([Buffer("a", 0, 2, 64), Buffer("b", 1, 3, 128)]).offsets

The effort is counted in steps, not in seconds, so the same buffers give the same plan on every
machine. Greedy orders are tried first and often reach the lower bound, which ends the search. What is
left of the steps is spent in rounds, each four times as long as the last: on exact search for a plan at
the lower bound, a little on hill climbing, and on exact search for ever smaller plans between the bound
and the best. Where a capacity is asked for, it is in the place of the bound, and most steps are spent on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from inlay.base.diagnostics import InternalError, error
from inlay.packing.algorithms import exact, greedy_fit, hill_climb, linear_scan, stacking, two_ends
from inlay.packing.algorithms.interface import Algorithm, Offsets, Task
from inlay.packing.bounds import critical_moment
from inlay.packing.buffer import Buffer, Plan, peak_of
from inlay.packing.check import violations
from inlay.packing.instance import MOST_BYTES, Instance, Watch, make_instance

MAX_PAIRS = 40_000_000
"""Looks at conflicting pairs beyond which greedy orders stop: two seconds or three."""
STEPS = 20_000
"""Default budget of the search, in placements of one buffer (about 1 us to 10 us each)."""

TRIES = 4
"""Goals between the bound and the best that are tried from both ends."""
FIRST_ROUND = 16_000
"""Steps of the first round of search."""
MOST_CLIMB = 50_000
"""Steps of hill climbing beyond which it finds nothing new."""

ALGORITHMS: dict[str, Algorithm] = {
    **greedy_fit.ALGORITHMS,
    "linear_scan": linear_scan.run,
    "stacking": stacking.run,
    "two_ends": two_ends.run,
    "hill_climb": hill_climb.run,
    "exact": exact.run,
}
"""All algorithms by name."""


def plan(
    buffers: Sequence[Buffer], *, capacity: int | None = None, steps: int = STEPS, watch: Watch | None = None
) -> Plan:
    """Return the smallest plan found.

    Args:
        buffers: what to pack; ids are for messages.
        capacity: a plan of at most so many bytes is enough. The result has a larger peak if none was
            found, and a lower bound beyond it if there is none; then no smaller plan is looked for.
        steps: budget of the search; 0 for the greedy orders only.
        watch: called now and then with the steps so far; answering True ends the search.

    Requires sizes that are not negative, and alignments from 1 on.

    Raises:
        CompileError: `packing.too-large` where sizes and alignments together are not below 2**62.
    """
    for buffer in buffers:
        assert buffer.size >= 0, f"buffer {buffer.id} has a size"
        assert buffer.alignment >= 1, f"buffer {buffer.id} has an alignment"
    check_size(buffers)
    bound = critical_moment(buffers)
    run = _Run(make_instance(buffers), bound.bytes, capacity, watch)
    if run.instance.buffers:
        run.greedy()
        run.search(steps)
    offsets = run.offsets_of(buffers)
    if wrong := violations(buffers, offsets):
        raise InternalError(f"the memory plan is wrong: {wrong[0]}", where=run.name)
    peak = peak_of(buffers, offsets)
    lower = max(bound.bytes, run.bound * run.instance.unit)
    assert peak >= lower, "a bound is below what was found"
    return Plan(tuple(offsets), peak, lower, run.steps, bound.moment)


def check_size(buffers: Sequence[Buffer]) -> None:
    """Refuse what has no offsets of 64 bits in some plans.

    Raises:
        CompileError: `packing.too-large`.
    """
    total = sum(b.size + b.alignment for b in buffers)
    if total >= MOST_BYTES:
        largest = max(buffers, key=lambda b: b.size + b.alignment)
        raise error(
            "packing.too-large",
            f"found buffers of {total} bytes with their alignments, needed less than {MOST_BYTES}",
            notes=[f"the largest is '{largest.id}': {largest.size} bytes, alignment {largest.alignment}"],
        )


@dataclass(slots=True)
class _Run:
    """A run of the portfolio; all numbers are units of the instance."""

    instance: Instance
    bound_bytes: int
    capacity_bytes: int | None
    watch: Watch | None
    best: Offsets = ()
    peak: int = -1
    name: str = ""
    steps: int = 0
    bound: int = 0
    goal: int = 0
    is_stopped: bool = field(default=False)

    def __post_init__(self) -> None:
        unit = self.instance.unit
        self.bound = -(-self.bound_bytes // unit)
        self.goal = self.bound
        if self.capacity_bytes is not None:
            self.goal = max(self.goal, self.capacity_bytes // unit)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to find: it is as small as is asked for or possible, or too small a
        capacity is asked for.
        """
        return 0 <= self.peak <= max(self.goal, self.bound) or self.is_stopped or self.is_hopeless

    @property
    def is_hopeless(self) -> bool:
        """Whether there is a plan, and none can be within the capacity."""
        over = self.capacity_bytes is not None and self.bound * self.instance.unit > self.capacity_bytes
        return over and self.peak >= 0

    def offsets_of(self, buffers: Sequence[Buffer]) -> list[int]:
        """Return the best offsets in bytes, of all buffers."""
        at = iter(self.best)
        return [next(at) * self.instance.unit if b.takes_space else 0 for b in buffers]

    def greedy(self) -> None:
        """Place greedily in several ways, the most promising first, as far as their time allows."""
        left = MAX_PAIRS
        for name in greedy_fit.ALGORITHMS:
            left -= self.instance.pairs
            if left < 0:
                break
            self.take(name, goal=self.goal, steps=MOST_BYTES)
        if self.instance.pairs < 25 * MAX_PAIRS:
            self.take("linear_scan", goal=self.goal, steps=MOST_BYTES)
        if self.peak < 0:
            self.is_stopped = False  # there is a plan however soon somebody wants an end
        self.take("stacking", goal=self.goal, steps=MOST_BYTES)
        low = self.goal
        for _ in range(TRIES):
            goal = low if low == self.goal else (low + self.peak) // 2
            self.take("two_ends", goal=goal, steps=MOST_BYTES)
            low = goal + 1 if self.peak > goal else low

    def search(self, steps: int) -> None:
        """Spend steps in rounds, each four times as long as the last and with other random choices."""
        share, seed = FIRST_ROUND, 0
        while steps > 0 and not self.is_done:
            share = min(share, steps)
            steps -= share
            self.exact(self.goal, share // 2, seed=seed)
            climb = min(share // 16, MOST_CLIMB)
            self.take("hill_climb", goal=self.goal, steps=climb, seed=seed)
            rest = share // 2 - climb
            if self.capacity_bytes is not None:
                self.exact(self.goal, rest - rest // 4, seed=seed + 1)
                rest //= 4
            self.bisect(rest, seed)
            share, seed = share * 4, seed + 2

    def bisect(self, steps: int, seed: int) -> None:
        """Look for smaller plans between the goal and the best: a proof moves one, a plan the other."""
        low, share = self.goal, steps // 2
        while share and steps >= share and not self.is_done and self.peak - low > 1:
            middle = low + (self.peak - low) // 2
            before = self.steps
            self.exact(middle, share, seed=seed)
            steps -= max(self.steps - before, 1)
            low = max(self.goal, middle if self.peak > middle else low)

    def exact(self, goal: int, steps: int, seed: int = 0) -> None:
        """Search for a plan within a goal, and if it is shown that there is none, within the next."""
        while not self.is_done and steps > 0 and self.peak > goal:
            found, bound = self.take("exact", goal=goal, steps=steps, seed=seed)
            steps -= max(found, 1)
            if bound <= self.bound:
                break
            self.bound = bound
            if self.capacity_bytes is None:
                self.goal = max(self.goal, bound)
            elif bound > self.goal:
                break
            goal = max(goal, bound)

    def take(self, name: str, *, goal: int, steps: int, seed: int = 0) -> tuple[int, int]:
        """Run an algorithm unless all is done; keep what is smaller. Returns steps and bound."""
        if self.is_done or steps <= 0:
            return 0, 0
        found = ALGORITHMS[name](Task(self.instance, goal, steps, seed, self._told))
        self.steps += found.steps
        if found.offsets is not None:
            pairs = zip(self.instance.buffers, found.offsets, strict=True)
            peak = max(o + b.size // self.instance.unit for b, o in pairs)
            if self.peak < 0 or peak < self.peak:
                self.best, self.peak, self.name = found.offsets, peak, name
        return found.steps, found.bound

    def _told(self, used: int) -> bool:
        """Tell whoever watches how far all algorithms are."""
        if self.watch is not None and self.watch(self.steps + used):
            self.is_stopped = True
        return self.is_stopped
