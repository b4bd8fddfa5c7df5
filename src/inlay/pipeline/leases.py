"""How many bytes are free where a kernel of a device is called, before its commands are made.

Commands may need scratch memory, and how much is theirs to choose: a larger block saves cycles. So the memory
of the program is planned with all scratch memory that is known, that of the host and of devices lowered
before (`Backend.lower_after`), and what the values alive at a call leave of its memory is free there: of a
kernel that is called at several places, the least. What a device takes of it is planned with the rest. Where
that plan does not fit (blocks of memory do not divide as finely as bytes), what was said to be free is
halved and the device asked again, three times at most; then nothing is said to be free.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from inlay.base.diagnostics import Collector, CompileError
from inlay.base.instrument import SILENT
from inlay.codegen.interface import Needs
from inlay.ir.module import Module
from inlay.memory import (
    carry_buffers,
    explicit_alloc,
    order_for_peak,
    plan_memory,
    read_first,
    skip_copies,
    spill_values,
)
from inlay.memory.budget import around_of
from inlay.memory.choose_memories import MemoryOptions
from inlay.memory.dim_sizes import DimSizes, dim_sizes
from inlay.memory.plan import FunctionPlan
from inlay.memory.plan_memory import BlockOptions
from inlay.memory.size_classes import ALIGNMENT
from inlay.memory.spill_values import SpillOptions
from inlay.packing.buffer import align
from inlay.passes.contract import PassContext, Property, Remarks
from inlay.passes.manager import make_pipeline, run_pipeline
from inlay.pipeline.generate import scratch_threads, with_needs, with_stays

MEMORY = (
    read_first.PASS,
    order_for_peak.PASS,
    explicit_alloc.PASS,
    carry_buffers.PASS,
    skip_copies.PASS,
    spill_values.PASS,
    plan_memory.PASS,
)
"""The passes that plan memory, in order; the end of the route."""
Stays = Callable[[Module], Mapping[str, tuple[int, str]]]
ROUNDS = 3
"""How often a device is asked with less."""


class Leases:
    """What is free at calls of kernels, while devices are lowered one after the other.

    Args:
        module: of kernels, without scratch memory.
        needs: of kernels that are lowered already, by name.
        context: of the passes that plan memory.
        stays: gives what kernels of devices have as long as the program is loaded, by name: bytes, and where.
    """

    def __init__(
        self, module: Module, needs: Mapping[str, Needs], context: PassContext, stays: Stays
    ) -> None:
        self._module, self._known, self._context = module, dict(needs), context
        self._stays = functools.cache(lambda: stays(module))
        self._planned: tuple[Module, tuple[FunctionPlan, ...]] | None = None
        self._share = 1.0
        self.asked = False

    def free(self, kernel: str, memory: str) -> int | None:
        """Return the bytes that are free at all calls of a kernel; None where nothing bounds them."""
        limit = self._limit(memory)
        if limit is None:
            return None
        self.asked = True
        if self._planned is None:
            self._planned = self._plan(self._known)
        used = self._used(kernel, memory)
        return max(0, int((limit - used) * self._share)) if used is not None else 0

    def settle(self, make: Callable[[], Mapping[str, Needs]]) -> None:
        """Make commands of a device so often that the program fits with their scratch memory.

        Args:
            make: makes them, asking what is free, and returns their scratch memory.
        """
        for share in (*(1 / 2**k for k in range(ROUNDS)), 0.0):
            self._share, self.asked, self._planned = share, False, None
            found = make()
            if not found or not self.asked or not share or self._fits({**self._known, **found}):
                self._known.update(found)
                return

    def _fits(self, needs: Mapping[str, Needs]) -> bool:
        try:
            self._plan(needs)
        except CompileError:
            return False
        return True

    def _plan(self, needs: Mapping[str, Needs]) -> tuple[Module, tuple[FunctionPlan, ...]]:
        """Return the program planned with some scratch memory; nothing of it is told to who watches.

        Raises:
            CompileError: it does not fit.
        """
        plans: list[FunctionPlan] = []
        context = self._context.with_options(
            replace(
                self._context.options_for(BlockOptions),
                watch=plans.extend,
                keep=None,
                compare=None,
                smaller=None,
            ),
            replace(self._context.options_for(SpillOptions), watch=None),
        )
        quiet = replace(context, instrument=SILENT, diagnostics=Collector(), remarks=Remarks())
        module = with_needs(self._module, needs, scratch_threads(self._context))
        module = with_stays(module, self._stays())
        given = (Property.TYPED, Property.ANF, Property.LOWERED)
        return run_pipeline(make_pipeline(MEMORY, given), module, quiet), tuple(plans)

    def _used(self, kernel: str, memory: str) -> int | None:
        """Return the bytes of a memory that are in use where a kernel is called; None where nobody knows."""
        assert self._planned is not None, "planned before"
        module, plans = self._planned
        options, blocks = self._context.options_for(MemoryOptions), self._context.options_for(BlockOptions)
        first, most = options.pools[0].name, 0
        for entry in tuple(module.entries) or (module.entry,):
            sizes = dim_sizes(module.functions[entry], {})
            around = around_of(module, entry, options, sizes, blocks.budget.threads)
            mine = [p for p in plans if p.name not in module.entries or p.name == entry]
            found = [_in_use(p, kernel, memory, first, sizes) for p in mine]
            known = [n for n in found if n is not None]
            if len(known) < len(found):
                return None
            most = max(most, sum(known) + (around.constants if memory == first else 0))
        return most

    def _limit(self, memory: str) -> int | None:
        budget = self._context.options_for(BlockOptions).budget.bytes.get(memory)
        pool = next((p for p in self._context.options_for(MemoryOptions).pools if p.name == memory), None)
        known = [n for n in (budget, None if pool is None else pool.bytes) if n is not None]
        return min(known, default=None)


def _in_use(plan: FunctionPlan, kernel: str, memory: str, first: str, sizes: DimSizes) -> int | None:
    """Return what a function has of a memory while it calls a kernel; where it does not, all that it takes.

    A block is there for the whole call. So is the most that is beside it at once: where more than that is
    left at the call, it is of no use, for the block would be larger at that other moment, too.
    """
    calls = [i for k in plan.kernels if k.name == kernel for i in range(k.first, k.last + 1)]
    blocks = [m for p in plan.parts if (p.memory or first) == memory for m in p.members]
    beside = [c for c in (*plan.counted, *plan.machine) if (c.memory or first) == memory]
    inside = [(m.first, m.last, sizes.number(m.bytes)) for m in blocks]
    others = [(c.first, c.last, None if c.bytes is None else sizes.number(c.bytes)) for c in beside]
    if any(size is None for _, _, size in (*inside, *others)):
        return None
    if not calls:
        return sum(align(size or 0, ALIGNMENT) for _, _, size in (*inside, *others))
    return _most(inside, calls) + _most(others, range(plan.moments + 2))


def _most(lives: Sequence[tuple[int, int, int | None]], moments: Iterable[int]) -> int:
    """Return the most bytes that are alive at one of some moments."""
    return max(sum(align(n or 0, ALIGNMENT) for a, b, n in lives if a <= k <= b) for k in moments)
