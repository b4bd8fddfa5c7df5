"""Lists of buffers as tables: a line for each, in comma-separated values.

    id,lower,upper,size,alignment,memory
    conv1,0,3,4096,64,sram0

`alignment` (1 where there is none) and `memory` (one without a name) may be left out. Columns are in any
order. What cannot be planned is refused with its line and its name, all of it at once.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from inlay.base.diagnostics import Collector, error
from inlay.base.files import text_of
from inlay.base.registry import suggestion
from inlay.packing.buffer import Buffer
from inlay.packing.instance import MOST_BYTES

NEEDED = ("id", "lower", "upper", "size")
OPTIONAL = ("alignment", "memory")
_INTEGER = re.compile(r"\s*[+-]?[0-9]{1,4000}\s*")
_MOST_FINDINGS = 20
"""After so many a file is a wrong one as a whole."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Buffers by memory, in the order of their lines.

    Attributes:
        columns: of the table.
        rows: the fields of each line, as they are written.
        memories: the numbers of the rows of each memory; its name is empty where the table says none.
        buffers: one for each row.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    memories: Mapping[str, tuple[int, ...]]
    buffers: tuple[Buffer, ...]

    def of(self, memory: str) -> list[Buffer]:
        """Return the buffers of a memory."""
        return [self.buffers[row] for row in self.memories[memory]]


def read_listing(path: Path) -> Listing:
    """Read a table of buffers.

    Raises:
        CompileError: `load.missing`, `load.not-text`, `packing.bad-list`, `packing.bad-buffer`; the latter
            for all lines at once.
    """
    lines = _lines(text_of(path), path)
    columns = _columns(next(lines, (1, list[str]()))[1], path)
    findings, rows, buffers = Collector(), list[tuple[str, ...]](), list[Buffer]()
    memories: dict[str, list[int]] = {}
    seen: dict[str, int] = {}
    for number, fields in lines:
        if len(findings.diagnostics) >= _MOST_FINDINGS:
            break
        where = f"line {number} of {path}"
        if len(fields) != len(columns):
            message = f"found {len(fields)} fields in {where}, needed {len(columns)}: {', '.join(columns)}"
            findings.error("packing.bad-list", message)
            continue
        row = {name: field.strip() for name, field in zip(columns, fields, strict=True)}
        buffer = _buffer(row, where, findings)
        first = seen.setdefault(row["id"], number)
        if first != number:
            message = f"found buffer '{row['id']}' in {where} and in line {first}, needed each id once"
            findings.error("packing.bad-buffer", message, hint="give each buffer its own id")
        if buffer is not None:
            memories.setdefault(row.get("memory", ""), []).append(len(rows))
            rows.append(tuple(fields))
            buffers.append(buffer)
    findings.raise_if_fatal()
    by_memory = {name: tuple(of) for name, of in memories.items()} or {"": ()}
    return Listing(columns, tuple(rows), by_memory, tuple(buffers))


def _lines(text: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield what is not empty, with the numbers of lines."""
    reader = csv.reader(text.splitlines(keepends=True), strict=True)
    try:
        for fields in reader:
            if fields:
                yield reader.line_num, fields
    except csv.Error as failure:
        raise error(
            "packing.bad-list", f"found line {reader.line_num} of {path} to be no line of a table: {failure}"
        ) from None


def _columns(fields: Sequence[str], path: Path) -> tuple[str, ...]:
    findings, columns = Collector(), tuple(field.strip() for field in fields)
    known = (*NEEDED, *OPTIONAL)
    for name in NEEDED:
        if name not in columns:
            found = ", ".join(columns)[:200] or "nothing"
            findings.error("packing.bad-list", f"found no column '{name}' in {path}, but {found}")
    for index, name in enumerate(columns):
        if name not in known:
            hint = suggestion(name, list(known), f"there are {', '.join(known)}")
            findings.error("packing.bad-list", f"found column '{name[:80]}' in {path}", hint=hint)
        elif name in columns[:index]:
            findings.error("packing.bad-list", f"found two columns '{name}' in {path}")
    findings.raise_if_fatal()
    return columns


def _buffer(row: Mapping[str, str], where: str, findings: Collector) -> Buffer | None:
    """Return a buffer; None where one cannot be made, with the reasons among the findings."""
    numbers: dict[str, int] = {"alignment": 1}
    who = f"buffer '{row['id']}' in {where}"
    for name in ("lower", "upper", "size", "alignment"):
        if name not in row:
            continue
        if not _INTEGER.fullmatch(row[name]):
            found = row[name] if len(row[name]) <= 40 else f"{row[name][:40]}..."
            findings.error("packing.bad-buffer", f"found {name} '{found}' of {who}, needed an integer")
            return None
        numbers[name] = int(row[name])
    lower, upper, size, alignment = (numbers[n] for n in ("lower", "upper", "size", "alignment"))
    before = len(findings.diagnostics)
    if not row["id"]:
        findings.error("packing.bad-buffer", f"found no id in {where}, needed a name")
    if not 0 < size < MOST_BYTES:
        found = f"found size {_short(size)} of {who}"
        findings.error("packing.bad-buffer", f"{found}, needed bytes from 1 to 2**62 - 1")
    if upper <= lower:
        found = f"found {who} to live in [{_short(lower)}, {_short(upper)})"
        findings.error("packing.bad-buffer", f"{found}, needed an upper end above the lower one")
    if not 0 < alignment < MOST_BYTES or alignment & (alignment - 1):
        found = f"found alignment {_short(alignment)} of {who}"
        findings.error("packing.bad-buffer", f"{found}, needed a power of two: 1, 2, 4 and so on")
    if len(findings.diagnostics) > before:
        return None
    return Buffer(row["id"], lower, upper, size, alignment)


def _short(value: int) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:40]}... ({len(text)} digits)"


def listing_text(listing: Listing, offsets: Mapping[str, int]) -> str:
    """Return a table as it was read, with a column of offsets, which are given by id."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow((*listing.columns, "offset"))
    for row, buffer in zip(listing.rows, listing.buffers, strict=True):
        writer.writerow((*row, offsets[buffer.id]))
    return stream.getvalue()
