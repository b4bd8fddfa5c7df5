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

The keys of a table are the fields of its record in `device.py` and `memory.py`; `_TABLES` says how
each is read. The architecture `native` need not be described.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, cast

from inlay.base.diagnostics import Collector, error
from inlay.base.registry import nearest, unknown_name
from inlay.base.span import Source, Span
from inlay.machine.board import NATIVE, Board
from inlay.machine.device import (
    Arch,
    Coherence,
    Device,
    Engine,
    Link,
    Order,
    OrderKind,
    Queue,
    Speed,
)
from inlay.machine.memory import Keeps, Pool, PoolKind

_SIZE = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB|)")
_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_HEAD = re.compile(r"\s*\[\[\s*([\w-]+)\s*\]\]")
_KEY = re.compile(r"\s*(?:\"([^\"]+)\"|([\w-]+))\s*=")


def board_names() -> tuple[str, ...]:
    """Return the names of the known boards, sorted."""
    folder = resources.files("inlay.machine") / "boards"
    return tuple(
        sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml"))
    )


def find_board(name: str | Board) -> Board:
    """Return a known board, the one in a file if the name ends in `.toml`, or a board as it is.

    Raises:
        CompileError: `name.unknown`, `load.missing`; `board.invalid` where its file is wrong.
    """
    if isinstance(name, Board):
        return check_board(name)
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise error("load.missing", f"found no file {name}")
        return read_board(path.stem, path.read_text(encoding="utf-8"), place=name)
    return read_board(name, board_text(name), place=f"{name}.toml")


def board_text(name: str) -> str:
    """Return the file of a known board, to be changed and given by its path.

    Raises:
        CompileError: `name.unknown`.
    """
    if name not in board_names():
        raise unknown_name("board", name, board_names())
    file = resources.files("inlay.machine") / "boards" / f"{name}.toml"
    return file.read_text(encoding="utf-8")


def read_board(name: str, text: str, *, place: str) -> Board:
    """Return the board that a TOML text describes.

    Raises:
        CompileError: all `board.invalid` at once.
    """
    findings = Collector()
    table: dict[str, Any] = {}
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as failure:
        findings.error("board.invalid", f"found {failure}", span=Span.named(place))
    findings.raise_if_fatal()
    reader = _Reader(table, _Lines(Source(place, text)), findings)
    board = reader.board(name)
    check_parts(board, findings, reader.lines.of)
    findings.raise_if_fatal()
    return board


def check_board(board: Board) -> Board:
    """Return a board that was built in Python, if it holds together.

    Raises:
        CompileError: all `board.invalid` at once.
    """
    findings = Collector()
    check_parts(board, findings, lambda kind, index, key: Span.named(f"board {board.name}"))
    findings.raise_if_fatal()
    return board


Where = Callable[[str, int, str], Span]
"""Gives the place of a key in the n-th table of a kind; of the table itself for an empty key."""


# ------------------------------------------------------------------------------ what belongs together


def check_parts(board: Board, findings: Collector, where: Where) -> None:
    """Find what does not hold together: names that are taken or missing, access that is not there."""

    def wrong(kind: str, index: int, key: str, message: str, hint: str = "") -> None:
        findings.error("board.invalid", message, span=where(kind, index, key), hint=hint)

    def known(kind: str, index: int, key: str, name: str, of: str, names: Iterable[str]) -> bool:
        listed = list(names)
        if name in listed:
            return True
        close = nearest(name, listed)
        hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(listed)}"
        wrong(kind, index, key, f"'{name}' is no {of} of the board", hint)
        return False

    if not board.devices or not board.memories:
        wrong("", 0, "", "found a board without a device or without a memory")
        return
    devices, memories = [d.name for d in board.devices], [m.name for m in board.memories]
    engines = {e.name: e for e in board.engines}
    _check_names(board, wrong)
    if board.default:
        known("", 0, "default", board.default, "device", devices)
    for i, pool in enumerate(board.memories):
        if pool.owner is not None:
            known("memory", i, "owner", pool.owner, "device", devices)
    for i, device in enumerate(board.devices):
        known("device", i, "arch", device.arch, "architecture", [a.name for a in board.archs])
        for memory in device.memories:
            if known("device", i, "memories", memory, "memory", memories):
                pool = board.memories[memories.index(memory)]
                if pool.kind is PoolKind.STACK and pool.owner not in (None, device.name):
                    whose = f"of '{pool.owner}', not of '{device.name}'"
                    wrong("device", i, "memories", f"'{memory}' is the stack {whose}")
    for i, engine in enumerate(board.engines):
        for memory in engine.memories:
            known("engine", i, "memories", memory, "memory", memories)
        if engine.device:
            known("engine", i, "device", engine.device, "device", devices)
    for i, link in enumerate(board.links):
        ends = {"from": link.source, "to": link.target}
        good = [known("link", i, k, m, "memory", memories) for k, m in ends.items()]
        if known("link", i, "engine", link.engine, "engine", engines) and all(good):
            for key, memory in ends.items():
                if memory not in engines[link.engine].memories:
                    wrong("link", i, key, f"engine '{link.engine}' does not address '{memory}'",
                          f"add '{memory}' to the memories of '{link.engine}'")  # fmt: skip
    for i, coherence in enumerate(board.coherent):
        known("coherent", i, "memory", coherence.memory, "memory", memories)
        for party in coherence.parties:
            known("coherent", i, "parties", party, "device or engine", [*devices, *engines])
    _check_queues(board, wrong, known)


def _check_names(board: Board, wrong: Callable[..., None]) -> None:
    for kinds in (("device", "memory", "engine"), ("arch",)):
        seen: set[str] = set()
        for kind in kinds:
            parts = {"device": board.devices, "memory": board.memories, "engine": board.engines,
                     "arch": board.archs}[kind]  # fmt: skip
            for i, part in enumerate(parts):
                if part.name in seen:
                    wrong(kind, i, "name", f"found two parts named '{part.name}'")
                seen.add(part.name)


def _check_queues(board: Board, wrong: Callable[..., None], known: Callable[..., bool]) -> None:
    devices = [d.name for d in board.devices]
    for i, queue in enumerate(board.queues):
        known("queue", i, "device", queue.device, "device", devices)
    for i, order in enumerate(board.orders):
        if known("order", i, "device", order.device, "device", devices):
            own = [q.name for q in board.queues if q.device == order.device]
            known("order", i, "after", order.after, f"queue of '{order.device}'", own)
            known("order", i, "waits", order.waits, f"queue of '{order.device}'", own)
            if order.after == order.waits:
                wrong("order", i, "waits", f"queue '{order.waits}' waits for itself",
                      "commands of one queue are in order anyway")  # fmt: skip


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
        found = self._found.get((kind, index, key)) or self._found.get((kind, index, ""))
        return self.source.span(*found) if found else Span.named(self.source.name)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("text")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(x, str) for x in cast(list[Any], value)):
        raise ValueError("a list of names")
    return tuple(cast(list[str], value))


def _some_texts(value: Any) -> tuple[str, ...]:
    if not value:
        raise ValueError("a list of at least one name")
    return _texts(value)


def _positive(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError("a positive integer")
    return value


def _power(value: Any) -> int:
    if not isinstance(value, int) or value < 1 or value & (value - 1):
        raise ValueError("a power of two")
    return value


def _bytes(value: Any) -> int:
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is not None:
        return int(found[1]) * _UNITS[found[2]]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError("bytes, as a number or as in \"64KiB\"")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")  # noqa: TRY004
    return value


def _rate(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
        raise ValueError("a positive number")
    return float(value)


def _time(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
        raise ValueError("a number of nanoseconds")
    return float(value)


def _one_of(kind: Any) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if value not in set(kind):
            raise ValueError(f"one of {', '.join(kind)}")
        return kind(value)

    return read


def _settings(value: Any) -> tuple[tuple[str, str], ...]:
    if type(value) is not dict:
        raise ValueError("a table of names and values")
    return tuple((k, str(v)) for k, v in cast(dict[str, Any], value).items())


@dataclass(frozen=True, slots=True)
class _Field:
    """A key of a table: how it is read, which field it fills, whether it must be there."""

    read: Callable[[Any], Any]
    needed: bool = False
    field: str = ""


_NAME = _Field(_text, needed=True)
_TABLES: dict[str, tuple[type, dict[str, _Field]]] = {
    "arch": (Arch, {
        "name": _NAME, "summary": _Field(_text), "generator": _Field(_text),
        "loader": _Field(_text), "operators": _Field(_texts), "dtypes": _Field(_texts),
        "parameters": _Field(_settings), "detect": _Field(_flag),
        "macs_per_ns": _Field(_rate), "elements_per_ns": _Field(_rate),
        "costly_per_ns": _Field(_rate), "launch_ns": _Field(_time),
    }),
    "memory": (Pool, {
        "name": _NAME, "kind": _Field(_one_of(PoolKind)), "alignment": _Field(_power),
        "bytes": _Field(_bytes), "banks": _Field(_positive), "keeps": _Field(_one_of(Keeps)),
        "owner": _Field(_text), "bytes_per_ns": _Field(_rate), "latency_ns": _Field(_time),
    }),
    "device": (Device, {
        "name": _NAME, "arch": _NAME, "memories": _Field(_some_texts, needed=True),
        "shares": _Field(_text),
    }),
    "engine": (Engine, {
        "name": _NAME, "memories": _Field(_some_texts, needed=True), "device": _Field(_text),
        "dims": _Field(_positive), "queues": _Field(_positive),
    }),
    "queue": (Queue, {"name": _NAME, "device": _NAME, "depth": _Field(_positive)}),
    "order": (Order, {
        "device": _NAME, "after": _NAME, "waits": _NAME,
        "kind": _Field(_one_of(OrderKind), needed=True), "most": _Field(_positive),
    }),
    "link": (Link, {
        "from": _Field(_text, needed=True, field="source"),
        "to": _Field(_text, needed=True, field="target"), "engine": _NAME,
        "bytes_per_ns": _Field(_rate), "latency_ns": _Field(_time),
    }),
    "coherent": (Coherence, {
        "memory": _NAME, "parties": _Field(_some_texts, needed=True),
    }),
}  # fmt: skip
_TOP = {"summary": _Field(_text), "default": _Field(_text)}
_SPEED = ("macs_per_ns", "elements_per_ns", "costly_per_ns", "launch_ns")


class _Reader:
    """Makes the parts of a board from tables."""

    def __init__(self, table: Mapping[str, Any], lines: _Lines, findings: Collector) -> None:
        self.table = table
        self.lines = lines
        self._findings = findings

    def board(self, name: str) -> Board:
        top = {k: v for k, v in self.table.items() if k not in _TABLES}
        own = self._values("", 0, top, _TOP, extra=_TABLES)
        parts = {kind: self._parts(kind) for kind in _TABLES}
        archs = cast("tuple[Arch, ...]", parts["arch"])
        if all(a.name != NATIVE for a in archs):
            archs = (Arch(NATIVE, "the processor of this machine", "llvm", "image"), *archs)
        return Board(
            name, own.get("summary", ""), parts["device"], parts["memory"], archs,
            parts["engine"], parts["link"], parts["queue"], parts["order"], parts["coherent"],
            own.get("default", ""),
        )  # fmt: skip

    def _parts(self, kind: str) -> tuple[Any, ...]:
        given = self.table.get(kind, [])
        if not isinstance(given, list):
            self._wrong(kind, 0, "", f"found [{kind}], needed [[{kind}]]: there may be several")
            return ()
        record, fields = _TABLES[kind]
        made: list[Any] = []
        for index, table in enumerate(cast(list[Any], given)):
            values = self._values(kind, index, table, fields)
            if any(f.needed and (f.field or k) not in values for k, f in fields.items()):
                continue
            if record is Pool:
                values.setdefault("kind", PoolKind.HEAP)
            speed = {k: values.pop(k) for k in _SPEED if k in values}
            part = record(**values)
            made.append(replace(part, speed=Speed(**speed)) if speed else part)
        return tuple(made)

    def _values(
        self, kind: str, index: int, table: Any, fields: Mapping[str, _Field],
        extra: Iterable[str] = (),
    ) -> dict[str, Any]:  # fmt: skip
        if not isinstance(table, dict):
            self._wrong(kind, index, "", f"found {table!r}, needed a table")
            return {}
        given = cast(dict[str, Any], table)
        values: dict[str, Any] = {}
        for key, value in given.items():
            field = fields.get(key)
            if field is None:
                close = nearest(key, [*fields, *extra])
                hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(fields)}"
                self._wrong(kind, index, key, f"found the key '{key}', which means nothing", hint)
                continue
            try:
                values[field.field or key] = field.read(value)
            except ValueError as failure:
                self._wrong(kind, index, key, f"found {key} = {value!r}, needed {failure}")
        for key, field in fields.items():
            if field.needed and key not in given:
                self._wrong(kind, index, "", f"found [[{kind}]] without '{key}'")
        return values

    def _wrong(self, kind: str, index: int, key: str, message: str, hint: str = "") -> None:
        self._findings.error(
            "board.invalid", message, span=self.lines.of(kind, index, key), hint=hint
        )
