"""Where functions of drivers are, and how they say that a device is done.

A shared library in this process; one whose functions begin something, and another function says when it is
done; a process of its own, or a server, which are sent what a function is given (`driver_link`). A place is
data that an executable keeps. Whoever is silent for too long is named, in all but the first.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, assert_never

import numpy as np

from inlay.base.diagnostics import error
from inlay.runtime.driver_arguments import C_TYPES
from inlay.runtime.driver_link import link_of

_FIRST_NAP, _LONGEST_NAP = 1e-5, 1e-3
"""Seconds between two questions whether a device is done; they double."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """A library in this process whose functions begin something.

    Attributes:
        library: as a `str` is.
        how: `poll`: the function is asked again and again; `event`: it waits for a number of milliseconds;
            `step`: it lets a number of cycles of the device pass. 1 is done, 0 not yet, less a fault.
        function: that is asked.
        seconds: after which the device is given up.
        cycles: of a step.
    """

    library: str
    how: str
    function: str
    seconds: float
    cycles: int = 0


@dataclass(frozen=True, slots=True)
class Child:
    """A process of its own, one for each device.

    Attributes:
        command: its words.
        library: that the process is to have in the place of a command.
        seconds: without an answer, after which it is ended.
    """

    command: tuple[str, ...]
    library: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is there already.

    Attributes:
        host, port: where.
        seconds: without an answer, after which it is given up.
    """

    host: str
    port: int
    seconds: float


Place: TypeAlias = str | Awaited | Child | Server
"""Of functions: the name of a module of Python that is a shared library, a file, or a name that the system's
loader finds; or another one of these."""


def function_of(place: Place, name: str, device: str, returns: str = "i64") -> Callable[..., int]:
    """Return a function of a driver, which takes arrays, integers and what `ctypes` has, and gives a number.

    Args:
        place: where it is.
        name: of the function.
        device: whose it is, for messages.
        returns: the type of C of the number; empty for none, which is 0.

    Raises:
        RunError: `run.device-absent` where the library, or the function in it, is not there.
    """
    match place:
        case str():
            return _in_library(place, name, device, returns)
        case Awaited(library=library):
            return _in_library(library, name, device, returns)
        case Child(command=command, library=library, seconds=seconds):
            words = command or (sys.executable, "-m", "inlay.runtime.driver_server", library)
            return link_of(device, words, "", 0, seconds).function(name, returns)
        case Server(host=host, port=port, seconds=seconds):
            return link_of(device, (), host, port, seconds).function(name, returns)
        case _:
            assert_never(place)


def starting(place: Place, name: str, device: str, returns: str = "i64") -> Callable[..., int]:
    """Return a function that ends when the device is done; as `function_of`.

    What it raises: `run.device-lost` where the device takes longer than it may.
    """
    begin = function_of(place, name, device, returns)
    if not isinstance(place, Awaited):
        return begin
    asked = function_of(place, place.function, device, "i32")

    def run(*args: Any) -> int:
        return begin(*args) or _ended(place, asked, name, device)

    return run


def _ended(place: Awaited, asked: Callable[..., int], name: str, device: str) -> int:
    """Wait until a device is done; return 0, or a fault."""
    until, nap = time.monotonic() + place.seconds, _FIRST_NAP
    while True:
        left = until - time.monotonic()
        match place.how:
            case "event":
                found = asked(max(1, int(left * 1000)))
            case "step":
                found = asked(place.cycles)
            case _:
                found = asked()
                if not found:
                    time.sleep(nap)
                    nap = min(2 * nap, _LONGEST_NAP)
        if found:
            return 0 if found == 1 else found
        if left < 0:
            raise error(
                "run.device-lost", f"'{device}' is not done with {name} after {place.seconds:g} seconds"
            )


def _in_library(library: str, name: str, device: str, returns: str) -> Callable[..., int]:
    spec = importlib.util.find_spec(library) if _is_module(library) else None
    place = library if spec is None or spec.origin is None else spec.origin
    try:
        found = getattr(ctypes.CDLL(place), name)
    except OSError as failure:
        raise error(
            "run.device-absent",
            f"the driver of '{device}' cannot be loaded: {failure}",
            hint="install it, or compile for a board without the device",
        ) from None
    except AttributeError:
        raise error(
            "run.device-absent", f"the driver of '{device}' has no function '{name}': {place}"
        ) from None

    def called(*args: Any) -> int:
        return found(*map(_given, args)) or 0

    found.restype = C_TYPES[returns] if returns else None
    return called


def _given(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return ctypes.c_void_p(x.ctypes.data)
    return ctypes.c_int64(x) if isinstance(x, int) else x


def _is_module(path: str) -> bool:
    try:
        return "/" not in path and importlib.util.find_spec(path) is not None
    except (ImportError, ValueError):
        return False


# ---------------------------------------------------------------------------- in executables


def place_record(place: Place) -> dict[str, Any]:
    """Return a place as an executable keeps it."""
    match place:
        case str():
            return {"library": place}
        case Awaited():
            waits = [place.how, place.function, place.seconds, place.cycles]
            return {"library": place.library, "waits": waits}
        case Child(command=command, library=library, seconds=seconds):
            return {"process": [command, library, seconds]}
        case Server(host=host, port=port, seconds=seconds):
            return {"server": [host, port, seconds]}
        case _:
            assert_never(place)


def place_of(said: Mapping[str, Any]) -> Place:
    """Return the place that a record has.

    Raises:
        ValueError: it is of no such form; so may be TypeError and KeyError.
    """
    match said:
        case {"process": [command, library, seconds]}:
            return Child(tuple(map(str, command)), str(library), float(seconds))
        case {"server": [host, port, seconds]}:
            return Server(str(host), int(port), float(seconds))
        case {"library": library, "waits": [("poll" | "event" | "step") as how, function, seconds, cycles]}:
            return Awaited(str(library), str(how), str(function), float(seconds), int(cycles))
        case _ if "waits" not in said:
            return str(said["library"])
        case _:
            raise ValueError(f"{said} says no driver")
