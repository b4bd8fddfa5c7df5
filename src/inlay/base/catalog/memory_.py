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
    Entry(
        id="memory.scope-empty",
        title="a value that no memory is left for",
        explanation=(
            "What is said of one value (at its definition, by an annotation, by the operation that "
            "makes it) allows sets of memories that have none in common that its device reaches. A "
            "copy cannot help, because it is one value. The message shows each fact and its set."
        ),
        remedy="Drop one of the facts, or put a copy between the two.",
    ),
)
