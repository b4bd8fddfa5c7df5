"""A server of decoders at twice the rate that it sustains, for minutes: five properties, checked.

    python benchmarks/load.py [--minutes M] [--layers N] [--limit SECONDS] [--threads N]

The program is the step of a decoder of `serve.py`. First it is measured how many requests a second are
served to 32 sessions that ask one after the other; then twice as many are offered, at random times (Poisson),
each within a limit of time, with a bounded queue. Checked and printed, with 1 as exit code where one fails:

1. memory is flat: resident bytes in the last third are at most 2 % above those of the second third, and
   16 MB;
2. each refusal has a reason: `run.queue-full` or `run.would-be-late`, with numbers in its sentence;
3. no request is lost: each ends as done, refused or late;
4. deadline errors are there within 10 ms of the deadline, for whoever awaits them (99 of 100; the
   largest is printed), and so are outputs that are done;
5. outputs are equal to those of running alone, bit by bit.

Lateness is told twice: until the request has ended, by whichever thread, and until the loop of `asyncio` that
awaits it was told. On a loaded machine all wait for processors: how late a process of its own wakes that only
sleeps is printed beside it, and the load. Nothing in a process can be told sooner than that.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import gc
import multiprocessing
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np

import inlay
from inlay.base.diagnostics import RunError
from inlay.runtime.native import Settings
from inlay.runtime.session import Executable
from serve import Inputs, resident
from weights import Decoder

_SESSIONS = 32
_REFUSALS = ("run.queue-full", "run.would-be-late")
_TOLERATED = 0.010
"""Seconds behind its deadline within which a request ends."""
_GROWTH, _GROWTH_MB = 1.02, 16.0


class Delays:
    """How many took how long, in steps of a tenth of a millisecond; its memory does not grow."""

    def __init__(self) -> None:
        self._counts = np.zeros(100_000, np.int64)
        self.most = 0.0

    def note(self, seconds: float) -> None:
        """One took so long."""
        self.most = max(self.most, seconds)
        self._counts[min(len(self._counts) - 1, max(0, int(seconds * 1e4)))] += 1

    @property
    def count(self) -> int:
        """How many there are."""
        return int(self._counts.sum())

    def percentile(self, p: float) -> float:
        """Return what p of 100 took at most, in seconds."""
        sums = np.cumsum(self._counts)
        return float(np.searchsorted(sums, p / 100 * sums[-1])) / 1e4 if sums[-1] else 0.0

    def __str__(self) -> str:
        """Return percentiles, in milliseconds."""
        shown = " ".join(f"p{p} {self.percentile(p) * 1e3:.1f}" for p in (50, 90, 99, 99.9))
        return f"{shown} most {self.most * 1e3:.1f} ms"


@dataclass
class Seen:
    """What came of the requests."""

    ends: collections.Counter[str] = field(default_factory=collections.Counter)
    settled: dict[str, Delays] = field(default_factory=lambda: collections.defaultdict(Delays))
    told: Delays = field(default_factory=Delays)
    done: Delays = field(default_factory=Delays)
    without_reason: int = 0
    different: int = 0
    offered: int = 0
    memory: list[float] = field(default_factory=list)


class Server:
    """The program under load, its inputs, and what it gives for them alone."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        model, file = Decoder(32, 32, arguments.layers).model(), folder / "batched.inlay"
        inlay.compile(model, cache="none", batch=True).save(file)
        alone = inlay.compile(model, threads=arguments.threads, cache="none")
        settings = Settings(threads=arguments.threads, activations=_SESSIONS, waiting=2 * _SESSIONS)
        self.limit: float = arguments.limit
        self.executable: Executable = inlay.load_executable(file, settings=settings)
        self.given = _inputs(alone)
        # Compared as bytes, which takes microseconds: what the loop does meanwhile, requests wait for.
        self.expected = [next(iter(alone.run(inputs).values())).tobytes() for inputs in self.given]

    async def sustained(self, seconds: float) -> float:
        """Return requests a second of sessions that ask one after the other."""
        end, count = time.perf_counter() + seconds, 0

        async def session(first: int) -> None:
            nonlocal count
            number = first
            while time.perf_counter() < end:
                await self.executable.submit(self.given[number % len(self.given)])
                number += 1
                count += 1

        begun = time.perf_counter()
        await asyncio.gather(*(session(i * 7) for i in range(_SESSIONS)))
        return count / (time.perf_counter() - begun)

    async def one(self, number: int, seen: Seen) -> None:
        """Make a request, and note what comes of it."""
        which = number % len(self.given)
        asked = time.perf_counter()
        settled = 0.0

        def note(_: object) -> None:
            nonlocal settled
            settled = time.perf_counter()

        try:
            request = self.executable.submit(self.given[which], timeout=self.limit)
            request.add_done_callback(note)
            found = await request
        except RunError as problem:
            told = time.perf_counter() - asked - self.limit
            (id,), message = problem.ids, problem.diagnostics[0].message
            seen.ends[id] += 1
            if id == "run.deadline":
                seen.told.note(told)
                seen.settled[message].note(settled - asked - self.limit)
            elif id not in _REFUSALS or not any(letter.isdigit() for letter in message):
                seen.without_reason += 1
            return
        seen.ends["done"] += 1
        seen.done.note(time.perf_counter() - asked)
        seen.different += next(iter(found.values())).tobytes() != self.expected[which]

    async def offer(self, rate: float, seconds: float) -> Seen:
        """Make so many requests a second for so many seconds, and wait until all have ended."""
        seen, random, tasks = Seen(), np.random.default_rng(2), set[asyncio.Task[None]]()
        begun, due, looked = time.perf_counter(), 0.0, 0.0
        while (now := time.perf_counter() - begun) < seconds:
            while due <= now:
                task = asyncio.ensure_future(self.one(seen.offered, seen))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                seen.offered += 1
                due += random.exponential(1 / rate)
            if now >= looked:
                seen.memory.append(resident())
                looked += 0.5
            await asyncio.sleep(min(0.005, max(0.0, due - now)))
        last = time.perf_counter() + 30
        while tasks and time.perf_counter() < last:
            await asyncio.sleep(0.01)
        return seen


def _inputs(executable: Executable) -> list[Inputs]:
    """Return inputs of requests: a cache for each session, and several tokens."""
    random = np.random.default_rng(1)
    specs = {s.name: s.shape for s in executable.inputs}
    given: list[Inputs] = []
    for _ in range(_SESSIONS):
        cache = {m: random.standard_normal(d).astype(np.float32) for m, d in specs.items() if m != "x"}
        steps = random.standard_normal((8, *specs["x"])).astype(np.float32)
        given += [{**cache, "x": x} for x in steps]
    return given


def _sleep(end: Event) -> None:
    """Print how late a process wakes that only sleeps, until it is to end."""
    delays = Delays()
    while not end.is_set():
        begun = time.perf_counter()
        time.sleep(0.002)
        delays.note(time.perf_counter() - begun - 0.002)
    print(f"a process that only sleeps wakes late: {delays}", flush=True)


def checks(seen: Seen, limit: float) -> dict[str, tuple[bool, str]]:
    """Return the five properties: whether each is so, and the figures that say it."""
    lost = seen.offered - sum(seen.ends.values())
    refused = sum(seen.ends[id] for id in _REFUSALS)
    third = len(seen.memory) // 3
    before, behind = max(seen.memory[third : 2 * third]), max(seen.memory[2 * third :])
    late, done = seen.told.percentile(99), seen.done.percentile(99)
    return {
        "memory is flat": (
            behind <= max(before * _GROWTH, before + _GROWTH_MB),
            f"at most {before:.0f} MB in the second third, {behind:.0f} in the last",
        ),
        "refusals have reasons": (
            not seen.without_reason,
            f"{refused} refused, {seen.without_reason} without",
        ),
        "no request is lost": (not lost, f"{seen.offered} offered, {lost} lost"),
        "deadlines are told within 10 ms": (
            late <= _TOLERATED and done <= limit + _TOLERATED,
            f"late {seen.told}; done in {seen.done}",
        ),
        "outputs are those of running alone": (not seen.different, f"{seen.different} differ"),
    }


def main() -> int:
    """Measure, check and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=float, default=0.1, help="of a request, in seconds")
    parser.add_argument("--rate", type=float, help="requests a second, instead of twice what is sustained")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = Server(arguments, Path(folder))
        asyncio.run(server.sustained(1))
        sustained = asyncio.run(server.sustained(5))
        rate = arguments.rate or 2 * sustained
        print(f"{sustained:.0f} requests a second sustained, {rate:.0f} offered, within {arguments.limit} s")
        # One collection of what compiling leaves in the process holds all its threads for 60 to 80 ms.
        gc.collect()
        gc.freeze()
        # Who waits for a thread of Python that does not wait itself does so for 5 ms unless less is said.
        sys.setswitchinterval(0.001)
        processes = multiprocessing.get_context("spawn")
        end = processes.Event()
        sleeper = processes.Process(target=_sleep, args=(end,))
        sleeper.start()
        cpu, wall = time.process_time(), time.perf_counter()
        seen = asyncio.run(server.offer(rate, arguments.minutes * 60))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        end.set()
        sleeper.join()
    print(", ".join(f"{end} {count}" for end, count in sorted(seen.ends.items())))
    load = " ".join(f"{x:.1f}" for x in os.getloadavg())
    print(f"{seen.ends['done'] / wall:.0f} done a second on {cpu / wall:.2f} processors; load {load}")
    for message, delays in sorted(seen.settled.items()):
        print(f"{delays.count:8} ended late: {message}: {delays}")
    found = checks(seen, arguments.limit)
    for name, (holds, figures) in found.items():
        print(f"{'holds' if holds else 'FAILS'}: {name}: {figures}")
    return int(not all(holds for holds, _ in found.values()))


if __name__ == "__main__":
    raise SystemExit(main())
