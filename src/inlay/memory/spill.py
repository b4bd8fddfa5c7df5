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
begun as early as the room allows, or as is needed for them to be there in time, whichever is predicted
to be faster. Where there is room, the bytes of a value that is on its way out are left to it for longer.

Cost: of each choice, linear in the steps and the gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isfinite

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
        out_ns: of the copy out; needed once for all gaps of a value. Infinite where there is no way out.
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
        held: how many steps behind its last use before the gap its bytes are still its own, so that nobody
            waits for the copy out.
    """

    gap: Gap
    fetch: int
    again: bool = False
    held: int = 0

    @property
    def free(self) -> int:
        """The first step at which its bytes may be something else's."""
        return self.gap.after + 1 + self.held


@dataclass(frozen=True, slots=True)
class Move:
    """A value on its way, as predicted.

    Attributes:
        value: its number.
        out: whether it leaves; else it comes back.
        again: whether it is made once more instead.
        begin, end: when.
    """

    value: int
    out: bool
    again: bool
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """What is predicted of a program with copies.

    Attributes:
        ns: until the last step and the last copy have ended.
        serial_ns: the same with one thing after the other.
        steps_ns: of the steps alone.
        begins: of each step.
        moves: in the order in which they are asked for.
    """

    ns: float
    serial_ns: float
    steps_ns: float
    begins: tuple[float, ...]
    moves: tuple[Move, ...]


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


def decide(pressure: Pressure, *, hold: bool = True) -> tuple[Spill, ...] | None:
    """Return the gaps to use, in order of the steps where values come back; None where none do.

    The predicted time is the least of what the rules find.

    Args:
        pressure: what is to be decided.
        hold: whether bytes that are being copied out are left alone where there is room for that. All of
            the memory is in use then, which is harder to pack.
    """
    best: tuple[float, tuple[Spill, ...]] | None = None
    for rule in _RULES:
        found = _fitted(pressure, rule)
        if found is None:
            continue
        for fetch in _FETCHES:
            spills = fetch(pressure, found)
            spills = _held(pressure, spills) if hold else spills
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
        change[s.free] -= s.gap.size
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
        here = [g for g in here if g.again_ns is not None or isfinite(g.out_ns + g.back_ns)]
        if not here:
            return None
        best = min(here, key=lambda g: _ranked(rule, g, ends, is_out=g.value in out))
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


_Rule = Callable[[Gap, float, float], tuple[float, ...]]
"""From a gap, the time of the steps in it and the cost of leaving memory for it to an order."""


def _copies(gap: Gap, *, is_out: bool) -> float:
    return gap.back_ns + (0.0 if is_out else gap.out_ns)


def _cost(gap: Gap, *, is_out: bool) -> float:
    """Return what it costs to be outside for a gap; less where the value is outside already."""
    copies = _copies(gap, is_out=is_out)
    return copies if gap.again_ns is None else min(copies, gap.again_ns)


def _ranked(rule: _Rule, gap: Gap, ends: NDArray[np.float64], *, is_out: bool) -> tuple[float, ...]:
    """Return what a rule says of a gap; `ends` is when each step ends."""
    return rule(gap, float(ends[gap.before - 1] - ends[gap.after]), _cost(gap, is_out=is_out))


def _farthest(gap: Gap, _window: float, cost: float) -> tuple[float, ...]:
    return (-gap.before, cost, gap.value)


def _cheapest(gap: Gap, _window: float, cost: float) -> tuple[float, ...]:
    return (cost / gap.size, -gap.before, gap.value)


def _hidden(gap: Gap, window: float, cost: float) -> tuple[float, ...]:
    return (max(0.0, cost - window) / gap.size, cost / gap.size / max(window, 1.0), -gap.before, gap.value)


_RULES: tuple[_Rule, ...] = (_farthest, _cheapest, _hidden)


def _late(pressure: Pressure, spills: Sequence[Spill]) -> tuple[Spill, ...]:
    """Return spills with copies in begun so early that they end in time, where there is room.

    From the end: each copy has to end when its value is read, and when the next one has to begin.
    """
    used = profile(pressure, spills)
    begins = np.concatenate([[0.0], np.cumsum(np.asarray(pressure.times, float))])
    limit = float("inf")
    found: list[Spill] = []
    for spill in sorted(spills, key=lambda s: (-s.gap.before, s.gap.value)):
        gap, fetch = spill.gap, spill.gap.before
        if _is_beside(pressure, spill):
            limit = min(limit, float(begins[gap.before])) - gap.back_ns
            last = gap.after + 1
            while fetch > last and begins[fetch] > limit and used[fetch - 1] + gap.size <= pressure.room:
                fetch -= 1
                used[fetch] += gap.size
        found.append(replace(spill, fetch=fetch))
    return _in_order(found)


def _soon(pressure: Pressure, spills: Sequence[Spill]) -> tuple[Spill, ...]:
    """Return spills with copies in begun as soon as there is room, in the order in which values are read.

    The engine is then never idle while it could copy, also where steps are faster than predicted.
    """
    used = profile(pressure, spills)
    found: list[Spill] = []
    first = 0
    for spill in sorted(spills, key=lambda s: (s.gap.before, s.gap.value)):
        gap, fetch = spill.gap, spill.gap.before
        if _is_beside(pressure, spill):
            last = max(gap.after + 1, first)
            while fetch > last and used[fetch - 1] + gap.size <= pressure.room:
                fetch -= 1
                used[fetch] += gap.size
            first = fetch
        found.append(replace(spill, fetch=fetch))
    return _in_order(found)


def _held(pressure: Pressure, spills: Sequence[Spill]) -> tuple[Spill, ...]:
    """Return spills whose bytes stay their own behind their last use, for as long as there is room.

    Else the next value is put where a copy is still reading, and its kernel waits. Copies end in the order in
    which values are made, so the last ones made are held first.
    """
    if not pressure.engine:
        return tuple(spills)
    used = profile(pressure, spills)
    found = dict.fromkeys(spills, 0)
    for spill in sorted(spills, key=lambda s: -s.gap.made):
        end = spill.free
        while not spill.again and end < spill.fetch and used[end] + spill.gap.size <= pressure.room:
            used[end] += spill.gap.size
            end += 1
        found[spill] = end - spill.free
    return tuple(replace(s, held=held) for s, held in found.items())


_FETCHES = (_soon, _late)
"""When copies in begin, the preferred way first."""


def _is_beside(pressure: Pressure, spill: Spill) -> bool:
    """Whether an engine does the way back, beside the steps."""
    return pressure.engine and (not spill.again or spill.gap.value in pressure.copied)


def _in_order(spills: Sequence[Spill]) -> tuple[Spill, ...]:
    return tuple(sorted(spills, key=lambda s: (s.fetch, s.gap.before, s.gap.value)))


def timeline(pressure: Pressure, spills: Sequence[Spill]) -> Timeline:
    """Return what is predicted of the steps with these copies."""
    return _Simulation(pressure, spills).run()


class _Simulation:
    """Steps and copies in the order in which they are asked for, on a device and an engine."""

    def __init__(self, pressure: Pressure, spills: Sequence[Spill]) -> None:
        self.pressure = pressure
        self.used = profile(pressure, spills)
        self.back: dict[int, list[Spill]] = {}
        self.outs: dict[int, dict[int, list[Spill]]] = {}
        for s in spills:
            self.back.setdefault(s.fetch, []).append(s)
            if not s.again:
                self.outs.setdefault(s.gap.made, {}).setdefault(s.gap.value, []).append(s)
        self.device = self.engine = 0.0
        self.is_out: dict[int, float] = {}
        self.there: dict[int, float] = {}
        self.drained: dict[int, float] = {}
        self.ends: list[float] = []
        self.moves: list[Move] = []

    def run(self) -> Timeline:
        """Return the timeline."""
        pressure, begins = self.pressure, list[float]()
        for step, ns in enumerate(pressure.times):
            for s in self.back.get(step, ()):
                self._fetch(s)
            begin = max(self.device, self.there.get(step, 0.0))
            if step == 0 or self.used[step] > self.used[step - 1]:  # perhaps bytes of what is copied out
                begin = max(begin, self.drained.get(step, 0.0))
            if step in pressure.copies:
                begin = max(begin, self.engine)
                self.engine = begin + ns
            begins.append(begin)
            self.device = begin + ns
            self.ends.append(self.device)
            for spills in self.outs.get(step, {}).values():
                self._send(spills)
        steps_ns = float(sum(pressure.times))
        serial = steps_ns + sum(m.end - m.begin for m in self.moves)
        end = max(self.device, self.engine)
        return Timeline(end, serial, steps_ns, tuple(begins), tuple(self.moves))

    def _fetch(self, s: Spill) -> None:
        gap = s.gap
        over = np.flatnonzero(self.used[: s.fetch] + gap.size > self.pressure.room)
        ready = self.ends[int(over[-1])] if over.size else 0.0  # of the last step that has no room for it
        if s.again:
            end = self._do(gap.again_ns or 0.0, ready, beside=gap.value in self.pressure.copied)
        else:
            end = self._do(gap.back_ns, max(ready, self.is_out[gap.value]), beside=True)
        ns = (gap.again_ns or 0.0) if s.again else gap.back_ns
        self.moves.append(Move(gap.value, out=False, again=s.again, begin=end - ns, end=end))
        self.there[gap.before] = max(self.there.get(gap.before, 0.0), end)

    def _send(self, spills: Sequence[Spill]) -> None:
        """Copy a value out; steps that may need its bytes in one of its gaps wait for that."""
        first = spills[0].gap
        end = self._do(first.out_ns, self.device, beside=True)
        self.is_out[first.value] = end
        self.moves.append(Move(first.value, out=True, again=False, begin=end - first.out_ns, end=end))
        for s in spills:
            over = self.used[s.free : s.gap.before] + s.gap.size > self.pressure.room
            if over.any():
                step = s.free + int(over.argmax())
                self.drained[step] = max(self.drained.get(step, 0.0), end)

    def _do(self, ns: float, ready: float, *, beside: bool) -> float:
        """Return when a copy ends, or a kernel that runs once more."""
        if beside and self.pressure.engine:
            self.engine = max(self.engine, ready) + ns
            return self.engine
        self.device = max(self.device, ready) + ns
        return self.device
