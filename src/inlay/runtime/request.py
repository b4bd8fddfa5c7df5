"""Runs that somebody waits for later: requests, and sessions whose values outlive a run.

    request = executable.submit({"x": x}, timeout=2.0)
    ...
    outputs = request.result()

A request is a future as those of `concurrent.futures`. Each runs on a thread of the executable's
own; as many at a time as it has activations, in the order in which they came.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeAlias, TypeVar

from inlay.base.diagnostics import error
from inlay.runtime.native import limited
from inlay.runtime.structure import Structure

Result = TypeVar("Result")
Outputs: TypeAlias = dict[str, Structure]
Run: TypeAlias = Callable[..., Outputs]


_NEVER = 1e9
"""Seconds from which on a limit is none: more than thirty years."""


def deadline_after(seconds: float | None) -> int:
    """Return the time of the monotonic clock so many seconds from now, in ns; 0 for no limit."""
    if seconds is None:
        return 0
    if not isinstance(seconds, int | float) or not seconds >= 0:  # not a number is neither
        raise error("input.time-limit", f"found the time limit {seconds!r}, needed seconds from 0 on")
    if seconds > _NEVER:
        return 0
    return max(1, time.monotonic_ns() + int(seconds * 1e9))


class Request(Future[Outputs]):
    """The outputs of a run, later.

    `cancel` also stops a run that has begun: what runs of it is finished, what waits is dropped, and
    `result` raises `run.cancelled`; then it returns False, as the run may just have ended.
    """

    def __init__(self, deadline: int) -> None:
        super().__init__()
        self._flag = bytearray(1)
        self._deadline = deadline

    def cancel(self) -> bool:
        """Give up the run; return whether it will not begin."""
        self._flag[0] = 1
        return super().cancel()

    def perform(self, work: Callable[[], Outputs]) -> None:
        """Run the work on this thread, and keep what comes of it."""
        if not self.set_running_or_notify_cancel():
            return
        try:
            outputs = limited(self._flag, self._deadline, work)
        except BaseException as problem:  # noqa: BLE001  (whoever waits gets it)
            self.set_exception(problem)
        else:
            self.set_result(outputs)


class Requests:
    """The threads that run the requests of an executable; started when there is a first one."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def submit(self, work: Callable[[], Outputs], timeout: float | None) -> Request:
        """Return the request of some work; its time runs from now."""
        request = Request(deadline_after(timeout))
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="inlay")
            self._pool.submit(request.perform, work)
        return request


class Session:
    """Runs of one executable that hand values on: each takes what the one before it gave.

    State is an explicit output and input of the program. One run at a time; others wait. A run that
    fails leaves the state as it was.

    Args:
        run: runs the executable once.
        carry: which output becomes which input of the next run.
        state: the first values of those inputs.
    """

    def __init__(self, run: Run, carry: Mapping[str, str], state: Mapping[str, Any]) -> None:
        missing = sorted(set(carry.values()) - set(state))
        if missing:
            names = ", ".join(f"'{name}'" for name in missing)
            raise error("input.missing", f"the session has no first value for {names}")
        self._run = run
        self._carry = dict(carry)
        self._state = {name: state[name] for name in carry.values()}
        self._lock = threading.Lock()

    @property
    def state(self) -> dict[str, Any]:
        """What the next run takes, by input."""
        with self._lock:
            return dict(self._state)

    def run(
        self, inputs: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> Outputs:
        """Run once; return the outputs that are not state.

        Raises:
            RunError: as `Executable.run`.
        """
        with self._lock:
            outputs = self._run({**(inputs or {}), **self._state}, timeout=timeout)
            self._state = {to: outputs.pop(name) for name, to in self._carry.items()}
            return outputs
