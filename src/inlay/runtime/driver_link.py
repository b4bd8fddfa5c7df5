"""Functions of a driver in another process: what they are given is sent, and what they write comes back.

A message, all numbers with their lowest byte first:

    to the driver     u32 length of the name of a function, the name, u8 length of the type that it returns,
                      the type (`i32`; empty for none), u32 number of arguments; of each argument
                      u8 0, i64 number | u8 1, u64 size, bytes | u8 2, u64 size, bytes that may be written
    to the process    i64 what the function returned, then the bytes of each argument of kind 2

One call at a time. A driver ends when its input ends. `driver_server` is one, for any shared library.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from inlay.base.diagnostics import error

NUMBER, READ, WRITTEN = range(3)
"""Kinds of arguments."""
_CHUNK = 1 << 20


class Link:
    """A driver in another process.

    Args:
        device: whose it is, for messages.
        command: of a process that is started; none for a server.
        host, port: of a server.
        seconds: how long an answer may take.
    """

    def __init__(self, device: str, command: Sequence[str], host: str, port: int, seconds: float) -> None:
        self._device, self._command, self._address, self._seconds = device, command, (host, port), seconds
        self._open: tuple[int, socket.socket, subprocess.Popen[bytes] | None] | None = None
        self._lock = threading.Lock()

    def function(self, name: str, returns: str) -> Callable[..., int]:
        """Return a function of it; whether there is one the driver says when it is called."""

        def called(*args: Any) -> int:
            with self._lock:
                return self._call(name, returns, args)

        return called

    def _call(self, name: str, returns: str, args: Sequence[Any]) -> int:
        request = bytearray(struct.pack("<I", len(name)) + name.encode())
        request += struct.pack("<B", len(returns)) + returns.encode() + struct.pack("<I", len(args))
        written: list[tuple[np.ndarray, bytes]] = []
        for x in args:
            if isinstance(x, np.ndarray):
                kind = WRITTEN if x.flags.writeable else READ
                sent = x.tobytes()
                request += struct.pack("<BQ", kind, len(sent)) + sent
                written += [(x, sent)] if kind == WRITTEN else []
            else:
                request += struct.pack("<Bq", NUMBER, self._number(x, name))
        link, until = self._connected(), time.monotonic() + self._seconds
        try:
            link.settimeout(self._seconds)
            link.sendall(request)
            status = struct.unpack("<q", self._received(link, 8, until))[0]
            for x, sent in written:
                found = self._received(link, len(sent), until)
                if found != sent:  # a constant may be where nobody can write
                    ctypes.memmove(x.ctypes.data, found, len(sent))
        except TimeoutError:
            self._end()
            raise error(
                "run.device-lost", f"'{self._device}' did not answer {name} within {self._seconds:g} seconds"
            ) from None
        except OSError as failure:
            raise error(
                "run.device-lost", f"'{self._device}' ended during {name}: {self._why(failure)}"
            ) from None
        return status

    def _number(self, x: Any, name: str) -> int:
        if isinstance(x, int):
            return x
        if isinstance(x, ctypes.c_void_p):
            raise error(
                "run.device-failed",
                f"{name} of '{self._device}' is given a structure, which has addresses of this process",
                hint="give its fields one by one, or use a library in this process",
            )
        return int(x.value)

    def _connected(self) -> socket.socket:
        """Return the connection; open it, also where this process is a copy of the one that did."""
        if self._open is not None and self._open[0] == os.getpid():
            return self._open[1]
        try:
            link, process = self._started() if self._command else (self._joined(), None)
        except OSError as failure:
            raise error(
                "run.device-absent",
                f"the driver of '{self._device}' cannot be reached: {failure}",
                hint="start it, or compile for a board without the device",
            ) from None
        self._open = os.getpid(), link, process
        weakref.finalize(self, _ended, link, process)
        return link

    def _started(self) -> tuple[socket.socket, subprocess.Popen[bytes]]:
        link, theirs = socket.socketpair()
        with theirs:
            try:
                end = theirs.fileno()
                return link, subprocess.Popen(self._command, stdin=end, stdout=end)
            except OSError:
                link.close()
                raise

    def _joined(self) -> socket.socket:
        link = socket.create_connection(self._address, timeout=self._seconds)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return link

    def _received(self, link: socket.socket, size: int, until: float) -> bytes:
        found = bytearray()
        while len(found) < size:
            link.settimeout(max(until - time.monotonic(), 1e-3))
            part = link.recv(min(size - len(found), _CHUNK))
            if not part:
                raise ConnectionError("it closed the connection")
            found += part
        return bytes(found)

    def _why(self, failure: OSError) -> str:
        """Return why a driver ended; the next call starts it again."""
        status = self._end()
        return f"it ended with {status}" if status is not None else str(failure)

    def _end(self) -> int | None:
        if self._open is None:
            return None
        _, link, process = self._open
        self._open = None
        return _ended(link, process)


def _ended(link: socket.socket, process: subprocess.Popen[bytes] | None) -> int | None:
    """Close a connection and end its process; return what that ended with, if it did so by itself."""
    link.close()
    if process is None:
        return None
    try:
        return process.wait(timeout=0.5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


@cache
def link_of(device: str, command: Sequence[str], host: str, port: int, seconds: float) -> Link:
    """Return the link of a device to a driver: one for all its functions in this process."""
    return Link(device, command, host, port, seconds)
