"""A part of a memory of fixed size: what a function has in it, at which offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inlay.machine.memory import Pool, PoolKind
from inlay.memory.activations import Storage
from inlay.packing.bounds import max_live
from inlay.packing.buffer import Buffer, align, peak_of
from inlay.packing.check import violations
from inlay.packing.plan import plan as pack

_REPACKS = 4
"""How often all of a part is packed anew because something has no room."""
_REPACKING = 16
"""Effort of that, as a multiple of the effort for a part with room."""


@dataclass(frozen=True, slots=True)
class Bank:
    """A part of a bounded memory that a function has.

    Attributes:
        memory: its name.
        kind: how the memory comes to its bytes.
        alignment: of the part.
        bytes: of the part.
        bound: no plan of the storages in it is smaller.
        total: bytes of the storages side by side.
        offsets: of the storages in the part.
    """

    memory: str
    kind: PoolKind
    alignment: int
    bytes: int
    bound: int
    total: int
    offsets: Mapping[Storage, int]


@dataclass(slots=True)
class Part:
    """What is put into a bounded memory: buffers with offsets, in order of arrival."""

    pool: Pool
    room: int
    storages: list[Storage] = field(default_factory=list[Storage])
    buffers: list[Buffer] = field(default_factory=list[Buffer])
    offsets: list[int] = field(default_factory=list[int])
    repacked: int = 0

    def put(self, storage: Storage, size: int, end: int, steps: int) -> bool:
        """Put a storage at the lowest offset that is free while it is in use; whether there is room.

        Where there is no such offset and bytes would suffice, all is packed anew, a few times.
        """
        buffer = Buffer(storage.name, storage.start, end + 1, size, self.pool.alignment)
        at = 0
        taken = sorted(
            (offset, offset + other.size)
            for other, offset in zip(self.buffers, self.offsets, strict=True)
            if other.lower < buffer.upper and buffer.lower < other.upper
        )
        for begin, stop in taken:
            if at + size <= begin:
                break
            at = max(at, align(stop, self.pool.alignment))
        if at + size > self.room:
            return self._repack(storage, buffer, steps)
        self.storages.append(storage)
        self.buffers.append(buffer)
        self.offsets.append(at)
        return True

    def _repack(self, storage: Storage, buffer: Buffer, steps: int) -> bool:
        every = [*self.buffers, buffer]
        if self.repacked >= _REPACKS or max_live(every) > self.room:
            return False
        self.repacked += 1
        found = pack(every, capacity=self.room, steps=steps * _REPACKING)
        if found.peak > self.room:
            return False
        self.storages.append(storage)
        self.buffers, self.offsets = every, list(found.offsets)
        return True

    def bank(self, steps: int) -> Bank:
        """Return the packed part; the packing is checked."""
        found = pack(self.buffers, steps=steps)
        offsets: Sequence[int] = found.offsets
        if found.peak > peak_of(self.buffers, self.offsets):
            offsets = self.offsets
        size = align(peak_of(self.buffers, offsets), self.pool.alignment)
        wrong = violations(self.buffers, offsets, capacity=self.room)
        assert not wrong, f"the plan of {self.pool.name} is wrong: {wrong[:1]}"
        return Bank(
            self.pool.name,
            self.pool.kind,
            self.pool.alignment,
            size,
            max_live(self.buffers),
            sum(b.size for b in self.buffers),
            dict(zip(self.storages, offsets, strict=True)),
        )
