"""Runs that somebody waits for later.

    request = executable.submit({"x": x}, timeout=2.0)
    ...
    outputs = request.result()

A request is a future as those of `concurrent.futures`, and may be awaited in `asyncio`. Each runs on a
thread of the process's own (`inlay.runtime.crew`); of an executable as many at a time as it has
activations. Those that wait begin by priority, then in turns of the sessions that they belong to, then in
the order in which they came. Requests that still run when the process ends are given up.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError, Future, InvalidStateError
from functools import partial
from typing import Any, TypeAlias

from inlay.base.diagnostics import Cancelled, DeadlineError, InlayError, error
from inlay.runtime.admission import Pace
from inlay.runtime.crew import PROCESS, Alarm
from inlay.runtime.mailbox import waiter_of
from inlay.runtime.native import is_inside, limited
from inlay.runtime.structure import Structure

Outputs: TypeAlias = dict[str, Structure]
Run: TypeAlias = Callable[..., Outputs]


_GRACE_NS = 250_000_000
"""What a run has to end by itself after it was given up."""
_LATE_NS = 1_000_000
"""What it has after its time is over: who waits learns soon that it is."""
_NOT_BEGUN = "the run was given up before it began"
_NEVER = 1e9
"""Seconds from which on a limit is none: more than thirty years."""


def deadline_after(seconds: float | None) -> int:
    """Return the time of the monotonic clock so many seconds from now, in ns; 0 for no limit."""
    if seconds is None:
        return 0
    try:
        is_limit = seconds >= 0  # what is not a number is neither
    except TypeError:
        is_limit = False
    if not is_limit:
        raise error("input.time-limit", f"found the time limit {seconds!r}, needed seconds from 0 on")
    if seconds > _NEVER:
        return 0
    return max(1, time.monotonic_ns() + int(seconds * 1e9))


class Request(Future[Outputs]):
    """The outputs of a run, later.

    `cancel` also stops a run that has begun: what runs of it is finished, what waits is dropped, and
    `result` raises `Cancelled`; then it returns False, as the run may just have ended. A request whose
    time is over, or that was given up, ends also where its run cannot, because a kernel or a callback
    does not end: that keeps its thread and its memory.
    """

    def __init__(
        self,
        work: Callable[[], Outputs],
        owner: Requests,
        deadline: int,
        priority: int,
        party: Party,
        after: Callable[[bool], None] | None = None,
    ) -> None:
        super().__init__()
        self.is_inside = is_inside()
        self.priority = priority
        self.party = party
        self.has_waited = False
        self._work = work
        self._after = after
        self._has_outputs = False  # they are the request's, though it may not say so yet
        self._owner = owner
        self._flag = bytearray(1)
        self._gate = threading.Lock()  # a run does not begin while its time is found to be over
        self._deadline = deadline
        self._process = os.getpid()
        self._alarm: Alarm | None = None
        if deadline:
            self._alarm = PROCESS.clock.at(deadline + _LATE_NS, self._late)

    def cancel(self) -> bool:
        """Give up the run; return whether it will not begin."""
        self._flag[0] = 1
        if super().cancel():
            self._owner.take(self)
            self._end()
            return True
        if not self.done():
            self._alarm = PROCESS.clock.at(
                time.monotonic_ns() + _GRACE_NS,
                lambda: self._give_up("run.cancelled", "the run was given up, and does not end"),
            )
        return False

    def result(self, timeout: float | None = None) -> Outputs:
        """Return the outputs, when they are there.

        Raises:
            RunError: what the run failed with; `run.forked` where another process runs it.
            TimeoutError: they are not there after so many seconds.
        """
        self._attend()
        try:
            return super().result(timeout)
        except Cancelled:
            raise
        except CancelledError:
            raise error("run.cancelled", _NOT_BEGUN) from None
        finally:
            del self  # as in `_perform`

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what the run failed with, when it has ended; raises what `result` does of waiting."""
        self._attend()
        try:
            return super().exception(timeout)
        except CancelledError:
            raise error("run.cancelled", _NOT_BEGUN) from None

    def __await__(self) -> Generator[Any, None, Outputs]:
        """Wait in the loop of `asyncio`; a task that is cancelled gives the run up."""
        return waiter_of(self).__await__()

    def perform(self) -> Request | None:
        """Run the work on this thread, and keep what comes of it; return which request is next."""
        try:
            self._perform()
        finally:
            following = self._owner.ended(self)
            del self  # the frame of `_perform` refers to this one
        return following

    def stop(self) -> None:
        """Give up the run, because the process ends."""
        self._flag[0] = 1

    def _perform(self) -> None:
        with self._gate:
            if (self.done() and not self.cancelled()) or not self.set_running_or_notify_cancel():
                return
        if self.has_waited and self._deadline and (late := self._owner.lateness(self, self._deadline)):
            self._settle(partial(self.set_exception, late))
            return
        begun = time.monotonic()
        try:
            outputs = limited(self._flag, self._deadline, self._work, inside=self.is_inside)
            with self._gate:
                self._has_outputs = not self.done()
            end = partial(self.set_result, outputs)
        except BaseException as problem:  # noqa: BLE001  (whoever waits gets it)
            if isinstance(problem, DeadlineError):
                self._owner.took(self, time.monotonic() - begun)
            end = partial(self.set_exception, problem)
        else:
            self._owner.took(self, time.monotonic() - begun)
        if self._after is not None:
            self._after(self._has_outputs)
        self._settle(end)
        # A failure refers to this frame: together they would wait for the garbage collector.
        del end, self

    def _attend(self) -> None:
        """Before waiting: a thread inside a call does what nobody has begun, or could wait for ever."""
        if self._process != os.getpid() and not self.done():
            raise error("run.forked", "another process made the request, and this one does not run it")
        if is_inside() and self._owner.take(self):
            self._owner.begun(self)
            following = self.perform()
            if following is not None:
                PROCESS.crew.begin(following)

    def _late(self) -> None:
        """The time is over; the runtime, which looks at it as well, has had a moment to say where it was."""
        if self._owner.take(self):
            self._settle(partial(self.set_exception, error("run.deadline", _NOT_BEGUN)))
        else:
            self._give_up("run.deadline", "the run did not end in time, and goes on")

    def _give_up(self, id: str, message: str) -> None:
        note = "a kernel or callback that does not end keeps its thread and memory"
        with self._gate:
            if not self._has_outputs:
                self._settle(partial(self.set_exception, error(id, message, notes=[note])))

    def _settle(self, end: Callable[[], None]) -> None:
        """End, unless something else came first."""
        with contextlib.suppress(InvalidStateError):
            end()
        self._end()

    def _end(self) -> None:
        if self._alarm is not None:
            self._alarm.call_off()


class Party:
    """Whose requests run one after the other, and take turns with those of others: a session, or a request.

    Attributes:
        turn: of its last request that waited or began.
        waiting: its requests that have not begun, in their order.
        running: how many of them run: one, and those that a thread inside a call runs itself.
    """

    def __init__(self) -> None:
        self.turn = 0
        self.waiting: deque[Request] = deque()
        self.running = 0


class _Queue:
    """Requests that wait. Of each party the first can begin, if none of it runs.

    Turns make it fair: each request of a party has a turn behind the one before, and behind the last that
    began, so that many requests of one do not go before the first of another. Cost: logarithmic.
    """

    def __init__(self) -> None:
        self.running = 0
        self.count = 0
        self.pace = Pace()
        self._waiting: Counter[int] = Counter()
        self._heads: list[tuple[int, int, int, Request]] = []
        self._numbers = itertools.count()
        self._turn = 0

    def add(self, request: Request) -> None:
        """Let a request wait."""
        request.party.waiting.append(request)
        self._count(request, 1)
        if len(request.party.waiting) == 1:
            self._show(request.party)

    def discard(self, request: Request) -> bool:
        """Let a request wait no more; return whether it did."""
        if request not in request.party.waiting:
            return False
        was_first = request.party.waiting[0] is request
        request.party.waiting.remove(request)
        self._count(request, -1)
        if was_first:
            self._show(request.party)
        return True

    def pop(self) -> Request | None:
        """Take the one that begins next; None where none can."""
        while self._heads:
            _, turn, _, request = heapq.heappop(self._heads)
            party = request.party
            if party.running or not party.waiting or party.waiting[0] is not request:
                continue  # it was given up, or is shown again when its party may go on
            party.waiting.popleft()
            self._count(request, -1)
            self._turn = max(self._turn, turn)
            return request
        return None

    def begun(self, request: Request) -> None:
        """A request that was taken runs."""
        self.running += 1
        request.party.running += 1

    def ended(self, request: Request) -> None:
        """A request does not run any more."""
        self.running -= 1
        request.party.running -= 1
        self._show(request.party)

    def ahead_of(self, priority: int) -> int:
        """Return how many requests that wait begin before one of a priority."""
        return sum(n for other, n in self._waiting.items() if other >= priority)

    def _count(self, request: Request, n: int) -> None:
        self.count += n
        self._waiting[request.priority] += n
        if not self._waiting[request.priority]:
            del self._waiting[request.priority]

    def _show(self, party: Party) -> None:
        if party.waiting and not party.running:
            head = party.waiting[0]
            party.turn = max(party.turn, self._turn) + 1
            heapq.heappush(self._heads, (-head.priority, party.turn, next(self._numbers), head))


class Requests:
    """The requests of an executable: so many run at a time, and so many wait.

    Those made inside a call do not wait for those made outside, which may wait for them.
    """

    def __init__(self, most: int, most_waiting: int | None = None) -> None:
        self._most = most
        self._most_waiting = most_waiting
        self.forget()

    def forget(self) -> None:
        """Begin anew: a forked child has none of its parent's requests."""
        self._lock = threading.Lock()
        self._queues = {False: _Queue(), True: _Queue()}

    def submit(
        self,
        work: Callable[[], Outputs],
        timeout: float | None,
        priority: int = 0,
        party: Party | None = None,
        after: Callable[[bool], None] | None = None,
    ) -> Request:
        """Return the request of some work; its time runs from now.

        Args:
            work: what to do.
            timeout: seconds that it may take.
            priority: what has more begins first.
            party: whose it is; its own by default.
            after: called once work that began has ended, on its thread, before anybody who waits learns of
                it: with whether there are outputs, and nobody gave them up.

        Raises:
            CompileError: `option.bad-value` for a priority that is no integer.
            RunError: `run.queue-full`, `run.would-be-late`.
        """
        if type(priority) is not int:
            raise error("option.bad-value", f"found priority={priority!r}, needed an integer")
        deadline = deadline_after(timeout)
        party = party or Party()
        with self._lock:
            queue = self._queues[is_inside()]
            waits = queue.running >= self._most or party.running or party.waiting
            if waits and not is_inside():
                self._check_room(queue)
                if deadline:
                    self._check_time(queue, deadline, priority, party)
            request = Request(work, self, deadline, priority, party, after)
            request.has_waited = bool(waits)
            queue.add(request)
        self._advance(inside=request.is_inside)
        return request

    def _check_room(self, queue: _Queue) -> None:
        if self._most_waiting is not None and queue.count >= self._most_waiting:
            raise error(
                "run.queue-full",
                f"found {queue.count} requests that wait and {queue.running} that run, and at most "
                f"{self._most_waiting} may wait",
                hint="submit it again later, or set `waiting` or `activations` of `Settings`",
            )

    def _check_time(self, queue: _Queue, deadline: int, priority: int, party: Party) -> None:
        in_line = len(party.waiting) + party.running
        needed = queue.pace.predicted(queue.ahead_of(priority), self._most, in_line)
        left = (deadline - time.monotonic_ns()) / 1e9
        if needed > left:
            raise error(
                "run.would-be-late",
                f"found {queue.count} requests that wait and {queue.running} that run, each of which takes "
                f"{queue.pace.mean:.3g} s of late: this one would end in {needed:.3g} s or more, and "
                f"has {max(0.0, left):.3g} s",
                hint="submit it again later, with more time, or with a higher priority",
            )

    def lateness(self, request: Request, deadline: int) -> InlayError | None:
        """Return why a request that has waited is not to begin: it would be late, and others wait."""
        with self._lock:
            queue = self._queues[request.is_inside]
            least, count = queue.pace.least, queue.count
        left = (deadline - time.monotonic_ns()) / 1e9
        if not count or left > least:
            return None
        return error(
            "run.would-be-late",
            f"the request has waited and has {max(0.0, left):.3g} s left, runs take {least:.3g} s or more of "
            f"late, and {count} others wait",
            hint="submit it again later, or with more time",
        )

    def took(self, request: Request, seconds: float) -> None:
        """The run of a request ended after so many seconds, by itself or because its time was over."""
        with self._lock:
            self._queues[request.is_inside].pace.note(seconds)

    def take(self, request: Request) -> bool:
        """Remove a request that waits; return whether it did."""
        with self._lock:
            return self._queues[request.is_inside].discard(request)

    def begun(self, request: Request) -> None:
        """A request that was taken runs."""
        with self._lock:
            self._queues[request.is_inside].begun(request)

    def ended(self, request: Request) -> Request | None:
        """A request does not run any more; return one that waits, for the same thread to go on with."""
        following = self._next(inside=request.is_inside, ended=request)
        if following is not None:
            self._advance(inside=request.is_inside)
        return following

    def _next(self, *, inside: bool, ended: Request | None = None) -> Request | None:
        with self._lock:
            queue = self._queues[inside]
            if ended is not None:
                queue.ended(ended)
            request = queue.pop() if queue.running < self._most else None
            if request is not None:
                queue.begun(request)
            return request

    def _advance(self, *, inside: bool) -> None:
        while (request := self._next(inside=inside)) is not None:
            PROCESS.crew.begin(request)
