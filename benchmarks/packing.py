"""Lists of buffers beside the figures that are stored with them, and harder ones that are drawn.

    python benchmarks/packing.py [--json] [--folder DATA] [--seconds S] [--drawn N]

The lists are those of a folder with an `info.json`, which says a lower bound, a capacity that is known to be
enough, and what greedy orders reach. Each is planned as `inlay memory` plans it: within its capacity, or as
small as it can be, with so many seconds at most. `stored` is the capacity, or the best greedy figure.

Drawn lists have a plan within their capacity, as they are made from one (`DRAWN`). `cut`, `loose`, `shrunk`
and `pinwheel` are a rectangle of time and bytes that is cut into pieces; of all but `cut` some pieces are
taken away and some are smaller. The others are a sweep over time that fills what becomes free: `pipeline`
with stages of a few lengths, `scratchpad` with many short buffers and some very long ones, `prefetch` with
sizes most of which are powers of two, `buddy` where all are, and `aligned`.

`steps` is effort, which does not depend on the machine, and `seconds` are those of the processor.
`models` are lists of 500 buffers like those of networks, with the steps of the compiler.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from inlay.packing.buffer import Buffer, Plan
from inlay.packing.instance import MOST_BYTES
from inlay.packing.listing import read_listing
from inlay.packing.plan import STEPS, plan
from measure import Report

FOLDER = Path(__file__).parents[2] / "shared/data/memplan"
CAPACITY = 1024


Piece: TypeAlias = tuple[int, int, int, int]
"""Begin, end, lowest byte, and the byte behind the highest."""
Cut: TypeAlias = Callable[[Random, Piece, float], list[Piece]]
Draw: TypeAlias = Callable[[Random], int]
Fit: TypeAlias = Callable[[Random, int], int]
"""A size for a free range."""


def halves(random: Random, piece: Piece, share: float) -> list[Piece]:
    """Cut a piece in two, at a moment or between bytes."""
    lower, upper, low, top = piece
    if random.random() < share and upper - lower >= 2:
        at = random.randrange(lower + 1, upper)
        return [(lower, at, low, top), (at, upper, low, top)]
    if top - low >= 2:
        at = random.randrange(low + 1, top)
        return [(lower, upper, low, at), (lower, upper, at, top)]
    return [piece]


def pinwheel(random: Random, piece: Piece, share: float) -> list[Piece]:
    """Cut a piece in two, or at times into five around a middle, which no cut from end to end divides."""
    lower, upper, low, top = piece
    if random.random() > 0.35 or upper - lower < 3 or top - low < 3:
        return halves(random, piece, share)
    a, b = sorted(random.sample(range(lower + 1, upper), 2))
    c, d = sorted(random.sample(range(low + 1, top), 2))
    return [(lower, b, low, c), (b, upper, low, d), (a, upper, d, top), (lower, a, c, top), (a, b, c, d)]


def loosened(random: Random, buffers: list[Buffer], dropped: float, shrunk: float) -> list[Buffer]:
    """Take some buffers away, and make some smaller."""
    found: list[Buffer] = []
    for b in buffers:
        if random.random() >= dropped:
            size = max(int(b.size * random.uniform(0.8, 1)), 1) if random.random() < shrunk else b.size
            found.append(Buffer(str(len(found)), b.lower, b.upper, size, b.alignment))
    return found


def cut(
    count: int, seed: int, dropped: float = 0.0, shrunk: float = 0.0, share: float = 0.5, into: Cut = halves
) -> list[Buffer]:
    """Return the pieces of a square, which has the capacity as its height."""
    random = Random(seed)
    pieces: list[Piece] = [(0, 1024, 0, CAPACITY)]
    while len(pieces) < count:
        area = [(end - begin) * (top - low) * random.random() ** 2 for begin, end, low, top in pieces]
        pieces += into(random, pieces.pop(area.index(max(area))), share)
    buffers = [Buffer("", lower, upper, top - low) for lower, upper, low, top in pieces]
    return loosened(random, buffers, dropped, shrunk)


def swept(
    count: int,
    seed: int,
    life: Draw,
    size: Fit,
    alignments: Sequence[int] = (1,),
    dropped: float = 0.05,
    shrunk: float = 0.1,
) -> list[Buffer]:
    """Return what fills a memory over time: what becomes free is given to the last byte."""
    random, time_now = Random(seed), 0
    live: list[tuple[int, int, int]] = []  # offset, end, and the moment at which it is free
    made: list[Buffer] = []
    while len(made) < count:
        live = sorted(x for x in live if x[2] > time_now)
        for low, top in zip([0, *(x[1] for x in live)], [*(x[0] for x in live), CAPACITY], strict=True):
            while low < top:
                alignment = next(a for a in sorted(random.sample(alignments, 1) + [1])[::-1] if low % a == 0)
                end = low + size(random, top - low)
                until = time_now + max(life(random), 1)
                live.append((low, end, until))
                made.append(Buffer("", time_now, until, end - low, alignment))
                low = end
        time_now = min(x[2] for x in live)
    return loosened(random, made, dropped, shrunk)


def stage(random: Random) -> int:
    """Return how long a buffer of a pipeline lives."""
    return random.choice((2, 2, 4, 4, 4, 8, 16))


def mostly_short(random: Random) -> int:
    """Return how long a buffer of a scratchpad lives."""
    return int(random.expovariate(1 / 6) if random.random() < 0.85 else 20 + random.expovariate(1 / 60))


def ragged_stage(random: Random) -> int:
    """Return how long a buffer of a pipeline lives whose stages do not end together."""
    return stage(random) + random.randrange(3)


def any_size(random: Random, room: int) -> int:
    """Return bytes: many few, some many."""
    return min(max(int(random.expovariate(1 / 60)), 1), room)


POWERS = [4 << power for power in (0, 1, 2, 2, 3, 3, 4, 4, 5, 6)]


def power(random: Random, room: int) -> int:
    """Return a power of two, or what is there."""
    return min(random.choice(POWERS), room)


def fitting_power(random: Random, room: int) -> int:
    """Return a power of two, of which there is room for one at least."""
    return random.choice([size for size in POWERS if size <= room])


DRAWN: dict[str, Callable[[int, int], list[Buffer]]] = {
    "cut": cut,
    "loose": partial(cut, dropped=0.05, shrunk=0.1),
    "shrunk": partial(cut, dropped=0.03, shrunk=0.3, share=0.35),
    "pinwheel": partial(cut, dropped=0.05, shrunk=0.1, into=pinwheel),
    "pipeline": partial(swept, life=stage, size=any_size),
    "scratchpad": partial(swept, life=mostly_short, size=any_size),
    "prefetch": partial(swept, life=stage, size=power, alignments=(1, 4, 16)),
    "buddy": partial(
        swept, life=ragged_stage, size=fitting_power, alignments=(1, 1, 16), dropped=0.0, shrunk=0.0
    ),
    "aligned": partial(swept, life=mostly_short, size=any_size, alignments=(1, 1, 2, 4, 8, 16)),
}
"""Kinds of drawn lists by name: a list of about so many buffers, for a seed."""


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
    """Plan with a budget of time of the processor, which does not depend on what else runs."""
    begun = time.process_time()
    found = plan(
        buffers, capacity=capacity, steps=MOST_BYTES, watch=lambda _: time.process_time() - begun > seconds
    )
    return found, time.process_time() - begun


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
    for kind, count in product(arguments.kinds, arguments.counts):
        for seed in range(arguments.drawn):
            buffers = DRAWN[kind](count, seed)
            found = timed(buffers, CAPACITY, arguments.seconds)
            yield row(f"{kind} {count}.{seed}", buffers, CAPACITY, *found)
    if not arguments.models:
        return
    for seed in range(4):
        buffers = network(500, seed)
        begun = time.process_time()
        found = plan(buffers, steps=STEPS)
        yield row(f"model {seed}", buffers, found.lower_bound, found, time.process_time() - begun)
    chain = [Buffer(str(i), i, i + 2 + i % 7 * (i % 90 == 0), 64 + 64 * (i % 3), 64) for i in range(50_000)]
    begun = time.process_time()
    found = plan(chain, steps=STEPS)
    yield row("chain", chain, found.lower_bound, found, time.process_time() - begun)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="with lists and info.json")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each list")
    parser.add_argument("--drawn", type=int, default=2, help="lists of each kind and number of buffers")
    parser.add_argument("--kinds", nargs="*", default=list(DRAWN), choices=list(DRAWN), help="of drawn lists")
    parser.add_argument(
        "--counts", nargs="*", type=int, default=[250, 300, 400], help="buffers of drawn lists"
    )
    parser.add_argument("--no-models", dest="models", action="store_false", help="only lists with a capacity")
    arguments, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    columns = ["list", "buffers", "stored", "peak", "met", "bound", "gap", "steps", "seconds"]
    report = Report("packing", columns)
    for line in rows(arguments):
        report.row(*line)


if __name__ == "__main__":
    main()
