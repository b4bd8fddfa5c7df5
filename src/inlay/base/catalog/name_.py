"""Errors of names in tables: passes, operators, boards, architectures, commands."""

from __future__ import annotations

from inlay.base.catalog.entry import Entry

ENTRIES = (
    Entry(
        id="name.unknown",
        title="a name that the table does not have",
        explanation="Something was asked for by name and nothing has that name.",
        remedy="Check the spelling, or define it; `inlay targets` lists boards, passes and operators.",
    ),
    Entry(
        id="name.duplicate",
        title="an installed package adds a name that is taken",
        explanation="Two entries of one table have the same name, so neither can be meant by it.",
        remedy="Rename the entry point of the installed package, or uninstall it.",
    ),
)
