"""Memories of a device that are a part of a memory of the board: what of them a stream gets.

    sram = Shared("the second memory that the device lists on the board")
    act = Memory(64 * KiB, unit=16, of=sram)

The host and other devices use that memory, too, so nobody knows how much is left before the host is lowered.
Places are chosen as if all of it were there. When commands are made, the memory of the program is known
(`pipeline/leases.py`): a stream that takes more than is free where its kernel is called is searched again
with less room, so tiles follow the budget. What it takes is scratch memory of the kernel, planned with the
rest; the driver is told where it stands, and addresses are relative to that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inlay.accel.accelerator import Architecture, Description
from inlay.accel.commands import Ordered
from inlay.accel.declare import Memory, Shared
from inlay.machine.board import Board

LINE = 64
"""Where each memory begins in the scratch memory of a kernel, in bytes."""


def taken(arch: Architecture, stream: Sequence[Ordered]) -> dict[str, int]:
    """Return the bytes of each borrowed memory up to the last unit that a stream touches, or of one."""
    last = dict.fromkeys(arch.borrowed, 1)
    if not last:
        return {}
    for x in stream:
        for span in (*x.command.reads, *x.command.writes):
            if span.memory in last:
                last[span.memory] = max(last[span.memory], span.last)
    return {name: n * _unit(arch, name) for name, n in last.items()}


def places(sizes: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
    """Return where each memory begins in the scratch memory, and its bytes."""
    made: list[tuple[int, int]] = []
    for size in sizes.values():
        made.append((bytes_of(made), size))
    return tuple(made)


def bytes_of(made: Sequence[tuple[int, int]]) -> int:
    """Return the bytes of scratch memory for some places."""
    return -(-sum(made[-1]) // LINE) * LINE if made else 0


def rooms_in(arch: Architecture, free: int) -> dict[str, int]:
    """Return the units of each borrowed memory where so many bytes are free for all: equal shares of each."""
    sizes = arch.borrowed
    whole, left = sum(sizes.values()), max(0, free - LINE * (len(sizes) - 1))
    share = {
        n: min(size, left * size // whole // LINE * LINE) if whole > left else size
        for n, size in sizes.items()
    }
    return {n: share[n] // _unit(arch, n) for n in sizes}


def memory_of(d: Description, board: Board, device: str) -> str:
    """Return the memory of the board that those of a device are a part of; nothing where there is none.

    The first that a description names is the first of the host, in which its operands are; others follow in
    the order in which the device lists them.
    """
    wanted = next((m.of for m in d.memories.values() if isinstance(m, Memory) and m.of is not None), None)
    if wanted is None:
        return ""
    first = board.host.memories[0]
    listed = [first, *(m for m in board.devices_by_name[device].memories if m != first)]
    at = [m for m in d.memories.values() if isinstance(m, Shared)].index(wanted)
    return listed[at] if at < len(listed) else ""


def has_any(d: Description) -> bool:
    """Whether a device has such a memory."""
    return any(isinstance(m, Memory) and m.of is not None for m in d.memories.values())


def _unit(arch: Architecture, name: str) -> int:
    declared = arch.description.memories[name]
    assert isinstance(declared, Memory), "the memory is in the device"
    return arch.number(declared.unit).value or 1
