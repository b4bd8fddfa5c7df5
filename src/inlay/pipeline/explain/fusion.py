"""Which operations became one kernel, and for each border why its neighbors did not: as data.

All of it was decided and kept by the pass `fuse-ops`; what devices take as one by the planner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inlay.pipeline.running import Run
from inlay.transforms._groups import Reason
from inlay.transforms.fuse_ops import Border, KernelCall, Member


@dataclass(frozen=True, slots=True)
class FusionExplanation:
    """What became of the operators of a program.

    Attributes:
        board: the name of the machine.
        host: the name of the device that runs the program.
        calls: of kernels, function after function, in program order.
        borders: values that go from one kernel to another, or to what is no kernel.
        outside: operators that are in no kernel, with the reason.
    """

    board: str
    host: str
    calls: tuple[KernelCall, ...]
    borders: tuple[Border, ...]
    outside: tuple[tuple[Member, Reason], ...]

    @property
    def kernels(self) -> Mapping[str, int]:
        """How often each kernel is called, in order of first use."""
        return Counter(c.kernel for c in self.calls)

    def borders_of(self, call: KernelCall) -> list[Border]:
        """Return the borders of the kernel that is called there."""
        inside = {id(m) for m in call.members}
        return [b for b in self.borders if id(b.producer) in inside or id(b.reader) in inside]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "board": self.board,
            "kernels": [call_json(self, c) for c in self.calls],
            "borders": [border_json(b) for b in self.borders],
            "outside": [{**member_json(m), "reason": why} for m, why in self.outside],
        }


def fusion_of(run: Run) -> FusionExplanation:
    """Return what became one kernel, and why neighbors did not."""
    found = [c for f in run.fusions for c in f.calls]
    # Where kernels were placed again, those that were there stood as they were.
    made = {c.kernel for c in found if not c.is_region}
    calls = tuple(c for c in found if not (c.is_region and c.kernel in made))
    return FusionExplanation(
        run.setting.board.name,
        run.setting.board.host.name,
        calls,
        tuple(b for f in run.fusions for b in f.borders),
        tuple((m, why) for f in run.fusions for m, why in f.outside),
    )


def call_json(e: FusionExplanation, call: KernelCall) -> dict[str, Any]:
    """Return the call of a kernel as plain data."""
    return {
        "kernel": call.kernel,
        "function": call.function,
        "device": call.device or e.host,
        "region": call.is_region,
        "operations": [member_json(m) for m in call.members],
    }


def border_json(b: Border) -> dict[str, Any]:
    """Return a border as plain data."""
    return {
        "producer": member_json(b.producer),
        "reader": member_json(b.reader),
        "reason": b.reason,
        "message": b.message,
    }


def member_json(m: Member) -> dict[str, Any]:
    """Return a value as plain data."""
    return {"operator": m.operator, "value": m.value, "at": str(m.span) if m.span else ""}
