"""`inlay memory FILE.csv`: offsets for buffers with lifetimes, so that those that live at once share no byte.

Ends with 0 where there is a plan, within the capacity where one is given; with 1 where no plan can be
within it, which is proved; and with 124 where none was found in time.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from inlay.base.byte_sizes import bytes_in_option
from inlay.base.diagnostics import Collector, error
from inlay.base.files import write_text
from inlay.base.registry import suggestion
from inlay.cli._certificates import add_certificate_argument, write_certificate
from inlay.cli._command import Command, Output
from inlay.cli._effects import refuse
from inlay.cli._files import check_outputs
from inlay.cli._model import counted, size_text
from inlay.cli._numbers import integer, number
from inlay.cli._progress import ticking
from inlay.packing.bounds import live_at
from inlay.packing.buffer import Buffer, Plan
from inlay.packing.certificate import certified
from inlay.packing.instance import MOST_BYTES
from inlay.packing.listing import Listing, listing_text, read_listing
from inlay.packing.plan import check_size, plan
from inlay.viz.packing_svg import Packed, packing_svg

SECONDS, CAPACITY_SECONDS = 5.0, 30.0
"""Time for search where nothing is said: for a plan as small as can be, and for one within a capacity."""
IMPOSSIBLE, NOT_FOUND = 1, 124
_SHOWN = 12
"""Buffers of the critical moment that are listed."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What came of the buffers of a memory."""

    memory: str
    buffers: list[Buffer]
    plan: Plan
    capacity: int | None

    @property
    def within(self) -> bool | None:
        """Whether there is a plan as it is asked for; None if nobody knows."""
        return True if self.capacity is None else self.plan.within(self.capacity)

    @property
    def live(self) -> list[Buffer]:
        """What lives at the critical moment."""
        return [] if self.plan.moment is None else live_at(self.buffers, self.plan.moment)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", type=Path, help="a table: id,lower,upper,size and where wanted alignment,memory"
    )
    parser.add_argument(
        "--capacity",
        action="append",
        default=[],
        metavar="[MEMORY=]SIZE",
        help="look for a plan within so many bytes, as 65536 or 64KiB; for each memory that the table names",
    )
    parser.add_argument(
        "--seconds",
        type=number(86400.0),
        help="time for search, which ends sooner where nothing is left to find; "
        f"{SECONDS:g}, or {CAPACITY_SECONDS:g} with --capacity",
    )
    parser.add_argument(
        "--steps",
        type=integer(0, MOST_BYTES),
        help="effort for search in place of time: the same on every machine, so the plan is too",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="F",
        help="write the table with a column of offsets (.csv), or a picture of memory over time (.svg)",
    )
    add_certificate_argument(parser)


def _run(arguments: argparse.Namespace, output: Output) -> int:
    refuse(arguments, (arguments.steps is not None, ("seconds",), "beside --steps, which ends the search"))
    _check_output(arguments)
    listing = read_listing(arguments.file)
    capacities = _capacities(arguments.capacity, listing)
    begun = time.monotonic()
    found = list(_plans(arguments, listing, capacities, quiet=output.as_json))
    seconds = time.monotonic() - begun
    # Files first: who reads what is said may have seen enough of it.
    written: list[str] = []
    if arguments.output is not None:
        write_text(arguments.output, _written(arguments.output, listing, found), inputs=[str(arguments.file)])
        written.append(f"written to {arguments.output}")
    if arguments.certificate is not None:
        plans = [certified(f.memory, f.buffers, f.plan, capacity=f.capacity) for f in found]
        written += write_certificate(arguments.certificate, plans, (), [str(arguments.file)], output)
    for f in found:
        for line in _lines(f, is_named=len(found) > 1 or bool(f.memory)):
            output.say(line)
    for line in written:
        output.say(line)
    output.record(**_record(found), seconds=seconds)
    answers = {f.within for f in found}
    return IMPOSSIBLE if False in answers else NOT_FOUND if None in answers else 0


def _check_output(arguments: argparse.Namespace) -> None:
    """Say early that nothing can be written there.

    Raises:
        CompileError: `option.bad-value` for an unknown kind of file; `save.over-input`.
    """
    path: Path | None = arguments.output
    if path is not None and path.suffix.lower() not in (".csv", ".svg"):
        message = f"found --output {path}, needed a name that ends in .csv or .svg"
        raise error("option.bad-value", message, hint="--json prints all that is known of a plan")
    check_outputs(arguments, path, arguments.certificate)


def _capacities(texts: list[str], listing: Listing) -> dict[str, int]:
    """Return the capacity of each memory that has one.

    Raises:
        CompileError: `option.bad-value`, `name.unknown`, `packing.no-room`, all at once.
    """
    findings, found = Collector(), dict[str, int]()
    known = list(listing.memories)
    for text in texts:
        name, sign, size = text.rpartition("=")
        name = name.strip()
        if not sign and len(known) > 1:
            message = f"found --capacity {text} for {len(known)} memories, needed MEMORY=SIZE"
            findings.error("option.bad-value", message, hint=f"there are {', '.join(known)}")
            continue
        name = name if sign else known[0]
        if name not in known:
            hint = suggestion(name, known, f"there are {', '.join(n or 'one without a name' for n in known)}")
            findings.error("name.unknown", f"found --capacity {text}: no buffer is in '{name}'", hint=hint)
            continue
        try:
            count = bytes_in_option(size)
        except ValueError as needed:
            findings.error("option.bad-value", f"found --capacity {text}, needed {needed}")
            continue
        if found.setdefault(name, count) != count:
            message = f"found two capacities of one memory: {found[name]} and {count} bytes"
            findings.error("option.bad-value", message)
        largest = max(listing.of(name), key=lambda b: b.size, default=None)
        if largest is not None and largest.size > count:
            message = f"found buffer '{largest.id}' of {largest.size} bytes for a capacity of {count}"
            findings.error("packing.no-room", message, hint=f"give {largest.size} bytes at least")
    findings.raise_if_fatal()
    return found


def _plans(
    arguments: argparse.Namespace, listing: Listing, capacities: Mapping[str, int], *, quiet: bool
) -> Iterator[_Found]:
    """Plan each memory; what one leaves of the time is for the others."""
    for memory in listing.memories:
        check_size(listing.of(memory))
    seconds: float | None = arguments.seconds
    if seconds is None:
        seconds = CAPACITY_SECONDS if capacities else SECONDS
    end, steps = time.monotonic() + seconds, arguments.steps
    for index, memory in enumerate(listing.memories):
        now = time.monotonic()
        until = math.inf if steps is not None else now + max(end - now, 0.0) / (len(listing.memories) - index)
        buffers, capacity = listing.of(memory), capacities.get(memory)
        with ticking(f"packing {memory}: step" if memory else "packing: step", quiet=quiet) as tick:
            watch = partial(_is_over, tick, until)
            effort = MOST_BYTES if steps is None else steps
            found = plan(buffers, capacity=capacity, steps=effort, watch=watch)
        yield _Found(memory, buffers, found, capacity)


def _is_over(tick: Callable[[int], None], until: float, steps: int) -> bool:
    """Tell how many steps were taken; return whether it is time to end."""
    tick(steps)
    return time.monotonic() > until


def _record(found: list[_Found]) -> dict[str, Any]:
    """Return what programs get: of all memories together, and of each."""
    peak, bound = sum(f.plan.peak for f in found), sum(f.plan.lower_bound for f in found)
    return {
        "peak": peak,
        "lower_bound": bound,
        "gap": peak / bound - 1 if bound else 0.0,
        "proved": peak == bound,
        "steps": sum(f.plan.steps for f in found),
        "offsets": {b.id: o for f in found for b, o in zip(f.buffers, f.plan.offsets, strict=True)},
        "memories": [
            {
                "memory": f.memory,
                "buffers": len(f.buffers),
                "capacity": f.capacity,
                "within": f.within,
                "peak": f.plan.peak,
                "lower_bound": f.plan.lower_bound,
                "gap": f.plan.gap,
                "proved": f.plan.proved,
                "steps": f.plan.steps,
                "moment": f.plan.moment,
                "live": [b.id for b in f.live],
            }
            for f in found
        ],
    }


def _lines(f: _Found, *, is_named: bool) -> Iterator[str]:
    """Yield what is said of a memory to people."""
    name = f"{f.memory or 'memory without a name'}: " if is_named else ""
    p = f.plan
    yield f"{name}{counted(len(f.buffers), 'buffer')} in {p.peak:,} bytes ({size_text(p.peak)})"
    if p.proved:
        yield f"  no plan takes less; {p.steps:,} steps"
    else:
        yield f"  at least {p.lower_bound:,} are needed ({p.gap * 100:.2f} % above); {p.steps:,} steps"
    if f.capacity is not None:
        yield {
            True: f"  within the capacity of {f.capacity:,} bytes",
            False: f"  no plan is within the capacity of {f.capacity:,} bytes",
            None: f"  found none within the capacity of {f.capacity:,} bytes in this time; there may be one",
        }[f.within]
    live = f.live
    if live:
        total = sum(b.size for b in live)
        yield f"  most is alive at {p.moment}: {total:,} bytes in {counted(len(live), 'buffer')}"
        yield from (f"    {b.size:>14,}  {b.id}, in [{b.lower}, {b.upper})" for b in live[:_SHOWN])
        rest = live[_SHOWN:]
        if rest:
            yield f"    {sum(b.size for b in rest):>14,}  in {counted(len(rest), 'more buffer')}"


def _written(path: Path, listing: Listing, found: list[_Found]) -> str:
    """Return the text of the output, by the end of its name."""
    if path.suffix.lower() == ".svg":
        return packing_svg([Packed(f.memory, f.buffers, f.plan, f.capacity) for f in found])
    offsets = {b.id: o for f in found for b, o in zip(f.buffers, f.plan.offsets, strict=True)}
    return listing_text(listing, offsets)


COMMAND = Command(_arguments, _run)
