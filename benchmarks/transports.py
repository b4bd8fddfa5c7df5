"""What carries a remote device: round trips and throughput of transports, and of our own driver.

    python benchmarks/transports.py [--json]

On the loopback address, client and server in two processes, called from Python. A round trip is a
message of so many bytes there and an empty answer, or a copy until it has ended; throughput is that of
several on their way, in one direction. Peers take turns in every round, so that what else the machine
does meets all of them; `best` is of the best round, `median` of the middle one. The load of the machine
is told before and after. Peers that are not installed are left out. MPI is not among them: its
processes are fixed at the start, and a lost peer ends them all.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from inlay.base.diagnostics import CompileError, RunError
from inlay.runtime.device import OpenDevice
from inlay.runtime.serve import Server, make_key
from measure import Report

SIZES = (16, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20)
ROUNDS = 9
BURST_BYTES, MOST_MESSAGES = 32 << 20, 256


class Peer(NamedTuple):
    """A connection: `trip` moves so many bytes and waits, `burst` does so n times and waits once."""

    trip: Callable[[int], None]
    burst: Callable[[int, int], None]


def main() -> None:
    """Print the table."""
    report = Report(
        "transports", ["peer", "bytes", "trip best us", "trip median us", "best GB/s", "median GB/s"]
    )
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors", file=sys.stderr)
    with contextlib.ExitStack() as stack:
        peers = opened(stack)
        times = measured(peers)
    for (name, size), (trips, rates) in times.items():
        report.row(
            name,
            size,
            min(trips) * 1e6,
            statistics.median(trips) * 1e6,
            max(rates) / 1e9,
            statistics.median(rates) / 1e9,
        )
    print(f"load {os.getloadavg()[0]:.1f}", file=sys.stderr)


def opened(stack: contextlib.ExitStack) -> dict[str, Peer]:
    """Return the peers that are there."""
    key = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "key"
    make_key(key)
    makers = {
        "ZeroMQ": zeromq(),
        "gRPC": grpc_stream(),
        "inlay to": ours(None, to_device=True),
        "inlay from": ours(None, to_device=False),
        "inlay to, key": ours(key, to_device=True),
        "inlay from, key": ours(key, to_device=False),
    }
    peers: dict[str, Peer] = {}
    for name, maker in makers.items():
        try:
            peers[name] = stack.enter_context(maker)
        except (ImportError, CompileError, RunError) as reason:
            print(f"{name}: left out: {reason}", file=sys.stderr)
    return peers


def measured(peers: dict[str, Peer]) -> dict[tuple[str, int], tuple[list[float], list[float]]]:
    """Return for each peer and size seconds of round trips and bytes in a second, of each round."""
    found = {(name, size): ([], []) for size in SIZES for name in peers}
    for _ in range(ROUNDS):
        for (name, size), (trips, rates) in found.items():
            peer = peers[name]
            n = max(2, min(MOST_MESSAGES, BURST_BYTES // size))
            peer.trip(size)
            trips.append(statistics.median(seconds(peer.trip, size) for _ in range(min(n, 64))))
            rates.append(n * size / seconds(peer.burst, size, n))
    return found


def seconds(work: Callable[..., None], *arguments: int) -> float:
    """Return how long a call takes."""
    begun = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - begun


@contextlib.contextmanager
def elsewhere(serve: Callable[..., None], *arguments: object) -> Iterator[str]:
    """Run a server in another process; yield where it listens."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(there, *arguments), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        process.kill()
        process.join()


def serve_zeromq(pipe: Connection) -> None:
    """Answer each message with an empty one."""
    import zmq

    socket = zmq.Context().socket(zmq.ROUTER)
    pipe.send(f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}")
    while True:
        name, _ = socket.recv_multipart(copy=False)
        socket.send_multipart([name, b""])


@contextlib.contextmanager
def zeromq() -> Iterator[Peer]:
    """Plain ZeroMQ, ROUTER and DEALER."""
    import zmq

    data = memoryview(bytes(max(SIZES)))
    with elsewhere(serve_zeromq) as endpoint, zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.connect(endpoint)

        def burst(size: int, n: int) -> None:
            for _ in range(n):
                socket.send(data[:size], copy=size < 1 << 15)
            for _ in range(n):
                socket.recv()

        yield Peer(lambda size: burst(size, 1), burst)


def serve_grpc(pipe: Connection) -> None:
    """Answer each message of a stream with an empty one."""
    import grpc

    def answer(messages: object, _: object) -> object:
        return (b"" for _ in messages)  # type: ignore[attr-defined]

    handler = grpc.method_handlers_generic_handler("b", {"s": grpc.stream_stream_rpc_method_handler(answer)})
    options = [("grpc.max_receive_message_length", -1)]
    server = grpc.server(futures.ThreadPoolExecutor(2), options=options)
    server.add_generic_rpc_handlers((handler,))
    pipe.send(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    server.start()
    server.wait_for_termination()


@contextlib.contextmanager
def grpc_stream() -> Iterator[Peer]:
    """A stream of plain bytes over gRPC, without protocol buffers."""
    import queue

    import grpc

    data = {size: bytes(size) for size in SIZES}
    waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    with elsewhere(serve_grpc) as endpoint, grpc.insecure_channel(endpoint) as channel:
        answers = channel.stream_stream("/b/s")(iter(waiting.get, None))

        def burst(size: int, n: int) -> None:
            for _ in range(n):
                waiting.put(data[size])
            for _ in range(n):
                next(answers)

        yield Peer(lambda size: burst(size, 1), burst)
        waiting.put(None)


def serve_ours(pipe: Connection, key: Path | None) -> None:
    """Serve the processor."""
    pipe.send(Server("native", "tcp://127.0.0.1:*", key=key).endpoint)
    time.sleep(3600)


@contextlib.contextmanager
def ours(key: Path | None, *, to_device: bool) -> Iterator[Peer]:
    """Copies to or from a remote device."""
    data = np.zeros(max(SIZES), np.uint8)
    words = f" key={key or 'none'}"
    with (
        elsewhere(serve_ours, key) as endpoint,
        OpenDevice("remote", f"endpoint={endpoint}{words}") as device,
    ):
        memory = device.allocate(data.nbytes)

        def burst(size: int, n: int) -> None:
            ends = (memory, data[:size]) if to_device else (data[:size], memory)
            for pending in [device.copy(*ends) for _ in range(n)]:
                pending.wait()

        yield Peer(lambda size: burst(size, 1), burst)
        memory.release()


if __name__ == "__main__":
    main()
