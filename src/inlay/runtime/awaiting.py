"""Work in Python that ends later: futures, and coroutines on an event loop of the process's own.

The loop is there for operators of the user that are coroutine functions. It runs on a thread of its own from
the first of them on, so that calls need no loop, and one that waits does not stop the loop of its caller.
What has to run on another loop the operator hands to that: `asyncio.run_coroutine_threadsafe(work(), loop)`.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, TypeVar, cast

Result = TypeVar("Result")


class _Loop:
    """The event loop of the process."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """In a forked child: the thread of the parent is not here."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def get(self) -> asyncio.AbstractEventLoop:
        """Return the loop, which runs."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="inlay-loop", daemon=True).start()
            return self._loop


_LOOP = _Loop()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_LOOP.begin_anew)


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


def future_of(found: object) -> Future[Any] | None:
    """Return the future of what a function answered with; None where it is a result already."""
    if isinstance(found, Future):
        return cast("Future[Any]", found)
    if inspect.isawaitable(found):
        return asyncio.run_coroutine_threadsafe(_awaited(found), _LOOP.get())
    return None


def then(source: Future[Any], action: Callable[[Future[Any]], Result]) -> Future[Result]:
    """Return the future of an action on a future that is done."""
    answer: Future[Result] = Future()

    def act(done: Future[Any]) -> None:
        try:
            answer.set_result(action(done))
        except BaseException as problem:  # noqa: BLE001  (whoever waits gets it)
            answer.set_exception(problem)

    source.add_done_callback(act)
    return answer
