"""A server of a device from Python: offers what a driver drives to devices `remote` elsewhere.

    with Server("opencl", "tcp://127.0.0.1:5555") as server:
        print(server.endpoint)
        ...

The server runs in a thread of the C runtime, without the GIL. Each client has a process, a copy of this
one as it was when the server was opened. Who can connect can run code here, and needs the key for that
(`runtime/include/inlay_serve.h`).
"""

from __future__ import annotations

import ctypes as c
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from inlay.base.diagnostics import unsupported
from inlay.base.registry import unknown_name
from inlay.runtime import _runtime
from inlay.runtime.device import check
from inlay.runtime.drivers import DRIVERS, driver_of, provide_zeromq

_MESSAGE_BYTES = 4096
_P = c.c_void_p


class _Config(c.Structure):
    _fields_ = (
        ("driver", _P),
        ("options", c.c_char_p),
        ("endpoint", c.c_char_p),
        ("key", c.c_char_p),
        ("library", c.c_char_p),
        ("most_clients", c.c_uint32),
        ("memory_bytes", c.c_uint64),
        ("seconds", c.c_uint32),
        ("idle_seconds", c.c_uint32),
    )


@dataclass(frozen=True, slots=True)
class Limits:
    """What a client of a server may have; 0 where nothing bounds it.

    Attributes:
        memory: bytes of its device, for tensors and code; None: for a processor half of what the
            machine has, for other devices what they have.
        seconds: that a kernel, a copy, or the building of code may take.
        idle: seconds that it may ask for nothing before its place is given back.
    """

    memory: int | None = None
    seconds: int = 120
    idle: int = 600


class Server:
    """A server that listens and serves; `close` it, or use it in `with`.

    Args:
        driver: of the device that is offered; `native` is the processor itself.
        endpoint: where to listen, `tcp://ADDRESS:PORT` (port `*` for any) or `ipc://PATH`.
        options: words `key=value` of the driver; every client gets a device with them.
        clients: how many may be connected at once.
        key: file of the key that clients must have too (option `key` of `remote`), see `make_key`;
            "own" for that of this user, which is made where there is none; None to let anybody in.
        limits: what each client may have.

    Raises:
        RunError: `run.device-absent` where there is no such device or no ZeroMQ library,
            `run.bad-argument` where it cannot listen there, does not know an option or finds no
            key, `name.unknown`.
        UnsupportedError: `run.device-absent` where this build has no servers.
    """

    def __init__(
        self,
        driver: str,
        endpoint: str,
        options: str = "",
        clients: int = 16,
        key: Path | Literal["own"] | None = "own",
        limits: Limits | None = None,
    ) -> None:
        served = driver_of(driver)
        if served.offers is None:
            raise unknown_name("driver", driver, [n for n, d in DRIVERS.items() if d.offers])
        self._table = _table()
        drivers, host = _runtime.drivers()
        provide_zeromq()
        words = served.options(options).strip()
        given = limits or Limits()
        config = _Config(
            drivers[driver],
            os.fsencode(words),
            os.fsencode(endpoint),
            _key_word(key),
            None,
            clients,
            served.client_bytes() if given.memory is None else given.memory,
            given.seconds,
            given.idle,
        )
        handle, message = _P(), c.create_string_buffer(_MESSAGE_BYTES)
        begin = c.CFUNCTYPE(c.c_int, _P, _P, _P, c.c_char_p, c.c_size_t)(self._table["open"])
        check(begin(host, c.addressof(config), c.addressof(handle), message, _MESSAGE_BYTES), message)
        self._handle = handle.value
        listens = c.CFUNCTYPE(c.c_char_p, _P)(self._table["endpoint"])
        self.endpoint = listens(self._handle).decode()
        self._thread = threading.Thread(target=self._call, args=("run",), name="inlay-serve")
        self._thread.start()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening, wait some seconds at most for what clients have in flight, and end."""
        if self._handle:
            self._call("stop")
            self._thread.join()
            self._call("close")
            self._handle = None

    def _call(self, name: str) -> None:
        c.CFUNCTYPE(None, _P)(self._table[name])(self._handle)


def _key_word(key: Path | Literal["own"] | None) -> bytes | None:
    if key == "own":
        return None
    return b"none" if key is None else os.fsencode(key.absolute())


def make_key(path: Path | Literal["own"]) -> tuple[Path, bool]:
    """Write a new key to a file that only its owner can read, unless there is a file.

    Args:
        path: the file; "own" for that of this user, which is used where no other is named.

    Returns:
        The file, and whether the key is new.

    Raises:
        RunError: `run.bad-argument` where the file cannot be written, or where this user has no
            home for it.
        UnsupportedError: `run.device-absent` where this build has no servers.
    """
    is_new, message = c.c_int(), c.create_string_buffer(_MESSAGE_BYTES)
    found = c.create_string_buffer(_MESSAGE_BYTES)
    text = (c.c_char_p, c.c_size_t)
    make = c.CFUNCTYPE(c.c_int, c.c_char_p, *text, c.POINTER(c.c_int), *text)(_table()["key"])
    word = _key_word(path)
    check(make(word, found, _MESSAGE_BYTES, c.byref(is_new), message, _MESSAGE_BYTES), message)
    return Path(os.fsdecode(found.value)), bool(is_new.value)


def _table() -> dict[str, int]:
    table = _runtime.server()
    if not table:
        raise unsupported("run.device-absent", "this build of the runtime has no servers")
    return table
