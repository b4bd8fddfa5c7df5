"""`inlay serve`: offer a device of this machine to programs elsewhere, which use it as `remote`.

Who connects can run code here, and needs the key of the server: that of its user, made when it is
first needed, unless another file is named. Each client has a process, and so much memory and time.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import signal
import threading
from collections.abc import Generator
from pathlib import Path
from types import FrameType

from inlay.base.byte_sizes import bytes_in
from inlay.base.diagnostics import error
from inlay.cli._command import Command, Output, warn
from inlay.cli._numbers import integer
from inlay.runtime.chosen import usable_processors
from inlay.runtime.drivers import driver_of
from inlay.runtime.serve import Limits, Server, make_key

_DEVICES = {"host": "native", "opencl": "opencl"}
_LIMITS = Limits()
_MOST_SECONDS = 10**9
_PORT, _MOST_PORT = re.compile(r"tcp://.*:([0-9]{1,4000})"), 65535
_LOOK_SECONDS = 0.2


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device",
        choices=tuple(_DEVICES),
        default="host",
        help="what to offer: the processor of this machine (the default), or an OpenCL device",
    )
    parser.add_argument(
        "--listen",
        default="tcp://127.0.0.1:5555",
        metavar="ENDPOINT",
        help="tcp://ADDRESS:PORT (port * for any) or ipc://PATH; default %(default)s",
    )
    parser.add_argument(
        "--key",
        type=Path,
        metavar="FILE",
        help="only who has this key connects, and what is said is encrypted; made if it is not there; "
        "~/.config/inlay/remote.key where none is named, on both sides",
    )
    parser.add_argument(
        "--anyone",
        action="store_true",
        help="do without a key: who reaches the endpoint can run code here (clients say key=none)",
    )
    parser.add_argument("--options", default="", help="words key=value for the device's driver")
    parser.add_argument("--clients", type=integer(1, 65536), default=16, help="how many may connect at once")
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        help="what a client may have of the device, as in 512MiB; 0: no bound; default half of this "
        "machine's memory, for an OpenCL device what it has",
    )
    parser.add_argument(
        "--seconds",
        type=integer(0, _MOST_SECONDS),
        default=_LIMITS.seconds,
        metavar="N",
        help="what a kernel, a copy or the building of code may take; 0: no bound; default %(default)s",
    )
    parser.add_argument(
        "--idle",
        type=integer(0, _MOST_SECONDS),
        default=_LIMITS.idle,
        metavar="N",
        help="seconds after which who asks for nothing gives its place back; 0: never; default %(default)s",
    )


def _limits(arguments: argparse.Namespace) -> Limits:
    """Return what a client may have, as the arguments say."""
    memory = None
    if arguments.memory is not None:
        try:
            memory = 0 if arguments.memory == "0" else bytes_in(arguments.memory)
        except ValueError as needed:
            raise error("option.bad-value", f"found --memory {arguments.memory}, needed {needed}") from None
    return Limits(memory, arguments.seconds, arguments.idle)


def _key(arguments: argparse.Namespace) -> Path | None:
    """Return the file of the key, made where there is none; None where there is to be no key."""
    if arguments.key and arguments.anyone:
        raise error("option.bad-value", "found --key and --anyone, needed one of them")
    if arguments.anyone:
        return None
    path, is_new = make_key(arguments.key or "own")
    if is_new:
        warn(f"wrote a new key to {path}; clients elsewhere need a copy")
    return path


def _run(arguments: argparse.Namespace, output: Output) -> int:
    port = _PORT.fullmatch(arguments.listen)
    if port is not None and int(port[1]) > _MOST_PORT:  # ZeroMQ would take the rest of a division
        raise error(
            "option.bad-value",
            f"found port {port[1]} in --listen {arguments.listen}, needed 0 to {_MOST_PORT}",
        )
    limits, key = _limits(arguments), _key(arguments)
    driver, options = _DEVICES[arguments.device], arguments.options
    offers = driver_of(driver).offers
    options = options if offers is None else offers(options, usable_processors())
    with (
        _asked_to_end() as ended,
        Server(driver, arguments.listen, options, arguments.clients, key, limits) as server,
    ):
        # At once and as one line also for programs: they wait for it.
        output.announce(
            f"serving {arguments.device} at {server.endpoint}",
            device=arguments.device,
            endpoint=server.endpoint,
            key=key and str(key),
        )
        # A signal just before a wait does not end it: its handler runs on this thread, when that looks next.
        while not ended.wait(_LOOK_SECONDS):
            pass
    return 0


@contextlib.contextmanager
def _asked_to_end() -> Generator[threading.Event]:
    """Give an event that SIGINT and SIGTERM set; afterwards they do what they did before."""
    ended = threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        ended.set()

    before = [(n, signal.signal(n, end)) for n in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield ended
    finally:
        for number, handler in before:
            signal.signal(number, handler)


COMMAND = Command(_arguments, _run)
