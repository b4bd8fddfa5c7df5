"""Measured costs of a board, in a JSON file.

    {"board": "host_two",
     "factors": {"cpu0": {"matmul": 1.3, "*": 0.9}},
     "launch_ns": {"cpu0": 150, "cpu1": 9000},
     "links": [{"from": "host", "to": "cpu1.mem", "latency_ns": 8000, "bytes_per_ns": 6.5}],
     "exclusive": [["cpu0", "cpu1"]],
     "kernels": {"cpu0": {"matmul of 262144 macs -> f32 4096": 8100}}}

A factor is measured time over predicted time of kernels in which an operator has most of the work, or of
what a pattern of an accelerator takes, by its name; `*` stands for all without one of their own.
Exclusive devices were found not to work at the same time, as on one piece of hardware. What was measured
of a kernel whose sizes are known is taken as it is. Every table may be left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from inlay.base.diagnostics import Collector, error
from inlay.base.files import write_text
from inlay.base.registry import suggestion
from inlay.base.span import Span
from inlay.machine.board import Board
from inlay.placement.choose.costs import Measured

_TABLES = ("board", "factors", "launch_ns", "links", "exclusive", "kernels")


def read_measured(path: str) -> Measured:
    """Return what a file says was measured; nothing for no file.

    Raises:
        CompileError: `placement.bad-calibration`.
    """
    if not path:
        return Measured()
    try:
        read: object = json.loads(Path(path).read_text(encoding="utf-8-sig"))
        if not isinstance(read, dict):
            raise TypeError(f"a {type(read).__name__}, needed an object of tables")
        table = cast("dict[str, Any]", read)
        for key in table:
            if key not in _TABLES:
                raise ValueError(f"the table '{key}'; {suggestion(key, _TABLES)}".rstrip("; "))
        links = {
            (x["from"], x["to"]): (_number(x["latency_ns"], zero=True), _number(x["bytes_per_ns"]))
            for x in table.get("links", ())
        }
        return Measured(
            dict(_pairs(table.get("factors", {}))),
            {d: _number(ns, zero=True) for d, ns in table.get("launch_ns", {}).items()},
            dict(_pairs(table.get("kernels", {}))),
            links,
            frozenset((a, b) for a, b in table.get("exclusive", ())),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as failure:
        found = f"no '{failure.args[0]}'" if isinstance(failure, KeyError) else str(failure)
        if isinstance(failure, OSError):
            found = f"a file that cannot be read: {failure.strerror}"
        raise error(
            "placement.bad-calibration",
            f"found {found}",
            span=Span.named(path),
            hint="write it with `inlay bench --calibrate BOARD`",
        ) from failure


def _pairs(table: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[tuple[str, str], float]]:
    for device, values in table.items():
        for name, value in values.items():
            yield (device, name), _number(value)


def _number(value: Any, *, zero: bool = False) -> float:
    if isinstance(value, bool) or not (value > 0 or (zero and value == 0)):
        raise ValueError(f"{value!r}, needed a positive number")
    return float(value)


def write_measured(path: Path, board: str, measured: Measured, inputs: Iterable[Path | str] = ()) -> None:
    """Write what was measured as `read_measured` reads it, but not over inputs."""

    def nested(table: Mapping[tuple[str, str], float], digits: int) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = {}
        for (device, name), value in sorted(table.items()):
            found.setdefault(device, {})[name] = round(value, digits)
        return found

    record = {
        "board": board,
        "factors": nested(measured.factors, 4),
        "launch_ns": {d: round(ns) for d, ns in sorted(measured.launches.items())},
        "links": [
            {"from": a, "to": b, "latency_ns": round(latency), "bytes_per_ns": round(rate, 4)}
            for (a, b), (latency, rate) in sorted(measured.links.items())
        ],
        "exclusive": sorted(measured.exclusive),
        "kernels": nested(measured.kernels, 0),
    }
    write_text(path, json.dumps(record, indent=2) + "\n", inputs=inputs)


def calibrated(board: Board, measured: Measured) -> Board:
    """Return a board whose links are as fast, and whose devices share hardware, as was measured.

    Raises:
        CompileError: `placement.bad-calibration` where it was measured on other devices.
    """
    _check_names(board, measured)
    links = tuple(
        replace(link, latency_ns=found[0], bytes_per_ns=found[1])
        if (found := measured.links.get((link.source, link.target)))
        else link
        for link in board.links
    )
    hardware = {d.name: d.shares for d in board.devices}
    for a, b in sorted(measured.exclusive):
        if a in hardware and b in hardware:
            one, other = hardware[a] or a, hardware[b]
            hardware |= {d: one for d in hardware if d in (a, b) or (other and hardware[d] == other)}
    devices = tuple(replace(d, shares=hardware[d.name]) for d in board.devices)
    return replace(board, links=links, devices=devices)


def _check_names(board: Board, measured: Measured) -> None:
    """Refuse what was measured of devices and memories that the board does not have."""
    devices = [*(d for d, _ in (*measured.factors, *measured.kernels)), *measured.launches]
    devices += [d for pair in sorted(measured.exclusive) for d in pair]
    memories = [m for pair in measured.links for m in pair]
    findings = Collector()
    for kind, names, known in (
        ("device", devices, [d.name for d in board.devices]),
        ("memory", memories, [m.name for m in board.memories]),
    ):
        for name in dict.fromkeys(names):
            if name not in known:
                findings.error(
                    "placement.bad-calibration",
                    f"found measurements of the {kind} '{name}', which board '{board.name}' does not have",
                    hint=suggestion(name, known, f"there are {', '.join(known)}"),
                )
    findings.raise_if_fatal()
