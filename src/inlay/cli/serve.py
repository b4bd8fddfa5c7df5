"""`inlay serve`: offer a device of this machine to programs elsewhere, which use it as `remote`."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from types import FrameType

from inlay.base.diagnostics import error
from inlay.cli._command import Command, Output
from inlay.runtime.serve import Server

_DEVICES = {"cpu": "native", "opencl": "opencl"}
_LOOPBACK = ("tcp://127.", "tcp://localhost:", "tcp://[::1]:", "ipc://")


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=tuple(_DEVICES), default="cpu", help="what to offer")
    parser.add_argument(
        "--listen", default="tcp://127.0.0.1:5555", metavar="ENDPOINT",
        help="tcp://ADDRESS:PORT (port * for any) or ipc://PATH; default %(default)s",
    )  # fmt: skip
    parser.add_argument("--options", default="", help="words key=value for the device's driver")
    parser.add_argument("--clients", type=int, default=16, help="how many may connect at once")


def _run(arguments: argparse.Namespace, output: Output) -> int:
    if arguments.clients < 1:
        raise error("option.bad-value", f"found {arguments.clients} clients, needed 1 or more")
    ended = threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    driver = _DEVICES[arguments.device]
    with Server(driver, arguments.listen, arguments.options, arguments.clients) as server:
        if not server.endpoint.startswith(_LOOPBACK):
            print("warning: whoever can connect can run code on this machine", file=sys.stderr)
        # At once and as one line also for programs: they wait for it.
        output.announce(
            f"serving {arguments.device} at {server.endpoint}",
            device=arguments.device, endpoint=server.endpoint,
        )  # fmt: skip
        ended.wait()
    return 0


COMMAND = Command(
    "offer a device of this machine to other processes and machines", _arguments, _run
)
