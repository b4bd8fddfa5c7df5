"""Memory over time as a picture: a panel for each memory, kernels to the right, bytes upwards.

A value is a rectangle from the kernel that writes it to the last one that uses it, at its offset in the
block; what is allocated beside blocks lies on top of them. Names are written where they fit, and a browser
shows all about a rectangle under the pointer. The kernel at which most is alive is marked, with a list of
what is alive there; so the picture stays readable with many values. It is one SVG file without scripts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from inlay.base.diagnostics import error
from inlay.memory.account import Account
from inlay.memory.plan import CONSTANTS, FunctionPlan, Origin
from inlay.pipeline.explain.memory import MemoryExplanation

WIDTH, LEFT, RIGHT = 1280, 84, 24
PLOT, HEAD, FOOT, LINE = 340, 64, 42, 17
_LISTED = 10
"""Values of the critical moment that are listed below a panel."""
_CHARACTER = 6.1
"""Width of a character of the small font."""
_HUES = ("#4e79a7", "#76b7b2", "#59a14f", "#edc948", "#b07aa1", "#9c755f", "#a0cbe8", "#8cd17d")
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
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#222}"
    ".small{font-size:10px}.title{font-size:15px;font-weight:600}.note{fill:#666}"
    "rect.v{stroke:#fff;stroke-width:.5}rect.v:hover{stroke:#000;stroke-width:1.5}"
    ".axis{stroke:#999}.grid{stroke:#ddd}"
)


@dataclass(frozen=True, slots=True)
class _Box:
    """A rectangle: between which kernels, from which byte, how many; its color, name and title."""

    first: int
    last: int
    begin: int
    size: int
    color: str
    name: str
    title: str


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
    root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "font-family": "sans-serif"})
    SubElement(root, "style").text = _STYLE
    SubElement(root, "rect", {"width": "100%", "height": "100%", "fill": "#fff"})
    top = 12.0
    for account in e.accounts:
        if account.peak:
            top = _panel(root, e, account, top)
    _text(root, 16, top + 12, _footer(e), "note")
    height = top + 28
    root.set("viewBox", f"0 0 {WIDTH} {height:.0f}")
    root.set("width", str(WIDTH))
    root.set("height", f"{height:.0f}")
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _footer(e: MemoryExplanation) -> str:
    sizes = ", ".join(f"{n}={s}" for n, s in e.dims.used.items())
    constants = ", ".join(f"{a.constants:,} in {a.memory}" for a in e.accounts if a.constants)
    return f"board {e.board.name}, entry {e.entry}, plan {e.chosen.sharing}" + "".join(
        f"; {x}" for x in (sizes, f"constants are beside this: {constants} bytes" if constants else "") if x
    )


# --------------------------------------------------------------------------- a memory


@dataclass(frozen=True, slots=True)
class _Plot:
    """The area of a panel: from numbers of kernels and bytes to points."""

    top: float
    kernels: int
    bytes: int

    def x(self, kernel: float) -> float:
        """Return where a kernel begins, the first one being 1."""
        return LEFT + (kernel - 1) * (WIDTH - LEFT - RIGHT) / self.kernels

    def y(self, byte: float) -> float:
        """Return how far down a byte is."""
        return self.top + PLOT - byte * PLOT / self.bytes


def _panel(root: Element, e: MemoryExplanation, a: Account, top: float) -> float:
    """Draw a memory from some point downwards; return where it ends."""
    main = next((p for p in e.plans if p.name == e.entry), FunctionPlan(e.entry, (), ()))
    boxes = [*_blocks(e, a, main), *_beside(e, a, main)]
    plot = _Plot(top + HEAD, max(len(main.kernels), 1) + 1, max([a.peak, *(b.begin + b.size for b in boxes)]))
    group = SubElement(root, "g")
    of = "" if a.capacity is None else f" of {a.capacity:,}"
    proved = "no plan of these values in this order takes less" if a.proved else f"at least {a.lower_bound:,}"
    _text(group, 16, top + 16, f"{a.memory} ({a.kind}): {a.peak:,}{of} bytes in a call, {proved}", "title")
    _legend(group, a, boxes, top + 38)
    _axes(group, plot, main)
    _moment(group, plot, a)
    for box in boxes:
        _draw(group, plot, box)
    _line(group, plot, a.lower_bound, "#d62728", "needed at least")
    return _alive(group, a, plot.top + PLOT + FOOT)


def _blocks(e: MemoryExplanation, a: Account, main: FunctionPlan) -> Iterator[_Box]:
    """Yield the values in the blocks of a memory; those of other functions as one."""
    at = 0
    for plan in (main, *(p for p in e.plans if p is not main and p.name != CONSTANTS)):
        for part in plan.parts:
            if e.memory(part) != a.memory:
                continue
            block = e.dims.number(part.block) or 0
            if plan is not main:
                title = f"the block of {plan.name}: {block:,} bytes"
                yield _Box(1, len(main.kernels) + 1, at, block, "#bab0ac", plan.name, title)
            for index, s in enumerate(part.members if plan is main else ()):
                offset, size = e.dims.number(s.offset) or 0, e.dims.number(s.bytes) or 0
                names = ", then ".join(s.names) or "a constant"
                nodes = "; ".join(dict.fromkeys(str(x) for x in s.spans if x))
                title = f"{names}: {size:,} bytes at {offset:,}, {_life(plan, s.first, s.last)}\n{nodes}"
                yield _Box(s.first, s.last, at + offset, size, _HUES[index % len(_HUES)], names, title)
            at += block


def _beside(e: MemoryExplanation, a: Account, main: FunctionPlan) -> Iterator[_Box]:
    """Yield what is allocated beside blocks, in order, each on top of what is there when it begins."""
    placed: list[_Box] = []
    for c in (*main.counted, *main.machine):
        size = None if c.bytes is None else e.dims.number(c.bytes)
        if e.memory(c) != a.memory or not size:
            continue
        first = max(c.first, 1)
        taken = sorted((b.begin, b.begin + b.size) for b in placed if b.first <= c.last and first <= b.last)
        # The blocks are gone when results are copied.
        at = 0 if c.origin is Origin.COPY else a.block
        for begin, end in taken:
            if at + size <= begin:
                break
            at = max(at, end)
        title = f"{c.name}: {size:,} bytes, {_life(main, c.first, c.last)}; {c.why}"
        placed.append(_Box(first, c.last, at, size, _COLORS[c.origin], c.name, title))
    yield from placed


def _life(plan: FunctionPlan, first: int, last: int) -> str:
    begin = f"from {plan.kernel(first)} (kernel {first})" if plan.kernel(first) else "from the beginning"
    end = f"to {plan.kernel(last)} (kernel {last})" if plan.kernel(last) else "to the end"
    return f"{begin} {end}"


def _legend(group: Element, a: Account, boxes: Sequence[_Box], top: float) -> None:
    known = {color: _MEANINGS[origin] for origin, color in _COLORS.items()}
    used = {b.color for b in boxes}
    rows = (
        [(_HUES[0], f"{a.buffers} values in blocks (colors only tell neighbors apart)")] if a.buffers else []
    )
    rows += [(color, meaning) for color, meaning in known.items() if color in used]
    x = 16.0
    for color, meaning in rows:
        _rect(group, x, top - 9, 11, 11, color)
        _text(group, x + 16, top, meaning)
        x += 34 + len(meaning) * 6.4


def _axes(group: Element, plot: _Plot, main: FunctionPlan) -> None:
    bottom, right = plot.top + PLOT, WIDTH - RIGHT
    for byte in _ticks(plot.bytes):
        y = plot.y(byte)
        _stroke(group, LEFT, y, right, y, "grid")
        _text(group, LEFT - 6, y + 4, _short(byte), "small", anchor="end")
    for kernel in _ticks(plot.kernels - 1):
        if kernel:
            x = (plot.x(kernel) + plot.x(kernel + 1)) / 2
            _text(group, x, bottom + 14, str(kernel), "small", anchor="middle")
    _text(
        group, LEFT, bottom + 30, f"kernels in program order, 1 to {len(main.kernels)}, then the end", "small"
    )
    _stroke(group, LEFT, bottom, right, bottom, "axis")
    _stroke(group, LEFT, plot.top, LEFT, bottom, "axis")


def _moment(group: Element, plot: _Plot, a: Account) -> None:
    if a.moment:
        x, end = plot.x(a.moment), plot.x(a.moment + 1)
        attributes = {"fill": "#d62728", "fill-opacity": "0.13"}
        _rect(group, x - 2, plot.top - 8, max(end - x, 2) + 4, PLOT + 8, "", attributes)
        anchor = "end" if a.moment > plot.kernels / 2 else "start"
        label = f"most alive: kernel {a.moment}" + (f", {a.at}" if a.at else "")
        _text(group, end if anchor == "end" else x, plot.top - 12, label, "small", anchor=anchor)


def _draw(group: Element, plot: _Plot, box: _Box) -> None:
    x, end = plot.x(max(box.first, 1)), plot.x(box.last + 1)
    y, bottom = plot.y(box.begin + box.size), plot.y(box.begin)
    height = max(bottom - y, 0.5)
    attributes = {"class": "v", "fill-opacity": "0.85"}
    rect = _rect(group, x, y, max(end - x, 1), height, box.color, attributes)
    SubElement(rect, "title").text = box.title
    room = int((end - x - 6) / _CHARACTER)
    if height >= 11 and room >= 4:
        name = box.name if len(box.name) <= room else f"{box.name[: room - 1]}\u2026"
        text = _text(group, x + 3, y + height / 2 + 3.5, name, "small")
        text.set("pointer-events", "none")


def _line(group: Element, plot: _Plot, byte: int, color: str, name: str) -> None:
    y = plot.y(byte)
    line = _stroke(group, LEFT, y, WIDTH - RIGHT, y, "")
    line.set("stroke", color)
    line.set("stroke-dasharray", "6 4")
    SubElement(line, "title").text = f"{name} {byte:,} bytes"


def _alive(group: Element, a: Account, top: float) -> float:
    """List what is alive where most is; return where the list ends."""
    alive = sum(h.bytes for h in a.held)
    if not a.held:
        return top + LINE
    _text(group, 16, top + LINE, f"Alive at kernel {a.moment}, {alive:,} bytes:")
    for index, h in enumerate(a.held[:_LISTED]):
        y = top + LINE * (index + 2)
        _text(group, 110, y, f"{h.bytes:,}", "small", anchor="end")
        user = f"to {h.user}" if h.user else "to the end"
        made = f"from {h.producer}" if h.producer else "from the beginning"
        _text(group, 120, y, f"{', then '.join(h.names)}  ({made} {user})"[:190], "small")
    left = a.held[_LISTED:]
    if left:
        y = top + LINE * (_LISTED + 2)
        _text(group, 120, y, f"and {len(left)} more with {sum(h.bytes for h in left):,} bytes", "small note")
    return top + LINE * (min(len(a.held), _LISTED) + 3)


# --------------------------------------------------------------------------- drawing


def _ticks(most: int) -> list[int]:
    """Return at most about ten round numbers from 0 to another one: 1, 2 or 5 times a power of ten."""
    step = 1
    while step * 10 < most:
        step *= 10
    for finer in (5, 2):
        if step % 10 == 0 and most // (step // 10 * finer) <= 10:
            step = step // 10 * finer
    return list(range(0, most + 1, step))


def _short(byte: int) -> str:
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if byte >= unit:
            return f"{byte / unit:g} {name}"
    return f"{byte} B"


def _text(group: Element, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> Element:
    made = SubElement(group, "text", {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor})
    if kind:
        made.set("class", kind)
    made.text = words
    return made


def _rect(
    group: Element,
    x: float,
    y: float,
    width: float,
    height: float,
    color: str,
    attributes: dict[str, str] | None = None,
) -> Element:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{width:.1f}", "height": f"{height:.1f}"}
    return SubElement(group, "rect", place | ({"fill": color} if color else {}) | (attributes or {}))


def _stroke(group: Element, x: float, y: float, end: float, down: float, kind: str) -> Element:
    place = {"x1": f"{x:.1f}", "y1": f"{y:.1f}", "x2": f"{end:.1f}", "y2": f"{down:.1f}"}
    return SubElement(group, "line", place | ({"class": kind} if kind else {}))
