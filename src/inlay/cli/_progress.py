"""Progress for people: nothing for two seconds, then a line that says what is going on.

With `rich` installed and a terminal, the line is redrawn; otherwise one line is printed whenever
something else is going on, at most one a second. Progress goes to the error stream.
"""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from inlay.base.diagnostics import printable
from inlay.base.instrument import Event, EventKind, Instrument, ListSink

PATIENCE_NS = 2_000_000_000


class _Watcher:
    """Turns events into lines once patience is over."""

    def __init__(self, show: Callable[[str], None], every_ns: int) -> None:
        self._show = show
        self._every_ns = every_ns
        self._begun: int | None = None
        self._last = 0
        self._open: list[str] = []
        self._said = ""
        self._counts: dict[str, str] = {}

    def emit(self, event: Event) -> None:
        """Take an event."""
        if self._begun is None:
            self._begun = event.time_ns
        if event.kind is EventKind.BEGIN:
            self._open.append(event.name)
        elif event.kind is EventKind.END and self._open:
            self._counts.pop(self._open.pop(), None)
        elif event.kind is EventKind.PROGRESS:
            done, total = event.facts["done"], event.facts["total"]
            name = self._open[-1] if self._open else event.name
            self._counts[name] = f" {done}/{total}" if total else f" {done}"
        self._say(event.time_ns)

    def tick(self, now: int) -> None:
        """Say what has been going on without an event, once."""
        if self._open and self._open[-1] != self._said:
            self._say(now)

    def _say(self, now: int) -> None:
        begun = now if self._begun is None else self._begun
        if now - begun < PATIENCE_NS or now - self._last < self._every_ns or not self._open:
            return
        self._last = now
        name = self._said = self._open[-1]
        self._show(printable(f"{(now - begun) / 1e9:5.1f} s  {name}{self._counts.get(name, '')}"))


@contextmanager
def watched(*, quiet: bool) -> Generator[tuple[Instrument, ListSink], None, None]:
    """Yield an instrument that shows progress, and the sink that keeps its events."""
    kept = ListSink()
    if quiet:
        yield Instrument(kept), kept
        return
    status = _terminal_status()
    if status is None:
        watcher = _Watcher(lambda text: print(text, file=sys.stderr, flush=True), 1_000_000_000)
        with _clock(watcher):
            yield Instrument(kept, watcher), kept
        return
    with status as line:
        # As text that is only text: `rich` finds its own words in what is a string.
        plain: Any = importlib.import_module("rich.text").Text
        watcher = _Watcher(lambda text: line.update(plain(text)), 100_000_000)
        with _clock(watcher):
            yield Instrument(kept, watcher), kept


@contextmanager
def _clock(watcher: _Watcher) -> Generator[None, None, None]:
    """Let a watcher speak while one thing goes on for long, as a compiler of devices may."""
    over = threading.Event()

    def tick() -> None:
        while not over.wait(0.5):
            watcher.tick(time.perf_counter_ns())

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _terminal_status() -> Any:
    """Return a status line of `rich`, which is optional; None without it or without a terminal."""
    if not sys.stderr.isatty():
        return None
    try:
        rich: Any = importlib.import_module("rich.console")
    except ImportError:
        return None
    return rich.Console(stderr=True).status("")


@contextmanager
def ticking(
    what: str, total: int | None = None, *, quiet: bool
) -> Generator[Callable[[int], None], None, None]:
    """Yield a function to call with how much is done; speaks after two seconds."""
    begun = last = time.monotonic()
    of = "" if total is None else f"/{total}"

    def tick(done: int) -> None:
        nonlocal last
        now = time.monotonic()
        if not quiet and now - begun > PATIENCE_NS / 1e9 and now - last > 1:
            last = now
            print(f"{now - begun:5.1f} s  {what} {done}{of}", file=sys.stderr, flush=True)

    yield tick
