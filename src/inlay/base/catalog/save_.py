"""Errors of writing files."""

from __future__ import annotations

from inlay.base.catalog.entry import Entry

ENTRIES = (
    Entry(
        id="save.over-input",
        title="an output that is an input too",
        explanation=(
            "The file to be written is one that the same command reads, by this name or through a "
            "link: writing it would destroy a model, its weights or other inputs. Two outputs of one "
            "command may not be one file either."
        ),
        remedy="Give the output another name.",
    ),
)
