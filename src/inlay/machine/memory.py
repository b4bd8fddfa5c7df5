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
    STACK = "stack"
    """The stack of the device that owns it; holds small temporaries of that device alone."""
    ROM = "rom"
    """Constants, written when the program is loaded or before."""
    INTERNAL = "internal"
    """Filled by the hardware itself; only its capacity counts."""
    REGISTER = "register"
    """Addressed by name, not by number."""


class Keeps(StrEnum):
    """How long a pool keeps its contents."""

    KERNEL = "kernel"
    RUN = "run"
    LOAD = "load"


@dataclass(frozen=True, slots=True)
class Pool:
    """A memory.

    Attributes:
        name: as programs and reports say it (`dram`, `npu0.spad`).
        kind: how it comes to its bytes.
        alignment: of everything placed in it, in bytes; a power of two.
        bytes: how many there are; None where nothing here bounds them.
        banks: how many parts of it can be accessed at once.
        keeps: how long contents last.
        owner: the device whose own it is, None where it belongs to nobody.
        bytes_per_ns: bandwidth, for costs.
        latency_ns: of one access, for costs.
    """

    name: str
    kind: PoolKind
    alignment: int = 64
    bytes: int | None = None
    banks: int = 1
    keeps: Keeps = Keeps.RUN
    owner: str | None = None
    bytes_per_ns: float = 12.0
    latency_ns: float = 0.0
