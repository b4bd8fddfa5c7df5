"""Puts the constants that devices read into their memories, and sums those of the file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import numpy as np

from inlay.analysis.blocks import operands, values
from inlay.arith.deferred import DeferredArray
from inlay.arith.expr import lit
from inlay.base.span import NO_SPAN
from inlay.bytecode.constants import content_of
from inlay.bytecode.container import CONSTANT_ALIGN
from inlay.ir.expr import Const
from inlay.ir.module import Module
from inlay.memory.choose_memories import Chooser, MemoryOptions
from inlay.memory.plan import CONSTANTS, REGIONS, FunctionPlan, MemoryPart, Stored
from inlay.memory.size_classes import ALIGNMENT
from inlay.packing.buffer import Buffer, align
from inlay.packing.check import violations


def plan_constants(module: Module, options: MemoryOptions, chooser: Chooser) -> Iterator[FunctionPlan]:
    """Put the constants of devices into the first memory with room for them; the plan is checked."""
    parts: list[MemoryPart] = []
    for memories, sizes in _constant_sizes(module, options).items():
        # As far apart as the strictest of the memories asks, for one of them is chosen by the sum.
        step = max([ALIGNMENT, *(p.alignment for p in options.pools if p.name in memories)])
        spaced = [align(size, step) for size in sizes]
        total = sum(spaced)
        pool = chooser.take(memories, total, f"{len(sizes)} constants")
        offsets = list(accumulate(spaced, initial=0))[:-1]
        buffers = [Buffer("a constant", 0, 1, size, pool.alignment) for size in sizes]
        wrong = violations(buffers, offsets, capacity=pool.bytes)
        assert not wrong, f"the plan of constants in {pool.name} is wrong: {wrong[:1]}"
        members = tuple(Stored((), (), lit(a), lit(b)) for a, b in zip(offsets, sizes, strict=True))
        parts.append(MemoryPart(pool.name, pool.kind, lit(total), lit(total), lit(total), members))
    if parts:
        yield FunctionPlan(CONSTANTS, tuple(parts), ())


def plan_regions(module: Module, options: MemoryOptions, chooser: Chooser) -> Iterator[FunctionPlan]:
    """Give kernels of devices what is theirs as long as the program is loaded: what streams work in.

    Raises:
        CompileError: `memory.no-room`.
    """
    by_memory: dict[str, list[tuple[str, int]]] = {}
    known = {p.name for p in options.pools}
    for kernel in module.kernels.values():
        size, memory = kernel.stays
        if size and memory in known:
            by_memory.setdefault(memory, []).append((kernel.name, size))
    parts: list[MemoryPart] = []
    for memory, sized in by_memory.items():
        total = sum(size for _, size in sized)
        pool = chooser.take((memory,), total, f"what {len(sized)} kernels work in")
        offsets = accumulate((size for _, size in sized), initial=0)
        members = tuple(
            Stored((f"region of @{name}",), (NO_SPAN,), lit(at), lit(size))
            for at, (name, size) in zip(offsets, sized, strict=False)
        )
        parts.append(MemoryPart(pool.name, pool.kind, lit(total), lit(total), lit(total), members))
    if parts:
        yield FunctionPlan(REGIONS, tuple(parts), ())


def _constant_sizes(module: Module, options: MemoryOptions) -> dict[tuple[str, ...], list[int]]:
    """Return the bytes of distinct constants, by the memories that they may be in."""
    allowed = options.constants
    found: dict[tuple[str, ...], dict[int, int]] = {}
    for function in module.functions.values() if allowed else ():
        for value in values(function.body):
            device = "" if value.place is None else value.place.device
            memories = allowed.get(device, allowed.get(""))
            for x in (value, *operands(value)):
                if memories and isinstance(x, Const) and isinstance(x.held, np.ndarray | DeferredArray):
                    found.setdefault(memories, {})[id(x.held)] = align(x.held.nbytes, ALIGNMENT)
    return {memories: list(sizes.values()) for memories, sizes in found.items()}


def constants_in_file(module: Module) -> int:
    """Return the bytes that the constants of a program take in its file, and where that is mapped.

    A device that reads a constant in a memory of its own has the file's copied there.
    """
    sizes: dict[object, int] = {}
    for function in module.functions.values():
        for value in values(function.body):
            device = "" if value.place is None else value.place.device
            for x in (value, *operands(value)):
                if isinstance(x, Const) and isinstance(x.held, np.ndarray | DeferredArray):
                    sizes[device, content_of(x.held)] = align(x.held.nbytes, CONSTANT_ALIGN)
    return sum(sizes.values())
