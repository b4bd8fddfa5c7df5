"""Events: numbered registers by which one command lets another go on, and which number is used when.

    load a; set 0          wait 0; use a; set 1          wait 1; load c where a was; set 0 ...

A command waits for those that it conflicts with, unless its queue knows that they have ended (`Touched` and a
clock for each queue, as for tokens). Each pair of a signal and a wait gets a register. Where there is none
between two queues, a third one waits and signals.
A register is one bit, so it may be set again only by who knows that the last wait for it is over, and waited
for again only by who knows that, too: else one signal is lost, or taken by the wrong one. Clocks of what is
known say which registers are free for a pair; the one that was used longest ago is taken.

Where none is free, queues are told what they do not know: a *message* goes from the queue that waited for the
oldest register to those of the pair. Messages have registers of their own, one for each queue that gets
them, and go through one queue at a time, the *holder*: it knows of all messages before, so their registers
are free whenever it sends one. So there always is a way, with as many registers as `fewest` says.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from inlay.accel.commands import Ordered, Planned
from inlay.accel.order import Channel, Clock, Touched, join, way


@dataclass(frozen=True, slots=True)
class Register:
    """An event.

    Attributes:
        events: the name of the declaration that it is of.
        number: which of these.
        source, target: queues that it is between; empty for any.
    """

    events: str
    number: int
    source: str = ""
    target: str = ""

    @property
    def channel(self) -> Channel:
        """The token that it is."""
        return Channel(self.source, self.target, f"the event {self.number} of '{self.events}'")

    def joins(self, source: str, target: str) -> bool:
        """Whether it can be used from one queue to another."""
        return self.source in ("", source) and self.target in ("", target)


def fewest(queues: int, *, is_pair: bool) -> int:
    """Return how many there must be: one to a queue for messages, and one from each that it waits for."""
    return 2 if is_pair else 2 * queues - 1


def pairs(registers: Sequence[Register], queues: Sequence[str]) -> tuple[Channel, ...]:
    """Return between which queues there are registers."""
    return tuple(
        Channel(a, b) for a in queues for b in queues if a != b and any(r.joins(a, b) for r in registers)
    )


def with_events(
    commands: Iterable[Planned], channels: Sequence[Channel], registers: Sequence[Register]
) -> tuple[Ordered, ...]:
    """Return commands with signals and waits among them.

    Args:
        commands: in the order of the program.
        channels: between which queues there are registers (`pairs`).
        registers: that there are.
    """
    made = _Placing(channels, registers)
    for c in commands:
        made.add(c)
    return made.ordered()


_At = tuple[str, int]
"""A queue, and a number in it: of commands and waits, in the order in which they were placed."""


@dataclass(slots=True, eq=False)
class _Placed:
    """A point in a queue that can be waited for: behind a command, as a rule.

    Attributes:
        queue: which.
        at: the number of what is before it.
        ended: what is known to have ended there.
        behind: the words of the stream behind it.
        command: what is before it, where it is a command, and `before` the words before that.
    """

    queue: str
    at: _At
    ended: Clock
    behind: list[Ordered]
    command: Planned | None = None
    before: Sequence[Ordered] = ()


class _Full(Exception):
    """No register between two queues is free."""

    def __init__(self, source: str, target: str) -> None:
        super().__init__(source, target)
        self.source, self.target = source, target


class _Placing:
    """Places signals and waits while commands are issued."""

    def __init__(self, channels: Sequence[Channel], registers: Sequence[Register]) -> None:
        self._channels, self._registers = channels, registers
        self._direct = frozenset((c.source, c.target) for c in channels)
        self._placed: list[_Placed] = []
        self._queues: dict[str, list[_Placed]] = {}
        self._touched = Touched()
        self._known: dict[str, Clock] = {}
        self._last: dict[int, _At] = {}
        self._used = [0] * len(registers)
        self._uses = 0
        self._holder = ""
        self._words_here: list[Ordered] = []
        self._signals: list[_Placed] = []
        self._messages = _for_messages(channels, registers)

    def ordered(self) -> tuple[Ordered, ...]:
        """Return the stream; signals are before the waits for them."""
        made: list[Ordered] = []
        for x in self._placed:
            assert x.command is not None, "commands are issued"
            made += (*x.before, Ordered(x.command, (), ()), *x.behind)
        return tuple(made)

    def add(self, c: Planned) -> None:
        """Issue a command behind all others."""
        self._words_here = []
        mine = self._queues.setdefault(c.queue, [])
        points = [self._queues[q][n - 1] for q, n in self._touched.needed(c).items()]
        while (full := self._tried(c.queue, points)) is not None:
            self._tell(full)
        at = self._next(c.queue)
        mine.append(_Placed(c.queue, at, dict(self._clock(c.queue)), [], c, self._words_here))
        self._placed.append(mine[-1])
        self._touched.issue(c, len(mine))

    def _tried(self, queue: str, points: Sequence[_Placed]) -> _Full | None:
        """Let a queue go on only behind points of others; change nothing where that lacks a register.

        Else what is said first might be implied by the messages that make one free.
        """
        known = {name: dict(clock) for name, clock in self._known.items()}
        last, used, uses, here = dict(self._last), list(self._used), self._uses, len(self._words_here)
        self._signals = []
        try:
            self._wait_for(queue, points)
        except _Full as full:
            for point in self._signals:
                point.behind.pop()
            del self._words_here[here:]
            self._known, self._last, self._used, self._uses = known, last, used, uses
            return full
        return None

    def _wait_for(self, queue: str, points: Sequence[_Placed]) -> None:
        """Let a queue go on only behind points of others.

        Raises:
            _Full: a register is missing.
        """
        unknown = [x for x in points if not _covers(self._clock(queue), x.at)]
        near = {x.at: x for x in (self._neighbor(y, queue) for y in unknown)}
        for x in near.values():
            if any(_covers(y.ended, x.at) for y in near.values() if y is not x):
                continue
            r, is_late = self._free(x, queue)
            signal, wait = self._words(r, x.queue, queue)
            if is_late:
                self._words_here.append(signal)
            else:
                x.behind.append(signal)
                self._signals.append(x)
            self._wait(r, wait, dict(self._clock(x.queue) if is_late else x.ended))

    def _neighbor(self, x: _Placed, target: str) -> _Placed:
        """Return a point behind another one, in a queue from which there are registers to a queue."""
        if (x.queue, target) in self._direct:
            return x
        between = way(self._channels, x.queue, target)[-2]
        for known in self._queues.get(between, ()):
            if _covers(known.ended, x.at):
                return known
        if not _covers(self._clock(between), x.at):
            self._wait_for(between, [x])
        clock = self._clock(between)
        return _Placed(between, (between, clock[between]), dict(clock), self._words_here)

    def _free(self, p: _Placed, target: str) -> tuple[int, bool]:
        """Return the register for a pair, and whether it is set later than right behind the point.

        Raises:
            _Full: there is none.
        """
        candidates = self._candidates(p.queue, target)
        for is_late, clock in ((False, p.ended), (True, self._clock(p.queue))):
            for r in candidates:
                last = self._last.get(r)
                if last is None or (_covers(clock, last) and _covers(self._clock(target), last)):
                    return r, is_late
        raise _Full(p.queue, target)

    def _candidates(self, source: str, target: str) -> list[int]:
        """Return the registers between two queues, those first that were used longest ago."""
        taken = set(self._messages.values())
        found = [n for n, r in enumerate(self._registers) if n not in taken and r.joins(source, target)]
        return sorted(found, key=self._used.__getitem__)

    def _wait(self, r: int, wait: Ordered, clock: Clock) -> None:
        queue = wait.command.queue
        self._words_here.append(wait)
        join(self._clock(queue), clock)
        self._last[r] = self._next(queue)
        self._uses += 1
        self._used[r] = self._uses

    def _tell(self, full: _Full) -> None:
        """Tell two queues that the wait for a register is over, the oldest that one does not know of."""
        for r in self._candidates(full.source, full.target):
            last = self._last.get(r, ("", 0))
            missing = [q for q in (full.source, full.target) if not _covers(self._clock(q), last)]
            for queue in missing:
                self._message(last[0], queue)
            if missing:
                return

    def _message(self, source: str, target: str) -> None:
        """Let a queue know all that another one knows."""
        hops = way(self._channels, self._holder or source, source) + way(self._channels, source, target)[1:]
        for a, b in itertools.pairwise(hops):
            r = self._messages[a, b]
            signal, wait = self._words(r, a, b)
            self._words_here.append(signal)
            self._wait(r, wait, dict(self._clock(a)))
            self._holder = b

    def _words(self, r: int, source: str, target: str) -> tuple[Ordered, Ordered]:
        x, said = self._registers[r], {"event": self._registers[r].number}
        signal = Ordered(Planned(f"{x.events}.signal", source, said), (), (r,))
        return signal, Ordered(Planned(f"{x.events}.wait", target, said), (r,), ())

    def _clock(self, queue: str) -> Clock:
        return self._known.setdefault(queue, {})

    def _next(self, queue: str) -> _At:
        clock = self._clock(queue)
        clock[queue] = clock.get(queue, 0) + 1
        return queue, clock[queue]


def _for_messages(channels: Sequence[Channel], registers: Sequence[Register]) -> dict[tuple[str, str], int]:
    """Return the registers of messages: one for each queue that gets them, of each declaration."""
    found: dict[tuple[str, str], int] = {}
    kept: dict[tuple[str, str], int] = {}
    for c in channels:
        events = next(r.events for r in registers if r.joins(c.source, c.target))
        if (events, c.target) not in kept:
            mine = (n for n, r in enumerate(registers) if r.events == events and n not in kept.values())
            kept[events, c.target] = next(mine)
        found[c.source, c.target] = kept[events, c.target]
    return found


def messages(channels: Sequence[Channel], registers: Sequence[Register]) -> frozenset[int]:
    """Return the registers that messages alone use."""
    return frozenset(_for_messages(channels, registers).values())


def _covers(clock: Clock, at: _At) -> bool:
    return clock.get(at[0], 0) >= at[1]
