"""Another order of commands that compute the same: what is waited for begins as early as it can.

Commands are planned match after match, so weights of the next match stand behind all that the match before
brings in, and their copies begin late. Here queues are simulated without tokens: a queue whose next
command has to wait gives a later one first, if that one waits for nothing. What a command must come behind is
what it conflicts with in the order that was planned, so every order that comes out computes the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from inlay.accel.commands import Planned

_WINDOW = 48
"""Commands of a queue that are looked at, from the first that was not given yet."""


def earlier(commands: Sequence[Planned]) -> tuple[list[Planned], int]:
    """Return commands in an order in which copies begin early, and the cycles that they take without tokens.

    Cost: the window times their number.
    """
    state = _Queues(commands)
    given: list[tuple[int, int]] = []
    while any(state.left.values()):
        begin, queue, index = min(state.next(q) for q, pending in state.left.items() if pending)
        assert begin < _NEVER, "the first command that is left waits for none that is"
        state.give(queue, index, begin)
        given.append((begin, index))
    return [commands[index] for _, index in sorted(given)], max(state.free.values(), default=0)


_NEVER = 1 << 60


class _Queues:
    """Queues of commands, of which some were given.

    Attributes:
        left: the commands of each queue that were not.
        free: when each queue can begin with the next one.
    """

    def __init__(self, commands: Sequence[Planned]) -> None:
        self._commands = commands
        self.left: dict[str, list[int]] = {}
        for index, c in enumerate(commands):
            self.left.setdefault(c.queue, []).append(index)
        self.free = dict.fromkeys(self.left, 0)
        self._bus = 0
        self._before: list[list[int]] = [[] for _ in commands]
        self._missing: list[int] = []
        self._ready = [0] * len(commands)
        for index, needed in enumerate(behind(commands)):
            self._missing.append(len(needed))
            for n in needed:
                self._before[n].append(index)

    def give(self, queue: str, index: int, begin: int) -> None:
        """Let a command begin."""
        end = self._end(index, begin)
        if self._commands[index].outside:
            self._bus = end
        self.free[queue] = end
        self.left[queue].remove(index)
        for n in self._before[index]:
            self._missing[n] -= 1
            self._ready[n] = max(self._ready[n], end)

    def next(self, queue: str) -> tuple[int, str, int]:
        """Return when which command of a queue begins: the first one, or one that ends before that could."""
        pending, free = self.left[queue], self.free[queue]
        first = pending[0]
        waits = _NEVER if self._missing[first] else max(free, self._ready[first])
        if waits == free:
            return free, queue, first
        for index in pending[1:_WINDOW]:
            if self._missing[index]:
                continue
            begin = max(free, self._ready[index])
            if begin < waits and (waits == _NEVER or self._end(index, begin) <= waits):
                return begin, queue, index
        return waits, queue, first

    def _end(self, index: int, begin: int) -> int:
        c = self._commands[index]
        end = begin + c.cycles
        return max(end, self._bus) + c.outside if c.outside else end


def behind(commands: Sequence[Planned]) -> list[list[int]]:
    """Return for each command those before it, of any queue, that it conflicts with; not all of them.

    Those that are left out are before one that is named.
    """
    touched: dict[str, dict[tuple[int, int], _Users]] = {}
    found: list[list[int]] = []
    for index, c in enumerate(commands):
        mine = [*((s, False) for s in c.reads), *((s, True) for s in c.writes)]
        needed: set[int] = set()
        for span, writes in mine:
            begin, end = span.first, span.last
            for (first, last), users in touched.get(span.memory, {}).items():
                if first < end and begin < last:
                    needed.update(users.writing)
                    if writes:
                        needed.update(users.reading)
        found.append(sorted(needed))
        for span, writes in mine:
            begin, end = span.first, span.last
            known = touched.setdefault(span.memory, {})
            if writes:
                for inside in [x for x in known if begin <= x[0] and x[1] <= end]:
                    del known[inside]
            users = known.setdefault((begin, end), _Users())
            (users.writing if writes else users.reading).append(index)
    return found


@dataclass(slots=True)
class _Users:
    """Who reads and who writes just some units. Tiles use slots again, so these are few."""

    reading: list[int] = field(default_factory=list[int])
    writing: list[int] = field(default_factory=list[int])
