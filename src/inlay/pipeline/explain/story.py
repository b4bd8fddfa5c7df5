"""All about operations of one name: where, why, which kernel, which schedule, which memory; as data.

Names are those that pins have. An operation is followed through the passes by where it comes from, which
whatever replaces it keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from inlay.base.diagnostics import error
from inlay.base.span import Span
from inlay.ir.expr import Call
from inlay.ir.module import Module
from inlay.ir.walk import postorder
from inlay.memory.explicit_alloc import SCRATCH
from inlay.memory.plan import Stored
from inlay.pipeline.explain.fusion import FusionExplanation, border_json, call_json, fusion_of
from inlay.pipeline.explain.loops import KernelSchedule, schedule_of
from inlay.pipeline.explain.memory import MemoryExplanation, memory_of
from inlay.pipeline.report import size_json
from inlay.pipeline.running import Run
from inlay.placement.choose.decide import Decision
from inlay.placement.explain.reasons import Placed, as_run, explanation_of
from inlay.placement.infer.operations import Operation
from inlay.placement.infer.pins import find_operations, forms_of, names_of_span
from inlay.transforms.fuse_ops import REASONS, Border, KernelCall


@dataclass(frozen=True, slots=True)
class Lives:
    """Where a result of a kernel is.

    Attributes:
        value: its name.
        memory: the name of the memory; empty where it has no place before the program runs.
        why: then, why not.
        stored: its offset, size and life.
        life: in words, when it is in use.
    """

    value: str
    memory: str
    why: str = ""
    stored: Stored | None = None
    life: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        found: dict[str, Any] = {"value": self.value, "memory": self.memory, "why": self.why}
        if self.stored is not None:
            s = self.stored
            found |= {"offset": size_json(s.offset), "bytes": size_json(s.bytes)}
            found |= {"first": s.first, "last": s.last, "life": self.life}
            found["shares"] = [n for n in s.names if n != self.value]
        return found


@dataclass(frozen=True, slots=True)
class Part:
    """A kernel in which an operation is computed.

    Attributes:
        call: of the kernel.
        borders: why it is not one with its neighbors.
        schedule: of the kernel.
        results: where they live.
    """

    call: KernelCall
    borders: tuple[Border, ...]
    schedule: KernelSchedule
    results: tuple[Lives, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """One operation from its place to its memory.

    Attributes:
        name: where it comes from, or its operator.
        operators: what it is when places are chosen.
        placed: with what it is planned as one.
        parts: the kernels that it became.
        outside: what of it is in no kernel, with the reason.
    """

    name: str
    operators: tuple[str, ...]
    placed: tuple[Placed, ...]
    parts: tuple[Part, ...]
    outside: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Story:
    """All about the operations of one name.

    Attributes:
        board: the name of the machine.
        node: the name.
        told: one entry for each operation.
        fusion: of the whole program.
        no_memory: why there is no plan of memory; empty where there is one.
    """

    board: str
    node: str
    told: tuple[Told, ...]
    fusion: FusionExplanation
    no_memory: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "board": self.board,
            "node": self.node,
            "no_memory": self.no_memory,
            "operations": [self._told(t) for t in self.told],
        }

    def _told(self, t: Told) -> dict[str, Any]:
        return {
            "name": t.name,
            "operators": t.operators,
            "placement": [asdict(p) for p in t.placed],
            "kernels": [
                {
                    **call_json(self.fusion, p.call),
                    "borders": [border_json(b) for b in p.borders],
                    "schedule": p.schedule.to_json(),
                    "results": [r.to_json() for r in p.results],
                }
                for p in t.parts
            ],
            "outside": [{"operator": o, "reason": why} for o, why in t.outside],
        }


def story_of(run: Run, node: str, no_memory: str = "") -> Story:
    """Return all about the operations of a name.

    Args:
        run: of the passes up to the kernels, or all.
        node: a name as in pins.
        no_memory: why memory was not planned.

    Raises:
        CompileError: `name.unknown`.
    """
    assert run.planned is not None, "who asks about places has run the pass that plans them"
    decision, forms = run.planned.found.decision, forms_of(run.setting.operators)
    operations: Sequence[Operation] = () if decision is None else decision.operations
    _check_known(run.loaded, operations, node)
    chosen = find_operations(operations, node, forms)
    together: dict[Span | int, list[Operation]] = {}
    for o in chosen:
        together.setdefault(o.call.span or id(o), []).append(o)
    placed = explanation_of(run.planned).operations
    fusion, memory = fusion_of(run), memory_of(run)
    assert decision is not None, "operations were found"
    planned, _ = as_run(decision)
    told = tuple(_told(run, ops, planned, placed, fusion, memory) for ops in together.values())
    return Story(run.setting.board.name, node, told, fusion, no_memory)


def _check_known(loaded: Module, operations: Sequence[Operation], node: str) -> None:
    """Refuse a node of the model that is in the program no more, and say so.

    Raises:
        CompileError: `name.unknown`.
    """
    left = {name for o in operations for name in names_of_span(o.call.span)}
    calls = (e for e in postorder(loaded.functions.values()) if isinstance(e, Call))
    if node not in left and any(node in names_of_span(e.span) for e in calls):
        raise error(
            "name.unknown",
            f"found '{node}', of which no operation is left where places are chosen",
            hint="it was computed while compiling, became part of others, or nothing needs it",
        )


def _told(
    run: Run,
    operations: Sequence[Operation],
    decision: Decision,
    placed: Sequence[Placed],
    fusion: FusionExplanation,
    memory: MemoryExplanation,
) -> Told:
    """Return all about operations that come from one place."""
    span, indices = operations[0].call.span, {decision.operations.index(o) for o in operations}
    units = [i for i, unit in enumerate(decision.units) if indices & set(unit)]
    calls = [c for c in fusion.calls if span and any(m.span == span for m in c.members)]
    kernels = run.module.kernels
    parts = tuple(
        Part(
            call,
            tuple(fusion.borders_of(call)),
            schedule_of(run, fusion, kernels[call.kernel]),
            _results(call, memory),
        )
        for call in calls
    )
    outside = tuple((m.operator, REASONS[why]) for m, why in fusion.outside if span and m.span == span)
    names = tuple(dict.fromkeys(o.name for o in operations))
    return Told(str(span) if span else names[0], names, tuple(placed[i] for i in units), parts, outside)


def _results(call: KernelCall, memory: MemoryExplanation) -> tuple[Lives, ...]:
    """Return where the results of a kernel live: those of its values that have storage."""
    members = [(name, m.span) for m in call.members for name in (m.value, f"{m.value}{SCRATCH}")]
    found: list[Lives] = []
    for plan in memory.plans:
        for part in plan.parts:
            for s in part.members:
                shared = [v for v in zip(s.names, s.spans, strict=True) if v in members]
                life = plan.life(s.first, s.last)
                found += [Lives(name, memory.memory(part), "", s, life) for name, _ in shared]
        found += [Lives(s.name, "", s.why) for s in plan.counted if (s.name, s.span) in members]
    return tuple(found)
