"""A driver that is a shared library of this process: its functions, called with addresses and integers."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

from inlay.base.diagnostics import error


@dataclass(frozen=True, slots=True)
class Functions:
    """The functions of a library."""

    path: str
    library: ctypes.CDLL

    def function(self, name: str) -> Callable[..., int]:
        """Return a function of 64-bit integers and addresses that gives a status.

        Raises:
            CompileError: `accel.declaration` where the library has none of this name.
        """
        try:
            found = getattr(self.library, name)
        except AttributeError:
            raise error(
                "accel.declaration", f"found no function '{name}' in {self.path}, which the encoding calls"
            ) from None

        def called(*args: int) -> int:
            return int(found(*(ctypes.c_int64(a) for a in args)))

        found.restype = ctypes.c_int64
        return called


def load(path: str, device: str) -> Functions:
    """Return a library by the name of a module, by its file, or as the system finds it.

    Raises:
        RunError: `run.device-absent`.
    """
    spec = importlib.util.find_spec(path) if _is_module(path) else None
    place = path if spec is None or spec.origin is None else spec.origin
    try:
        return Functions(place, ctypes.CDLL(place))
    except OSError as failure:
        raise error("run.device-absent", f"the driver of {device} cannot be loaded: {failure}") from None


def _is_module(path: str) -> bool:
    try:
        return "/" not in path and importlib.util.find_spec(path) is not None
    except (ImportError, ValueError):
        return False
