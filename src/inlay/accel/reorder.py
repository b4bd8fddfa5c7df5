"""Another order of commands that compute the same: what is waited for begins as early as it can.

Commands are planned match after match, so weights of the next match stand behind all that the match before
brings in, and their copies begin late. Here queues are simulated without tokens: a queue whose next
command has to wait gives a later one first, if that one waits for nothing. What a command must come behind is
what it conflicts with in the order that was planned, so every order that comes out computes the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from inlay.accel.commands import Planned, Span

_WINDOW = 48
"""Commands of a queue that are looked at, from the first that was not given yet."""


def earlier(commands: Sequence[Planned]) -> list[Planned]:
    """Return commands in an order in which copies begin early. Cost: the window times their number."""
    after = behind(commands)
    left: dict[str, list[int]] = {}
    for index, c in enumerate(commands):
        left.setdefault(c.queue, []).append(index)
    ended: dict[int, int] = {}
    free, bus = dict.fromkeys(left, 0), 0
    given: list[tuple[int, int]] = []
    while any(left.values()):
        begin, queue, index = min(_next(commands, after, ended, pending[:_WINDOW], free[q], bus, q)
                                  for q, pending in left.items() if pending)  # fmt: skip
        assert begin < _NEVER, "the first command that is left waits for none that is"
        end = _end(commands[index], begin, bus)
        bus = end if commands[index].outside else bus
        free[queue] = ended[index] = end
        left[queue].remove(index)
        given.append((begin, index))
    return [commands[index] for _, index in sorted(given)]


_NEVER = 1 << 60


def _end(c: Planned, begin: int, bus: int) -> int:
    end = begin + c.cycles
    return max(end, bus) + c.outside if c.outside else end


def _next(
    commands: Sequence[Planned],
    after: Sequence[Sequence[int]],
    ended: dict[int, int],
    pending: Sequence[int],
    free: int,
    bus: int,
    queue: str,
) -> tuple[int, str, int]:
    """Return when which command of a queue begins: the first one, or one that ends before that could."""
    first = pending[0]
    waits = _ready(after[first], ended, free)
    if waits == free:
        return free, queue, first
    for index in pending[1:]:
        begin = _ready(after[index], ended, free)
        if begin < waits and (waits == _NEVER or _end(commands[index], begin, bus) <= waits):
            return begin, queue, index
    return waits, queue, first


def _ready(needed: Sequence[int], ended: dict[int, int], free: int) -> int:
    ready = free
    for n in needed:
        if n not in ended:
            return _NEVER
        ready = max(ready, ended[n])
    return ready


def behind(commands: Sequence[Planned]) -> list[list[int]]:
    """Return for each command those before it, of any queue, that it conflicts with; not all of them.

    Those that are left out are before one that is named.
    """
    touched: dict[str, list[tuple[Span, bool, int]]] = {}
    found: list[list[int]] = []
    for index, c in enumerate(commands):
        mine = [*((s, False) for s in c.reads), *((s, True) for s in c.writes)]
        needed = {
            n
            for span, writes in mine
            for other, wrote, n in touched.get(span.memory, ())
            if (writes or wrote) and other.meets(span)
        }
        found.append(sorted(needed))
        for span, writes in mine:
            kept = touched.get(span.memory, [])
            if writes:
                kept = [x for x in kept if not (span.first <= x[0].first and x[0].last <= span.last)]
            touched[span.memory] = [*kept, (span, writes, index)]
    return found
