"""Events and where they go."""

from __future__ import annotations

import io
import itertools
import json
import threading

import pytest

from inlay.base.instrument import (
    SILENT,
    ChromeTraceSink,
    EventKind,
    Instrument,
    JsonLinesSink,
    ListSink,
    ProgressSink,
)


def make(*sinks) -> Instrument:
    return Instrument(*sinks, clock=itertools.count(0, 10).__next__)


def test_spans_nest_and_end_also_on_failure() -> None:
    sink = ListSink()
    instrument = make(sink)
    with pytest.raises(ValueError, match="x"), instrument.span("outer", size=3):
        with instrument.span("inner"):
            pass
        raise ValueError("x")
    assert [(e.kind, e.name) for e in sink.events] == [
        (EventKind.BEGIN, "outer"),
        (EventKind.BEGIN, "inner"),
        (EventKind.END, "inner"),
        (EventKind.END, "outer"),
    ]
    assert sink.events[0].facts == {"size": 3}
    assert sink.durations() == {"outer": 30, "inner": 10}


def test_a_span_inside_its_own_name_counts_once() -> None:
    sink = ListSink()
    instrument = make(sink)
    with instrument.span("f"), instrument.span("f"):
        pass
    with instrument.span("f"):
        pass
    assert sink.durations() == {"f": 40}


def test_json_lines() -> None:
    stream = io.StringIO()
    instrument = make(JsonLinesSink(stream))
    instrument.counter("bytes", 7)
    instrument.instant("hit")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first == {
        "kind": "counter",
        "name": "bytes",
        "time_ns": 0,
        "thread": 0,
        "facts": {"value": 7},
    }
    assert second == {"kind": "instant", "name": "hit", "time_ns": 10, "thread": 0}


def test_chrome_trace() -> None:
    sink, stream = ChromeTraceSink(), io.StringIO()
    instrument = make(sink)
    with instrument.span("a"):
        instrument.instant("b")
        instrument.progress("c", 1, 2)
    sink.write(stream)
    events = json.loads(stream.getvalue())["traceEvents"]
    assert [(e["ph"], e["name"], e["ts"]) for e in events] == [
        ("B", "a", 0.0),
        ("i", "b", 0.01),
        ("E", "a", 0.03),
    ]


def test_progress_is_thinned_but_keeps_both_ends() -> None:
    told: list[tuple[str, int, int | None]] = []
    sink = ProgressSink(lambda *what: told.append(what), every_ns=35)
    assert list(make(sink).track("tune", range(10))) == list(range(10))
    assert told == [("tune", 0, 10), ("tune", 4, 10), ("tune", 8, 10), ("tune", 10, 10)]


def test_threads_are_numbered_by_appearance() -> None:
    sink = ListSink()
    instrument = make(sink)
    instrument.instant("main")
    worker = threading.Thread(target=instrument.instant, args=("worker",))
    worker.start()
    worker.join()
    assert [(e.name, e.thread) for e in sink.events] == [("main", 0), ("worker", 1)]


def test_the_silent_instrument_does_nothing() -> None:
    assert SILENT.is_silent
    with SILENT.span("x"):
        SILENT.counter("y", 1)
    assert list(SILENT.track("z", [1, 2])) == [1, 2]
