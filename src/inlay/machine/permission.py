"""Leave to use registers that an operating system hands out on request.

Linux keeps the tiles of a matrix unit from a process until it asks: they make what is saved of each
thread larger by 8 KB. Threads and children made by `fork` have what their process has.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys

_ARCH_PRCTL = 158
_REQUEST_PERMISSION = 0x1023
_TILE_DATA = 18


@functools.cache
def may_use_tiles() -> bool:
    """Ask for the tiles of x86 processors, once; whether this process may use them now.

    Older kernels and some virtual machines refuse, and so does Linux where a thread has a stack for
    signals that would be too small.
    """
    if not sys.platform.startswith("linux") or platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    try:
        call = ctypes.CDLL(None).syscall
    except (OSError, AttributeError):
        return False
    arguments = (ctypes.c_long(n) for n in (_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA))
    return call(*arguments) == 0
