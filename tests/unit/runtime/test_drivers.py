"""Drivers that an extension adds, and what Python does for drivers."""

from __future__ import annotations

import ctypes
import importlib.metadata
from types import SimpleNamespace

import numpy as np
import pytest

from inlay.base.diagnostics import CompileError
from inlay.runtime import _runtime, device
from inlay.runtime.device import OpenDevice
from inlay.runtime.drivers import Driver, driver_of

KEPT: list[object] = []
"""Tables of drivers live as long as the process."""


def renamed(name: str, of: str = "host") -> int:
    """Return the table of a driver under another name."""
    table = device._Driver()
    addresses, _ = _runtime.drivers()
    # `is_lost`, which Python does not use, stands behind what it knows.
    size = ctypes.sizeof(table) + ctypes.sizeof(ctypes.c_void_p)
    copy = ctypes.create_string_buffer(ctypes.string_at(addresses[of], size), size)
    text = ctypes.create_string_buffer(name.encode())
    ctypes.c_void_p.from_buffer(copy).value = ctypes.addressof(text)
    KEPT.extend((copy, text))
    return ctypes.addressof(copy)


def test_a_driver_of_another_package_is_found_by_its_name(monkeypatch) -> None:
    prepared: list[str] = []
    record = Driver(
        prepare=lambda: prepared.append("once"),
        table=lambda: renamed("made_up"),
        options=lambda options: f"{options} memory=4096",
    )
    module = SimpleNamespace(DRIVER=record)

    def entry_points(group: str, name: str) -> list[object]:
        assert group == "inlay.drivers"
        return [SimpleNamespace(load=lambda: module)] if name == "made_up" else []

    with pytest.raises(CompileError, match="no driver named 'made_up'"):
        OpenDevice("made_up")
    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    with OpenDevice("made_up", "units=2") as opened:
        assert opened.facts.units == 2
        assert opened.facts.memory_bytes == 4096
        memory, data = opened.allocate(8), np.arange(8, dtype=np.uint8)
        opened.copy(memory, data).wait()
    assert prepared == ["once"]
    assert "made_up" in _runtime.drivers()[0]
    assert driver_of("made_up").options("") == " memory=4096"
    with pytest.raises(CompileError, match="no driver named 'other'"):
        OpenDevice("other")


def test_two_drivers_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="there is a driver 'null' already"):
        _runtime.add_driver(_runtime.drivers()[0]["null"])
    with pytest.raises(ValueError, match="needed the address"):
        _runtime.add_driver(0)
