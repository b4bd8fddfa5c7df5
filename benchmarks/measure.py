"""Timing that can be compared: repeat, keep the median and the least, print one table.

A benchmark is a script in this folder with a `main`. It prints a table, and with ``--json`` the
same rows as JSON lines, so that two runs can be compared by a program. Numbers of a shared machine
are noisy: the least is the best estimate of the work itself, the median of what one waits for.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Timing:
    """Seconds of several runs of one thing."""

    runs: tuple[float, ...]

    @property
    def least(self) -> float:
        """The shortest run."""
        return min(self.runs)

    @property
    def median(self) -> float:
        """The middle run."""
        return statistics.median(self.runs)


def measure(work: Callable[[], Any], *, repeat: int = 5, at_least: float = 0.0) -> Timing:
    """Run ``work`` once to warm up, then time it ``repeat`` times, and on until ``at_least`` s."""
    work()
    runs: list[float] = []
    while len(runs) < repeat or sum(runs) < at_least:
        start = time.perf_counter()
        work()
        runs.append(time.perf_counter() - start)
    return Timing(tuple(runs))


SHORT = 1e-3
"""Seconds of a call that is often not interrupted."""
SPINNING = 0.1
"""Seconds for which threads of an engine may wait for its next call without sleeping: those of onnxruntime
do for 70 to 80 ms on a Zen 4, in which another engine shares one of two processors (9.5 ms for a call of
5.5)."""


def least(
    call: Callable[[], object],
    threads: int,
    seconds: float,
    *,
    processor: Callable[[], float] = time.thread_time,
) -> float:
    """Return the least seconds of a call in a round.

    Long calls on one thread are timed by what the thread had of its processor. Short ones are not: virtual
    machines take off what their host took, and too much now and then (16 us for calls of 24).
    `processor` is `time.process_time` where a call may work on a thread of its own.

    With several threads nothing counts until those of the engine before have gone to sleep.
    """
    begun = time.perf_counter()
    call()
    is_short = time.perf_counter() - begun < SHORT
    while threads > 1 and time.perf_counter() - begun < SPINNING:
        call()
    clock = processor if threads == 1 and not is_short else time.perf_counter
    best, end = float("inf"), time.perf_counter() + seconds
    while True:
        begun = clock()
        call()
        best = min(best, clock() - begun)
        if time.perf_counter() >= end:
            return best


def difference(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """Return by how much outputs differ, of the largest element; infinity for other shapes or integers.

    NaN is equal to NaN, and an infinity to itself.
    """
    most = 0.0
    for a, b in zip(found, expected, strict=True):
        if a.shape != b.shape:
            return math.inf
        wide_a, wide_b = (x.astype(np.float64) for x in (a, b))
        same = (wide_a == wide_b) | (np.isnan(wide_a) & np.isnan(wide_b))
        if not same.all():
            if b.dtype.kind != "f":
                return math.inf
            finite = np.abs(wide_b[np.isfinite(wide_b)])
            off = np.abs(np.where(same, 0.0, wide_a - wide_b)).max()
            most = max(most, float(off / max(finite.max(initial=0.0), 1e-30)))
    return most


class Report:
    """Rows with the same columns, printed as they come so that waiting shows progress."""

    def __init__(self, title: str, columns: list[str]) -> None:
        parser = argparse.ArgumentParser(description=title)
        parser.add_argument("--json", action="store_true", help="print rows as JSON lines")
        self._as_json = parser.parse_args().json
        self._columns = columns
        self._title = title
        if not self._as_json:
            print(f"\n{title}\n" + "  ".join(f"{c:>16}" for c in columns))

    def row(self, *values: object) -> None:
        """Print a row."""
        if self._as_json:
            record = dict(zip(self._columns, values, strict=True))
            print(json.dumps({"benchmark": self._title, **record}))
        else:
            shown = (f"{v:.4g}" if isinstance(v, float) else str(v) for v in values)
            print("  ".join(f"{s:>16}" for s in shown))
        sys.stdout.flush()
