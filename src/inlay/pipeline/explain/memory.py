"""Where the values of a program live, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from inlay.ir.module import Module
from inlay.machine.board import Board
from inlay.memory.plan import FunctionPlan, MemoryPart
from inlay.pipeline.report import memory_json, size_json
from inlay.pipeline.running import Run


@dataclass(frozen=True, slots=True)
class MemoryExplanation:
    """Where the values of a program live.

    Attributes:
        board: the machine.
        plans: of each function that needs memory, and of constants where their memory is fixed.
        module: with explicit storage in its places.
    """

    board: Board
    plans: tuple[FunctionPlan, ...]
    module: Module

    def memory(self, part: MemoryPart) -> str:
        """Return the name of the memory of a part, which is the first one's where nothing is said."""
        return part.memory or self.board.memories[0].name

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "board": self.board.name,
            "memory": [{**memory_json(p), "buffers": self._buffers(p)} for p in self.plans],
        }

    def _buffers(self, plan: FunctionPlan) -> list[dict[str, Any]]:
        """Return what has a place in a plan; live from one kernel to another, by numbers from 1."""
        return [
            {
                "names": s.names,
                "memory": self.memory(part),
                "offset": size_json(s.offset),
                "bytes": size_json(s.bytes),
                "first": s.first,
                "last": s.last,
            }
            for part in plan.parts
            for s in part.members
        ]


def memory_of(run: Run) -> MemoryExplanation:
    """Return where values live."""
    needed = tuple(p for p in run.plans if p.parts or p.counted)
    return MemoryExplanation(run.setting.board, needed, run.module)
