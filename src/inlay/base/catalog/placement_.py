"""Errors of placement."""

from __future__ import annotations

from inlay.base.catalog.entry import Entry

ENTRIES = (
    Entry(
        id="placement.contradiction",
        title="one value that is asked to be in two places",
        explanation=(
            "Two facts put one thing on two devices where no copy may be written between: two "
            "operands of one operation that are both fixed, a cell that two aliases place "
            "differently, a variable with two places. The message shows both facts and how they "
            "come to be about the same value."
        ),
        remedy="Drop one of the two facts, or write a `device_copy` between them.",
    ),
    Entry(
        id="placement.unsupported-op",
        title="an operation on a device that cannot run it",
        explanation=(
            "The architecture of the device lacks the operator, or one of the element types; or no "
            "device of the board can run it."
        ),
        remedy="Put the operation on a device that the message names, or choose another board.",
    ),
    Entry(
        id="placement.unknown-device",
        title="a device that the board does not have",
        explanation="A place or a wish names a device, and the board has none of that name.",
        remedy="Use a name that `inlay targets` lists for the board.",
    ),
    Entry(
        id="placement.unknown-memory",
        title="a memory that the board does not have",
        explanation=(
            "A place or a wish names a memory, and the board has none of that name. Besides memories, "
            "`global`, `workspace` (no stack), `stack`, and devices and engines (for what they "
            "address) may be named."
        ),
        remedy="Use a name that `inlay targets check BOARD` lists.",
    ),
)
