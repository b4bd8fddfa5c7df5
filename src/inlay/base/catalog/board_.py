"""Errors of descriptions of machines."""

from __future__ import annotations

from inlay.base.catalog.entry import Entry

ENTRIES = (
    Entry(
        id="board.invalid",
        title="a description of a board that does not hold together",
        explanation=(
            "A board lists architectures, memories, devices, engines and links. Each part needs a "
            "name of its own and may refer only to parts that are there: a device to its "
            "architecture and the memories that it addresses, a link to two memories that its "
            "engine addresses."
        ),
        remedy="Correct the line that the message names, and ask `inlay targets check FILE` again.",
    ),
)
