"""How long a stream takes: its queues side by side, tokens, and one memory outside that copies share.

A command begins when the one before it in its queue has ended and its tokens are there. A copy moves its
bytes when the memory outside is free, first come first served.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from inlay.accel.commands import Ordered


@dataclass(frozen=True, slots=True)
class Timing:
    """What a stream takes, in cycles.

    Attributes:
        total: from the first command to the end of the last.
        moving: in which copies fill, move bytes or wait for the first one.
        hidden: of these, in which instructions run as well.
        computing: in which instructions run.
    """

    total: int
    moving: int
    hidden: int
    computing: int


def simulate(stream: Sequence[Ordered], channels: int) -> Timing:
    """Return the cycles of a stream whose tokens are right. Cost: n times the number of queues."""
    queues: dict[str, deque[int]] = {}
    for index, x in enumerate(stream):
        queues.setdefault(x.command.queue, deque()).append(index)
    free = dict.fromkeys(queues, 0)
    tokens: list[deque[int]] = [deque() for _ in range(channels)]
    bus = 0
    copies: list[tuple[int, int]] = []
    runs: list[tuple[int, int]] = []
    while ready := [
        (max([free[q], *(tokens[t][0] for t in stream[p[0]].pops)]), q)
        for q, p in queues.items()
        if p and all(tokens[t] for t in stream[p[0]].pops)
    ]:
        begin, queue = min(ready)
        x = stream[queues[queue].popleft()]
        for t in x.pops:
            tokens[t].popleft()
        end = begin + x.command.cycles
        if x.command.outside:
            bus = end = max(end, bus) + x.command.outside
        if x.command.is_copy:
            copies.append((begin, end))
        elif x.command.cycles:
            runs.append((begin, end))
        free[queue] = end
        for t in x.pushes:
            tokens[t].append(end)
    moving, computing = _covered(copies), _covered(runs)
    return Timing(
        max(free.values(), default=0), moving, moving + computing - _covered(copies + runs), computing
    )


def _covered(spans: Sequence[tuple[int, int]]) -> int:
    """Return the length of a union of intervals."""
    total, reached = 0, 0
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return total
