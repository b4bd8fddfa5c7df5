"""`inlay serve`: offer a device of this machine to programs elsewhere, which use it as `remote`.

Who connects can run code here. So it listens on the loopback address; elsewhere it wants a key, or the
word that everybody who reaches it is trusted.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from inlay.base.diagnostics import error
from inlay.cli._command import Command, Output
from inlay.runtime.serve import Server, make_key
from inlay.runtime.session import usable_processors

_DEVICES = {"host": "native", "opencl": "opencl"}
_NEAR = ("tcp://127.", "tcp://localhost:", "tcp://[::1]:", "ipc://")
"""Beginnings of endpoints that other machines do not reach."""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", choices=tuple(_DEVICES), default="host",
        help="what to offer: the processor of this machine (the default), or an OpenCL device",
    )  # fmt: skip
    parser.add_argument(
        "--listen", default="tcp://127.0.0.1:5555", metavar="ENDPOINT",
        help="tcp://ADDRESS:PORT (port * for any) or ipc://PATH; default %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--key", type=Path, metavar="FILE",
        help="only who has this key connects, and what is said is encrypted; made if it is not there",
    )  # fmt: skip
    parser.add_argument(
        "--anyone", action="store_true",
        help="listen beyond this machine without a key: who reaches it can run code here",
    )  # fmt: skip
    parser.add_argument("--options", default="", help="words key=value for the device's driver")
    parser.add_argument("--clients", type=int, default=16, help="how many may connect at once")


def _run(arguments: argparse.Namespace, output: Output) -> int:
    if arguments.clients < 1:
        raise error("option.bad-value", f"found {arguments.clients} clients, needed 1 or more")
    if not (arguments.key or arguments.anyone or arguments.listen.startswith(_NEAR)):
        raise error(
            "option.bad-value",
            f"found --listen {arguments.listen}, where other machines may reach it, and no key",
            hint="add --key FILE, and copy that file to those who may connect",
        )
    if arguments.key and make_key(arguments.key):
        print(f"wrote a new key to {arguments.key}; clients need a copy", file=sys.stderr)
    ended = threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    driver, options = _DEVICES[arguments.device], arguments.options
    if driver == "native" and "threads=" not in options:
        options = f"{options} threads={usable_processors()}"
    with Server(driver, arguments.listen, options, arguments.clients, arguments.key) as server:
        # At once and as one line also for programs: they wait for it.
        output.announce(
            f"serving {arguments.device} at {server.endpoint}",
            device=arguments.device, endpoint=server.endpoint,
        )  # fmt: skip
        ended.wait()
    return 0


COMMAND = Command(_arguments, _run)
