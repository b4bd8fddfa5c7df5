"""The record of one diagnostic id."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """What ``inlay errors ID`` prints.

    Attributes:
        id: ``area.kebab-name``; the area is the name of the file that holds it.
        title: One line, no period.
        explanation: When it is raised and why that is a problem; plain text, paragraphs separated
            by an empty line.
        remedy: What the reader can do, as actions.
        example: A small program or command that fails with this id, or nothing.
    """

    id: str
    title: str
    explanation: str
    remedy: str
    example: str = ""
