"""Threads of the process that run requests, and the clock that ends them; both are there for all
executables.

A thread is started when there is work and none is idle, and leaves when it had nothing to do for a
while. All are daemons: a process ends although requests run. Then they are told to stop, and have a
moment to do so. A forked child has none of the threads of its parent, and begins with a crew of its
own.
"""

from __future__ import annotations

import atexit
import heapq
import itertools
import os
import threading
import time
from collections.abc import Callable
from typing import Protocol

from inlay.runtime import _runtime

_IDLE_SECONDS = 5.0
_LAST_SECONDS = 0.5
"""What requests have to stop when the process ends."""


class Work(Protocol):
    """What a thread does."""

    def perform(self) -> Work | None:
        """Do it; return what the same thread is to do next. Raises nothing."""
        ...

    def stop(self) -> None:
        """Let it end soon; called by another thread."""
        ...


class _Member(threading.Thread):
    """A thread that does one thing after the other."""

    def __init__(self, crew: Crew, work: Work) -> None:
        super().__init__(name="inlay", daemon=True)
        self.work: Work | None = work
        self._called = threading.Lock()  # taken while nobody calls: a semaphore takes several of them
        self._called.acquire()
        self._crew = crew

    def run(self) -> None:
        """Work until nothing comes for a while."""
        _runtime.ignore_signals()
        while self.work is not None:
            following = self.work.perform()
            if following is not None:
                self.work = following
                continue
            self._crew.rest(self)
            if not self.wait(_IDLE_SECONDS) and self._crew.leave(self):
                return

    def call(self) -> None:
        """There is work for it."""
        self._called.release()

    def wait(self, seconds: float = -1) -> bool:
        """Wait for a call, for so many seconds at most; return whether it came."""
        return self._called.acquire(timeout=seconds)


class Crew:
    """Threads that do work, as many as there is work at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Member] = []
        self._busy: set[_Member] = set()

    def begin(self, work: Work) -> None:
        """Let a thread do some work, at once."""
        with self._lock:
            member = self._idle.pop() if self._idle else None
            is_new = member is None
            if member is None:
                member = _Member(self, work)
            member.work = work
            self._busy.add(member)
        if is_new:
            member.start()
        else:
            member.call()

    def rest(self, member: _Member) -> None:
        """A thread has nothing to do."""
        with self._lock:
            member.work = None
            self._busy.discard(member)
            self._idle.append(member)

    def leave(self, member: _Member) -> bool:
        """Return whether a thread that waited in vain may end: it has no work yet."""
        with self._lock:
            if member.work is None:
                self._idle.remove(member)
                return True
        member.wait()
        return False

    def close(self) -> None:
        """Stop what runs, and wait for it a moment."""
        end = time.monotonic() + _LAST_SECONDS
        while time.monotonic() < end:
            with self._lock:
                works = [member.work for member in self._busy if member.work is not None]
            if not works:
                return
            for work in works:
                work.stop()
            time.sleep(0.002)

    @property
    def size(self) -> int:
        """How many threads there are."""
        with self._lock:
            return len(self._idle) + len(self._busy)


class Alarm:
    """Something to be done at a time, unless it is called off."""

    def __init__(self, clock: Clock, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action
        self._clock = clock

    def call_off(self) -> None:
        """It is not to be done any more."""
        self._clock.call_off(self)


class Clock:
    """Does things at their times, on a thread that is there while there are any."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._alarms: list[tuple[int, int, Alarm]] = []
        self._off = 0
        self._numbers = itertools.count()
        self._is_running = False

    def at(self, ns: int, action: Callable[[], None]) -> Alarm:
        """Do something short at a time of `time.monotonic_ns`."""
        alarm = Alarm(self, action)
        with self._changed:
            heapq.heappush(self._alarms, (ns, next(self._numbers), alarm))
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="inlay-clock", daemon=True).start()
            elif self._alarms[0][2] is alarm:
                self._changed.notify()
        return alarm

    def call_off(self, alarm: Alarm) -> None:
        """Forget an alarm; what is off does not stay for long beyond what is on."""
        with self._changed:
            if alarm.action is None:
                return
            alarm.action = None
            self._off += 1
            if self._off > 16 + len(self._alarms) // 2:
                self._alarms = [a for a in self._alarms if a[2].action is not None]
                heapq.heapify(self._alarms)
                self._off = 0

    def _run(self) -> None:
        while True:
            action = None
            with self._changed:
                if not self._alarms and not self._changed.wait(_IDLE_SECONDS) and not self._alarms:
                    self._is_running = False
                    return
                if not self._alarms:
                    continue
                ns, _, alarm = self._alarms[0]
                left = ns - time.monotonic_ns()
                if left > 0 and alarm.action is not None:
                    self._changed.wait(min(left / 1e9, 3600.0))
                    continue
                heapq.heappop(self._alarms)
                action, alarm.action = alarm.action, None
                self._off -= action is None
            if action is not None:
                action()


class _Process:
    """What there is once in a process."""

    def __init__(self) -> None:
        self.crew = Crew()
        self.clock = Clock()

    def begin_anew(self) -> None:
        """Forget the threads of the parent of a forked child; whichever forked is its main thread."""
        _runtime.heed_signals()
        self.crew = Crew()
        self.clock = Clock()

    def close(self) -> None:
        """Stop what runs when the process ends."""
        self.crew.close()


PROCESS = _Process()
"""Of this process."""

atexit.register(PROCESS.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=PROCESS.begin_anew)
