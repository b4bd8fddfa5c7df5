"""Requests that wait: which is next, how many may, and who waits for them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

import numpy as np
import pytest

from inlay.base.diagnostics import CompileError, RunError
from inlay.runtime.native import Settings
from inlay.runtime.request import Outputs, Request, Requests
from inlay.runtime.session import executable_of
from inlay.runtime.sessions import Session
from tests.unit.runtime.programs import dbl, doubling

X = {"x": np.ones((2, 4), np.float32)}


class Door:
    """Work that begins, and ends when the door is opened; who began is in `order`."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.opened = threading.Event()

    def work(self, name: str) -> Callable[[], Outputs]:
        """Return the work of a name."""

        def perform() -> Outputs:
            self.order.append(name)
            assert self.opened.wait(30)
            return {}

        return perform


def test_the_largest_priority_is_next() -> None:
    door, requests = Door(), Requests(1)
    made: list[Future[Outputs]] = [requests.submit(door.work("first"), None)]
    made += [requests.submit(door.work(f"{p}"), None, p) for p in (0, 2, -1, 2, 1)]
    door.opened.set()
    assert [m.result(30) for m in made] == [{}] * 6
    assert door.order == ["first", "2", "2", "1", "0", "-1"]


@pytest.mark.parametrize("priority", [0.5, True, "high"])
def test_a_priority_is_an_integer(priority: int) -> None:
    with pytest.raises(CompileError) as caught:
        Requests(1).submit(dict, None, priority)
    assert caught.value.ids == ("option.bad-value",)


def test_sessions_take_turns() -> None:
    door, requests = Door(), Requests(1)

    def session(name: str) -> Session:
        return Session(lambda inputs, timeout: door.work(f"{name}{inputs['i']}")(), {}, {}, requests)

    many, few = session("m"), session("f")
    made = [many.submit({"i": i}) for i in range(5)] + [few.submit({"i": i}) for i in range(2)]
    door.opened.set()
    for request in made:
        request.result(30)
    assert door.order == ["m0", "f0", "m1", "f1", "m2", "m3", "m4"]


def test_runs_of_a_session_go_one_after_the_other() -> None:
    door, requests = Door(), Requests(4)
    session = Session(lambda inputs, timeout: door.work(str(inputs["i"]))(), {}, {}, requests)
    made = [session.submit({"i": i}) for i in range(4)]
    assert made[2].cancel()
    door.opened.set()
    for i in (0, 1, 3):
        made[i].result(30)
    assert door.order == ["0", "1", "3"]


def test_more_than_may_wait_are_refused() -> None:
    door, requests = Door(), Requests(2, 3)
    made = [requests.submit(door.work(""), None) for _ in range(5)]
    with pytest.raises(RunError) as caught:
        requests.submit(door.work(""), None)
    assert caught.value.ids == ("run.queue-full",)
    assert "3 requests that wait and 2 that run" in str(caught.value)
    assert made[4].cancel()
    made[4] = requests.submit(door.work(""), None)
    door.opened.set()
    assert [m.result(30) for m in made] == [{}] * 5


def test_a_session_that_runs_alone_may_not_queue_without_end() -> None:
    door, requests = Door(), Requests(8, 1)
    session = Session(lambda inputs, timeout: door.work("")(), {}, {}, requests)
    made = [session.submit() for _ in range(2)]
    with pytest.raises(RunError) as caught:
        session.submit()
    assert caught.value.ids == ("run.queue-full",)
    door.opened.set()
    assert [m.result(30) for m in made] == [{}] * 2


@pytest.mark.parametrize(
    ("wrong", "value"),
    [("waiting", -1), ("threads", 0), ("threads", True), ("activations", "4"), ("own_batches", -1)]
    + [("hand_off_ns", 0.5), ("stack_bytes", 1 << 63), ("cache_bytes", None), ("seed", -1), ("mode", "fast")],
)
def test_settings_that_cannot_be_are_refused(wrong: str, value: object) -> None:
    with pytest.raises(CompileError, match=f"found {wrong}={value!r}, needed ") as caught:
        executable_of(doubling(), callbacks={"dbl": dbl}, settings=Settings(**{wrong: value}))
    assert caught.value.ids == ("option.bad-value",)


def test_all_settings_that_cannot_be_are_told_at_once() -> None:
    with pytest.raises(CompileError) as caught:
        executable_of(doubling(), callbacks={"dbl": dbl}, settings=Settings(threads=0, activations=0))
    assert caught.value.ids == ("option.bad-value",) * 2


def test_batches_of_ones_own_need_batches() -> None:
    with pytest.raises(CompileError, match="own_batches=2, which does nothing here") as caught:
        executable_of(doubling(), callbacks={"dbl": dbl}, settings=Settings(own_batches=2))
    assert caught.value.ids == ("option.no-effect",)


def test_requests_are_awaited() -> None:
    exe = executable_of(doubling(), callbacks={"dbl": dbl}, settings=Settings(waiting=9))

    async def ask() -> list[Outputs]:
        return list(await asyncio.gather(*(exe.submit(X) for _ in range(8))))

    assert all((found["y"] == 2).all() for found in asyncio.run(ask()))


def test_a_task_that_is_cancelled_gives_up_its_request() -> None:
    door, requests = Door(), Requests(1)
    requests.submit(door.work("first"), None)

    async def ask() -> Request:
        request = requests.submit(door.work("second"), None)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.ensure_future(_awaited(request)), 0.01)
        return request

    assert asyncio.run(ask()).cancelled()
    door.opened.set()


async def _awaited(request: Request) -> Outputs:
    return await request


def test_a_deadline_is_told_though_the_run_goes_on() -> None:
    door, requests = Door(), Requests(1)
    begun = time.monotonic()
    request = requests.submit(door.work(""), 0.05)
    with pytest.raises(RunError) as caught:
        request.result(30)
    assert caught.value.ids == ("run.deadline",)
    assert time.monotonic() - begun >= 0.05
    door.opened.set()
