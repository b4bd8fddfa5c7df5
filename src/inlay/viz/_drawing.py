"""What pictures of memory over time are drawn with: areas, rectangles with names, axes, text; as SVG."""

from __future__ import annotations

from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

WIDTH, LEFT, RIGHT = 1280, 84, 24
PLOT, HEAD, FOOT, LINE = 340, 64, 42, 17
HUES = ("#4e79a7", "#76b7b2", "#59a14f", "#edc948", "#b07aa1", "#9c755f", "#a0cbe8", "#8cd17d")
"""Colors that only tell neighbors apart."""
CRITICAL = "#d62728"
_CHARACTER = 6.1
"""Width of a character of the small font."""
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#222}"
    ".small{font-size:10px}.title{font-size:15px;font-weight:600}.note{fill:#666}"
    "rect.v{stroke:#fff;stroke-width:.5}rect.v:hover{stroke:#000;stroke-width:1.5}"
    ".axis{stroke:#999}.grid{stroke:#ddd}"
)


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle: from which moment to before which, from which byte, how many; color, name and title."""

    first: int
    end: int
    begin: int
    size: int
    color: str
    name: str
    title: str


@dataclass(frozen=True, slots=True)
class Plot:
    """The area of a panel: from moments and bytes to points.

    Attributes:
        top: where it begins.
        low: the first moment.
        moments: how many there are.
        bytes: how many are shown.
    """

    top: float
    low: int
    moments: int
    bytes: int

    def x(self, moment: float) -> float:
        """Return where a moment begins."""
        return LEFT + (moment - self.low) * (WIDTH - LEFT - RIGHT) / self.moments

    def y(self, byte: float) -> float:
        """Return how far down a byte is."""
        return self.top + PLOT - byte * PLOT / self.bytes


def picture() -> Element:
    """Return an empty picture."""
    root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "font-family": "sans-serif"})
    SubElement(root, "style").text = _STYLE
    SubElement(root, "rect", {"width": "100%", "height": "100%", "fill": "#fff"})
    return root


def finished(root: Element, height: float) -> str:
    """Return a picture of a height as the text of a file."""
    root.set("viewBox", f"0 0 {WIDTH} {height:.0f}")
    root.set("width", str(WIDTH))
    root.set("height", f"{height:.0f}")
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def axes(group: Element, plot: Plot) -> None:
    """Draw the two axes, with bytes at the left one."""
    bottom, right = plot.top + PLOT, WIDTH - RIGHT
    for byte in ticks(plot.bytes):
        y = plot.y(byte)
        stroke(group, LEFT, y, right, y, "grid")
        text(group, LEFT - 6, y + 4, short(byte), "small", anchor="end")
    stroke(group, LEFT, bottom, right, bottom, "axis")
    stroke(group, LEFT, plot.top, LEFT, bottom, "axis")


def critical(group: Element, plot: Plot, moment: int, label: str) -> None:
    """Mark the moment at which most is alive."""
    x, end = plot.x(moment), plot.x(moment + 1)
    attributes = {"fill": CRITICAL, "fill-opacity": "0.13"}
    rect(group, x - 2, plot.top - 8, max(end - x, 2) + 4, PLOT + 8, "", attributes)
    anchor = "end" if moment - plot.low + 1 > plot.moments / 2 else "start"
    text(group, end if anchor == "end" else x, plot.top - 12, label, "small", anchor=anchor)


def draw(group: Element, plot: Plot, box: Box) -> None:
    """Draw a rectangle, with its name where that fits."""
    x, end = plot.x(box.first), plot.x(box.end)
    y, bottom = plot.y(box.begin + box.size), plot.y(box.begin)
    height = max(bottom - y, 0.5)
    attributes = {"class": "v", "fill-opacity": "0.85"}
    made = rect(group, x, y, max(end - x, 1), height, box.color, attributes)
    SubElement(made, "title").text = box.title
    room = int((end - x - 6) / _CHARACTER)
    if height >= 11 and room >= 4:
        name = box.name if len(box.name) <= room else f"{box.name[: room - 1]}\u2026"
        words = text(group, x + 3, y + height / 2 + 3.5, name, "small")
        words.set("pointer-events", "none")


def line(group: Element, plot: Plot, byte: int, color: str, name: str) -> None:
    """Draw a level of bytes, whose name shows under the pointer."""
    y = plot.y(byte)
    level = stroke(group, LEFT, y, WIDTH - RIGHT, y, "")
    level.set("stroke", color)
    level.set("stroke-dasharray", "6 4")
    SubElement(level, "title").text = f"{name} {byte:,} bytes"


def ticks(most: int) -> list[int]:
    """Return at most about ten round numbers from 0 to another one: 1, 2 or 5 times a power of ten."""
    step = 1
    while step * 10 < most:
        step *= 10
    for finer in (5, 2):
        if step % 10 == 0 and most // (step // 10 * finer) <= 10:
            step = step // 10 * finer
    return list(range(0, most + 1, step))


def short(byte: int) -> str:
    """Return bytes in a few characters."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if byte >= unit:
            return f"{byte / unit:g} {name}"
    return f"{byte} B"


def text(group: Element, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> Element:
    """Write words at a point."""
    made = SubElement(group, "text", {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor})
    if kind:
        made.set("class", kind)
    made.text = words
    return made


def rect(
    group: Element,
    x: float,
    y: float,
    width: float,
    height: float,
    color: str,
    attributes: dict[str, str] | None = None,
) -> Element:
    """Draw a rectangle without a name."""
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{width:.1f}", "height": f"{height:.1f}"}
    return SubElement(group, "rect", place | ({"fill": color} if color else {}) | (attributes or {}))


def stroke(group: Element, x: float, y: float, end: float, down: float, kind: str) -> Element:
    """Draw a line from point to point."""
    place = {"x1": f"{x:.1f}", "y1": f"{y:.1f}", "x2": f"{end:.1f}", "y2": f"{down:.1f}"}
    return SubElement(group, "line", place | ({"class": kind} if kind else {}))
