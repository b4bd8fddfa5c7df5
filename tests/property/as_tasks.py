"""Programs of which every call may be a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from inlay.bytecode.isa import INSTRUCTIONS
from inlay.bytecode.program import Program
from inlay.bytecode.verify import instructions

AS_TASK = {"CALL": "SPAWN", "CALL_CLOSURE": "SPAWN_CLOSURE"}


def with_all_tasks(program: Program) -> Program:
    """Return a program of which every call may be a task: right everywhere, and gains nothing at most places."""
    numbers = {row.name: number for number, row in enumerate(INSTRUCTIONS)}

    def spawned(code: Sequence[int]) -> tuple[int, ...]:
        words = list(code)
        for at, row, _ in instructions(code):
            words[at] = numbers[AS_TASK.get(row.name, row.name)]
        return tuple(words)

    return replace(program, functions=tuple(replace(f, code=spawned(f.code)) for f in program.functions))
