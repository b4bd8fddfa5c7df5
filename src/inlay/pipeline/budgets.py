"""Budgets of memories as people write them: `host=300MB`, `sram0=64KiB`."""

from __future__ import annotations

from collections.abc import Sequence

from inlay.base.byte_sizes import bytes_in_option
from inlay.base.diagnostics import Collector
from inlay.base.registry import suggestion
from inlay.machine.board import Board
from inlay.memory.budget import Budget


def budget_of(texts: Sequence[str], board: Board, threads: int) -> Budget:
    """Return the budget that texts say.

    Args:
        texts: `MEMORY=SIZE`.
        board: whose memories they are.
        threads: that the program is to run on.

    Raises:
        CompileError: `name.unknown`, `option.bad-value`, all at once.
    """
    known = [m.name for m in board.memories]
    findings = Collector()
    found: dict[str, int] = {}
    for text in texts:
        name, sign, size = text.rpartition("=")
        name = name.strip()
        if not sign or not name:
            findings.error("option.bad-value", f"found --budget {text}, needed MEMORY=SIZE")
            continue
        if name not in known:
            findings.error(
                "name.unknown",
                f"found --budget {text}: board '{board.name}' has no memory named '{name}'",
                hint=suggestion(name, known, f"there are {', '.join(known)}"),
            )
            continue
        try:
            count = bytes_in_option(size)
        except ValueError as needed:
            findings.error("option.bad-value", f"found --budget {text}, needed {needed}")
            continue
        if found.setdefault(name, count) != count:
            message = f"found two budgets of '{name}': {found[name]} and {count} bytes"
            findings.error("option.bad-value", message)
    findings.raise_if_fatal()
    return Budget(found, threads, board.memories)
