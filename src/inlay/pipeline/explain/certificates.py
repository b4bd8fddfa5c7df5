"""Certificates of the memory plans of a program, for sizes of its dims.

A value lives from the kernel that writes it to the last one that uses it, as in the account: the bound is
that of these values in this order. What depends on dims without a size has no certificate, and is named.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from inlay.machine.memory import PoolKind
from inlay.memory.plan import CONSTANTS, REGIONS, MemoryPart
from inlay.memory.size_classes import ALIGNMENT
from inlay.packing.bounds import critical_moment
from inlay.packing.buffer import Buffer, Plan, align, peak_of
from inlay.packing.certificate import certified
from inlay.pipeline.explain.memory import MemoryExplanation


@dataclass(frozen=True, slots=True)
class Certified:
    """Plans as `packing.certificate` writes them, and what has none: functions with their memories."""

    plans: tuple[dict[str, Any], ...]
    without: tuple[str, ...]


def certificates_of(e: MemoryExplanation) -> Certified:
    """Return the certified plans of all functions, and of constants in memories of a fixed size."""
    plans: list[dict[str, Any]] = []
    without: list[str] = []
    for plan in (p for p in e.plans if p.name != REGIONS):  # those are apart, and nothing is packed
        for part in plan.parts:
            name = f"{plan.name} in {e.memory(part)}"
            packed = _packed(e, part, is_constant=plan.name == CONSTANTS)
            if packed is None:
                without.append(name)
            elif packed[0]:
                plans.append(certified(name, *packed))
    return Certified(tuple(plans), tuple(without))


def _packed(e: MemoryExplanation, part: MemoryPart, *, is_constant: bool) -> tuple[list[Buffer], Plan] | None:
    """Return the buffers of a part and where they are; None where a dim has no size."""
    pool = e.board.memory(part.memory) or e.board.memories[0]
    step = ALIGNMENT if pool.kind is PoolKind.HEAP else pool.alignment
    buffers: list[Buffer] = []
    offsets: list[int] = []
    seen: dict[str, int] = {}
    for s in part.members:
        size, offset = e.dims.exact(s.bytes), e.dims.exact(s.offset)
        if size is None or offset is None:
            return None
        name = ", then ".join(s.names) or "a constant"
        seen[name] = seen.get(name, 0) + 1
        name = name if seen[name] == 1 else f"{name} #{seen[name]}"
        end = 1 if is_constant else max(s.last + 1, s.first)
        buffers.append(Buffer(name, s.first, end, align(size, step), step))
        offsets.append(offset)
    bound = critical_moment(buffers)
    return buffers, Plan(tuple(offsets), peak_of(buffers, offsets), bound.bytes, 0, bound.moment)
