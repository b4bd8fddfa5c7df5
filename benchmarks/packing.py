"""Lists of buffers beside the figures that are stored with them, and harder ones that are drawn.

    python benchmarks/packing.py [--json] [--folder DATA] [--seconds S] [--drawn N]

The lists are those of a folder with an `info.json`, which says a lower bound, a capacity that is known to be
enough, and what greedy orders reach. Each is planned as `inlay memory` plans it: within its capacity, or as
small as it can be, with so many seconds at most. `stored` is the capacity, or the best greedy figure.

Drawn lists are a rectangle of time and bytes that is cut into pieces, so a plan without a free byte exists;
of `loose` ones some pieces are taken away and some are smaller. `steps` is effort, which does not depend on
the machine; `models` are lists of 500 buffers like those of networks, with the steps of the compiler.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from inlay.packing.buffer import Buffer, Plan
from inlay.packing.instance import MOST_BYTES
from inlay.packing.listing import read_listing
from inlay.packing.plan import STEPS, plan
from measure import Report

FOLDER = Path(__file__).parents[2] / "shared/data/memplan"
CAPACITY = 1024


def cut(count: int, seed: int, *, loose: bool) -> list[Buffer]:
    """Return the pieces of a square, which has the capacity as its height."""
    random, pieces = Random(seed), [(0, 1024, 0, CAPACITY)]
    while len(pieces) < count:
        area = [(end - begin) * (top - low) * random.random() ** 2 for begin, end, low, top in pieces]
        lower, upper, low, top = pieces.pop(area.index(max(area)))
        if random.random() < 0.5 and upper - lower >= 2:
            at = random.randrange(lower + 1, upper)
            pieces += [(lower, at, low, top), (at, upper, low, top)]
        elif top - low >= 2:
            at = random.randrange(low + 1, top)
            pieces += [(lower, upper, low, at), (lower, upper, at, top)]
        else:
            pieces.append((lower, upper, low, top))
    found: list[Buffer] = []
    for lower, upper, low, top in pieces:
        if loose and random.random() < 0.05:
            continue
        is_less = loose and random.random() < 0.1
        size = max(int((top - low) * random.uniform(0.8, 1)), 1) if is_less else top - low
        found.append(Buffer(str(len(found)), lower, upper, size))
    return found


def network(count: int, seed: int) -> list[Buffer]:
    """Return values of a network: most are read by the next few kernels, some much later."""
    random = Random(seed)
    made: list[Buffer] = []
    for i in range(count):
        life = 1 + random.randrange(3) if random.random() < 0.8 else random.randrange(5, 60)
        size = 1024 << random.randrange(4) if random.random() < 0.9 else 64
        made.append(Buffer(str(i), i, i + 1 + life, size * random.randrange(1, 9), 64))
    return made


def timed(buffers: list[Buffer], capacity: int | None, seconds: float) -> tuple[Plan, float]:
    """Plan with a budget of time."""
    begun = time.perf_counter()
    found = plan(
        buffers, capacity=capacity, steps=MOST_BYTES, watch=lambda _: time.perf_counter() - begun > seconds
    )
    return found, time.perf_counter() - begun


def row(name: str, buffers: list[Buffer], stored: int, found: Plan, seconds: float) -> list[Any]:
    """Return a line of the table."""
    is_met = "yes" if found.peak <= stored else "no"
    gap = f"{found.gap * 100:.2f} %"
    return [
        name,
        len(buffers),
        stored,
        found.peak,
        is_met,
        found.lower_bound,
        gap,
        found.steps,
        f"{seconds:.2f}",
    ]


def rows(arguments: argparse.Namespace) -> Iterator[list[Any]]:
    """Yield the lines of the table."""
    info = arguments.folder / "info.json"
    known: dict[str, Any] = json.loads(info.read_text()) if info.exists() else {}
    for name, facts in known.items():
        buffers = list(read_listing(arguments.folder / name).buffers)
        stored = facts["capacity"] or min(v for k, v in facts.items() if k.startswith("greedy"))
        yield row(name, buffers, stored, *timed(buffers, facts["capacity"], arguments.seconds))
    for count in (250, 300, 400):
        for seed in range(arguments.drawn):
            for kind in ("cut", "loose"):
                buffers = cut(count, seed, loose=kind == "loose")
                found = timed(buffers, CAPACITY, arguments.seconds)
                yield row(f"{kind} {count}.{seed}", buffers, CAPACITY, *found)
    for seed in range(4):
        buffers = network(500, seed)
        begun = time.perf_counter()
        found = plan(buffers, steps=STEPS)
        yield row(f"model {seed}", buffers, found.lower_bound, found, time.perf_counter() - begun)
    chain = [Buffer(str(i), i, i + 2 + i % 7 * (i % 90 == 0), 64 + 64 * (i % 3), 64) for i in range(50_000)]
    begun = time.perf_counter()
    found = plan(chain, steps=STEPS)
    yield row("chain", chain, found.lower_bound, found, time.perf_counter() - begun)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="with lists and info.json")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each list")
    parser.add_argument("--drawn", type=int, default=2, help="lists of each kind and number of buffers")
    arguments, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    columns = ["list", "buffers", "stored", "peak", "met", "bound", "gap", "steps", "seconds"]
    report = Report("packing", columns)
    for line in rows(arguments):
        report.row(*line)


if __name__ == "__main__":
    main()
