"""Places: where a value lives, written on the node that produces it.

A place names a device and the memories still allowed there; which one of them is taken is decided
by memory planning. The plan is in the program: there are no side tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Origin(StrEnum):
    """Who said so: replanning drops what was planned and keeps what the user wrote."""

    USER = "user"
    PLANNED = "planned"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the value of a node lives.

    Attributes:
        device: name of a device of the board.
        memories: names of the memories still allowed, sorted; None = all that the device addresses.
        origin: whether a person asked for it or the planner chose it.
        fields: for tuples, one place per field (None where undecided); otherwise empty.
    """

    device: str
    memories: tuple[str, ...] | None = None
    origin: Origin = Origin.PLANNED
    fields: tuple[Place | None, ...] = ()
