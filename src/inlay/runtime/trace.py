"""What happened while an executable ran: events, a timeline for a viewer, a table of kernels.

    executable = load_executable("model.inlay", settings=Settings(threads=2, trace=True))
    executable.run(inputs)
    events = executable.events()
    Path("trace.json").write_text(json.dumps(timeline(events)))    # chrome://tracing, Perfetto
    print(table(events))

A timeline has a row for each thread, arrows from what a command waited for, and the bytes of tensors.
Times are nanoseconds of the monotonic clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any


class EventKind(IntEnum):
    """The numbers are those of the runtime."""

    RUN = 0
    """A kernel or copy ran."""
    WAIT = 1
    """The thread of the call waited."""
    CALL = 2
    """A function ran from outside, to its end."""
    NEEDS = 3
    """A command was issued, and waits for another one."""
    MEMORY = 4
    """How many bytes the tensors of a call have."""


@dataclass(frozen=True, slots=True)
class Event:
    """What happened.

    Attributes:
        kind: what it is.
        name: of the kernel or function.
        row: the thread, a number.
        call: which activation; calls of one activation follow each other.
        number: of the command, in its activation.
        other: of the command that it waits for.
        begin, end: when, in ns.
        value: of a kernel, the predicted time in ns, or -1; of memory, bytes.
    """

    kind: EventKind
    name: str
    row: int
    call: int
    number: int
    other: int
    begin: int
    end: int
    value: int

    @classmethod
    def of(cls, fields: tuple[int, str, int, int, int, int, int, int, int]) -> Event:
        """Read an event as the runtime gives it."""
        return cls(EventKind(fields[0]), *fields[1:])


def timeline(events: Sequence[Event]) -> dict[str, Any]:
    """Return events in the format of trace viewers (an object with `traceEvents`)."""
    start = min((e.begin for e in events), default=0)
    callers = {e.row for e in events if e.kind is EventKind.CALL}
    rows = sorted({e.row for e in events if e.kind is not EventKind.MEMORY})
    shown: list[dict[str, Any]] = []
    for row in rows:
        name = f"caller {row}" if row in callers else f"worker {row}"
        shown.append({"ph": "M", "name": "thread_name", "pid": 1, "tid": row, "args": {"name": name}})
    runs = {(e.call, e.number): e for e in events if e.kind is EventKind.RUN}
    for e in events:
        base = {"pid": 1, "tid": e.row, "ts": (e.begin - start) / 1e3}
        span = {**base, "ph": "X", "dur": (e.end - e.begin) / 1e3}
        match e.kind:
            case EventKind.RUN:
                predicted = {"predicted_us": e.value / 1e3} if e.value >= 0 else {}
                args = {"number": e.number, **predicted}
                shown.append({**span, "name": e.name, "cat": "kernel", "args": args})
            case EventKind.WAIT:
                shown.append({**span, "name": "wait", "cat": "wait"})
            case EventKind.CALL:
                shown.append({**span, "name": e.name, "cat": "call"})
            case EventKind.NEEDS:
                before, after = runs.get((e.call, e.other)), runs.get((e.call, e.number))
                if before is not None and after is not None:
                    shown += _arrow(before, after, start)
            case EventKind.MEMORY:
                name = f"tensors {e.call:x}"
                shown.append({**base, "ph": "C", "name": name, "args": {"bytes": e.value}})
    return {"traceEvents": shown, "displayTimeUnit": "ns"}


def _arrow(before: Event, after: Event, start: int) -> list[dict[str, Any]]:
    name = {"cat": "future", "name": "future", "id": f"{before.call:x}.{before.number}.{after.number}"}
    # An arrow begins within the slice that it leaves.
    leaves = (max(before.begin, before.end - 1) - start) / 1e3
    enters = (after.begin - start) / 1e3
    return [
        {**name, "ph": "s", "pid": 1, "tid": before.row, "ts": leaves},
        {**name, "ph": "f", "bp": "e", "pid": 1, "tid": after.row, "ts": enters},
    ]


@dataclass(frozen=True, slots=True)
class KernelTime:
    """All runs of one kernel.

    Attributes:
        name: of the kernel.
        runs: how many.
        measured: ns of all of them.
        predicted: ns of all of them, or -1 where some could not be predicted.
    """

    name: str
    runs: int
    measured: int
    predicted: int


def kernel_times(events: Sequence[Event]) -> list[KernelTime]:
    """Return the time of each kernel, the longest first."""
    found: dict[str, list[Event]] = {}
    for e in events:
        if e.kind is EventKind.RUN:
            found.setdefault(e.name, []).append(e)
    times = [
        KernelTime(
            name,
            len(runs),
            sum(e.end - e.begin for e in runs),
            -1 if any(e.value < 0 for e in runs) else sum(e.value for e in runs),
        )
        for name, runs in found.items()
    ]
    return sorted(times, key=lambda t: (-t.measured, t.name))


def table(events: Sequence[Event], most: int = 40) -> str:
    """Return the kernels that took most time, beside what was predicted, and the time of calls."""
    times = kernel_times(events)
    whole = sum(t.measured for t in times) or 1
    lines = [f"{'kernel':40}{'runs':>8}{'ms':>10}{'%':>7}{'us each':>11}{'predicted':>11}"]
    for t in times[:most]:
        predicted = f"{t.predicted / t.runs / 1e3:.1f}" if t.predicted >= 0 else "-"
        lines.append(
            f"{t.name[:39]:40}{t.runs:8}{t.measured / 1e6:10.3f}{100 * t.measured / whole:7.1f}"
            f"{t.measured / t.runs / 1e3:11.1f}{predicted:>11}"
        )
    if len(times) > most:
        rest = times[most:]
        lines.append(f"{f'{len(rest)} others':40}{sum(t.runs for t in rest):8}"
                     f"{sum(t.measured for t in rest) / 1e6:10.3f}")  # fmt: skip
    calls = sum(e.end - e.begin for e in events if e.kind is EventKind.CALL)
    waits = sum(e.end - e.begin for e in events if e.kind is EventKind.WAIT)
    lines.append(
        f"kernels took {whole / 1e6:.3f} ms of {calls / 1e6:.3f} ms; the caller waited "
        f"{waits / 1e6:.3f} ms"
    )
    return "\n".join(lines)
