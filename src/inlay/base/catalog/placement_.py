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
        explanation="A place or an annotation names a device, and the board has none of that name.",
        remedy="Use a name that `inlay targets` lists for the board.",
    ),
    Entry(
        id="placement.unknown-memory",
        title="a memory that the board does not have",
        explanation=(
            "A place or an annotation names a memory, and the board has none of that name. Besides "
            "memories, `global`, `workspace` (no stack), `stack`, and devices and engines (for what "
            "they address) may be named."
        ),
        remedy="Use a name that `inlay targets check BOARD` lists.",
    ),
    Entry(
        id="placement.bad-pin",
        title="a pin that says nothing",
        explanation=(
            "A pin is PATTERN=DEVICE. The pattern matches names of operators or of nodes of the "
            "model, with `*`, or all of a function: `@f`. This one has another form, or matches no "
            "operation of the program as it is when places are planned."
        ),
        remedy="Correct the pattern; `inlay explain` lists the operations.",
    ),
    Entry(
        id="placement.over-capacity",
        title="a program that fits no placement",
        explanation=(
            "Values live in the memories of the devices that make and read them. Whatever devices "
            "are chosen, more bytes are needed at once than some memory has."
        ),
        remedy="Use a board with more memory, smaller sizes, or fewer device annotations.",
    ),
    Entry(
        id="placement.too-many-occurrences",
        title="functions with cells that occur too often to be told apart",
        explanation=(
            "Each occurrence of a function may be placed differently. In large programs further "
            "occurrences that are given the same cells share a place, but those that make cells, are "
            "given others or are polymorphic cannot, and where such functions call each other over "
            "many levels, each level may double what is below it."
        ),
        remedy="Hand one cell to all calls, or call over fewer levels.",
    ),
    Entry(
        id="placement.copy-of-structure",
        title="a list or other data type that would be copied as a whole",
        explanation=(
            "An annotation or a `device_copy` names a value of a data type, or of any type in a "
            "generic function, and another device. Code is made for copies of tensors alone: the spine "
            "of a list is read by the host, and its tensors are moved one by one where they are used."
        ),
        remedy="Put the annotation on the tensors, where they are made or used, or leave it out.",
    ),
    Entry(
        id="placement.bad-calibration",
        title="a file of measured costs that cannot be read",
        explanation="The file is JSON: a factor by device and operator, as `inlay bench` writes it.",
        remedy="Write it again with `inlay bench --calibrate BOARD`.",
    ),
)
