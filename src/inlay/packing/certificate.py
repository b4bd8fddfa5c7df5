"""Certificates of plans: what a second program, `check_certificate`, needs to see that they are right.

A bound is shown by what lives at a moment, or by some buffers that alone fit no plan of less: those are
left of all buffers when the others were taken away, as long as the exact search still finds that nothing
fits. A bound that only a longer search of all showed stays without a witness, and is marked as that.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from inlay.packing.bounds import critical_moment
from inlay.packing.buffer import Buffer, Plan
from inlay.packing.check_certificate import FORM, MOST_WITNESSES, VERSION, Row, checksum, fits
from inlay.packing.plan import plan

TRY_STEPS = 20_000
"""Steps of each search that asks whether fewer buffers do."""
WITNESS_STEPS = 1_000_000
"""Steps of all of them for one bound: some seconds."""


def certificate_text(plans: Sequence[dict[str, Any]]) -> str:
    """Return the file of certified plans, a line for each buffer."""
    parts: list[str] = []
    for certified in plans:
        rows = ",\n  ".join(json.dumps(row) for row in certified["buffers"])
        head = json.dumps({k: v for k, v in certified.items() if k != "buffers"})
        parts.append(f'{head[:-1]}, "buffers": [\n  {rows}\n ]}}')
    form = json.dumps({"form": FORM, "version": VERSION})
    return f'{form[:-1]}, "plans": [\n {", ".join(parts)}\n]}}\n'


def certified(
    name: str, buffers: Sequence[Buffer], found: Plan, *, capacity: int | None = None
) -> dict[str, Any]:
    """Return a plan and the witness of its bound as plain data.

    Args:
        name: of the memory or the block.
        buffers: what was packed, with ids of their own.
        found: the plan.
        capacity: that was asked for.
    """
    rows = [
        [b.id, b.lower, b.upper, b.size, b.alignment, offset]
        for b, offset in zip(buffers, found.offsets, strict=True)
    ]
    bound = critical_moment(buffers)
    shown, witness = bound.bytes, None if bound.moment is None else {"moment": bound.moment}
    if found.lower_bound > bound.bytes:
        names = _witness(buffers, found.lower_bound)
        if names:
            shown, witness = found.lower_bound, {"buffers": names}
    made = {"name": name, "peak": found.peak, "bound": shown, "proved": found.peak == shown}
    if capacity is not None:
        within = True if found.peak <= capacity else False if shown > capacity else None
        made |= {"capacity": capacity, "within": within}
    if shown < found.lower_bound:
        made["unchecked"] = found.lower_bound
    return {**made, "witness": witness, "buffers": [[*row, checksum(name, row)] for row in rows]}


def _witness(buffers: Sequence[Buffer], bound: int) -> list[str]:
    """Return the ids of few buffers that fit no plan of less than a bound; none if too many are left.

    Halves of them are left out, then quarters, as long as what remains does not fit.
    """
    left = [b for b in buffers if b.takes_space]
    steps, part = WITNESS_STEPS, max(len(left) // 2, 1)
    while left and steps > 0:
        before, at = len(left), 0
        while at < len(left) and steps > 0:
            fewer = left[:at] + left[at + part :]
            found = plan(fewer, capacity=bound - 1, steps=TRY_STEPS)
            steps -= max(found.steps, 1)
            if found.lower_bound >= bound:
                left = fewer
            else:
                at += part
        if part == 1 and len(left) == before:
            break
        part = max(part // 2, 1)
    if len(left) > MOST_WITNESSES:
        return []
    rows = [Row([b.id, b.lower, b.upper, b.size, b.alignment, 0, 0]) for b in left]
    return [b.id for b in left] if fits(rows, bound - 1) is False else []
