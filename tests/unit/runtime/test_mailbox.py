"""What loops of `asyncio` are told of what ends on other threads."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

import pytest

from inlay.runtime.mailbox import waiter_of


def test_many_that_end_at_once_are_told_by_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    sources: list[Future[int]] = [Future() for _ in range(100)]

    def end_all() -> None:
        for i, source in enumerate(sources):
            source.set_result(i)

    async def ask() -> tuple[list[int], int]:
        loop, calls = asyncio.get_running_loop(), 0
        call = loop.call_soon_threadsafe

        def counted(*arguments: object) -> object:
            nonlocal calls
            calls += 1
            return call(*arguments)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        waiters = [waiter_of(source) for source in sources]
        thread = threading.Thread(target=end_all)
        thread.start()
        thread.join()  # the loop does not come meanwhile
        return await asyncio.gather(*waiters), calls

    assert asyncio.run(ask()) == (list(range(100)), 1)


def test_each_end_is_told() -> None:
    async def ask() -> None:
        failed: Future[int] = Future()
        failed.set_exception(KeyError("why"))
        with pytest.raises(KeyError, match="why"):
            await waiter_of(failed)
        given_up: Future[int] = Future()
        assert given_up.cancel()
        assert not given_up.set_running_or_notify_cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter_of(given_up)
        source: Future[int] = Future()
        waiter = waiter_of(source)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        await asyncio.sleep(0)
        assert source.cancelled()

    asyncio.run(ask())


def test_a_loop_that_is_closed_is_told_nothing() -> None:
    source: Future[int] = Future()

    async def ask() -> None:
        waiter_of(source)

    asyncio.run(ask())
    source.set_result(1)
    assert source.result() == 1
