"""Decides what leaves a memory for a while: which values, from when to when, and how they come back.

A memory with a fixed number of bytes is *near*: kernels work there. A value that nobody reads for some
time may be elsewhere meanwhile. It is copied out once, as soon as it is made, so that this overlaps what
follows; its bytes are free behind its last use before the gap, and it is there again before the next one.
There are two ways back: a copy in, or running once more the kernel that made it, where all that this reads
is there anyway. What was itself copied in from outside is a case of the second: nothing is copied out.

**Time.** Steps run one after the other on their device, copies one after the other on an engine beside it.
A step waits for what it reads, a copy for what it copies and for the bytes that it overwrites. `timeline`
is this model; what is chosen is the best by it of several ways to choose (`_RULES`).

**Choosing.** While some step needs more bytes than there are, the step that needs most gives up a value:
the one whose next use is farthest, the one that costs least for its bytes, or the one whose copies hide
best behind the steps of its gap. Then gaps that turned out not to be needed are closed, and copies in are
begun as early as is needed for them to be there in time, and as the room allows.

Cost: of each choice, linear in the steps and the gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Stay:
    """Bytes of the near memory that are in use from one step to another, both counted."""

    size: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which nobody reads a value.

    Attributes:
        value: a number of the value.
        size: bytes that are free meanwhile.
        made: the step that makes it.
        after: the last step that uses it before.
        before: the step that uses it next.
        out_ns: of the copy out; needed once for all gaps of a value.
        back_ns: of the copy in.
        again_ns: of making it once more instead; None where that cannot be.
        needs: the values in the near memory that making it once more reads.
    """

    value: int
    size: int
    made: int
    after: int
    before: int
    out_ns: float
    back_ns: float
    again_ns: float | None = None
    needs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Spill:
    """A gap that is used.

    Attributes:
        gap: in which the value is elsewhere.
        fetch: the step before which it comes back.
        again: whether it is made once more, not copied.
    """

    gap: Gap
    fetch: int
    again: bool = False


@dataclass(frozen=True, slots=True)
class Timeline:
    """What is predicted of a program with copies.

    Attributes:
        ns: until the last step and the last copy have ended.
        serial_ns: the same with one thing after the other.
        steps_ns: of the steps alone.
        begins: of each step.
    """

    ns: float
    serial_ns: float
    steps_ns: float
    begins: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Pressure:
    """What is to be decided.

    Attributes:
        stays: all that is in the near memory.
        gaps: in which something need not be there.
        room: bytes of it.
        times: predicted nanoseconds of each step on its device; 0 for steps that run nothing.
        engine: whether copies run beside the steps; else the device of the steps makes them.
        copied: values that making once more copies in, as an engine does; by their numbers.
        copies: steps that an engine does, which others wait for.
    """

    stays: Sequence[Stay]
    gaps: Sequence[Gap]
    room: int
    times: Sequence[float]
    engine: bool = True
    copied: frozenset[int] = frozenset()
    copies: frozenset[int] = frozenset()


def decide(pressure: Pressure) -> tuple[Spill, ...] | None:
    """Return the gaps to use, in order of the steps where values come back; None where none do.

    The predicted time is the least of what the rules find.
    """
    best: tuple[float, tuple[Spill, ...]] | None = None
    for rule in _RULES:
        found = _fitted(pressure, rule)
        if found is None:
            continue
        spills = _early(pressure, found)
        ns = timeline(pressure, spills).ns
        if best is None or ns < best[0]:
            best = ns, spills
    return None if best is None else best[1]


def profile(pressure: Pressure, spills: Sequence[Spill] = ()) -> NDArray[np.int64]:
    """Return the bytes in use at each step."""
    change = np.zeros(len(pressure.times) + 1, np.int64)
    for stay in pressure.stays:
        change[stay.first] += stay.size
        change[stay.last + 1] -= stay.size
    for s in spills:
        change[s.gap.after + 1] -= s.gap.size
        change[s.fetch] += s.gap.size
    return np.cumsum(change)[:-1]


def _fitted(pressure: Pressure, rule: _Rule) -> list[Spill] | None:
    """Return gaps to use so that every step has room; None where a rule finds none."""
    used = profile(pressure)
    ends = np.cumsum(np.asarray(pressure.times, float))
    chosen: list[Spill] = []
    free = list(pressure.gaps)
    out: set[int] = set()
    while used.size and used.max() > pressure.room:
        step = int(used.argmax())
        here = [_possible(g, chosen) for g in free if g.after < step < g.before]
        if not here:
            return None
        best = min(here, key=lambda g: rule(g, float(ends[g.before - 1] - ends[g.after]), g.value in out))
        again = best.again_ns is not None and best.again_ns <= _copies(best, is_out=best.value in out)
        if again:
            free = [g for g in free if g.value not in best.needs or not g.after < best.before <= g.before]
        else:
            out.add(best.value)
        free = [g for g in free if (g.value, g.after) != (best.value, best.after)]
        chosen.append(Spill(best, best.before, again))
        used[best.after + 1 : best.before] -= best.size
    for spill in sorted(chosen, key=lambda s: s.gap.size):  # not needed behind what was chosen later
        gap = spill.gap
        if (used[gap.after + 1 : gap.before] + gap.size <= pressure.room).all():
            used[gap.after + 1 : gap.before] += gap.size
            chosen.remove(spill)
    return chosen


def _possible(gap: Gap, chosen: Sequence[Spill]) -> Gap:
    """Return a gap without the other way back where what that reads is elsewhere then."""
    away = (s.gap for s in chosen if s.gap.value in gap.needs)
    if any(g.after < gap.before <= g.before for g in away):
        return replace(gap, again_ns=None, needs=())
    return gap


_Rule = Callable[[Gap, float, bool], tuple[float, ...]]
"""From a gap, the time of the steps in it and whether its value is outside already to an order."""


def _copies(gap: Gap, *, is_out: bool) -> float:
    return gap.back_ns + (0.0 if is_out else gap.out_ns)


def _cost(gap: Gap, is_out: bool) -> float:  # noqa: FBT001
    copies = _copies(gap, is_out=is_out)
    return copies if gap.again_ns is None else min(copies, gap.again_ns)


def _farthest(gap: Gap, window: float, is_out: bool) -> tuple[float, ...]:  # noqa: FBT001
    return (-gap.before, _cost(gap, is_out), gap.value)


def _cheapest(gap: Gap, window: float, is_out: bool) -> tuple[float, ...]:  # noqa: FBT001
    return (_cost(gap, is_out) / gap.size, -gap.before, gap.value)


def _hidden(gap: Gap, window: float, is_out: bool) -> tuple[float, ...]:  # noqa: FBT001
    cost = _cost(gap, is_out)
    return (max(0.0, cost - window) / gap.size, cost / gap.size / max(window, 1.0), -gap.before, gap.value)


_RULES: tuple[_Rule, ...] = (_farthest, _cheapest, _hidden)


def _early(pressure: Pressure, spills: Sequence[Spill]) -> tuple[Spill, ...]:
    """Return spills with copies in begun so early that they end in time, where there is room.

    From the end: each copy has to end when its value is read, and when the next one has to begin.
    """
    used = profile(pressure, spills)
    begins = np.concatenate([[0.0], np.cumsum(np.asarray(pressure.times, float))])
    limit = float("inf")
    found: list[Spill] = []
    for spill in sorted(spills, key=lambda s: (-s.gap.before, s.gap.value)):
        gap, fetch = spill.gap, spill.gap.before
        if pressure.engine and (not spill.again or gap.value in pressure.copied):
            limit = min(limit, float(begins[gap.before])) - gap.back_ns
            last = gap.after + 1
            while fetch > last and begins[fetch] > limit and used[fetch - 1] + gap.size <= pressure.room:
                fetch -= 1
                used[fetch] += gap.size
        found.append(replace(spill, fetch=fetch))
    return tuple(sorted(found, key=lambda s: (s.fetch, s.gap.before, s.gap.value)))


def timeline(pressure: Pressure, spills: Sequence[Spill]) -> Timeline:
    """Return what is predicted of the steps with these copies."""
    used = profile(pressure, spills)
    back: dict[int, list[Spill]] = {}
    outs: dict[int, list[Gap]] = {}
    seen: set[int] = set()
    for s in spills:
        back.setdefault(s.fetch, []).append(s)
        if not s.again and s.gap.value not in seen:
            seen.add(s.gap.value)
            outs.setdefault(s.gap.made, []).append(s.gap)
    steps_ns = float(sum(pressure.times))
    serial = steps_ns
    device = engine = 0.0
    out_at: dict[int, float] = {}
    there: dict[int, list[float]] = {}
    drained: dict[int, float] = {}
    begins: list[float] = []
    for step, ns in enumerate(pressure.times):
        for s in back.get(step, ()):
            gap = s.gap
            cost = gap.again_ns if s.again and gap.again_ns is not None else gap.back_ns
            serial += cost
            tight = step > 0 and used[step - 1] + gap.size > pressure.room
            ready = device if tight else 0.0
            if (s.again and gap.value not in pressure.copied) or not pressure.engine:
                device = max(device, ready) + cost
                there.setdefault(gap.before, []).append(device)
            else:
                engine = max(engine, ready, out_at.get(gap.value, 0.0)) + cost
                there.setdefault(gap.before, []).append(engine)
        begin = max([device, *there.get(step, ())])
        if used[step] > (used[step - 1] if step else 0):  # new bytes: they may be those of a copy out
            begin = max(begin, drained.get(step, 0.0))
        if step in pressure.copies:
            begin = max(begin, engine)
            engine = begin + ns
        begins.append(begin)
        device = begin + ns
        for gap in outs.get(step, ()):
            serial += gap.out_ns
            if pressure.engine:
                engine = max(engine, device) + gap.out_ns
                out_at[gap.value] = engine
            else:
                device += gap.out_ns
                out_at[gap.value] = device
            for later in range(gap.after + 1, gap.before):
                if used[later] + gap.size > pressure.room:
                    drained[later] = max(drained.get(later, 0.0), out_at[gap.value])
                    break
    return Timeline(max(device, engine), serial, steps_ns, tuple(begins))
