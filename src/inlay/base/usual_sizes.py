"""The size of a dim that nobody says, by its name: one guess for who plans and for who runs.

A batch is one item. What else is open (a length, a number of rows) has no usual size: who plans for all runs
counts on a middling one, who runs a program once to see it run takes a small one.
"""

from __future__ import annotations

MIDDLING = 64
"""What plans count on for a dim of which nothing is known."""


def is_batch(name: str) -> bool:
    """Whether a dim is called as a batch is."""
    return "batch" in name.lower() or name in ("N", "B")


def planned_size(name: str) -> int:
    """Return the size of a dim that plans count on where nobody says one."""
    return 1 if is_batch(name) else MIDDLING
