"""What leaves memories for a time, as lines for people."""

from __future__ import annotations

from collections.abc import Iterator

from inlay.cli._model import counted, size_text
from inlay.memory.spill_values import SpillPlan
from inlay.placement.explain.reasons import time_text


def spill_lines(plan: SpillPlan, *, everything: bool) -> Iterator[str]:
    """Return what is moved in a function; all that is predicted of it where everything is asked for."""
    where, number = " and ".join(plan.memories), counted(len(plan.moved), "value")
    needed, room = size_text(plan.needed), size_text(plan.room)
    yield f"    {number} not in {where} all the time: {needed} would be needed at once, {room} are there"
    for m in plan.moved:
        how = f"to {m.to} by {plan.engine}" if m.to else "made once more"
        out = f"{time_text(m.out_ns)} out, " if m.out_ns else ""
        yield (
            f"      {m.name}: {size_text(m.bytes)} {how}, after {m.after} until {m.before} "
            f"({out}{time_text(m.back_ns)} back)"
        )
    t = plan.time
    yield (
        f"      predicted: {time_text(t.ns)}; with one thing after the other {time_text(t.serial_ns)}; "
        f"of the kernels {time_text(t.steps_ns)}"
    )
    for e in plan.events if everything else ():
        yield f"      {time_text(e.begin):>9} to {time_text(e.end):>9} {e.by}: {e.what} {e.how}"
