"""What an executable takes of memory, as the C runtime counts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Usage:
    """Memory of the last call and of the executable.

    Attributes:
        peak_bytes: of tensors in the host's memory, at most at once in the last call: blocks, values
            with an allocation of their own, results, scratch memory of kernels. As they are long,
            without what allocations are rounded up to. Where calls overlapped, of the one that took most;
            where other threads ran parts of it, it took no more than this.
        memory_bytes: the same of each memory that a device has, by name.
        storages: allocations for tensors in the last call, in any memory.
        taken_bytes: what the runtime has from the process now: tables of the program, stacks of the
            machine, memory kept for the next call, and results that are still in use.
        most_taken_bytes: the most of that since the executable was opened.
        allocations: how often the runtime asked the process for memory since then.
        copied_bytes: in the last call, by the machine and not by kernels: what tensors that grow are joined
            to or had to be moved with, and results that could not leave with their memory.
    """

    peak_bytes: int
    storages: int
    taken_bytes: int
    most_taken_bytes: int
    allocations: int
    memory_bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    copied_bytes: int = 0
