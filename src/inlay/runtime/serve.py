"""A server of a device from Python: offers what a driver drives to devices `remote` elsewhere.

    with Server("opencl", "tcp://127.0.0.1:5555") as server:
        print(server.endpoint)
        ...

The server runs in a thread of the C runtime, without the GIL. Who can connect can run code here: give
it a key, or listen where every user and machine is trusted (`runtime/include/inlay_serve.h`).
"""

from __future__ import annotations

import ctypes as c
import os
import secrets
import threading
from pathlib import Path
from types import TracebackType

from inlay.base.diagnostics import unsupported
from inlay.base.files import writing
from inlay.base.registry import unknown_name
from inlay.runtime import _runtime
from inlay.runtime.device import check, options_of, provide_zeromq

DRIVERS = ("native", "opencl")
"""What may be offered: `native` is the processor itself."""

_MESSAGE_BYTES = 4096
_P = c.c_void_p


class _Config(c.Structure):
    _fields_ = (
        ("driver", _P), ("options", c.c_char_p), ("endpoint", c.c_char_p),
        ("key", c.c_char_p), ("library", c.c_char_p), ("most_clients", c.c_uint32),
    )  # fmt: skip


class Server:
    """A server that listens and serves; `close` it, or use it in `with`.

    Args:
        driver: one of `DRIVERS`.
        endpoint: where to listen, `tcp://ADDRESS:PORT` (port `*` for any) or `ipc://PATH`.
        options: words `key=value` of the driver; every client gets a device with them.
        clients: how many may be connected at once.
        key: file of the key that clients must have too (option `key` of `remote`); see `make_key`.

    Raises:
        RunError: `run.device-absent` where there is no such device or no ZeroMQ library,
            `run.bad-argument` where it cannot listen there, does not know an option or finds no
            key, `name.unknown`.
        UnsupportedError: `run.device-absent` where this build has no servers.
    """

    def __init__(
        self, driver: str, endpoint: str, options: str = "", clients: int = 16,
        key: Path | None = None,
    ) -> None:  # fmt: skip
        if driver not in DRIVERS:
            raise unknown_name("driver", driver, DRIVERS)
        self._table = _runtime.server()
        if not self._table:
            raise unsupported("run.device-absent", "this build of the runtime has no servers")
        drivers, host = _runtime.drivers()
        provide_zeromq()
        words = options_of(driver, options).strip()
        path = None if key is None else os.fsencode(key)
        config = _Config(drivers[driver], words.encode(), endpoint.encode(), path, None, clients)
        handle, message = _P(), c.create_string_buffer(_MESSAGE_BYTES)
        begin = c.CFUNCTYPE(c.c_int, _P, _P, _P, c.c_char_p, c.c_size_t)(self._table["open"])
        check(
            begin(host, c.addressof(config), c.addressof(handle), message, _MESSAGE_BYTES), message
        )
        self._handle = handle.value
        listens = c.CFUNCTYPE(c.c_char_p, _P)(self._table["endpoint"])
        self.endpoint = listens(self._handle).decode()
        self._thread = threading.Thread(target=self._call, args=("run",), name="inlay-serve")
        self._thread.start()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
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


_DIGITS = (
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
)
"""Of Z85 (ZeroMQ RFC 32): four bytes are five digits to the base 85."""


def make_key(path: Path) -> bool:
    """Write a new key to a file that only its owner can read; return whether there was none yet.

    Raises:
        OSError: the file cannot be written.
    """
    data = secrets.token_bytes(32)
    words = (int.from_bytes(data[i : i + 4], "big") for i in range(0, len(data), 4))
    text = "".join(_DIGITS[word // 85**k % 85] for word in words for k in (4, 3, 2, 1, 0))
    if path.exists():
        return False
    try:
        with writing(path, mode=0o600, fresh=True) as stream:
            stream.write(f"{text}\n".encode())
    except FileExistsError:  # somebody else made one meanwhile
        return False
    return True
