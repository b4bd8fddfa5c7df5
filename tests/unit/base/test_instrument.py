"""Events and where they go."""

from __future__ import annotations

import itertools
import threading

import pytest

from inlay.base.instrument import SILENT, EventKind, Instrument, ListSink


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


def test_threads_are_numbered_by_appearance() -> None:
    sink = ListSink()
    instrument = make(sink)
    instrument.progress("main", 0)
    worker = threading.Thread(target=instrument.progress, args=("worker", 0))
    worker.start()
    worker.join()
    assert [(e.name, e.thread) for e in sink.events] == [("main", 0), ("worker", 1)]


def test_the_silent_instrument_does_nothing() -> None:
    with SILENT.span("x"):
        SILENT.progress("y", 1)
