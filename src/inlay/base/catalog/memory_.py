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
        id="memory.no-room",
        title="a value that no memory has room for",
        explanation=(
            "A value goes into the first memory that is allowed for it and has room as long as it is "
            "needed. Memories of a fixed size have no room for what may live longer than its function "
            "sees, for sizes without a bound, and for functions that call themselves; tensors are on a "
            "stack only where something says so and the code can have them there. The message names "
            "each allowed memory and why it is not possible."
        ),
        remedy="Allow another memory, give those of the board more bytes, or use smaller sizes.",
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
