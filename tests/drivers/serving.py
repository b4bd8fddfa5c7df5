"""Servers of devices in other processes, and peers that speak the wire as tests want."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from inlay.runtime.drivers import zeromq_library

MAGIC, VERSION = 0x31454D5259414C4E, 3
HELLO, PING, BYE, ALLOCATE, RELEASE, LOAD, UNLOAD, FIND, WRITE, READ, COPY, LAUNCH = range(1, 13)
WELCOME, REFUSED, PONG, ANSWER, DONE, FAILED = range(64, 70)


@dataclass(frozen=True, slots=True)
class Running:
    """A server that runs: where, the options of a device that reach it, and its process."""

    endpoint: str
    words: str
    process: subprocess.Popen[str]


@contextlib.contextmanager
def served(
    suite: Path,
    driver: str,
    options: str,
    listen: str = "tcp://127.0.0.1:*",
    key: Path | str = "none",
    *,
    memory: int = 0,
    seconds: int = 0,
    idle: int = 0,
) -> Iterator[Running]:
    """Serve a device under sanitizers; at the end the server must end well, unless it was killed.

    Without other words there is no key, and nothing bounds what a client has.
    """
    library = zeromq_library() or ""
    # Leaks are looked for where no library of a device keeps memory for good.
    leaks = f"detect_leaks={int(driver != 'opencl')}:allocator_may_return_null=1"
    env = {**os.environ, "POCL_CACHE_DIR": str(suite / "cache"), "ASAN_OPTIONS": leaks}
    server = subprocess.Popen(
        [suite / "serve", driver, options, listen, library, str(key), str(memory), str(seconds), str(idle)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )
    try:
        assert server.stdout
        line = server.stdout.readline().strip()
        if line.startswith("ABSENT"):
            pytest.skip(line.removeprefix("ABSENT "))
        words = f"endpoint={line}" + (f" library={library}" if library else "") + f" key={key}"
        yield Running(line, words, server)
    finally:
        server.terminate()
        out, err = server.communicate(timeout=30)
    assert "Sanitizer" not in err, err
    if server.returncode != -signal.SIGKILL:
        assert (server.returncode, out) == (0, "ended\n"), err


def text(value: str) -> bytes:
    """Return a text as messages have it."""
    data = value.encode()
    return struct.pack("<I", len(data)) + data


def head(kind: int, form: str = "", *values: int) -> bytes:
    """Return a head whose fields `struct` packs by `form`."""
    return struct.pack("<I" + form, kind, *values)


HELLO_HEAD = head(HELLO, "QII", MAGIC, VERSION, 5000)
WELCOME_HEAD = (
    head(WELCOME, "QI", MAGIC, VERSION)
    + text("a fake")
    + struct.pack("<IIQQII", 1, 2, 0, 1 << 30, 1, 1)
    + text("x86_64")
    + struct.pack("<Q", 1 << 25)
)
