"""What happens while we work: timed spans, counters, progress; and where that goes.

An `Instrument` is passed to whoever does something worth seeing. It turns calls into `Event`
records and hands each to its sinks. `SILENT` has no sinks and costs next to nothing.

    with instrument.span("fuse-ops", function="main"):
        ...
    for index, op in instrument.track("tune", candidates):
        ...

Times are nanoseconds of a monotonic clock. Events are for people and tools; nothing that is
compiled depends on them.
"""

from __future__ import annotations

import contextlib
import enum
import json
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TextIO, TypeVar

T = TypeVar("T")
Clock = Callable[[], int]


class EventKind(enum.StrEnum):
    """What an event says."""

    BEGIN = "begin"
    END = "end"
    INSTANT = "instant"
    COUNTER = "counter"
    PROGRESS = "progress"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened.

    Attributes:
        kind: Begin and end of a span, a moment, the value of a counter, or progress.
        name: What it is about; the same at the begin and the end of a span.
        time_ns: When, by the clock of the instrument.
        thread: The thread it happened on, numbered from 0 in order of appearance.
        facts: More, as plain data. A counter has ``value``; progress has ``done`` and ``total``
            (None while unknown).
    """

    kind: EventKind
    name: str
    time_ns: int
    thread: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Sink(Protocol):
    """Where events go. It is called on the thread of the event, one call at a time."""

    def emit(self, event: Event) -> None:
        """Take an event."""
        ...


class Instrument:
    """Makes events and hands them to sinks.

    Args:
        sinks: Where events go.
        clock: Nanoseconds; replaced in tests.
    """

    def __init__(self, *sinks: Sink, clock: Clock = time.perf_counter_ns) -> None:
        self._sinks = sinks
        self._clock = clock
        self._threads: dict[int, int] = {}
        self._lock = threading.Lock()

    @property
    def is_silent(self) -> bool:
        """Whether nobody listens, so that costly facts need not be gathered."""
        return not self._sinks

    def _emit(self, kind: EventKind, name: str, facts: Mapping[str, Any]) -> None:
        if not self._sinks:
            return
        with self._lock:
            thread = self._threads.setdefault(threading.get_ident(), len(self._threads))
            event = Event(kind, name, self._clock(), thread, facts)
            for sink in self._sinks:
                sink.emit(event)

    @contextlib.contextmanager
    def span(self, name: str, **facts: Any) -> Generator[None, None, None]:
        """Time the body; the end is emitted also when the body fails."""
        self._emit(EventKind.BEGIN, name, facts)
        try:
            yield
        finally:
            self._emit(EventKind.END, name, {})

    def instant(self, name: str, **facts: Any) -> None:
        """Note a moment."""
        self._emit(EventKind.INSTANT, name, facts)

    def counter(self, name: str, value: float) -> None:
        """Note the value of something that changes."""
        self._emit(EventKind.COUNTER, name, {"value": value})

    def progress(self, name: str, done: int, total: int | None = None) -> None:
        """Say how far something has come, for whoever waits for it."""
        self._emit(EventKind.PROGRESS, name, {"done": done, "total": total})

    def track(self, name: str, items: Collection[T]) -> Iterator[T]:
        """Yield items and say after each how many are done."""
        self.progress(name, 0, len(items))
        for done, item in enumerate(items, start=1):
            yield item
            self.progress(name, done, len(items))


SILENT = Instrument()


class ListSink:
    """Keeps the events, for tests and reports."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, event: Event) -> None:
        """Keep an event."""
        self.events.append(event)

    def durations(self) -> dict[str, int]:
        """Return for each name the nanoseconds spent in its spans, inner spans included.

        A span inside another of the same name on the same thread counts once.
        """
        open_at: dict[tuple[int, str], list[int]] = {}
        total: dict[str, int] = {}
        for event in self.events:
            key = (event.thread, event.name)
            if event.kind is EventKind.BEGIN:
                open_at.setdefault(key, []).append(event.time_ns)
                total.setdefault(event.name, 0)
            elif event.kind is EventKind.END:
                begun = open_at[key].pop()
                if not open_at[key]:
                    total[event.name] += event.time_ns - begun
        return total


class JsonLinesSink:
    """Writes each event as one JSON object on a line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def emit(self, event: Event) -> None:
        """Write an event."""
        record = {
            "kind": str(event.kind),
            "name": event.name,
            "time_ns": event.time_ns,
            "thread": event.thread,
            **({"facts": dict(event.facts)} if event.facts else {}),
        }
        self._stream.write(json.dumps(record, default=str) + "\n")


class ChromeTraceSink:
    """Gathers events and writes them in the Trace Event Format, which browsers show.

    Source: the JSON array format of "Trace Event Format", phases B, E, i and C; microseconds.
    """

    _PHASES = {  # noqa: RUF012 (read only)
        EventKind.BEGIN: "B", EventKind.END: "E", EventKind.INSTANT: "i", EventKind.COUNTER: "C",
    }  # fmt: skip

    def __init__(self) -> None:
        self._records: list[dict[str, Any]] = []

    def emit(self, event: Event) -> None:
        """Keep an event; progress is left out."""
        phase = self._PHASES.get(event.kind)
        if phase is None:
            return
        record: dict[str, Any] = {
            "ph": phase, "name": event.name, "ts": event.time_ns / 1000, "pid": 0,
            "tid": event.thread, "args": dict(event.facts),
        }  # fmt: skip
        if phase == "i":
            record["s"] = "t"
        self._records.append(record)

    def write(self, stream: TextIO) -> None:
        """Write everything gathered so far as one document."""
        json.dump({"traceEvents": self._records, "displayTimeUnit": "ms"}, stream, default=str)


class ProgressSink:
    """Calls a function ``(name, done, total)`` for progress, at most so often.

    The first call of a name and its last (``done == total``) always go through.
    """

    def __init__(
        self, report: Callable[[str, int, int | None], None], *, every_ns: int = 100_000_000
    ) -> None:
        self._report = report
        self._every_ns = every_ns
        self._last: dict[str, int] = {}

    def emit(self, event: Event) -> None:
        """Report progress if it is time to."""
        if event.kind is not EventKind.PROGRESS:
            return
        done, total = event.facts["done"], event.facts["total"]
        last = self._last.get(event.name)
        if last is None or done == total or event.time_ns - last >= self._every_ns:
            self._last[event.name] = event.time_ns
            self._report(event.name, done, total)
