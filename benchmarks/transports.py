"""What carries a remote device: round trips and throughput of transports, and of our own driver.

    python benchmarks/transports.py [--json] [--seconds 1.0]

All on the loopback address, client and server in two processes. Peers that are not installed are
left out with a reason. MPI is not among them: its processes are fixed at the start, and a lost peer
ends them all. Throughput is one direction at a time, in messages of 1 MiB with several on their way.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from concurrent import futures
from multiprocessing.connection import Connection

import numpy as np

from inlay.base.diagnostics import CompileError
from inlay.runtime.device import Device
from inlay.runtime.serve import Server

SMALL, LARGE, ON_THE_WAY = 16, 1 << 20, 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    arguments = parser.parse_args()
    peers: dict[str, Callable[[float], tuple[float, float]]] = {
        "ZeroMQ, ROUTER and DEALER": zeromq,
        "gRPC, a stream": grpc_stream,
        "inlay remote, native": ours,
    }
    for name, measure in peers.items():
        row: dict[str, object] = {"transport": name}
        try:
            trip, rate = measure(arguments.seconds)
            row |= {"round_trip_us": round(trip * 1e6, 1), "GB_per_s": round(rate / 1e9, 2)}
        except (ImportError, CompileError) as reason:
            row["left_out"] = str(reason)
        print(json.dumps(row) if arguments.json else "  ".join(f"{k}: {v}" for k, v in row.items()))


def trips(once: Callable[[], object], seconds: float) -> float:
    """Return the median time of a round trip."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begun = time.perf_counter()
        once()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def rate(some: Callable[[], int], seconds: float) -> float:
    """Return bytes in a second, of the median of several runs of what moves some bytes."""
    rates: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begun = time.perf_counter()
        moved = some()
        rates.append(moved / (time.perf_counter() - begun))
    return statistics.median(rates)


def elsewhere(serve: Callable[[Connection], None]) -> tuple[multiprocessing.Process, str]:
    """Start a server in another process; return it and where it listens."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(there,), daemon=True)
    process.start()
    return process, here.recv()


def serve_zeromq(pipe: Connection) -> None:
    """Answer each message with an empty one."""
    import zmq

    socket = zmq.Context().socket(zmq.ROUTER)
    pipe.send(f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}")
    while True:
        name, _ = socket.recv_multipart(copy=False)
        socket.send_multipart([name, b""])


def zeromq(seconds: float) -> tuple[float, float]:
    """Measure plain ZeroMQ from Python."""
    import zmq

    process, endpoint = elsewhere(serve_zeromq)
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.connect(endpoint)
        small, large = bytes(SMALL), bytes(LARGE)

        def trip() -> None:
            socket.send(small)
            socket.recv()

        def some() -> int:
            for _ in range(ON_THE_WAY):
                socket.send(large, copy=False)
            for _ in range(ON_THE_WAY):
                socket.recv()
            return ON_THE_WAY * LARGE

        found = trips(trip, seconds), rate(some, seconds)
    process.terminate()
    return found


def serve_grpc(pipe: Connection) -> None:
    """Answer each message of a stream with an empty one."""
    import grpc

    def answer(messages: object, _: object) -> object:
        return (b"" for _ in messages)  # type: ignore[attr-defined]

    handler = grpc.method_handlers_generic_handler(
        "b", {"s": grpc.stream_stream_rpc_method_handler(answer)}
    )
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((handler,))
    pipe.send(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    server.start()
    server.wait_for_termination()


def grpc_stream(seconds: float) -> tuple[float, float]:
    """Measure a stream of plain bytes over gRPC, without protocol buffers."""
    import queue

    import grpc

    process, endpoint = elsewhere(serve_grpc)
    waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    with grpc.insecure_channel(endpoint) as channel:
        answers = channel.stream_stream("/b/s")(iter(waiting.get, None))
        small, large = bytes(SMALL), bytes(LARGE)

        def trip() -> None:
            waiting.put(small)
            next(answers)

        def some() -> int:
            for _ in range(ON_THE_WAY):
                waiting.put(large)
            for _ in range(ON_THE_WAY):
                next(answers)
            return ON_THE_WAY * LARGE

        found = trips(trip, seconds), rate(some, seconds)
        waiting.put(None)
    process.terminate()
    return found


def serve_ours(pipe: Connection) -> None:
    """Serve the processor."""
    try:
        server = Server("native", "tcp://127.0.0.1:*")
    except CompileError as reason:
        pipe.send(f"absent {reason}")
        return
    pipe.send(server.endpoint)
    time.sleep(3600)


def ours(seconds: float) -> tuple[float, float]:
    """Measure copies to a remote device; a round trip is a copy of a few bytes."""
    process, endpoint = elsewhere(serve_ours)
    large = np.zeros(ON_THE_WAY * LARGE, np.uint8)
    with Device("remote", f"endpoint={endpoint}") as device:
        memory = device.allocate(large.nbytes)

        def some() -> int:
            device.copy(memory, large).wait()
            return large.nbytes

        small = large[:SMALL]
        found = trips(lambda: device.copy(memory, small).wait(), seconds), rate(some, seconds)
        memory.release()
    process.kill()
    return found


if __name__ == "__main__":
    main()
