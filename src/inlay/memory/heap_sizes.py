"""Heaps of so many bytes: a program that surely needs more than there are is refused.

A heap gives bytes while the program runs, so what is asked of it may depend on data, and on the sizes of
dims. That is left to the run. What is known before is what a call takes with dims as small as they can be,
constants included; where that is more than the board says that there is, no call can end well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from inlay.arith.bounds import Range, bounds
from inlay.arith.expr import Int, Sym
from inlay.base.diagnostics import error
from inlay.ir.module import Module
from inlay.machine.memory import PoolKind
from inlay.memory.account import Account, accounts_of
from inlay.memory.budget import around_of
from inlay.memory.choose_memories import MemoryOptions
from inlay.memory.dim_sizes import dim_sizes
from inlay.memory.plan import FunctionPlan


def check_heaps(module: Module, plans: Sequence[FunctionPlan], options: MemoryOptions, threads: int) -> None:
    """Refuse an entry that needs more of a heap than it has.

    Args:
        module: as it was planned.
        plans: of its functions.
        options: the memories.
        threads: that the program is to run on.

    Raises:
        CompileError: `memory.no-room`.
    """
    if not any(pool.kind is PoolKind.HEAP and pool.bytes is not None for pool in options.pools):
        return
    for entry in module.entries or (module.entry,):
        sizes = dim_sizes(module.functions[entry], {})
        around = around_of(module, entry, options, sizes, threads)
        around = replace(around, sizes=partial(_least, sizes.ranges))
        for account in accounts_of(plans, entry, module.entries, around):
            if account.kind is PoolKind.HEAP and account.capacity is not None:
                _check(entry, account, account.capacity)


def _least(ranges: Mapping[Sym, Range], size: Int) -> int:
    return max(bounds(size, ranges).low or 0, 0)


def _check(entry: str, account: Account, capacity: int) -> None:
    needed = account.constants + (account.peak if account.is_exact else account.lower_bound)
    if needed <= capacity:
        return
    alive = (f"{', then '.join(h.names)} with {h.bytes} bytes" for h in account.held[:3])
    raise error(
        "memory.no-room",
        f"found no memory for a call of '{entry}', needed {needed} bytes",
        notes=[
            f"{account.memory}: it has {capacity} bytes",
            f"at {account.at} there are {', '.join(alive)}" if account.at else "it has constants",
        ],
        hint="give it more bytes in the board's file, or none where nothing bounds it; or use smaller sizes",
    )
