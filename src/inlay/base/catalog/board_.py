"""Errors of descriptions of machines."""

from __future__ import annotations

from inlay.base.catalog.entry import Entry

ENTRIES = (
    Entry(
        id="board.invalid",
        title="a description of a board that does not hold together",
        explanation=(
            "A board lists memories and devices. Each needs a name of its own; a device names its "
            "architecture and the memories of the board that it addresses."
        ),
        remedy="Correct the TOML file; the message says what was found and what was needed.",
    ),
)
