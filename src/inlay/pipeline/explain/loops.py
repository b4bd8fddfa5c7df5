"""How kernels are scheduled, and why not otherwise, as data.

A kernel has one schedule: the one that the code generator gets, made when somebody asks first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from inlay.base.diagnostics import CompileError, RunError
from inlay.ir.kernel import Kernel
from inlay.loop.func import LoopFunction
from inlay.loop.stmt import Block, For, Stmt
from inlay.loop.walk import child_stmts
from inlay.pipeline.build_kernels import LoopBody
from inlay.pipeline.explain.fusion import FusionExplanation, fusion_of
from inlay.pipeline.running import Run
from inlay.pipeline.tuned_use import TunedUse, tuned_use
from inlay.schedule.choose import Decision


@dataclass(frozen=True, slots=True)
class Nest:
    """A block of scheduled loops.

    Attributes:
        block: its name.
        loops: around it, outermost first: name, extent, how it runs.
    """

    block: str
    loops: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class KernelSchedule:
    """The schedule of one kernel.

    Attributes:
        kernel: its name.
        origin: the operators that it was made of.
        device: that runs it.
        decision: how it was scheduled; None where that is not done here.
        why_none: why it is not.
        nests: the scheduled loops, in order of execution.
    """

    kernel: str
    origin: str
    device: str
    decision: Decision | None
    why_none: str = ""
    nests: tuple[Nest, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        found = {"kernel": self.kernel, "origin": self.origin, "device": self.device, "why": self.why_none}
        d = self.decision
        if d is None:
            return found
        return {
            **found,
            "rule": d.rule,
            "refused": [{"rule": rule, "id": x.id, "reason": x.message} for rule, x in d.refused],
            "declined": [{"step": str(step), "reason": why} for step, why in d.declined],
            "steps": [str(step) for step in d.steps],
            "facts": dict(d.facts),
            "choice": dict(d.choice.values),
            "open": [
                {"name": q.name, "default": q.default, "options": list(q.options), "answer": q.answer}
                for q in d.questions
            ],
            "unused": list(d.unused),
            "loops": [
                {
                    "block": n.block,
                    "loops": [dict(zip(("name", "extent", "kind"), x, strict=True)) for x in n.loops],
                }
                for n in self.nests
            ],
        }


@dataclass(frozen=True, slots=True)
class LoopsExplanation:
    """How the kernels of a program are scheduled.

    Attributes:
        board: the name of the machine.
        kernels: in order of definition.
        tuned: which measured choices they have; None where no file was given.
    """

    board: str
    kernels: tuple[KernelSchedule, ...]
    tuned: TunedUse | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        tuned = {} if self.tuned is None else {"tuned": self.tuned.to_json()}
        return {"board": self.board, "kernels": [k.to_json() for k in self.kernels], **tuned}


def loops_of(run: Run) -> LoopsExplanation:
    """Return how kernels are scheduled, and those of several calls at once. Cost: that of lowering them."""
    fusion = fusion_of(run)
    found: list[KernelSchedule] = []
    for kernel in run.module.kernels.values():
        found.append(schedule_of(run, fusion, kernel))
        if (many := _batched(run, kernel)) is not None:
            found.append(many)
    return LoopsExplanation(run.setting.board.name, tuple(found), tuned_use(run))


def schedule_of(run: Run, fusion: FusionExplanation, kernel: Kernel) -> KernelSchedule:
    """Return how a kernel is scheduled."""
    board, body = run.setting.board, kernel.body
    if not isinstance(body, LoopBody):
        return KernelSchedule(
            kernel.name, kernel.origin, board.host.name, None, "its code comes from outside"
        )
    place = body.function.place
    device = place.device if place is not None and place.device else board.host.name
    # A host that is only described is planned for, and so are its loops.
    why = run.without_code.get(device, "") if device != board.host.name else ""
    if why:
        why = f"no code is made here for '{device}': {why}"
    elif body.of_device is not None and body.of_device.is_copy:
        why = "it copies from memory to memory, and has no loops"
    elif any(c.is_region and c.kernel == kernel.name for c in fusion.calls):
        why = f"'{device}' takes it as it is, without loops" + (f": {kernel.note}" if kernel.note else "")
    if why:
        return KernelSchedule(kernel.name, kernel.origin, device, None, why)
    try:
        decision = body.schedule()
    except (CompileError, RunError) as refusal:
        return KernelSchedule(kernel.name, kernel.origin, device, None, refusal.diagnostics[0].message)
    return KernelSchedule(kernel.name, kernel.origin, device, decision, nests=nests_of(decision.function))


def _batched(run: Run, kernel: Kernel) -> KernelSchedule | None:
    """Return how several calls of a kernel are scheduled as one; None where they do not run so."""
    body, batch = kernel.body, kernel.batch
    if batch is None or not isinstance(body, LoopBody) or body.batched is None:
        return None
    device = run.setting.board.host.name
    try:
        decision = body.batched()
    except (CompileError, RunError) as refusal:
        return KernelSchedule(batch.code, kernel.origin, device, None, refusal.diagnostics[0].message)
    return KernelSchedule(batch.code, kernel.origin, device, decision, nests=nests_of(decision.function))


def nests_of(function: LoopFunction) -> tuple[Nest, ...]:
    """Return the blocks of scheduled loops with the loops around each."""
    found: list[Nest] = []
    pending: list[tuple[Stmt, tuple[tuple[str, str, str], ...]]] = [(function.body, ())]
    while pending:
        stmt, around = pending.pop()
        if isinstance(stmt, Block):
            found.append(Nest(stmt.name, around))
            continue
        if isinstance(stmt, For):
            around = (*around, (stmt.var.name, str(stmt.extent), str(stmt.kind)))
        pending += [(child, around) for child in reversed(child_stmts(stmt))]
    return tuple(found)
