"""Places: where a value lives, written on the node that produces it.

A place names a device and the memories still allowed there; which one of them is taken is decided
by memory planning. The plan is in the program: there are no side tables, and every
expression has its place by those it is made of.
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

    A value with parts has a place for each: a tuple for each field, a data type for each type
    argument (and then for each field that mentions neither those nor the type itself), a cell for
    its content, a function for each parameter and then for its result. The closure itself, the spine
    of a list and control values (`int`, `bool`, `shape`) have no place of their own. That of a
    tensor constant is where it is needed: it is written unless an operation reads it there.

    Attributes:
        device: name of a device of the board; empty where only the memories, or only the parts, are
            said.
        memories: names of the memories still allowed, sorted; None = all that the device addresses.
        origin: whether a person asked for it or the planner chose it.
        fields: places of the parts (None where undecided); empty where `device` says it for all.
        region: of an operation that its device runs together with others, what they are called
            together; no two of them are told apart by what is outside. Empty for one that is alone.
    """

    device: str
    memories: tuple[str, ...] | None = None
    origin: Origin = Origin.PLANNED
    fields: tuple[Place | None, ...] = ()
    region: str = ""
