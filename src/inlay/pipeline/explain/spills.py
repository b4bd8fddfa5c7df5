"""What leaves memories for a time, as data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from inlay.memory.spill_values import SpillPlan


def spill_json(plan: SpillPlan) -> dict[str, Any]:
    """Return what was moved in a function as plain data; times are nanoseconds."""
    return {
        "function": plan.function,
        "memories": plan.memories,
        "engine": plan.engine,
        "needed_bytes": plan.needed,
        "room_bytes": plan.room,
        "values": [asdict(m) for m in plan.moved],
        "predicted_ns": round(plan.time.ns),
        "serial_ns": round(plan.time.serial_ns),
        "steps_ns": round(plan.time.steps_ns),
        "events": [asdict(e) for e in plan.events],
    }
