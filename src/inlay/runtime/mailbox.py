"""What ended on other threads, told to loops of `asyncio`: many at a time.

`asyncio.wrap_future` calls a loop for each future that ends, which is a write to a socket without the GIL,
and so a moment for another thread to take it. Requests that ran in one batch end together: the first of
them calls the loop, and the loop finds the others when it comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections import deque
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeAlias

_Ended: TypeAlias = tuple["Future[Any]", "asyncio.Future[Any]"]


class _Mailbox:
    """What a loop has not been told yet.

    No lock is needed: who puts something in looks at `is_called` behind that, and who takes things out
    clears it before. The loop may be called once too often, never too seldom.
    """

    def __init__(self) -> None:
        self._ended: deque[_Ended] = deque()
        self._is_called = False

    def put(self, loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[Any], ended: Future[Any]) -> None:
        """Let the loop tell a waiter of its own that something has ended; called on any thread."""
        self._ended.append((ended, waiter))
        if not self._is_called:
            self._is_called = True
            with contextlib.suppress(RuntimeError):  # it is closed: nobody waits there any more
                loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._is_called = False
        while self._ended:
            ended, waiter = self._ended.popleft()
            if waiter.done():
                continue
            if ended.cancelled():
                waiter.cancel()
            elif (problem := ended.exception()) is not None:
                waiter.set_exception(problem)
            else:
                waiter.set_result(ended.result())


_MAILBOXES: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Mailbox] = weakref.WeakKeyDictionary()


def waiter_of(source: Future[Any]) -> asyncio.Future[Any]:
    """Return a future of the running loop that ends as another one does; giving it up gives that up."""
    loop = asyncio.get_running_loop()
    mailbox = _MAILBOXES.get(loop)
    if mailbox is None:
        mailbox = _MAILBOXES[loop] = _Mailbox()
    waiter = loop.create_future()

    def give_up(_: object) -> None:
        if waiter.cancelled() and not source.done():
            source.cancel()

    waiter.add_done_callback(give_up)
    source.add_done_callback(partial(mailbox.put, loop, waiter))
    return waiter
