"""Measured costs of a board: one factor for each device and operator, in a JSON file.

    {"board": "host_two", "factors": {"cpu0": {"matmul": 1.3, "*": 0.9}}}

A factor is measured time over predicted time; `*` stands for all operators without one of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inlay.base.diagnostics import error
from inlay.base.span import Span


def read_factors(path: str) -> dict[tuple[str, str], float]:
    """Return the factors in a file by names of device and operator; none for no file.

    Raises:
        CompileError: `placement.bad-calibration`.
    """
    if not path:
        return {}
    found: dict[tuple[str, str], float] = {}
    try:
        table: Any = json.loads(Path(path).read_text(encoding="utf-8"))
        for device, factors in table["factors"].items():
            for operator, factor in factors.items():
                if not factor > 0:
                    raise ValueError(f"{factor} for {operator} on {device}, needed a positive number")
                found[device, operator] = float(factor)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as failure:
        raise error(
            "placement.bad-calibration", f"found {failure}", span=Span.named(path)
        ) from failure
    return found


def write_factors(path: Path, board: str, factors: Mapping[tuple[str, str], float]) -> None:
    """Write factors as `read_factors` reads them."""
    table: dict[str, dict[str, float]] = {}
    for (device, operator), factor in sorted(factors.items()):
        table.setdefault(device, {})[operator] = round(factor, 4)
    path.write_text(json.dumps({"board": board, "factors": table}, indent=2) + "\n", "utf-8")
