"""What happens while we work: timed spans, progress; and where that goes.

An `Instrument` is passed to whoever does something worth seeing. It turns calls into `Event`
records and hands each to its sinks. `SILENT` has no sinks and costs next to nothing.

    with instrument.span("fuse-ops", function="main"):
        ...
    instrument.progress("kernels", done, total)

Times are nanoseconds of a monotonic clock. Events are for people and tools; nothing that is
compiled depends on them.
"""

from __future__ import annotations

import contextlib
import enum
import threading
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Clock = Callable[[], int]


class EventKind(enum.StrEnum):
    """What an event says."""

    BEGIN = "begin"
    END = "end"
    PROGRESS = "progress"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened.

    Attributes:
        kind: Begin and end of a span, or progress.
        name: What it is about; the same at the begin and the end of a span.
        time_ns: When, by the clock of the instrument.
        thread: The thread it happened on, numbered from 0 in order of appearance.
        facts: More, as plain data. Progress has ``done`` and ``total`` (None while unknown).
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

    def progress(self, name: str, done: int, total: int | None = None) -> None:
        """Say how far something has come, for whoever waits for it."""
        self._emit(EventKind.PROGRESS, name, {"done": done, "total": total})


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
