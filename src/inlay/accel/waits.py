"""How queues of a device wait for each other, whatever way it has: one place that knows all four.

| declared | placed by | in words |
|---|---|---|
| `Token` | `order.Ordering` | flags of commands |
| `Interlock` | the hardware, by addresses; here by the same pass | nothing |
| `AtMost` | `counts.counted` | commands that stop the reader of the stream |
| `Events` | `events.with_events` | commands that set a register, and wait for one |

A stream is kept as its words say it (`in_order`). What analyzes one (`simulate`, `unordered`, the mock) gets
it with tokens alone (`in_tokens`), of the kinds that `channels` lists.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from inlay.accel.accelerator import Architecture, Description
from inlay.accel.commands import SHARED, Ordered, Planned, Span
from inlay.accel.counts import as_tokens, counted
from inlay.accel.engines import AtMost, Events, Interlock, Token
from inlay.accel.events import Register, messages, pairs, with_events
from inlay.accel.order import Channel, Ordering
from inlay.accel.reorder import earlier
from inlay.accel.simulate import Timing, simulate
from inlay.accel.stages import Untiled


def kind_of(d: Description) -> type[Token | Interlock | AtMost | Events]:
    """Return how the queues of a device wait: each has one way."""
    return type(d.order[0]) if d.order else Token


def registers(d: Description) -> tuple[Register, ...]:
    """Return the events of a device, in the order of their declaration."""
    names = {id(q): name for name, q in d.queues.items()}
    ends = {name: [names.get(id(q), "") for q in (x.source, x.target)] for name, x in d.events.items()}
    return tuple(Register(name, n, *ends[name]) for name, x in d.events.items() for n in range(x.count))


def channels(arch: Architecture) -> tuple[Channel, ...]:
    """Return the kinds of tokens by which analyses see queues wait: declared ones, registers, all pairs."""
    d, kind = arch.description, kind_of(arch.description)
    if kind is Token:
        names = {id(q): name for name, q in d.queues.items()}
        return tuple(Channel(names[id(t.source)], names[id(t.target)]) for t in d.tokens)
    if kind is Events:
        return tuple(r.channel for r in registers(d))
    return tuple(itertools.starmap(Channel, itertools.permutations(d.queues, 2)))


def ways(arch: Architecture) -> tuple[Channel, ...]:
    """Return which queue can wait for which other."""
    d, kind = arch.description, kind_of(arch.description)
    if kind is AtMost:
        return tuple(c for c in channels(arch) if c.source in _waits(d))
    return pairs(registers(d), tuple(d.queues)) if kind is Events else channels(arch)


def in_order(arch: Architecture, commands: Iterable[Planned]) -> tuple[tuple[Ordered, ...], Timing]:
    """Return commands as a stream in which what conflicts is ordered, and what they take.

    Raises:
        Untiled: copies touch the same outside, and hardware that orders queues does not see it.
    """
    d, kind = arch.description, kind_of(arch.description)
    if kind is AtMost:
        given = list(commands)
        # What waits stops all that stands behind it, so the order of the stream matters, too.
        found = [_timed(arch, counted(x, _waits(d))) for x in (given, earlier(given)[0])]
        return min(found, key=lambda x: x[1].total)
    if kind is Events:
        return _timed(arch, with_events(commands, ways(arch), registers(d)))
    if kind is Interlock:
        stream = _interlocked(arch, commands)
        if any(span.memory == SHARED for x in stream for span in (*x.command.reads, *x.command.writes)):
            raise Untiled("the hardware orders no copies by addresses outside")
        return _timed(arch, stream)
    return _timed(arch, _with_tokens(channels(arch), commands))


def in_tokens(arch: Architecture, stream: Sequence[Ordered]) -> tuple[Ordered, ...]:
    """Return a stream, as its words say it, with tokens for all that waits in it."""
    d, kind = arch.description, kind_of(arch.description)
    if kind is AtMost:
        counts = {name: queue for queue, (name, _) in _waits(d).items()}
        return as_tokens(stream, counts, channels(arch))
    if kind is Interlock:
        return _interlocked(arch, (x.command for x in stream))
    return tuple(stream)


def said_of(arch: Architecture, stream: Sequence[Ordered]) -> str:
    """Return how many waits a stream has, for explanations."""
    d, kind = arch.description, kind_of(arch.description)
    if kind is Interlock:
        return "the hardware orders them"
    if kind is AtMost:
        said = [x.command.name for x in stream if x.command.name in d.counts]
        return f"{len(said)} waits until at most some are outstanding"
    waiting = sum(len(x.pops) for x in stream)
    return f"{waiting} waits for events" if kind is Events else f"{waiting} tokens"


def removable(arch: Architecture) -> frozenset[int]:
    """Return the kinds of tokens each of which orders commands; messages order registers alone."""
    found = frozenset(range(len(channels(arch))))
    if kind_of(arch.description) is Events:
        return found - messages(ways(arch), registers(arch.description))
    return found


def _waits(d: Description) -> Mapping[str, tuple[str, int]]:
    names = {id(q): name for name, q in d.queues.items()}
    return {names[id(x.queue)]: (name, x.most) for name, x in d.counts.items()}


def _timed(arch: Architecture, stream: tuple[Ordered, ...]) -> tuple[tuple[Ordered, ...], Timing]:
    seen = stream if kind_of(arch.description) is Interlock else in_tokens(arch, stream)
    return stream, simulate(seen, len(channels(arch)))


def _with_tokens(found: Sequence[Channel], commands: Iterable[Planned]) -> tuple[Ordered, ...]:
    ordering = Ordering(found)
    for command in commands:
        ordering.add(command)
    return tuple(ordering.ordered())


def _interlocked(arch: Architecture, commands: Iterable[Planned]) -> tuple[Ordered, ...]:
    """Return commands with the waits that the hardware inserts, by what they touch inside of the device."""
    given = list(commands)
    inside = [replace(c, reads=_inside(c.reads), writes=_inside(c.writes)) for c in given]
    ordered = _with_tokens(channels(arch), inside)
    return tuple(Ordered(c, x.pops, x.pushes) for c, x in zip(given, ordered, strict=True))


def _inside(spans: Sequence[Span]) -> tuple[Span, ...]:
    return tuple(s for s in spans if s.memory != SHARED)
