"""Values that stay in a memory of the device between matches of one stream.

    conv -> conv -> sum        the first result is read twice: it is stored once, and brought in twice
    as a resident              the first conv writes it where the others read it; nothing is copied

A value can stay where the match that computes it writes the memory that all who read it read, in units of
one form; or where a copy engine moves it there, tile by tile, behind the instruction. Then it is there as a
whole, with the border that its readers want around it: a copy that brings nothing fills that before it is
computed. What writes or reads a part of it begins somewhere inside, with the strides of the whole. Residents
stand at the end of the memory, packed by the matches for which they are needed; tiles have what is left
before them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from inlay.accel.accelerator import Architecture
from inlay.accel.commands import Place, Planned, Span
from inlay.accel.engines import Copy
from inlay.accel.layout import Laid
from inlay.arith.expr import Sym
from inlay.packing.buffer import Buffer
from inlay.packing.plan import plan


@dataclass(frozen=True, slots=True)
class Resident:
    """Where a value is in a memory of the device.

    Attributes:
        memory: its name.
        base: its first unit.
        before: units of the border before each axis.
        extents: units along each axis, with the border.
    """

    memory: str
    base: int
    before: tuple[int, ...]
    extents: tuple[int, ...]

    def at(self, x: Laid, begin: Mapping[Sym, int]) -> int:
        """Return where a tile of an operand that is this value begins."""
        unit = 0
        for axis, before, extent in zip(x.axes, self.before, self.extents, strict=True):
            first = axis.first + sum(step * begin[s] for s, step in axis.terms)
            unit = unit * extent + before + first
        return self.base + unit


@dataclass(frozen=True, eq=False)
class Kept:
    """A value that may stay.

    Attributes:
        operands: that it is, each with the number of its match: first of the one that computes it, then of
            those that read it.
        blocks: how far loops go, by symbol, of all who read it.
    """

    operands: tuple[tuple[int, Laid], ...]
    blocks: Mapping[Sym, int]

    @property
    def writer(self) -> Laid:
        """The operand of the match that computes it."""
        return self.operands[0][1]

    @property
    def readers(self) -> list[Laid]:
        """The operands of those that read it."""
        return [x for _, x in self.operands[1:]]

    @property
    def lower(self) -> int:
        """The first match for which it is needed."""
        return self.operands[0][0]

    @property
    def upper(self) -> int:
        """The first match behind those for which it is not."""
        return max(at for at, _ in self.operands) + 1

    @cached_property
    def before(self) -> tuple[int, ...]:
        """Units of the border before each axis."""
        return tuple(max(0, *(-r.axes[n].first for r in self.readers)) for n in range(len(self.writer.axes)))

    @cached_property
    def extents(self) -> tuple[int, ...]:
        """Units along each axis, with the border."""
        ends = (
            max(axis.extent, *(r.axes[n].first + r.axes[n].reach(self.blocks) for r in self.readers))
            for n, axis in enumerate(self.writer.axes)
        )
        return tuple(b + end for b, end in zip(self.before, ends, strict=True))

    @property
    def units(self) -> int:
        """Units of the whole."""
        found = 1
        for n in self.extents:
            found *= n
        return found

    @property
    def has_border(self) -> bool:
        """Whether there is anything around it."""
        return self.extents != tuple(a.extent for a in self.writer.axes)

    @property
    def outside(self) -> int | None:
        """What is around it; None for nothing."""
        return next((r.outside for r in self.readers if r.outside is not None), None)

    @property
    def memory(self) -> str:
        """The name of the memory in which it stays: that of its readers."""
        return self.readers[0].memory

    def can_stay(self, arch: Architecture) -> bool:
        """Whether its readers read what is written, or moved behind that, and its border can be made."""
        around = {r.outside for r in self.readers if r.outside is not None}
        same = all(r.memory == self.memory for r in self.readers)
        there = self.memory == self.writer.memory or self.mover(arch) is not None
        can_be_filled = not self.has_border or self._filler(arch) is not None
        return same and there and len(around) <= 1 and can_be_filled

    def mover(self, arch: Architecture) -> str | None:
        """Return the copy from the memory that it is written to, to the one where it stays; None for none."""
        memories = arch.description.memories
        source, target = memories[self.writer.memory], memories[self.memory]
        copies = arch.description.copies.items()
        return next((n for n, c in copies if c.source is source and c.target is target), None)

    def fills(self, arch: Architecture, resident: Resident) -> Iterator[Planned]:
        """Yield the copies that make its border: they fill all of it, and bring nothing."""
        found = self._filler(arch)
        if not self.has_border or found is None:
            return
        name, copy = found
        assert copy.pad is not None, "a filler fills"
        queue = next(n for n, q in arch.description.queues.items() if q is copy.queue)
        latency, value = arch.number(copy.latency).value or 0, self.outside or 0
        side, at, end = 2 * copy.pad.most, resident.base, resident.base + self.units
        while at < end:
            width = min(side, end - at)
            height = min(side, (end - at) // width)
            numbers = {"y": 0, "x": 0, "stride": 0, "dram": 0, "value": value}
            numbers |= {"top": height - height // 2, "bottom": height // 2}
            numbers |= {"left": width - width // 2, "right": width // 2}
            there = Span(resident.memory, at, at + width * height)
            yield Planned(name, queue, numbers, {"chip": Place(at)}, (), (there,), latency, is_copy=True)
            at += width * height

    def _filler(self, arch: Architecture) -> tuple[str, Copy] | None:
        """Return the copy that can put what is around it into its memory."""
        memory, value = arch.description.memories[self.memory], self.outside or 0
        for name, copy in arch.description.copies.items():
            if copy.chip is memory and copy.into_chip and copy.pad is not None and copy.dims > 1:
                low, high = copy.pad.ends
                if copy.pad.most > 0 and low <= value <= high:
                    return name, copy
        return None


def placed(arch: Architecture, kept: Sequence[Kept]) -> list[Resident] | None:
    """Return where values stand, at the ends of their memories; None where they do not fit."""
    found: dict[int, Resident] = {}
    for memory in dict.fromkeys(k.memory for k in kept):
        mine = [n for n, k in enumerate(kept) if k.memory == memory]
        room = arch.units(memory)
        needed = [Buffer(str(n), kept[n].lower, kept[n].upper, kept[n].units) for n in mine]
        packed = plan(needed, capacity=room)
        if packed.peak > room:
            return None
        for n, offset in zip(mine, packed.offsets, strict=True):
            base = room - offset - kept[n].units
            found[n] = Resident(memory, base, kept[n].before, kept[n].extents)
    return [found[n] for n in range(len(kept))]


def rooms_of(kept: Sequence[Kept], residents: Sequence[Resident], match: int) -> dict[str, int]:
    """Return the units of memories that tiles of a match may take: those before what stays meanwhile."""
    alive = [r for k, r in zip(kept, residents, strict=True) if k.lower <= match < k.upper]
    alive.sort(key=lambda r: (r.memory, r.base))
    return {memory: next(of).base for memory, of in itertools.groupby(alive, key=lambda r: r.memory)}
