"""Events of runs, their timeline and their table."""

from __future__ import annotations

import json

import numpy as np
import pytest

from inlay.runtime.native import MODES, Settings
from inlay.runtime.session import executable_of
from inlay.runtime.trace import Event, EventKind, kernel_times, table, timeline
from tests.unit.runtime.generate_flow import CALLBACKS, FlowGenerator
from tests.unit.runtime.programs import dbl, doubling

X = np.array([5, 11, 17])


@pytest.mark.parametrize("mode", MODES)
def test_every_kernel_run_is_an_event(mode):
    calls: list[str] = []

    def counted(name):
        def run(tensors, integers):
            calls.append(name)
            CALLBACKS[name](tensors, integers)

        return run

    settings = Settings(mode=mode, threads=2, trace=True)
    exe = executable_of(
        FlowGenerator(1).program_of(),
        callbacks={name: counted(name) for name in CALLBACKS},
        settings=settings,
    )
    assert exe.events() == []
    exe(X)
    events = exe.events()
    runs = [e for e in events if e.kind is EventKind.RUN and e.name != "copy"]
    assert [e.name for e in sorted(runs, key=lambda e: e.begin)] == calls
    assert len({e.number for e in runs}) == len(runs)
    assert all(e.begin <= e.end for e in events)
    (call,) = (e for e in events if e.kind is EventKind.CALL)
    assert call.name == "main"
    assert all(call.begin <= e.begin and e.end <= call.end for e in runs)
    assert any(e.kind is EventKind.MEMORY and e.value > 0 for e in events)
    if mode == "replay":
        needs = [e for e in events if e.kind is EventKind.NEEDS]
        assert needs
        ends = {e.number: e.end for e in events if e.kind is EventKind.RUN}
        begins = {e.number: e.begin for e in events if e.kind is EventKind.RUN}
        assert all(ends[e.other] <= begins[e.number] for e in needs)
    assert exe.events() == [], "they were taken"


def test_without_trace_nothing_is_kept():
    exe = executable_of(doubling(), callbacks={"dbl": dbl})
    exe(np.ones((2, 4), np.float32))
    assert exe.events() == []


def event(kind: EventKind, begin: int, end: int, **fields) -> Event:
    given = {"name": "", "row": 0, "call": 9, "number": 0, "other": 0, "value": 0, **fields}
    return Event(kind=kind, begin=begin, end=end, **given)


EVENTS = [
    event(EventKind.CALL, 1000, 9000, name="main"),
    event(EventKind.RUN, 2000, 4000, name="a", row=1, number=1, value=1500),
    event(EventKind.RUN, 5000, 6000, name="b", row=2, number=2, value=-1),
    event(EventKind.RUN, 6000, 7000, name="b", row=2, number=3, value=-1),
    event(EventKind.NEEDS, 1500, 1500, number=2, other=1),
    event(EventKind.NEEDS, 1500, 1500, number=2, other=99),
    event(EventKind.WAIT, 1500, 6500),
    event(EventKind.MEMORY, 1200, 1200, value=64),
]


def test_timeline():
    found = json.loads(json.dumps(timeline(EVENTS)))["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in found if e["ph"] == "M"}
    assert names == {0: "caller 0", 1: "worker 1", 2: "worker 2"}
    kernels = [(e["name"], e["tid"], e["ts"], e["dur"]) for e in found if e.get("cat") == "kernel"]
    assert kernels == [("a", 1, 1.0, 2.0), ("b", 2, 4.0, 1.0), ("b", 2, 5.0, 1.0)]
    begin, end = (e for e in found if e.get("cat") == "future")
    assert (begin["ph"], begin["tid"], end["ph"], end["tid"]) == ("s", 1, "f", 2)
    assert begin["id"] == end["id"]
    assert begin["ts"] <= 3.0
    assert end["ts"] == 4.0
    assert [e["args"] for e in found if e["ph"] == "C"] == [{"bytes": 64}]
    assert timeline([])["traceEvents"] == []


def test_table():
    assert [(t.name, t.runs, t.measured, t.predicted) for t in kernel_times(EVENTS)] == [
        ("a", 1, 2000, 1500), ("b", 2, 2000, -1),
    ]  # fmt: skip
    lines = table(EVENTS).splitlines()
    assert lines[1].split() == ["a", "1", "0.002", "50.0", "2.0", "1.5"]
    assert lines[2].split() == ["b", "2", "0.002", "50.0", "1.0", "-"]
    assert lines[3].startswith("kernels took 0.004 ms of 0.008 ms; the caller waited 0.005 ms")
    assert table(EVENTS, most=1).splitlines()[2].split()[:3] == ["1", "others", "2"]
