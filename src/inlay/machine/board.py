"""Boards: which devices a machine has, and which memories they address.

A known board is a TOML file in `boards/`, found by its name:

    summary = "the machine that the compiler runs on"
    [[memory]]
    name = "dram"
    kind = "heap"
    [[device]]
    name = "cpu"
    arch = "native"
    memories = ["dram"]

The first device is the *host*: it runs the virtual machine. The first memory is the host's.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from inlay.base.diagnostics import Collector
from inlay.base.registry import unknown_name
from inlay.base.span import Span
from inlay.machine.device import Device
from inlay.machine.memory import Pool, PoolKind


@dataclass(frozen=True, slots=True)
class Board:
    """A machine.

    Attributes:
        name: of the board.
        summary: one line for lists.
        devices: the host first.
        memories: the host's first.
    """

    name: str
    summary: str
    devices: tuple[Device, ...]
    memories: tuple[Pool, ...]

    @property
    def host(self) -> Device:
        """The device that runs the virtual machine."""
        return self.devices[0]


def board_names() -> tuple[str, ...]:
    """Return the names of the known boards, sorted."""
    folder = resources.files("inlay.machine") / "boards"
    return tuple(
        sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml"))
    )


def find_board(name: str) -> Board:
    """Return a known board.

    Raises:
        CompileError: `name.unknown`; `board.invalid` where its file is wrong.
    """
    if name not in board_names():
        raise unknown_name("board", name, board_names())
    file = resources.files("inlay.machine") / "boards" / f"{name}.toml"
    return read_board(name, file.read_text(encoding="utf-8"), place=f"{name}.toml")


def read_board(name: str, text: str, *, place: str) -> Board:
    """Return the board that a TOML text describes.

    Raises:
        CompileError: all `board.invalid` at once.
    """
    findings = Collector()
    table: dict[str, Any] = {}
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as failure:
        findings.error("board.invalid", f"found {failure}", span=Span.named(place))
    findings.raise_if_fatal()
    memories = tuple(_pool(m, place, findings) for m in table.get("memory", ()))
    devices = tuple(_device(d, place, findings) for d in table.get("device", ()))
    known = {m.name for m in memories}
    for device in devices:
        for memory in device.memories:
            if memory not in known:
                _wrong(findings, place, f"device '{device.name}' addresses '{memory}', "
                                        f"which is no memory of the board")  # fmt: skip
    if not devices or not memories:
        _wrong(findings, place, "found a board without a device or without a memory")
    names = [x.name for x in (*devices, *memories)]
    for twice in sorted({x for x in names if names.count(x) > 1}):
        _wrong(findings, place, f"found two parts named '{twice}'")
    findings.raise_if_fatal()
    return Board(name, str(table.get("summary", "")), devices, memories)


def _pool(table: Mapping[str, Any], place: str, findings: Collector) -> Pool:
    name, kind = table.get("name"), table.get("kind", "heap")
    if not isinstance(name, str) or kind not in set(PoolKind):
        _wrong(findings, place, f"found memory {dict(table)}, needed a name and a kind out of "
                                f"{', '.join(PoolKind)}")  # fmt: skip
        return Pool("", PoolKind.HEAP)
    alignment, size = table.get("alignment", 64), table.get("bytes")
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        _wrong(findings, place, f"the alignment of '{name}' is {alignment}, needed a power of two")
        alignment = 64
    return Pool(name, PoolKind(kind), alignment, size)


def _device(table: Mapping[str, Any], place: str, findings: Collector) -> Device:
    name, arch, memories = table.get("name"), table.get("arch"), table.get("memories")
    if not isinstance(name, str) or not isinstance(arch, str) or not memories:
        _wrong(findings, place, f"found device {dict(table)}, needed name, arch and memories")
        return Device("", "", ())
    return Device(name, arch, tuple(memories))


def _wrong(findings: Collector, place: str, message: str) -> None:
    findings.error("board.invalid", message, span=Span.named(place))
