"""Boards as TOML: reading and checking, with findings that name line and key.

    summary = "a processor with an accelerator behind a DMA engine"
    default = "npu0"
    [[arch]]
    name = "strawberry"
    operators = ["conv", "relu"]
    [[memory]]
    name = "npu0.spad"
    kind = "static"
    bytes = "64KiB"
    [[device]]
    name = "npu0"
    arch = "strawberry"
    memories = ["ram", "npu0.spad"]
    [[engine]]
    name = "dma0"
    memories = ["ram", "npu0.spad"]
    [[link]]
    from = "ram"
    to = "npu0.spad"
    engine = "dma0"
    [[coherent]]
    memory = "ram"
    parties = ["cpu", "npu0", "dma0"]

The keys of a table are the fields of its record in `device.py` and `memory.py`; `board_keys`
says how each is read. The architecture `native` need not be described.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, time
from importlib import resources
from pathlib import Path
from typing import Any, cast

from inlay.base.diagnostics import Collector, error
from inlay.base.files import text_of
from inlay.base.registry import suggestion, unknown_name
from inlay.base.span import Source, Span
from inlay.machine.board import NATIVE, Board
from inlay.machine.board_check import Use, check_parts, check_use
from inlay.machine.board_keys import FACTS, SPEED, TABLES, TOP, Field
from inlay.machine.device import DESCRIPTION, Arch, Speed
from inlay.machine.memory import Pool, PoolKind

_AT = re.compile(r"\((?:at line (\d+), column (\d+)|at end of document)\)")
"""How the reader of TOML says where it stopped."""
_THIS = Arch(NATIVE, "the processor of this machine", "llvm", NATIVE)
_DIGITS = re.compile(r"\d{4301}")
_HEAD = re.compile(r"\s*\[\[\s*([\w-]+)\s*\]\]")
_KEY = re.compile(r"\s*(?:\"([^\"]+)\"|([\w-]+))\s*=")


def board_names() -> tuple[str, ...]:
    """Return the names of the known boards, sorted."""
    folder = resources.files("inlay.machine") / "boards"
    return tuple(sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")))


def find_board(name: str | Board, use: Use | None = None) -> Board:
    """Return a known board, the one in a file if the name ends in `.toml`, or a board as it is.

    Args:
        name: of a board or of a file, or a board.
        use: what programs make of boards; with it, what no program could use is found too.

    Raises:
        CompileError: `name.unknown`, `load.missing`, `load.not-text`; all `board.invalid` at once.
    """
    if isinstance(name, Board):
        return check_board(name, use)
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            what = "a folder" if path.is_dir() else "no file"
            raise error("load.missing", f"found {what} {name}, needed the file of a board")
        return read_board(path.stem, text_of(path), place=name, use=use)
    if name not in board_names() and Path(name).is_file():
        raise error(
            "load.unknown-format",
            f"found the file {name}, needed a name that ends in .toml",
            hint="files of boards end in .toml, so that they are not taken for names",
        )
    return read_board(name, board_text(name), place=f"{name}.toml", use=use)


def board_text(name: str) -> str:
    """Return the file of a known board, to be changed and given by its path.

    Raises:
        CompileError: `name.unknown`.
    """
    if name not in board_names():
        raise unknown_name("board", name, board_names())
    file = resources.files("inlay.machine") / "boards" / f"{name}.toml"
    return file.read_text(encoding="utf-8")


def read_board(name: str, text: str, *, place: str, use: Use | None = None) -> Board:
    """Return the board that a TOML text describes; `use` as in `find_board`.

    Raises:
        CompileError: all `board.invalid` at once.
    """
    findings = Collector()
    source = Source(place, text)
    reader = _Reader(_table(source), _Lines(source), findings)
    board = _with_files(reader.board(name), Path(place).parent, findings, reader)
    check_parts(board, findings, reader.where, reader.lost)
    if use is not None and not findings.has_fatal:
        check_use(board, use, findings, reader.where)
    findings.raise_if_fatal()
    return board


def _with_files(board: Board, folder: Path, findings: Collector, reader: _Reader) -> Board:
    """Return a board with the loaders that are files found beside the file of the board."""
    archs = list(board.archs)
    for index, arch in enumerate(archs):
        if arch.loader.endswith(DESCRIPTION):
            path = (folder / arch.loader).resolve()
            if not path.is_file():
                where = reader.where("arch", index, "loader")
                findings.error("board.invalid", f"found no file {path}, needed a description", span=where)
            archs[index] = replace(arch, loader=str(path))
    return replace(board, archs=tuple(archs))


def _table(source: Source) -> dict[str, Any]:
    """Read TOML; what is wrong with it is shown where it is."""
    try:
        return tomllib.loads(source.text)
    except tomllib.TOMLDecodeError as failure:
        what, found = str(failure), _AT.search(str(failure))
        span = Span.named(source.name)
        if found is not None:
            what = what[: found.start()].rstrip()
            span = source.at(int(found[1]), int(found[2])) if found[1] else source.end
        message = f"this is no TOML: {what[:1].lower()}{what[1:]}"
    except ValueError:  # Python bounds the digits of a number
        digits = _DIGITS.search(source.text)
        span = source.span(digits.start()) if digits else Span.named(source.name)
        message = "found a number of thousands of digits"
    except RecursionError:
        message, span = "found values nested too deep", Span.named(source.name)
    raise error("board.invalid", message, span=span)


def check_board(board: Board, use: Use | None = None) -> Board:
    """Return a board that was built in Python, if it holds together; `use` as in `find_board`.

    Raises:
        CompileError: all `board.invalid` at once.
    """
    findings = Collector()
    parts: dict[str, Sequence[Any]] = {
        "arch": board.archs,
        "memory": board.memories,
        "device": board.devices,
        "engine": board.engines,
        "queue": board.queues,
        "order": board.orders,
        "link": board.links,
        "coherent": board.coherent,
    }

    def where(kind: str, index: int, key: str) -> Span:
        part = f", {kind} {getattr(parts[kind][index], 'name', index)}" if kind else ""
        return Span.named(f"board {board.name}{part}" + (f", {key}" if key else ""))

    for kind, several in parts.items():
        for index, part in enumerate(several):
            for key, value, needed in _wrong_values(kind, part):
                findings.error(
                    "board.invalid", f"found {key} = {value!r}, needed {needed}", span=where(kind, index, key)
                )
    if not findings.has_fatal:
        check_parts(board, findings, where)
    if use is not None and not findings.has_fatal:
        check_use(board, use, findings, where)
    findings.raise_if_fatal()
    return board


def _wrong_values(kind: str, part: Any) -> Iterator[tuple[str, Any, str]]:
    """Yield the fields of a part that no file could say, each with its value and what is needed."""
    for name, _ in part.facts if kind == "arch" else ():
        if name not in FACTS:
            yield "facts", name, f"one of {', '.join(FACTS)}"
    for key, known in TABLES[kind][1].items():
        name = known.field or key
        value = _value_of(part, name) if kind == "arch" else getattr(part, name)
        if not known.needed and value in (None, "", ()):
            continue
        try:
            known.read(dict(value) if key == "parameters" else _as_written(value))
        except ValueError as failure:
            yield key, value, str(failure)


def _value_of(arch: Arch, name: str) -> Any:
    if name in FACTS:
        return dict(arch.facts).get(name)
    return getattr(arch.speed if name in SPEED else arch, name)


def _as_written(value: Any) -> Any:
    return list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value


# ------------------------------------------------------------------------------------ reading


class _Lines:
    """Finds the line of a key: TOML readers do not say."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._found: dict[tuple[str, int, str], tuple[int, int]] = {}
        counts: dict[str, int] = {}
        kind, index, offset = "", 0, 0
        for line in source.text.splitlines(keepends=True):
            head, key = _HEAD.match(line), _KEY.match(line)
            name = ""
            if head is not None:
                kind = head[1]
                index = counts.get(kind, 0)
                counts[kind] = index + 1
            elif key is not None:
                name = key[1] or key[2]
            if head is not None or key is not None:
                start = offset + len(line) - len(line.lstrip())
                self._found.setdefault((kind, index, name), (start, offset + len(line.rstrip())))
            offset += len(line)

    def of(self, kind: str, index: int, key: str) -> Span:
        """Return the place of a key; where it is not written, of its table; else of the file."""
        known = ((kind, index, key), (kind, index, ""), ("", 0, kind), (key, 0, ""))
        found = next((self._found[k] for k in known if any(k) and k in self._found), None)
        return self.source.span(*found) if found else Span.named(self.source.name)


class _Reader:
    """Makes the parts of a board from tables.

    Attributes:
        lost: names of parts that are left out because something is wrong with them, by kind.
    """

    def __init__(self, table: Mapping[str, Any], lines: _Lines, findings: Collector) -> None:
        self.lost: dict[str, set[str]] = {kind: set() for kind in TABLES}
        self._table = table
        self._lines = lines
        self._findings = findings
        self._written: dict[str, list[int]] = {kind: [] for kind in TABLES}

    def where(self, kind: str, index: int, key: str) -> Span:
        """Return where a key of the n-th part that was made is written."""
        written = self._written.get(kind, [])
        return self._lines.of(kind, written[index] if index < len(written) else 0, key)

    def board(self, name: str) -> Board:
        """Return what could be read; all that could not is a finding."""
        top = {k: v for k, v in self._table.items() if k not in TABLES}
        own = self._values("", 0, top, TOP, extra=TABLES)
        parts = {kind: self._parts(kind) for kind in TABLES}
        archs = cast("tuple[Arch, ...]", parts["arch"])
        if all(a.name != NATIVE for a in archs):
            archs = (*archs, _THIS)
        return Board(
            name,
            own.get("summary", ""),
            parts["device"],
            parts["memory"],
            archs,
            parts["engine"],
            parts["link"],
            parts["queue"],
            parts["order"],
            parts["coherent"],
            own.get("default", ""),
        )

    def _parts(self, kind: str) -> tuple[Any, ...]:
        given = self._table.get(kind, [])
        if not isinstance(given, list):
            self._wrong(kind, 0, "", f"found [{kind}], needed [[{kind}]]: there may be several")
            if isinstance(given, dict):
                self._lose(kind, cast(dict[str, Any], given))
            return ()
        record, fields = TABLES[kind]
        made: list[Any] = []
        for index, table in enumerate(cast(list[Any], given)):
            values = self._values(kind, index, table, fields)
            if any(f.needed and (f.field or k) not in values for k, f in fields.items()):
                if isinstance(table, dict):
                    self._lose(kind, cast(dict[str, Any], table))
                continue
            if record is Pool:
                values.setdefault("kind", PoolKind.HEAP)
            if record is Arch and values["name"] == NATIVE:  # what is said of it are its figures
                values.setdefault("generator", _THIS.generator)
                values.setdefault("loader", _THIS.loader)
            speed = {k: values.pop(k) for k in SPEED if k in values}
            facts = tuple((k, values.pop(k)) for k in FACTS if k in values)
            part = record(**values)
            if isinstance(part, Arch):
                part = replace(part, speed=Speed(**speed), facts=facts)
            made.append(part)
            self._written[kind].append(index)
        return tuple(made)

    def _lose(self, kind: str, table: Mapping[str, Any]) -> None:
        name = table.get("name")
        if isinstance(name, str):
            self.lost[kind].add(name)

    def _values(
        self, kind: str, index: int, table: Any, fields: Mapping[str, Field], extra: Iterable[str] = ()
    ) -> dict[str, Any]:
        if not isinstance(table, dict):
            self._wrong(kind, index, "", f"found {table!r}, needed a table")
            return {}
        given = cast(dict[str, Any], table)
        values: dict[str, Any] = {}
        for key, value in given.items():
            field = fields.get(key)
            if field is None:
                known = [*fields, *extra]
                hint = suggestion(key, known, f"known: {', '.join(known)}")
                self._wrong(kind, index, key, f"found the key '{key}', which means nothing", hint)
                continue
            try:
                values[field.field or key] = field.read(value)
            except ValueError as failure:
                self._wrong(kind, index, key, f"found {key} = {_shown(value)}, needed {failure}")
        for key, field in fields.items():
            if field.needed and key not in given:
                self._wrong(kind, index, "", f"found [[{kind}]] without '{key}'")
        return values

    def _wrong(self, kind: str, index: int, key: str, message: str, hint: str = "") -> None:
        self._findings.error("board.invalid", message, span=self._lines.of(kind, index, key), hint=hint)


def _shown(value: Any) -> str:
    """Return a value as a message shows it: dates as they are written, not at any length."""
    text = str(value) if isinstance(value, date | time) else repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
