"""Streams of several matches, for the conformance kit: as planned, and with memories that are filled.

What patterns take one behind the other is one stream, in which values stay in the device. Programs that are
drawn are small, and memories are not: what is written over what stays, or is freed too early, would be found
by chance alone. So a stream is also made for devices with no more memory than it takes, and half of that.
There tiles stand beside what stays, slots are used again, and what has no room leaves the device. A stream
for less memory runs on the device that has more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from inlay.accel.chains import larger
from inlay.accel.match import Patterns
from inlay.accel.overlay import blocks
from inlay.accel.tiled import TiledCommand, Tiler
from inlay.ir.expr import Function, Var

_PARTS = (1.0, 0.5)
"""Parts of the memory that a stream takes of the whole device, for which it is made again."""


def merged(patterns: Patterns, main: Function) -> Iterator[TiledCommand]:
    """Yield the streams that are all of a program: for the whole device, and for smaller ones."""
    whole = _whole(patterns, main)
    if whole is None:
        return
    yield whole
    taken = _taken(whole)
    for part in _PARTS:
        arch = replace(patterns.arch, rooms={m: max(1, int(n * part)) for m, n in taken.items()})
        tight = _whole(replace(patterns, arch=arch, tiler=Tiler(arch)), main)
        if tight is not None:
            yield tight


def stays(command: TiledCommand) -> bool:
    """Whether a value stays in the device between matches of a stream."""
    assert command.made is not None, "a command that is taken has a stream"
    return any(p.setting.residents for p in command.made.scheduled.parts)


def _whole(patterns: Patterns, main: Function) -> TiledCommand | None:
    """Return the stream of several matches that is all of a program; None where there is none."""
    (block,) = blocks(main.body)
    found: dict[Var, TiledCommand] = {}
    for var in block.calls:
        for match in patterns.at(var, block):
            if isinstance(match, TiledCommand) and not match.reasons:
                if var not in found or match.total < found[var].total:
                    found[var] = match
    streams = larger(patterns.tiler, block.calls, block.uses, found)
    return next((s for s in streams if len(s.stages) > 1 and len(s.calls) == len(block.calls)), None)


def _taken(command: TiledCommand) -> dict[str, int]:
    """Return how many units of each memory a stream takes: of tiles from the front, and of what stays."""
    assert command.made is not None, "a command that is taken has a stream"
    parts = command.made.scheduled.parts
    found: dict[str, int] = {}
    for part in parts:
        for memory, size in part.sizes().items():
            found[memory] = max(found.get(memory, 0), part.starts.get(memory, 0) + size)
    residents = {id(r): r for part in parts for r in part.setting.residents.values()}
    for memory in dict.fromkeys(r.memory for r in residents.values()):
        first = min(r.base for r in residents.values() if r.memory == memory)
        found[memory] = found.get(memory, 0) + parts[0].group.arch.units(memory) - first
    return found
