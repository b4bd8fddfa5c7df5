"""Checks of a stream: its words say what was planned, every wait is needed, and missing ones are noticed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from inlay.accel.accelerator import Architecture
from inlay.accel.commands import Ordered
from inlay.accel.encode import decoded
from inlay.accel.engines import Interlock
from inlay.accel.order import unordered
from inlay.accel.tiled import TiledCommand
from inlay.accel.waits import channels, in_tokens, kind_of, removable

_MOST_COMMANDS = 150
"""Commands of a stream whose waits are taken away: the check of an order is quadratic."""
_MOST_WAITS = 40


def waits(arch: Architecture, command: TiledCommand) -> str:
    """Return what is wrong with the order of a stream, or nothing."""
    assert command.made is not None, "a command that is taken has a stream"
    stream, is_said = command.made.scheduled.stream, kind_of(arch.description) is not Interlock
    if wrong := conflict(arch, stream):
        return wrong
    said = decoded(arch, command.made.words)
    for at, (ours, read) in enumerate(zip(stream, said, strict=True)):
        a, b = ours.command, read.command
        same = (a.name, dict(a.numbers)) == (b.name, dict(b.numbers))
        if not same or (is_said and _flags(ours) != _flags(read)):
            return f"word {at} says something else than the command {ours.command.name} that was planned"
    if len(stream) > _MOST_COMMANDS or not is_said:
        return ""
    for fewer, missing in itertools.islice(with_less(arch, stream), _MOST_WAITS):
        if not conflict(arch, fewer):
            return f"nobody notices {missing}"
    return ""


def conflict(arch: Architecture, stream: Sequence[Ordered]) -> str:
    """Return what nothing in a stream orders, or nothing."""
    return next(unordered(in_tokens(arch, stream), channels(arch)), "")


def with_less(arch: Architecture, stream: Sequence[Ordered]) -> Iterator[tuple[Sequence[Ordered], str]]:
    """Yield a stream without each of its waits, and with each count one too large; and what that changes."""
    known = arch.description.counts
    for at, x in enumerate(stream):
        if x.command.name not in known:
            continue
        left = x.command.numbers["count"]
        yield [*stream[:at], *stream[at + 1 :]], f"that the wait at command {at} is not there"
        if left < known[x.command.name].most:
            milder = replace(x, command=replace(x.command, numbers={"count": left + 1}))
            more = f"that the wait at command {at} lets {left + 1} be outstanding"
            yield [*stream[:at], milder, *stream[at + 1 :]], more
    needed = removable(arch)
    for pushed, popped, token in tokens(stream):
        if token in needed:
            missing = f"that command {popped} does not wait for command {pushed}"
            yield without(stream, pushed, popped, token), missing


def _flags(x: Ordered) -> tuple[frozenset[int], frozenset[int]]:
    return frozenset(x.pops), frozenset(x.pushes)


def tokens(stream: Sequence[Ordered]) -> list[tuple[int, int, int]]:
    """Return who pushes and who takes each token, as positions in a stream, and the number of its kind."""
    found: list[tuple[int, int, int]] = []
    for token in {t for x in stream for t in x.pops}:
        pushed = [at for at, x in enumerate(stream) if token in x.pushes]
        popped = [at for at, x in enumerate(stream) if token in x.pops]
        found += [(a, b, token) for a, b in zip(pushed, popped, strict=True)]
    return sorted(found)


def without(stream: Sequence[Ordered], pushed: int, popped: int, token: int) -> list[Ordered]:
    """Return a stream without one token."""
    made = list(stream)
    made[pushed] = replace(made[pushed], pushes=tuple(t for t in made[pushed].pushes if t != token))
    made[popped] = replace(made[popped], pops=tuple(t for t in made[popped].pops if t != token))
    return made
