"""Errors of memory planning."""

from __future__ import annotations

from inlay.base.catalog.entry import Entry

ENTRIES = (
    Entry(
        id="memory.over-capacity",
        title="buffers that do not fit a memory",
        explanation=(
            "Every buffer gets a place for the time it is needed, and buffers needed at the same "
            "time share no byte. The message says whether that is impossible, or no plan was found."
        ),
        remedy="Give a larger memory, smaller sizes, or more planning steps.",
    ),
)
