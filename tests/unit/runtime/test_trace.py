"""Events of runs, their timeline and their table."""

from __future__ import annotations

import json

import numpy as np
import pytest

from inlay.bytecode.builder import ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import AccessCode, CopyBody, DeviceRecord, Entry, Kernel
from inlay.runtime.native import MODES, Settings
from inlay.runtime.session import executable_of
from inlay.runtime.trace import Event, EventKind, device_times, kernel_times, table, time_beside, timeline
from tests.unit.runtime.generate_flow import CALLBACKS, FlowGenerator
from tests.unit.runtime.programs import dbl, doubling, spec

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


def names_of(found: list[dict]) -> dict[tuple[int, int], str]:
    """Names of processes (row 0) and rows of a timeline."""
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in found if e["ph"] == "M"}


def test_timeline():
    found = json.loads(json.dumps(timeline(EVENTS)))["traceEvents"]
    names = names_of(found)
    assert names == {(1, 0): "host", (1, 1): "caller 0", (1, 2): "worker 1", (1, 3): "worker 2"}
    kernels = [(e["name"], e["tid"], e["ts"], e["dur"]) for e in found if e.get("cat") == "kernel"]
    assert kernels == [("a", 2, 1.0, 2.0), ("b", 3, 4.0, 1.0), ("b", 3, 5.0, 1.0)]
    begin, end = (e for e in found if e.get("cat") == "future")
    assert (begin["ph"], begin["tid"], end["ph"], end["tid"]) == ("s", 2, "f", 3)
    assert begin["id"] == end["id"]
    assert begin["ts"] <= 3.0
    assert end["ts"] == 4.0
    counters = [(e["name"], e["args"]) for e in found if e["ph"] == "C"]
    assert counters == [("tensors", {"bytes": 64})]
    assert timeline([])["traceEvents"] == [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "host"}}
    ]


def test_each_memory_has_a_counter():
    held = [
        event(EventKind.MEMORY, 10, 10, value=64),
        event(EventKind.MEMORY, 10, 10, value=32, device="cl0"),
        event(EventKind.MEMORY, 10, 10, value=16, device="cl0", queue=1),
        event(EventKind.MEMORY, 20, 20, value=8, call=10, device="cl1"),
    ]
    found = timeline(held)["traceEvents"]
    names = names_of(found)
    assert [(names[e["pid"], 0], e["name"], e["args"]["bytes"]) for e in found if e["ph"] == "C"] == [
        ("host", "tensors", 64),
        ("cl0", "tensors", 32),
        ("cl0", "tensors of unit 1", 16),
        ("cl1", "tensors 2", 8),
    ]


def test_a_call_tells_what_is_in_each_memory():
    b = ProgramBuilder(
        memories=("host", "far", "second"), devices=(DeviceRecord("dev0", "host", "units=2", (1, 2)),)
    )
    copy = b.kernel(Kernel("to", (AccessCode.READ, AccessCode.WRITE), 0, CopyBody()))
    main = b.function("main", [Kind.TENSOR], [Kind.TENSOR])
    for memory in ("far", "second", "host"):
        main.emit("INT", 3), main.emit("ALLOCATE", memory, "i64", 1)
    for source, target in ((0, 1), (1, 2), (2, 3)):
        main.emit("COPY", source), main.emit("COPY", target), main.emit("INVOKE", copy)
    main.emit("COPY", 3), main.emit("RETURN")
    b.entry(Entry("main", main.index, (spec("x", "i64", "3", []),), (spec("y", "i64", "3", []),)))
    exe = executable_of(b.finish(), settings=Settings(trace=True))
    assert (exe(X) == X).all()
    held = {(e.device, e.queue): e.value for e in exe.events() if e.kind is EventKind.MEMORY}
    assert held.pop(("", 0)) >= 24  # blocks of the host are larger
    assert held == {("dev0", 0): 24, ("dev0", 1): 24}


ON_DEVICE = [
    event(EventKind.CALL, 1000, 9000, name="main"),
    event(EventKind.RUN, 2000, 4000, name="to", row=7, number=1, device="cl0", queue=1),
    event(EventKind.RUN, 4000, 7000, name="k", row=8, number=2, device="cl0", queue=0),
    event(EventKind.RUN, 3000, 6000, name="more", row=7, number=3, device="cl0", queue=1),
    event(EventKind.RUN, 4000, 5000, name="k", row=8, number=4, device="cl1", queue=0),
    event(EventKind.NEEDS, 1500, 1500, number=2, other=1),
]


def test_queues_of_devices_are_rows():
    """A device is a process; what was started early begins when its queue comes to it."""
    found = timeline(ON_DEVICE, {"cl0": ["cl0", "cl0.transfer"]})["traceEvents"]
    names = names_of(found)
    assert [n for (_, row), n in names.items() if row == 0] == ["host", "cl0", "cl1"]
    assert {n for (_, row), n in names.items() if row} == {"caller 0", "cl0", "cl0.transfer", "cl1 kernels"}
    shown = [
        (names[e["pid"], e["tid"]], e["cat"], e["name"], e["ts"], e["dur"])
        for e in found
        if e["ph"] == "X" and e["cat"] != "call"
    ]
    assert sorted(shown) == [
        ("cl0", "kernel", "k", 3.0, 3.0),
        ("cl0.transfer", "copy", "more", 3.0, 2.0),
        ("cl0.transfer", "copy", "to", 1.0, 2.0),
        ("cl1 kernels", "kernel", "k", 3.0, 1.0),
    ]
    begin, end = (e for e in found if e.get("cat") == "future")
    assert names[begin["pid"], begin["tid"]] == "cl0.transfer"
    assert names[end["pid"], end["tid"]] == "cl0"


def test_time_of_queues_at_the_same_time():
    first, second = device_times(ON_DEVICE)
    assert (first.device, first.queues, first.together) == ("cl0", {0: 3000, 1: 4000}, 2000)
    assert (second.device, second.queues, second.together) == ("cl1", {0: 1000}, 0)
    assert "cl0 computed for 0.003 ms and copied for 0.004 ms; 0.002 ms of that" in table(ON_DEVICE)


def test_time_beside():
    assert time_beside([]) == 0
    assert time_beside(EVENTS) == 0, "one after the other"
    runs = [event(EventKind.RUN, *span) for span in ((0, 40), (30, 60), (60, 70), (90, 100))]
    assert time_beside(runs) == 2 * 10 / 90
    assert time_beside([*runs, event(EventKind.RUN, 0, 100)]) == (100 - 20 + 90) / 190
    assert time_beside(ON_DEVICE) > 0


def test_table():
    assert [(t.name, t.runs, t.measured, t.predicted) for t in kernel_times(EVENTS)] == [
        ("a", 1, 2000, 1500),
        ("b", 2, 2000, -1),
    ]
    lines = table(EVENTS).splitlines()
    assert lines[1].split() == ["a", "1", "0.002", "50.0", "2.0", "1.5"]
    assert lines[2].split() == ["b", "2", "0.002", "50.0", "1.0", "-"]
    assert lines[3].startswith("kernels took 0.004 ms of 0.008 ms; the caller waited 0.005 ms")
    assert table(EVENTS, most=1).splitlines()[2].split()[:3] == ["1", "others", "2"]
