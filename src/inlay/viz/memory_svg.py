"""Memory over time as a picture: a panel for each memory, kernels to the right, bytes upwards.

A value is a rectangle from the kernel that writes it to the last one that uses it, at its offset in the
block; what is allocated beside blocks lies on top of them. Names are written where they fit, and a browser
shows all about a rectangle under the pointer. The kernel at which most is alive is marked, with a list of
what is alive there; so the picture stays readable with many values. It is one SVG file without scripts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element, SubElement

from inlay.base.diagnostics import error
from inlay.machine.memory import PoolKind
from inlay.memory.account import Account
from inlay.memory.plan import CONSTANTS, REGIONS, FunctionPlan, Origin
from inlay.pipeline.explain.memory import MemoryExplanation
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
    rect,
    text,
    ticks,
)

_LISTED = 10
"""Values of the critical moment that are listed below a panel."""
_COLORS = {
    Origin.RESULT: "#f28e2b",
    Origin.COPY: "#ffbe7d",
    Origin.VALUE: "#e15759",
    Origin.MACHINE: "#ff9da7",
    Origin.SCRATCH: "#79706e",
}
_MEANINGS = {
    Origin.RESULT: "results",
    Origin.COPY: "copied results",
    Origin.VALUE: "allocated while running",
    Origin.MACHINE: "made by the virtual machine",
    Origin.SCRATCH: "scratch of kernels",
}


def memory_svg(e: MemoryExplanation) -> str:
    """Return the picture as the text of an SVG file.

    Raises:
        CompileError: `option.bad-value` where a dim has no size.
    """
    if e.dims.unbounded:
        name = e.dims.unbounded[0]
        raise error(
            "option.bad-value",
            f"found the dim '{name}' without a size, needed one to draw memory",
            hint=f"give it with --typical {name}=SIZE, or fix it with --fix-dim {name}=SIZE",
        )
    root = picture()
    top = 12.0
    for account in e.accounts:
        if account.peak:
            top = _panel(root, e, account, top)
    text(root, 16, top + 12, _footer(e), "note")
    return finished(root, top + 28)


def _footer(e: MemoryExplanation) -> str:
    sizes = ", ".join(f"{n}={s}" for n, s in e.dims.used.items())
    loaded = ", ".join(f"{a.regions:,} in {a.memory}" for a in e.accounts if a.regions)
    regions = f"and what streams work in: {loaded} bytes" if loaded else ""
    constants = ", ".join(f"{a.constants:,} in {a.memory}" for a in e.accounts if a.constants)
    return f"board {e.board.name}, entry {e.entry}, plan {e.chosen.sharing}" + "".join(
        f"; {x}"
        for x in (sizes, f"constants are beside this: {constants} bytes" if constants else "", regions)
        if x
    )


# --------------------------------------------------------------------------- a memory


def _panel(root: Element, e: MemoryExplanation, a: Account, top: float) -> float:
    """Draw a memory from some point downwards; return where it ends."""
    main = next((p for p in e.plans if p.name == e.entry), FunctionPlan(e.entry, (), ()))
    boxes = [*_blocks(e, a, main), *_beside(e, a, main)]
    plot = Plot(top + HEAD, 1, max(main.moments, 1) + 1, max([a.peak, *(b.begin + b.size for b in boxes)]))
    group = SubElement(root, "g")
    of = "" if a.capacity is None else f" of {a.capacity:,}"
    proved = "no plan of these values in this order takes less" if a.proved else f"at least {a.lower_bound:,}"
    text(group, 16, top + 16, f"{a.memory} ({a.kind}): {a.peak:,}{of} bytes in a call, {proved}", "title")
    _legend(group, a, boxes, top + 38)
    _axes(group, plot, main)
    _moment(group, plot, a)
    for box in boxes:
        draw(group, plot, box)
    line(group, plot, a.lower_bound, CRITICAL, "needed at least")
    return _alive(group, a, plot.top + PLOT + FOOT)


def _blocks(e: MemoryExplanation, a: Account, main: FunctionPlan) -> Iterator[Box]:
    """Yield the values in the blocks of a memory; those of other functions as one, at their calls."""
    at = 0
    for plan in (main, *(p for p in e.plans if p is not main and p.name not in (CONSTANTS, REGIONS))):
        for part in plan.parts:
            if e.memory(part) != a.memory or (plan is not main and part.kind is PoolKind.HEAP):
                continue
            block = e.dims.number(part.block) or 0
            if plan is not main:
                title = f"the block of {plan.name}: {block:,} bytes"
                yield Box(1, main.moments + 2, at, block, "#bab0ac", plan.name, title)
            for index, s in enumerate(part.members if plan is main else ()):
                offset, size = e.dims.number(s.offset) or 0, e.dims.number(s.bytes) or 0
                names = ", then ".join(s.names) or "a constant"
                nodes = "; ".join(dict.fromkeys(str(x) for x in s.spans if x))
                title = f"{names}: {size:,} bytes at {offset:,}, {plan.life(s.first, s.last)}\n{nodes}"
                yield Box(
                    max(s.first, 1), s.last + 1, at + offset, size, HUES[index % len(HUES)], names, title
                )
            at += block
    for moment, size in enumerate(a.calls, 1):
        if size:
            title = f"what a {main.kernel(moment)} has: {size:,} bytes at most"
            yield Box(moment, moment + 1, at, size, "#bab0ac", main.kernel(moment), title)


def _beside(e: MemoryExplanation, a: Account, main: FunctionPlan) -> Iterator[Box]:
    """Yield what is allocated beside blocks, in order, each on top of what is there when it begins."""
    placed: list[Box] = []
    for c in (*main.counted, *main.machine):
        size = None if c.bytes is None else e.dims.number(c.bytes)
        if e.memory(c) != a.memory or not size:
            continue
        first = max(c.first, 1)
        taken = sorted((b.begin, b.begin + b.size) for b in placed if b.first <= c.last and first < b.end)
        # The blocks are gone when results are copied.
        at = 0 if c.origin is Origin.COPY else a.block
        for begin, end in taken:
            if at + size <= begin:
                break
            at = max(at, end)
        title = f"{c.name}: {size:,} bytes, {main.life(c.first, c.last)}; {c.why}"
        placed.append(Box(first, c.last + 1, at, size, _COLORS[c.origin], c.name, title))
    yield from placed


def _legend(group: Element, a: Account, boxes: Sequence[Box], top: float) -> None:
    known = {color: _MEANINGS[origin] for origin, color in _COLORS.items()}
    used = {b.color for b in boxes}
    rows = (
        [(HUES[0], f"{a.buffers} values in blocks (colors only tell neighbors apart)")] if a.buffers else []
    )
    rows += [(color, meaning) for color, meaning in known.items() if color in used]
    x = 16.0
    for color, meaning in rows:
        rect(group, x, top - 9, 11, 11, color)
        text(group, x + 16, top, meaning)
        x += 34 + len(meaning) * 6.4


def _axes(group: Element, plot: Plot, main: FunctionPlan) -> None:
    bottom = plot.top + PLOT
    axes(group, plot)
    for kernel in ticks(len(main.kernels)):
        if kernel:
            called = main.kernels[kernel - 1]
            x = (plot.x(called.first) + plot.x(called.last + 1)) / 2
            text(group, x, bottom + 14, str(kernel), "small", anchor="middle")
    words = f"kernels in program order, 1 to {len(main.kernels)}, then the end; as wide as they have phases"
    text(group, LEFT, bottom + 30, words, "small")


def _moment(group: Element, plot: Plot, a: Account) -> None:
    if a.moment:
        critical(group, plot, a.moment, f"most alive: {a.at}")


def _alive(group: Element, a: Account, top: float) -> float:
    """List what is alive where most is; return where the list ends."""
    alive = sum(h.bytes for h in a.held)
    if not a.held:
        return top + LINE
    text(group, 16, top + LINE, f"Alive at {a.at}, {alive:,} bytes:")
    for index, h in enumerate(a.held[:_LISTED]):
        y = top + LINE * (index + 2)
        text(group, 110, y, f"{h.bytes:,}", "small", anchor="end")
        user = f"to {h.user}" if h.user else "to the end"
        made = f"from {h.producer}" if h.producer else "from the beginning"
        text(group, 120, y, f"{', then '.join(h.names)}  ({made} {user})"[:190], "small")
    left = a.held[_LISTED:]
    if left:
        y = top + LINE * (_LISTED + 2)
        text(group, 120, y, f"and {len(left)} more with {sum(h.bytes for h in left):,} bytes", "small note")
    return top + LINE * (min(len(a.held), _LISTED) + 3)
