"""Devices: named instances of an architecture on a machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """Something that runs operations.

    Attributes:
        name: as programs and reports say it (`cpu`, `npu0`).
        arch: name of its architecture: how it is programmed. `native` is the processor that the
            compiler itself runs on.
        memories: names of the memories it can address, the one it prefers first.
    """

    name: str
    arch: str
    memories: tuple[str, ...]
