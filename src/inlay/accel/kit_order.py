"""Checks of a stream: its words say what was planned, every wait is needed, and missing ones are noticed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from inlay.accel.accelerator import Architecture
from inlay.accel.commands import Ordered
from inlay.accel.encode import decoded
from inlay.accel.order import unordered
from inlay.accel.tile import channels
from inlay.accel.tiled import TiledCommand

_MOST_COMMANDS = 150
"""Commands of a stream whose waits are taken away: the check of an order is quadratic."""
_MOST_WAITS = 40


def waits(arch: Architecture, command: TiledCommand) -> str:
    """Return what is wrong with the order of a stream, or nothing."""
    assert command.made is not None, "a command that is taken has a stream"
    stream, found = command.made.scheduled.stream, channels(arch)
    if wrong := next(unordered(stream, found), ""):
        return wrong
    said, is_said = decoded(arch, command.made.words), not arch.description.is_interlocked
    for at, (ours, read) in enumerate(zip(stream, said, strict=True)):
        a, b = ours.command, read.command
        same = (a.name, dict(a.numbers)) == (b.name, dict(b.numbers))
        if not same or (is_said and _flags(ours) != _flags(read)):
            return f"word {at} says something else than the command {ours.command.name} that was planned"
    if len(stream) > _MOST_COMMANDS or not is_said:
        return ""
    for pushed, popped, token in tokens(stream)[:_MOST_WAITS]:
        if not next(unordered(without(stream, pushed, popped, token), found), ""):
            return f"nobody notices that command {popped} does not wait for command {pushed}"
    return ""


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
