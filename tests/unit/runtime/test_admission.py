"""Requests that could not end in time are refused when they are made."""

from __future__ import annotations

import threading

import pytest

from inlay.base.diagnostics import RunError
from inlay.runtime.admission import Pace
from inlay.runtime.request import Outputs, Request, Requests


def pace(*seconds: float) -> Pace:
    """Return what is known after such runs."""
    made = Pace()
    for s in seconds:
        made.note(s)
    return made


def test_few_runs_say_nothing() -> None:
    assert pace(*[1.0] * 7).least == 0
    assert 0.7 < pace(*[1.0] * 8).least < 1


def test_what_waits_takes_the_mean_and_a_run_may_be_a_short_one() -> None:
    equal, different = pace(*[1.0] * 80), pace(*[0.1, 1.9] * 40)
    assert 2.9 < equal.predicted(7, 4, 0) <= 3
    assert 5.9 < equal.predicted(0, 4, 5) <= 6
    assert 0 <= different.least < 0.3
    assert 1.5 < different.predicted(7, 4, 0) < 2.5


def test_what_was_is_forgotten() -> None:
    assert 1.9 < pace(*[9.0] * 50, *[1.0] * 80).predicted(0, 1, 0) <= 2.1


def learnt(seconds: float = 1.0) -> tuple[Requests, Request, threading.Event]:
    """Return requests of which one runs until the event; as far as they know, runs take so long."""
    requests, opened = Requests(1), threading.Event()

    def wait() -> Outputs:
        assert opened.wait(30)
        return {}

    first = requests.submit(wait, None)
    for _ in range(40):
        requests.took(first, seconds)
    return requests, first, opened


def test_who_would_be_late_is_refused() -> None:
    requests, first, opened = learnt()
    made = [first, *(requests.submit(dict, None) for _ in range(3))]
    with pytest.raises(RunError) as caught:
        requests.submit(dict, 2.0)
    assert caught.value.ids == ("run.would-be-late",)
    assert "3 requests that wait and 1 that run" in str(caught.value)
    made += [requests.submit(dict, 30.0), requests.submit(dict, 4.0, 1), requests.submit(dict, None)]
    opened.set()
    assert [m.result(30) for m in made] == [{}] * 7


def test_who_need_not_wait_is_not_refused() -> None:
    idle = Requests(2)
    first = idle.submit(dict, None)
    assert first.result(30) == {}
    for _ in range(40):
        idle.took(first, 1.0)
    assert idle.submit(dict, 0.5).result(30) == {}


def test_who_has_waited_too_long_does_not_begin() -> None:
    requests, first, opened = learnt(0.0)
    begun: list[str] = []
    late = requests.submit(lambda: begun.append("late") or {}, 5.0)
    last = requests.submit(lambda: begun.append("last") or {}, None)
    for _ in range(40):
        requests.took(first, 60.0)
    opened.set()
    assert last.result(30) == {}
    with pytest.raises(RunError) as caught:
        late.result(30)
    assert caught.value.ids == ("run.would-be-late",)
    assert begun == ["last"]
