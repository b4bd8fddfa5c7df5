"""Which back end a device has: the one whose name its architecture gives as `loader`."""

from __future__ import annotations

import functools
import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

from inlay.base.diagnostics import error
from inlay.base.registry import ModuleTable, nearest
from inlay.codegen.interface import Backend, described
from inlay.machine.board import Board
from inlay.machine.device import DESCRIPTION, Device
from inlay.machine.target import Target


@functools.cache
def backends() -> ModuleTable[Backend]:
    """Return the back ends by name: files of this package, and entry points of installed ones."""
    return ModuleTable("back end", "inlay.codegen.backends", _pick, group="inlay.backends")


@functools.cache
def accelerators() -> ModuleTable[Backend]:
    """Return the back ends that descriptions of accelerators are, by the names of their files."""
    return ModuleTable("accelerator", "inlay.accelerators", _described, group="inlay.accelerators")


def _described(module: ModuleType) -> Backend:
    # A description knows how it is asked: what makes a back end of it is above this package.
    making: Any = importlib.import_module("inlay.accel.backend")
    return making.backend_in(module)


@functools.cache
def _in_file(path: str, _changed: int) -> Backend:
    """Return the back end that the description in a file is; read again when the file has changed."""
    making: Any = importlib.import_module("inlay.accel.backend")
    return making.backend_in_file(path)


def _back_end(loader: str) -> Backend | None:
    if loader.endswith(DESCRIPTION):
        if not Path(loader).is_file():
            raise error("load.missing", f"found no file {loader}, needed the description of an accelerator")
        return _in_file(loader, Path(loader).stat().st_mtime_ns)
    return backends().get(loader) or accelerators().get(loader)


def _pick(module: ModuleType) -> Backend:
    found: Any = getattr(module, "BACKEND", None)
    lacking = [x for x in vars(Backend) if x[0] != "_" and not hasattr(found, x)]
    if lacking:
        what = "no BACKEND" if found is None else f"a BACKEND without {', '.join(lacking)}"
        raise error(
            "target.bad-backend",
            f"found {what} in {module.__name__}, which makes code for devices",
            hint="derive its class from inlay.codegen.interface.Backend",
        )
    return found


def backend_of(board: Board, device: str) -> Backend | None:
    """Return the back end of a device, None where nothing here makes code for its architecture."""
    arch = board.arch_of(device)
    found = _back_end(arch.loader)
    return found if found is not None and found.takes(arch) else None


def unavailable(board: Board, device: str) -> str:
    """Return why no code is made for a device of a board as programs run on it, or nothing."""
    arch, backend = board.arch_of(device), backend_of(board, device)
    if backend is not None:
        return backend.unavailable(board, device)
    known = sorted(name for t in (backends(), accelerators()) for name, b in t.items() if b.takes(arch))
    if not known:
        return f"no code generator here makes code for {arch.name}"
    close = nearest(arch.loader, known)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    return f"{arch.name} has the loader '{arch.loader}', needed {' or '.join(known)}{hint}"


def no_host(board: Board) -> str:
    """Return why the host of a board cannot be one, or nothing.

    A host for which no code is made here is one that is only described: it can be planned for.
    """
    backend = backend_of(board, board.host.name)
    if backend is None or type(backend).generator is not Backend.generator:
        return ""
    return f"'{board.host.arch}' is the code of devices beside a host, and runs no program"


def passed_over(board: Board) -> list[tuple[str, str, str]]:
    """Return what a board says of architectures that would do nothing: the name of one, the key, and why."""
    found: list[tuple[str, str, str]] = []
    for arch in board.archs:
        devices = [d.name for d in board.devices if d.arch == arch.name]
        if "hand_off_ns" in dict(arch.facts) and board.host.name not in devices:
            found.append((arch.name, "hand_off_ns", "only the host gives threads parts of a kernel"))
        backend = backend_of(board, devices[0]) if devices else None
        if backend is None:
            continue
        if arch.detect and type(backend).detect is Backend.detect:
            found.append((arch.name, "detect", f"devices of '{arch.loader}' are not asked what they are"))
        if arch.parameters and devices == [board.host.name]:
            found.append((arch.name, "parameters", f"'{devices[0]}' is the host, which takes none"))
    return found


def works_in(board: Board, device: Device) -> tuple[str, ...]:
    """Return the memories that a device works in: all of them where no code is made for it."""
    backend = backend_of(board, device.name)
    return device.memories if backend is None else backend.works_in(board, device)


def target_of(board: Board, device: str) -> Target:
    """Return what code of a device is made for, or would be if there were a back end.

    Raises:
        RunError, UnsupportedError: as `Backend.target`.
    """
    backend = backend_of(board, device)
    if backend is None:
        return described(Target(), board, device)
    return backend.target(board, device)
