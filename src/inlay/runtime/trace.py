"""What happened while an executable ran: events, a timeline for a viewer, a table of kernels.

    executable = load_executable("model.inlay", settings=Settings(threads=2, trace=True))
    executable.run(inputs)
    events = executable.events()
    rows = queue_names(executable.program)
    Path("trace.json").write_text(json.dumps(timeline(events, rows)))    # chrome://tracing, Perfetto
    print(table(events))

A timeline has a row for each thread of the host and for each queue of a device, arrows from what a
command waited for, and the bytes of tensors. The queue for copies of a device is named as the engine
of the board. Times are nanoseconds of the monotonic clock; of a device they are its own, moved to that
clock, where its driver knows them, else from when a command was started until its end was told.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from inlay.bytecode.program import Program

QUEUES = "queues"
"""The property of a program with the names of queues: `{"cl0": ["cl0", "cl0.transfer"]}`."""


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
        row: the thread, a number; of a command of a device, the one that told its end.
        call: which activation; calls of one activation follow each other.
        number: of the command, in its activation.
        other: of the command that it waits for.
        begin, end: when, in ns.
        value: of a kernel, the predicted time in ns, or -1; of memory, bytes there.
        device: that ran it, or whose memory it is; empty for the host.
        queue: of the device, those with odd numbers are for copies; of memory, the unit.
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
    device: str = ""
    queue: int = 0

    @classmethod
    def of(cls, fields: tuple[int, str, int, int, int, int, int, int, int, str, int]) -> Event:
        """Read an event as the runtime gives it."""
        return cls(EventKind(fields[0]), *fields[1:])


def queue_names(program: Program) -> Mapping[str, Sequence[str]]:
    """Return the names of the queues of each device, as the board of the program has them."""
    return json.loads(program.properties.get(QUEUES, "{}"))


def in_order(events: Iterable[Event]) -> list[Event]:
    """Return the commands of devices, queue by queue, each in order.

    A queue does one thing at a time, so a command that was started early begins when the one before
    it has ended.
    """
    found = [e for e in events if e.kind is EventKind.RUN and e.device]
    found.sort(key=lambda e: (e.device, e.queue, e.end, e.begin))
    for i in range(1, len(found)):
        before, e = found[i - 1 : i + 1]
        if (before.device, before.queue) == (e.device, e.queue):
            found[i] = replace(e, begin=min(max(e.begin, before.end), e.end))
    return found


def timeline(events: Sequence[Event], queues: Mapping[str, Sequence[str]] | None = None) -> dict[str, Any]:
    """Return events in the format of trace viewers (an object with `traceEvents`).

    Args:
        events: of one or more runs.
        queues: names of the queues of devices; see `queue_names`.
    """
    return _Timeline(events, queues or {}).written()


class _Timeline:
    """The host and each device are a process of the viewer; threads and queues are its rows."""

    def __init__(self, events: Sequence[Event], queues: Mapping[str, Sequence[str]]) -> None:
        kept = [e for e in events if not (e.kind is EventKind.RUN and e.device)]
        self._events = kept + in_order(events)
        self._start = min((e.begin for e in self._events), default=0)
        self._queues = queues
        rows = {
            (e.device, e.queue if e.device else e.row): None
            for e in self._events
            if e.kind is not EventKind.MEMORY
        }
        self._rows = {row: i for i, row in enumerate(sorted(rows), 1)}
        devices = sorted({"", *(e.device for e in self._events)})
        self._processes = {device: i for i, device in enumerate(devices, 1)}
        self._calls: dict[int, int] = {}

    def written(self) -> dict[str, Any]:
        runs = {(e.call, e.number): e for e in self._events if e.kind is EventKind.RUN}
        shown = self._names()
        for e in self._events:
            base = {**self._where(e), "ts": self._time(e.begin)}
            span = {**base, "ph": "X", "dur": (e.end - e.begin) / 1e3}
            match e.kind:
                case EventKind.RUN:
                    predicted = {"predicted_us": e.value / 1e3} if e.value >= 0 else {}
                    args = {"number": e.number, **predicted}
                    category = "copy" if e.device and e.queue % 2 else "kernel"
                    shown.append({**span, "name": e.name, "cat": category, "args": args})
                case EventKind.WAIT:
                    shown.append({**span, "name": "wait", "cat": "wait"})
                case EventKind.CALL:
                    shown.append({**span, "name": e.name, "cat": "call"})
                case EventKind.NEEDS:
                    before, after = runs.get((e.call, e.other)), runs.get((e.call, e.number))
                    if before is not None and after is not None:
                        shown += self._arrow(before, after)
                case EventKind.MEMORY:
                    number = self._calls.setdefault(e.call, len(self._calls) + 1)
                    name = "tensors" if number == 1 else f"tensors {number}"
                    name += f" of unit {e.queue}" if e.queue else ""
                    shown.append({**base, "tid": 0, "ph": "C", "name": name, "args": {"bytes": e.value}})
        return {"traceEvents": shown, "displayTimeUnit": "ns"}

    def _where(self, e: Event) -> dict[str, int]:
        row = (e.device, e.queue if e.device else e.row)
        return {"pid": self._processes[e.device], "tid": self._rows.get(row, 0)}

    def _time(self, ns: int) -> float:
        return (ns - self._start) / 1e3

    def _names(self) -> list[dict[str, Any]]:
        callers = {e.row for e in self._events if e.kind is EventKind.CALL}
        named: list[tuple[str, int, int, str]] = []
        for device, process in self._processes.items():
            named.append(("process_name", process, 0, device or "host"))
        for (device, n), row in self._rows.items():
            known = self._queues.get(device, ())
            if device:
                name = known[n] if n < len(known) else f"{device} {'copies' if n % 2 else 'kernels'}"
            else:
                name = f"caller {n}" if n in callers else f"worker {n}"
            named.append(("thread_name", self._processes[device], row, name))
        return [
            {"ph": "M", "name": what, "pid": process, "tid": row, "args": {"name": name}}
            for what, process, row, name in named
        ]

    def _arrow(self, before: Event, after: Event) -> list[dict[str, Any]]:
        id = f"{before.call:x}.{before.number}.{after.number}"
        name = {"cat": "future", "name": "future", "id": id}
        # An arrow begins within the slice that it leaves.
        leaves = self._time(max(before.begin, before.end - 1))
        return [
            {**name, "ph": "s", **self._where(before), "ts": leaves},
            {**name, "ph": "f", "bp": "e", **self._where(after), "ts": self._time(after.begin)},
        ]


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """How long the queues of a device worked.

    Attributes:
        device: its name.
        queues: ns of each queue, by number.
        together: ns in which two or more of them worked.
    """

    device: str
    queues: Mapping[int, int]
    together: int


def device_times(events: Sequence[Event]) -> list[DeviceTime]:
    """Return how long the queues of each device worked, and how long at the same time."""
    devices: dict[str, list[Event]] = {}
    for e in in_order(events):
        devices.setdefault(e.device, []).append(e)
    found: list[DeviceTime] = []
    for device, runs in devices.items():
        queues: dict[int, int] = {}
        ends: list[tuple[int, int]] = []
        for e in runs:
            queues[e.queue] = queues.get(e.queue, 0) + e.end - e.begin
            ends += [(e.begin, 1), (e.end, -1)]
        busy = together = since = 0
        for at, step in sorted(ends):
            together += at - since if busy > 1 else 0
            busy, since = busy + step, at
        found.append(DeviceTime(device, queues, together))
    return found


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


def time_beside(events: Sequence[Event]) -> float:
    """Return the share of the time of all kernels and copies in which at least one other ran as well:
    1 for two chains that run at once from beginning to end, 0 for one after the other.
    """
    runs = [e for e in events if e.kind is EventKind.RUN and not e.device] + in_order(events)
    changes = sorted([(e.begin, 1) for e in runs] + [(e.end, -1) for e in runs])
    whole, beside, running, since = 0, 0, 0, 0
    for time, change in changes:
        whole += running * (time - since)
        beside += running * (time - since) if running > 1 else 0
        running, since = running + change, time
    return beside / whole if whole else 0.0


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
        lines.append(
            f"{f'{len(rest)} others':40}{sum(t.runs for t in rest):8}"
            f"{sum(t.measured for t in rest) / 1e6:10.3f}"
        )
    calls = sum(e.end - e.begin for e in events if e.kind is EventKind.CALL)
    waits = sum(e.end - e.begin for e in events if e.kind is EventKind.WAIT)
    lines.append(
        f"kernels took {whole / 1e6:.3f} ms of {calls / 1e6:.3f} ms; the caller waited "
        f"{waits / 1e6:.3f} ms; {time_beside(events):.0%} of their time kernels ran beside others"
    )
    for d in device_times(events):
        worked = " and ".join(
            f"{'copied' if n % 2 else 'computed'} for {ns / 1e6:.3f} ms" for n, ns in d.queues.items()
        )
        lines.append(f"{d.device} {worked}; {d.together / 1e6:.3f} ms of that at the same time")
    return "\n".join(lines)
