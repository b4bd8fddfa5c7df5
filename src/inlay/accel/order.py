"""Which command waits for which: tokens from what commands read and write, and the order that is declared.

A command must begin after every earlier one ended that touches the same units, if one of both writes. In its
own queue it does. For another queue it takes a token that the other command pushes, unless what its queue
knows to have ended (a vector clock) already says so. Both ends of the tokens of a pair of queues only ever
move forward, so each token is the one that is meant. Queues that share no token are ordered through
others, by commands that do nothing else.

`unordered` goes the other way, and shares nothing with it: from flags to the conflicts that they leave.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from inlay.accel.commands import Ordered, Planned, Span

Clock = dict[str, int]
"""For each queue, how many of its commands have ended."""


@dataclass(frozen=True, slots=True)
class Channel:
    """The queue of the command that pushes a token, and of the one that takes it."""

    source: str
    target: str


@dataclass(slots=True)
class _Issued:
    """A command, with what has ended when it has."""

    command: Planned
    ended: Clock
    pops: list[int] = field(default_factory=list[int])
    pushes: list[int] = field(default_factory=list[int])


@dataclass(slots=True)
class _Users:
    """The last command of each queue that reads just some units, and that writes them."""

    reading: Clock = field(default_factory=Clock)
    writing: Clock = field(default_factory=Clock)


class Ordering:
    """Places tokens while commands are issued in the order of the program."""

    def __init__(self, channels: Sequence[Channel]) -> None:
        self._channels = list(channels)
        self._issued: list[_Issued] = []
        self._queues: dict[str, list[_Issued]] = {}
        self._known: dict[str, Clock] = {}
        self._touched: dict[str, dict[tuple[int, int], _Users]] = {}

    def ordered(self) -> list[Ordered]:
        """Return the commands with their tokens."""
        return [Ordered(x.command, tuple(x.pops), tuple(x.pushes)) for x in self._issued]

    def add(self, c: Planned) -> None:
        """Issue a command behind all others."""
        needed = Clock()
        for span, writes in _touches(c):
            first, last = span.first, span.last
            for (begin, end), users in self._touched.get(span.memory, {}).items():
                if begin < last and first < end:
                    _join(needed, users.writing)
                    if writes:
                        _join(needed, users.reading)
        needed.pop(c.queue, None)
        number = self._issue(c, needed)
        for span, writes in _touches(c):
            known = self._touched.setdefault(span.memory, {})
            if writes:  # who waits for this need not wait for what touched the same units before
                for inside in [x for x in known if span.first <= x[0] and x[1] <= span.last]:
                    del known[inside]
            users = known.setdefault((span.first, span.last), _Users())
            (users.writing if writes else users.reading)[c.queue] = number

    def _issue(self, c: Planned, needed: Clock) -> int:
        """Issue a command that waits for others; return its number in its queue."""
        for queue, number in self._open(c.queue, needed):
            if Channel(queue, c.queue) not in self._channels:
                between = self._hop(queue, c.queue)
                through = self._through(between, queue, number)
                needed[between] = max(needed.get(between, 0), through)
        made = _Issued(c, {})
        known = self._known.setdefault(c.queue, {})
        for queue, number in self._open(c.queue, needed):
            token = self._channels.index(Channel(queue, c.queue))
            other = self._queues[queue][number - 1]
            other.pushes.append(token)
            made.pops.append(token)
            _join(known, other.ended)
        mine = self._queues.setdefault(c.queue, [])
        mine.append(made)
        known[c.queue] = len(mine)
        made.ended = dict(known)
        self._issued.append(made)
        return len(mine)

    def _open(self, queue: str, needed: Clock) -> list[tuple[str, int]]:
        """Return what a queue does not know to have ended, without what the rest of that implies."""
        known = self._known.get(queue, {})
        left = [(q, n) for q, n in needed.items() if n > known.get(q, 0)]
        return [
            (q, n)
            for q, n in left
            if not any(r != q and self._queues[r][m - 1].ended.get(q, 0) >= n for r, m in left)
        ]

    def _through(self, between: str, queue: str, number: int) -> int:
        """Return the first command of a queue that ends after one of another; issue one if none does."""
        for at, x in enumerate(self._queues.get(between, ())):
            if x.ended.get(queue, 0) >= number:
                return at + 1
        return self._issue(Planned("", between), {queue: number})

    def _hop(self, source: str, target: str) -> str:
        """Return the last queue on the shortest way of tokens from one queue to another."""
        before, pending = {source: source}, deque([source])
        while pending:
            queue = pending.popleft()
            for x in self._channels:
                if x.source == queue and x.target not in before:
                    before[x.target] = queue
                    pending.append(x.target)
        return before[target]


def _touches(c: Planned) -> Iterator[tuple[Span, bool]]:
    yield from ((span, False) for span in c.reads)
    yield from ((span, True) for span in c.writes)


def _join(known: Clock, other: Clock) -> None:
    for queue, number in other.items():
        known[queue] = max(known.get(queue, 0), number)


def connected(channels: Sequence[Channel], queues: Sequence[str]) -> tuple[str, str] | None:
    """Return two queues between which there is no way of tokens, if there are such."""
    for source in queues:
        reached = {source}
        for _ in queues:
            reached |= {x.target for x in channels if x.source in reached}
        if missing := [q for q in queues if q not in reached]:
            return source, missing[0]
    return None


def unordered(stream: Sequence[Ordered], channels: Sequence[Channel]) -> Iterator[str]:
    """Yield what is wrong with the order of a stream: conflicts, tokens that are missing or left over.

    Cost: quadratic in the commands that touch one memory.
    """
    queues: dict[str, deque[int]] = {}
    for index, x in enumerate(stream):
        queues.setdefault(x.command.queue, deque()).append(index)
    begun: dict[int, Clock] = {}
    number: dict[int, int] = {}
    known: dict[str, Clock] = {q: {} for q in queues}
    waiting: list[deque[Clock]] = [deque() for _ in channels]
    moved = True
    while moved:
        moved = False
        for name, pending in queues.items():
            while pending and all(waiting[t] for t in stream[pending[0]].pops):
                index = pending.popleft()
                for t in stream[index].pops:
                    _join(known[name], waiting[t].popleft())
                begun[index] = dict(known[name])
                number[index] = known[name][name] = known[name].get(name, 0) + 1
                for t in stream[index].pushes:
                    waiting[t].append(dict(known[name]))
                moved = True
    for name, pending in queues.items():
        if pending:
            yield f"command {pending[0]} of '{name}' waits for a token that nobody pushes"
            return
    yield from (
        f"{len(left)} tokens from '{c.source}' to '{c.target}' are left over"
        for c, left in zip(channels, waiting, strict=True)
        if left
    )
    yield from _conflicts(stream, begun, number)


def _conflicts(stream: Sequence[Ordered], begun: dict[int, Clock], number: dict[int, int]) -> Iterator[str]:
    touched: dict[str, list[tuple[int, Span, bool]]] = {}
    for index, x in enumerate(stream):
        for span, writes in _touches(x.command):
            for other, at, wrote in touched.get(span.memory, ()):
                queue = stream[other].command.queue
                if (writes or wrote) and at.meets(span) and begun[index].get(queue, 0) < number[other]:
                    yield f"nothing orders command {other} before {index}, and both touch {span.memory}"
        for span, writes in _touches(x.command):
            touched.setdefault(span.memory, []).append((index, span, writes))
