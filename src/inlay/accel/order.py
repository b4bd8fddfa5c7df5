"""Which command waits for which: tokens from what commands read and write, and the order that is declared.

A command must begin after every earlier one ended that touches the same units, if one of both writes. In its
own queue it does. For another queue it takes a token that the other command pushes, unless what its queue
knows to have ended (a vector clock) already says so. Both ends of the tokens of a pair of queues only ever
move forward, so each token is the one that is meant. Queues that share no token are ordered through
others, by commands that do nothing else.

Waits for counts (`counts`) and events (`events`) are placed by passes of their own, from what this one knows
of conflicts and of clocks.

`unordered` goes the other way, and shares nothing with them: from flags to the conflicts that they leave.
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
    """The queue of the command that pushes a token, and of the one that takes it.

    Attributes:
        source, target: their names; empty for any.
        register: the name of the register that the token is, of which there is one at a time; empty where
            tokens are counted.
    """

    source: str
    target: str
    register: str = ""


class Touched:
    """Who touched what, while commands are issued in the order of the program."""

    def __init__(self) -> None:
        self._users: dict[str, dict[tuple[int, int], _Users]] = {}

    def needed(self, c: Planned) -> Clock:
        """Return the commands of other queues that must have ended before a command begins."""
        needed = Clock()
        for span, writes in _touches(c):
            first, last = span.first, span.last
            for (begin, end), users in self._users.get(span.memory, {}).items():
                if begin < last and first < end:
                    join(needed, users.writing)
                    if writes:
                        join(needed, users.reading)
        needed.pop(c.queue, None)
        return needed

    def issue(self, c: Planned, number: int) -> None:
        """Note what a command touches, which is the one of some number in its queue."""
        for span, writes in _touches(c):
            known = self._users.setdefault(span.memory, {})
            if writes:  # who waits for this need not wait for what touched the same units before
                for inside in [x for x in known if span.first <= x[0] and x[1] <= span.last]:
                    del known[inside]
            users = known.setdefault((span.first, span.last), _Users())
            (users.writing if writes else users.reading)[c.queue] = number


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
        self._touched = Touched()

    def ordered(self) -> list[Ordered]:
        """Return the commands with their tokens."""
        return [Ordered(x.command, tuple(x.pops), tuple(x.pushes)) for x in self._issued]

    def add(self, c: Planned) -> None:
        """Issue a command behind all others."""
        self._touched.issue(c, self._issue(c, self._touched.needed(c)))

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
            join(known, other.ended)
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
        return way(self._channels, source, target)[-2]


def way(channels: Sequence[Channel], source: str, target: str) -> list[str]:
    """Return the queues on the shortest way of tokens from one queue to another, with both."""
    before, pending = {source: source}, deque([source])
    while pending:
        queue = pending.popleft()
        for x in channels:
            if x.source == queue and x.target not in before:
                before[x.target] = queue
                pending.append(x.target)
    found = [target]
    while found[-1] != source:
        found.append(before[found[-1]])
    return found[::-1]


def _touches(c: Planned) -> Iterator[tuple[Span, bool]]:
    yield from ((span, False) for span in c.reads)
    yield from ((span, True) for span in c.writes)


def join(known: Clock, other: Clock) -> None:
    """Add what another clock knows."""
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

    Of a register also what would be a matter of luck: a second signal before the first was taken, and two
    waits of which either may take it.

    Cost: quadratic in the commands that touch one memory.
    """
    run = _Run(stream, channels)
    yield from run.all()
    for name, pending in run.queues.items():
        if pending:
            yield f"command {pending[0]} of '{name}' waits for a token that nobody pushes"
            return
    for c, left in zip(channels, run.waiting, strict=True):
        if left and c.register:
            yield f"{c.register} is set, and nobody waits for it"
        elif left:
            yield f"{len(left)} tokens from '{c.source}' to '{c.target}' are left over"
    yield from _conflicts(stream, run.begun, run.number)


class _Run:
    """Queues that take the commands of a stream, with clocks of what is known to have ended.

    Attributes:
        queues: what is left of each, as positions in the stream.
        begun: what had ended when each command began.
        number: of each command in its queue.
        waiting: of each channel the tokens that nobody took, as what had ended when they were pushed.
    """

    def __init__(self, stream: Sequence[Ordered], channels: Sequence[Channel]) -> None:
        self._stream, self._channels = stream, channels
        self.queues: dict[str, deque[int]] = {}
        for index, x in enumerate(stream):
            self.queues.setdefault(x.command.queue, deque()).append(index)
        self.begun: dict[int, Clock] = {}
        self.number: dict[int, int] = {}
        self.waiting: list[deque[Clock]] = [deque() for _ in channels]
        self._known: dict[str, Clock] = {q: {} for q in self.queues}
        self._taken: dict[int, int] = {}
        """The last command that waited for each register."""

    def all(self) -> Iterator[str]:
        """Run what can; yield what is wrong with registers."""
        moved = True
        while moved:
            moved = False
            for name, pending in self.queues.items():
                while pending and all(self.waiting[t] for t in self._stream[pending[0]].pops):
                    yield from self._command(name, pending.popleft())
                    moved = True

    def _command(self, queue: str, index: int) -> Iterator[str]:
        x, known = self._stream[index], self._known[queue]
        for t in x.pops:
            if self._channels[t].register:
                yield from self._unknown(t, index, "waits for")
                self._taken[t] = index
            join(known, self.waiting[t].popleft())
        self.begun[index] = dict(known)
        self.number[index] = known[queue] = known.get(queue, 0) + 1
        for t in x.pushes:
            if self._channels[t].register:
                yield from self._unknown(t, index, "sets")
            self.waiting[t].append(dict(known))

    def _unknown(self, t: int, index: int, does: str) -> Iterator[str]:
        """Yield that a command does something to a register before the one that waited for it last."""
        register, last = self._channels[t].register, self._taken.get(t)
        if does == "sets" and self.waiting[t]:
            yield f"command {index} sets {register}, which is set and was not waited for"
        elif last is not None:
            queue = self._stream[last].command.queue
            if self._known[self._stream[index].command.queue].get(queue, 0) < self.number[last]:
                waits = f"command {last}, which waits for {register}"
                yield f"nothing orders {waits}, before {index}, which {does} it"


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
