"""A candidate: operations that a device would run as one.

Back ends offer them, and the planner chooses among them (`placement/choose/candidates.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from inlay.ir.expr import Call


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """Operations that a device runs as one.

    Attributes:
        calls: the operations; nodes of the module that was asked about, in program order, of one block.
            No way leads out of the set and back into it.
        device: that runs them.
        name: for people; an identifier.
        cost_ns: predicted nanoseconds; None leaves it to the costs of the board.
    """

    calls: tuple[Call, ...]
    device: str
    name: str
    cost_ns: float | None = None
