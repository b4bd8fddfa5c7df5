"""Where the values of a program live, and what it takes of each memory, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from inlay.base.named_sizes import named_sizes
from inlay.ir.kernel import Kernel
from inlay.ir.module import Module
from inlay.machine.board import Board
from inlay.memory.account import Account, accounts_of
from inlay.memory.budget import around_of
from inlay.memory.choose_memories import MemoryOptions
from inlay.memory.dim_sizes import DimSizes, dim_sizes
from inlay.memory.plan import Counted, FunctionPlan, MemoryPart, Sharing
from inlay.memory.plan_memory import BlockOptions
from inlay.memory.reuse import Reuse, find_reuse
from inlay.memory.spill_values import SpillPlan
from inlay.ops.device import copy_in
from inlay.pipeline.build_kernels import LoopBody
from inlay.pipeline.explain.spills import spill_json
from inlay.pipeline.report import memory_json, size_json
from inlay.pipeline.running import Run
from inlay.placement.plan_places import PlanOptions
from inlay.transforms import grow_state, update_state
from inlay.transforms._packings import FasterForm


@dataclass(frozen=True, slots=True)
class Planned:
    """What comes of one way to share bytes.

    Attributes:
        sharing: which values share bytes.
        accounts: what the entry takes of each memory, the host's first.
        reuse: what orders its kernels; None where a dim has no size.
    """

    sharing: Sharing
    accounts: tuple[Account, ...]
    reuse: Reuse | None

    @property
    def peak(self) -> int:
        """Bytes of a call at most at once in the host's memory."""
        return self.accounts[0].peak


@dataclass(frozen=True, slots=True)
class StackUse:
    """What kernels of a device have on the stack of one caller.

    Attributes:
        device: its name.
        budget: bytes that their temporaries may take.
        most: that those of one kernel take.
        kernel: which one.
        unknown: kernels of which nobody says it.
    """

    device: str
    budget: int
    most: int
    kernel: str
    unknown: int


@dataclass(frozen=True, slots=True)
class MemoryExplanation:
    """Where the values of a program live, and what they take.

    Attributes:
        board: the machine.
        plans: of each function that needs memory, and of constants where their memory is fixed.
        module: with explicit storage in its places.
        entry: the function that is called; what follows is of it.
        dims: the sizes of its dims that numbers are for: as asked for (`typical`), else their bounds.
        threads: that scratch memory of kernels is for.
        budgets: bytes that plans may take of memories, by name.
        chosen: what comes of the plan.
        other: what would come of the other way to share bytes.
        spills: what leaves memories that are too small for a time.
        plain: operations that have a form that is faster and takes more bytes than a budget has.
        stacks: what kernels have on stacks, device by device.
        states: what sessions keep where it is, and what they do not, in words.
    """

    board: Board
    plans: tuple[FunctionPlan, ...]
    module: Module
    entry: str
    dims: DimSizes
    threads: int
    budgets: Mapping[str, int]
    chosen: Planned
    other: Planned
    spills: tuple[SpillPlan, ...] = ()
    plain: tuple[FasterForm, ...] = ()
    stacks: tuple[StackUse, ...] = ()
    states: tuple[str, ...] = ()

    @property
    def accounts(self) -> tuple[Account, ...]:
        """What the entry takes of each memory, the host's first."""
        return self.chosen.accounts

    def memory(self, part: MemoryPart | Counted) -> str:
        """Return the name of the memory of a part, which is the first one's where nothing is said."""
        return part.memory or self.board.memories[0].name

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "board": self.board.name,
            "entry": self.entry,
            "sizes": self.dims.used,
            "unsized": list(self.dims.unbounded),
            "threads": self.threads,
            "budgets": dict(self.budgets),
            "plan": str(self.chosen.sharing),
            "takes": [account_json(a) for a in self.accounts],
            "plans": {str(p.sharing): _planned_json(p) for p in (self.chosen, self.other)},
            "reuse": None if self.chosen.reuse is None else _reuse_json(self.chosen.reuse),
            "memory": [{**memory_json(p), "buffers": self._buffers(p)} for p in self.plans],
            "moved": [spill_json(p) for p in self.spills],
            "plain": [asdict(f) for f in self.plain],
            "stacks": [asdict(s) for s in self.stacks],
            "states": list(self.states),
        }

    def _buffers(self, plan: FunctionPlan) -> list[dict[str, Any]]:
        """Return what has a place in a plan; live from one moment to another."""
        return [
            {
                "names": s.names,
                "memory": self.memory(part),
                "offset": size_json(s.offset),
                "bytes": size_json(s.bytes),
                "first": s.first,
                "last": s.last,
                "accesses": s.accesses,
                "memories": [asdict(x) for x in s.others],
            }
            for part in plan.parts
            for s in part.members
        ]


def account_json(account: Account) -> dict[str, Any]:
    """Return an account as plain data: its attributes, the sum with constants, and whether it is proved."""
    found: dict[str, Any] = {f.name: getattr(account, f.name) for f in fields(account)}
    found["kind"] = account.kind.value
    found["held"] = [{f.name: getattr(h, f.name) for f in fields(h)} for h in account.held]
    return {**found, "total": account.total, "proved": account.proved}


def _planned_json(planned: Planned) -> dict[str, Any]:
    reuse = planned.reuse
    return {
        "peaks": {a.memory: a.peak for a in planned.accounts},
        "edges": None if reuse is None else len(reuse.edges),
        "path_ns": None if reuse is None else reuse.path_ns,
        "overlap": None if reuse is None else round(reuse.overlap, 3),
    }


def _reuse_json(reuse: Reuse) -> dict[str, Any]:
    return {
        "kernels": list(reuse.kernels),
        "edges": [list(e) for e in reuse.edges],
        "serial_ns": reuse.serial_ns,
        "path_ns": reuse.path_ns,
        "overlap": round(reuse.overlap, 3),
    }


def memory_of(run: Run) -> MemoryExplanation:
    """Return where values live, and what they take."""
    board = run.setting.board
    entry = next(iter(run.module.entries), run.module.entry)
    typical = named_sizes(run.setting.context.options_for(PlanOptions).typical)
    sizes = dim_sizes(run.module.functions[entry], typical)
    threads = run.threads.get(board.host.name, 1)
    chosen = _planned(run, run.sharing, run.module, run.plans, entry, sizes, threads)
    other = chosen
    if run.other is not None:
        (sharing,) = (s for s in Sharing if s is not run.sharing)
        other = _planned(run, sharing, *run.other(), entry, sizes, threads)
    budgets = run.setting.context.options_for(BlockOptions).budget.bytes
    needed = tuple(p for p in run.plans if p.parts or p.counted)
    plain = tuple(f for f in run.forms if not f.is_taken)
    return MemoryExplanation(
        board,
        needed,
        run.module,
        entry,
        sizes,
        threads,
        budgets,
        chosen,
        other,
        run.spills,
        plain,
        _stacks(run),
        tuple(
            r.message for p in (grow_state, update_state) for r in run.setting.context.remarks.of(p.PASS.name)
        ),
    )


def _stacks(run: Run) -> tuple[StackUse, ...]:
    """Return what kernels made of loops have on stacks, by device."""
    board = run.setting.board
    by_device: dict[str, list[Kernel]] = {}
    for kernel in run.module.kernels.values():
        if isinstance(kernel.body, LoopBody) and copy_in(kernel.body.function) is None:
            place = kernel.body.function.place
            device = board.host.name if place is None or not place.device else place.device
            by_device.setdefault(device, []).append(kernel)
    found: list[StackUse] = []
    for device, kernels in by_device.items():
        known = [(k.stack, k.name) for k in kernels if k.stack is not None]
        if known:
            most, name = max(known, key=lambda x: x[0])
            budget = run.setting.targets(device).stack_bytes
            found.append(StackUse(device, budget, most, name if most else "", len(kernels) - len(known)))
    return tuple(found)


def _planned(
    run: Run,
    sharing: Sharing,
    module: Module,
    plans: Sequence[FunctionPlan],
    entry: str,
    sizes: DimSizes,
    threads: int,
) -> Planned:
    options = run.setting.context.options_for(MemoryOptions)
    options = replace(options, pools=run.setting.board.memories)  # as they are, without budgets
    around = around_of(module, entry, options, sizes, threads)
    accounts = accounts_of(plans, entry, module.entries, around)
    return Planned(sharing, accounts, find_reuse(module, entry, sizes.number))
