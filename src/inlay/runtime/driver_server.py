"""A shared library as a driver in a process of its own: `python -m inlay.runtime.driver_server LIBRARY`.

It reads calls from its input and answers on its output (`driver_link`), where what the library prints goes to
the errors; with `--port`, of those who connect to this machine, one after the other.
"""

from __future__ import annotations

import argparse
import os
import socket
import struct
from typing import BinaryIO

import numpy as np

from inlay.base.diagnostics import RunError
from inlay.runtime.driver_link import NUMBER, WRITTEN
from inlay.runtime.driver_places import function_of

NO_FUNCTION = -(2**31)
"""What is returned of a function that is not there."""


def serve(library: str, calls: BinaryIO, answers: BinaryIO) -> None:
    """Answer calls of the functions of a library until there are no more."""
    while head := calls.read(4):
        name = calls.read(struct.unpack("<I", head)[0]).decode()
        returns = calls.read(calls.read(1)[0]).decode()
        (count,) = struct.unpack("<I", calls.read(4))
        given: list[int | np.ndarray] = []
        written: list[np.ndarray] = []
        for _ in range(count):
            kind, number = struct.unpack("<Bq", calls.read(9))
            if kind == NUMBER:
                given.append(number)
                continue
            # Rows of 64 bytes begin where tensors may.
            whole = np.zeros(number + 64, np.uint8)
            first = -whole.ctypes.data % 64
            array = whole[first : first + number]
            array[:] = np.frombuffer(calls.read(number), np.uint8)
            given.append(array)
            written += [array] if kind == WRITTEN else []
        try:
            status = function_of(library, name, "this device", returns)(*given)
        except RunError as failure:
            os.write(2, f"{failure}\n".encode())
            status = NO_FUNCTION
        answers.write(struct.pack("<q", status) + b"".join(x.tobytes() for x in written))
        answers.flush()


def main() -> None:
    """Serve a library."""
    parser = argparse.ArgumentParser(description="Serve the functions of a shared library.")
    parser.add_argument("library", help="a module of Python that is a shared library, a file, or a name")
    parser.add_argument("--port", type=int, help="listen on this machine; 0 for any, which is printed")
    said = parser.parse_args()
    if said.port is None:
        answers = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        serve(said.library, os.fdopen(0, "rb"), answers)
        return
    with socket.create_server(("127.0.0.1", said.port)) as listening:
        os.write(1, f"{listening.getsockname()[1]}\n".encode())
        while True:
            link, _ = listening.accept()
            with link, link.makefile("rb") as calls, link.makefile("wb") as answers:
                serve(said.library, calls, answers)


if __name__ == "__main__":
    main()
