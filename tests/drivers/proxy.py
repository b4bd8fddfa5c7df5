"""A network between a client and a server, as tests want it: late, silent or cut."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from types import TracebackType


class Proxy:
    """Passes bytes on between who connects to `endpoint` and a server.

    Args:
        server: endpoint of the server, `tcp://127.0.0.1:PORT`.
        delay: seconds that everything takes more, each way.
    """

    def __init__(self, server: str, delay: float = 0.0) -> None:
        self._to = ("127.0.0.1", int(server.rpartition(":")[2]))
        self._delay = delay
        self._open = threading.Event()
        self._open.set()
        self._ends: list[socket.socket] = []
        self._door = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._door.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)  # wakes who accepts
        self._door.close()
        self.resume()
        self.cut()

    def stall(self) -> None:
        """Pass nothing on, and say nothing of it."""
        self._open.clear()

    def resume(self) -> None:
        """Pass everything on again."""
        self._open.set()

    def cut(self) -> None:
        """End all connections; new ones may come."""
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._ends.clear()

    def changed(self, data: bytes) -> bytes:
        """Return what becomes of data on their way to the server."""
        return data

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # when the door is closed
            while True:
                client, _ = self._door.accept()
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(self._to) as server:
            self._ends += [client, server]
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=self._pass_on, args=(server, client, False), daemon=True)
            back.start()
            self._pass_on(client, server, is_to=True)
            back.join()

    def _pass_on(self, a: socket.socket, b: socket.socket, is_to: bool) -> None:
        with contextlib.suppress(OSError):
            while data := a.recv(1 << 20):
                time.sleep(self._delay)
                self._open.wait()
                b.sendall(self.changed(data) if is_to else data)
        for end in (a, b):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
