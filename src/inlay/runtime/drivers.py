"""What this Python does for drivers of devices, which the C runtime cannot know; by name of the driver.

An installed package brings its own driver by an entry point of the group `inlay.drivers` that is named
as the driver and leads to a module with a `DRIVER`; it is read when a device first needs that driver.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inlay.runtime import _runtime
from inlay.runtime.host_cpu import this_machine


def _unchanged(options: str) -> str:
    return options


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Driver:
    """What is to be done for a driver.

    Attributes:
        prepare: done before a device is opened.
        options: completes the options of a device.
        offers: completes the options of a device that a server offers on so many threads; None where
            servers do not offer it.
        forks: whether its devices work on in a forked child.
        is_remote: whether its devices may be lost and come back.
        client_bytes: usual bound of the memory of one client of a server; 0 for none.
        table: address of its functions, an `inlay_driver_t`; None where they are built in.
    """

    prepare: Callable[[], None] = _nothing
    options: Callable[[str], str] = _unchanged
    offers: Callable[[str, int], str] | None = None
    forks: bool = True
    is_remote: bool = False
    client_bytes: Callable[[], int] = int
    table: Callable[[], int] | None = None


def _with_offers(options: str) -> str:
    """Return options with what this processor offers to images, unless they say it."""
    return options if "offers=" in options else f"{options} offers={this_machine().offers}"


def _with_threads(options: str, threads: int) -> str:
    return options if "threads=" in options else f"{options} threads={threads}"


def _half_of_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def provide_zeromq() -> None:
    """Load the library in pyzmq's wheel, if there is one, so that the C runtime finds it.

    It has a name there by which the system does not know it. Without it the runtime looks for the
    system's. Loading it again does nothing.
    """
    if library := zeromq_library():
        ctypes.CDLL(library, ctypes.RTLD_GLOBAL)


def zeromq_library() -> str | None:
    """Return the path of the library in pyzmq's wheel, if that is installed."""
    found = importlib.util.find_spec("zmq")
    if found is None or found.origin is None:
        return None
    beside = Path(found.origin).parent.parent / "pyzmq.libs"
    return next((str(path) for path in sorted(beside.glob("libzmq*.so*"))), None)


DRIVERS: Mapping[str, Driver] = {
    "null": Driver(),
    "host": Driver(),
    "native": Driver(options=_with_offers, offers=_with_threads, client_bytes=_half_of_memory),
    "opencl": Driver(offers=lambda options, _: options, forks=False),
    "remote": Driver(prepare=provide_zeromq, is_remote=True),
}


_ADDED: dict[str, Driver] = {}
"""Those of other packages that were needed."""


def driver_of(name: str) -> Driver:
    """Return what is to be done for a driver; nothing for one that nobody knows."""
    found = DRIVERS.get(name) or _ADDED.get(name)
    if found is not None:
        return found
    # Its parser of metadata costs more to import than all else that loading an executable needs.
    metadata: Any = importlib.import_module("importlib.metadata")
    for point in metadata.entry_points(group="inlay.drivers", name=name):
        added: Driver = point.load().DRIVER
        if added.table is not None:
            _runtime.add_driver(added.table())
        return _ADDED.setdefault(name, added)
    return Driver()


def prepared(names: Iterable[str]) -> list[Driver]:
    """Return drivers, after what is to be done before their devices are opened."""
    found = [driver_of(name) for name in names]
    for driver in found:
        driver.prepare()
    return found
