"""Memories: named pools of bytes on a machine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class PoolKind(StrEnum):
    """How a pool comes to its bytes."""

    HEAP = "heap"
    """As many as the operating system gives, while running."""
    STATIC = "static"
    """A fixed number, laid out before running."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A memory.

    Attributes:
        name: as programs and reports say it (`dram`).
        kind: how it comes to its bytes.
        alignment: of everything placed in it, in bytes; a power of two.
        bytes: how many there are; None where nothing here bounds them.
    """

    name: str
    kind: PoolKind
    alignment: int = 64
    bytes: int | None = None
