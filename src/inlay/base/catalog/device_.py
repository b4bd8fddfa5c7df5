"""Errors about devices and the ways between them."""

from __future__ import annotations

from inlay.base.catalog.entry import Entry

ENTRIES = (
    Entry(
        id="device.no-path",
        title="a value that cannot get from where it is made to where it is used",
        explanation=(
            "Values move over the links of the board, one after the other. No sequence of links "
            "leads from a memory the value may be in to one in which it may be used."
        ),
        remedy=(
            "Add a link to the board, let both devices address one coherent memory, or put one of "
            "the two operations elsewhere."
        ),
    ),
)
