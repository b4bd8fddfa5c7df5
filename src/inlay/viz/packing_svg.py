"""A plan of buffers as a picture: a panel for each memory, moments to the right, bytes upwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement

from inlay.packing.bounds import live_at
from inlay.packing.buffer import Buffer, Plan
from inlay.viz._drawing import (
    CRITICAL,
    FOOT,
    HEAD,
    HUES,
    LEFT,
    LINE,
    PLOT,
    Box,
    Plot,
    axes,
    critical,
    draw,
    finished,
    line,
    picture,
    text,
    ticks,
)

_MOST_DIGITS = 15
"""Of a moment: points of a picture are numbers of 53 bits."""


@dataclass(frozen=True, slots=True)
class Packed:
    """The plan of a memory: its name, what is in it, where, and the capacity if there is one."""

    memory: str
    buffers: Sequence[Buffer]
    plan: Plan
    capacity: int | None = None


def packing_svg(memories: Sequence[Packed]) -> str:
    """Return the picture as the text of an SVG file. Equal plans have equal pictures."""
    root = picture()
    top = 12.0
    for packed in memories:
        top = _panel(root, packed, top)
    return finished(root, top + 12)


def _panel(root: Element, packed: Packed, top: float) -> float:
    """Draw a memory from some point downwards; return where it ends."""
    plan, group = packed.plan, SubElement(root, "g")
    name = f"{packed.memory}: " if packed.memory else ""
    proved = "no plan takes less" if plan.proved else f"at least {plan.lower_bound:,}"
    of = "" if packed.capacity is None else f", capacity {packed.capacity:,}"
    text(group, 16, top + 16, f"{name}{plan.peak:,} bytes, {proved}{of}", "title")
    times, moments = _times(packed.buffers)
    plot = Plot(top + HEAD, 0, max(len(times) - 1, 1), max(plan.peak, packed.capacity or 0, 1))
    low = 0
    if moments and max(len(str(t)) for t in moments) <= _MOST_DIGITS:
        low = moments[0]
        plot = Plot(plot.top, low, moments[-1] - low, plot.bytes)
        times = {t: t for t in moments}
        for tick in ticks(plot.moments):
            text(group, plot.x(low + tick), plot.top + PLOT + 14, str(low + tick), "small", anchor="middle")
    axes(group, plot)
    if plan.moment is not None:
        critical(group, plot, times[plan.moment], f"most alive: at {plan.moment}")
    for index, (b, offset) in enumerate(zip(packed.buffers, plan.offsets, strict=True)):
        title = f"{b.id}: {b.size:,} bytes at {offset:,}, in [{b.lower}, {b.upper})"
        hue = HUES[index % len(HUES)]
        draw(group, plot, Box(times[b.lower], times[b.upper], offset, b.size, hue, b.id, title))
    line(group, plot, plan.lower_bound, CRITICAL, "needed at least")
    if packed.capacity is not None:
        line(group, plot, packed.capacity, "#222", "capacity")
    live = [] if plan.moment is None else live_at(packed.buffers, plan.moment)
    words = f"{sum(b.size for b in live):,} bytes are alive there, in {len(live)} buffers" if live else ""
    text(group, LEFT, plot.top + PLOT + 30, words, "small")
    return plot.top + PLOT + FOOT + LINE


def _times(buffers: Sequence[Buffer]) -> tuple[dict[int, int], list[int]]:
    """Return the number of each moment at which something begins or ends, and these moments in order."""
    moments = sorted({t for b in buffers for t in (b.lower, b.upper)})
    return {t: i for i, t in enumerate(moments)}, moments
