"""Waits until at most some commands of a queue are outstanding: where they stand, and what they say.

    load a; load b; wait: 1 of load; use a; wait: 0 of load; use b

Who reads the stream stops at such a wait, so what it learns holds for all that stands behind it, whatever
the queue. One clock of what has ended is enough, then: a command that needs the k-th of m commands that a
queue was given stands behind a wait until at most m - k of them are outstanding, unless one before says so.
Each wait is as late and as mild as it can be; none could be left out, and no count could be larger.

`as_tokens` goes the other way, and shares nothing with that: from such waits to the tokens that would say the
same, so whoever knows tokens (`order.unordered`, `simulate`, the mock) knows these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from inlay.accel.commands import Ordered, Planned
from inlay.accel.order import Channel, Clock, Touched

READER = ""
"""The queue of a wait: it is in none, the stream is read no further."""


def counted(commands: Iterable[Planned], waits: Mapping[str, tuple[str, int]]) -> tuple[Ordered, ...]:
    """Return commands with waits among them.

    Args:
        commands: in the order of the program.
        waits: for each queue the name of the command that waits for it, and the largest count.
    """
    touched, known, given = Touched(), Clock(), Clock()
    made: list[Ordered] = []
    for c in commands:
        for queue, number in touched.needed(c).items():
            if number > known.get(queue, 0):
                name, most = waits[queue]
                left = min(most, given[queue] - number)
                known[queue] = given[queue] - left
                made.append(Ordered(Planned(name, READER, {"count": left}), (), ()))
        given[c.queue] = given.get(c.queue, 0) + 1
        touched.issue(c, given[c.queue])
        made.append(Ordered(c, (), ()))
    return tuple(made)


def as_tokens(
    stream: Sequence[Ordered], queues: Mapping[str, str], channels: Sequence[Channel]
) -> tuple[Ordered, ...]:
    """Return a stream in which tokens stand for its waits.

    Args:
        stream: with waits.
        queues: for the name of each wait the queue whose commands it counts.
        channels: tokens from each queue to each other.
    """
    numbers = {(c.source, c.target): n for n, c in enumerate(channels)}
    given: dict[str, list[int]] = {}
    known, told = Clock(), dict[int, int]()
    made: list[tuple[Planned, list[int], list[int]]] = []
    for x in stream:
        c = x.command
        if c.queue == READER:
            queue = queues[c.name]
            ended = len(given.get(queue, ())) - c.numbers["count"]
            known[queue] = max(known.get(queue, 0), ended)
            continue
        pops: list[int] = []
        for queue, ended in known.items():
            if queue != c.queue and ended > told.get(numbers[queue, c.queue], 0):
                token = numbers[queue, c.queue]
                told[token] = ended
                pops.append(token)
                made[given[queue][ended - 1]][2].append(token)
        given.setdefault(c.queue, []).append(len(made))
        made.append((c, pops, []))
    return tuple(Ordered(c, tuple(pops), tuple(pushes)) for c, pops, pushes in made)
