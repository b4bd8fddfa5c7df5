"""Independent work on all processors, by forked children.

LLVM through llvmlite runs under one lock, so threads do not help; a forked child has its own and
needs nothing sent to it, since it starts as a copy. Jobs are taken from a pipe that holds their
numbers: whoever is free reads the next. Results go to a file of each child, read when it has ended.

Children are only a help. What one does not deliver, because it was killed or its job failed, the
caller does itself, and meets the error there. Nothing is forked from a process with several threads,
whose locks a child might inherit locked.
"""

from __future__ import annotations

import gc
import os
import struct
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import IO

_HEAD = struct.Struct("<IQ")
_JOB = struct.Struct("<H")
MOST_JOBS = 1 << 14
"""The numbers of all jobs must fit the buffer of a pipe."""


def run_all(jobs: Sequence[Callable[[], bytes]], workers: int) -> list[bytes]:
    """Return the results of all jobs, in order.

    Args:
        jobs: functions without arguments that do not depend on one another.
        workers: how many processes to use, this one included.
    """
    found: dict[int, bytes] = {}
    if workers > 1 and 1 < len(jobs) <= MOST_JOBS and can_fork():
        found = _run_forked(jobs, min(workers, len(jobs)))
    return [found[i] if i in found else job() for i, job in enumerate(jobs)]


def can_fork() -> bool:
    """Whether this process may safely have children that are copies of it."""
    return hasattr(os, "fork") and threading.active_count() == 1


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _run_forked(jobs: Sequence[Callable[[], bytes]], workers: int) -> dict[int, bytes]:
    queue, feed = os.pipe()
    children: list[tuple[int, IO[bytes]]] = []
    found: dict[int, bytes] = {}
    try:
        os.write(feed, b"".join(_JOB.pack(i) for i in range(len(jobs))))
        os.close(feed)
        for _ in range(workers - 1):
            results = tempfile.TemporaryFile()  # noqa: SIM115 - closed after it was read
            child = _fork()
            if child == 0:
                _work_as_child(jobs, queue, results)
            children.append((child, results))
        while (i := _next(queue)) is not None:
            found[i] = jobs[i]()
    finally:
        os.close(queue)
        for child, results in children:
            os.waitpid(child, 0)
            with results:
                found.update(_read(results))
    return found


def _fork() -> int:
    with warnings.catch_warnings():
        # Python warns of threads that other libraries have started; they hold none of our locks.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _work_as_child(jobs: Sequence[Callable[[], bytes]], queue: int, results: IO[bytes]) -> None:
    """Do jobs until there are none, and end the process without any clean-up of the parent's.

    What was garbage when the process was forked is the parent's too: to collect it here would end
    devices and threads that only the parent has.
    """
    status = 1
    try:
        gc.freeze()
        while (i := _next(queue)) is not None:
            data = jobs[i]()
            results.write(_HEAD.pack(i, len(data)) + data)
        results.flush()
        status = 0
    finally:
        os._exit(status)


def _next(queue: int) -> int | None:
    data = os.read(queue, _JOB.size)
    return _JOB.unpack(data)[0] if len(data) == _JOB.size else None


def _read(results: IO[bytes]) -> dict[int, bytes]:
    """Read whole results; one that was cut short is left out."""
    results.seek(0)
    data, at = results.read(), 0
    found: dict[int, bytes] = {}
    while at + _HEAD.size <= len(data):
        i, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        if at + size <= len(data):
            found[i] = data[at : at + size]
        at += size
    return found
