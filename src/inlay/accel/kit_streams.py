"""Checks of a stream on its driver: that memories are as large as declared, and commands as long.

A program that is drawn uses the first units of memories, and its time is that of many commands. So its
stream is changed in one respect at a time, and the driver runs it again:

* what stands in one of the memories is put at the end of it: the last unit is there, or the size is wrong;
* one of the commands is given many times: what the stream takes longer is the time of that command alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from inlay.accel.accelerator import Architecture
from inlay.accel.commands import SHARED, Planned
from inlay.accel.encode import encoded
from inlay.accel.plan import plan
from inlay.accel.stages import Untiled
from inlay.accel.tile import of_part
from inlay.accel.tiled import Made, TiledCommand
from inlay.base.diagnostics import InlayError

Run = Callable[[Made], tuple[np.ndarray, int]]
"""Runs a stream on the driver, with the operands of a program; gives the result, and cycles or 0."""

_AGAIN = 50
"""How often a command is given whose cycles are looked at."""
_PART = 4
"""Predicted cycles may be off by one part in so many."""


def is_near(said: int, cycles: int) -> bool:
    """Whether predicted cycles are within a quarter of what a device takes."""
    return abs(said - cycles) * _PART <= cycles


def last_units(arch: Architecture, command: TiledCommand, want: np.ndarray, run: Run) -> tuple[str, str]:
    """Return which memory is smaller than declared, and how that shows; empty texts where none is."""
    assert command.made is not None, "a command that is taken has a stream"
    s = command.made.scheduled
    touched = (span.memory for x in s.stream for span in (*x.command.reads, *x.command.writes))
    for memory in dict.fromkeys(m for m in touched if m != SHARED):
        (part,) = s.parts
        units = arch.units(memory)
        last = f"its last unit is {units - 1}, and"
        at_end = replace(part, starts={memory: units - part.sizes()[memory]})
        try:
            got, _ = run(_made(arch, command, plan(at_end)))
        except Untiled as failure:
            return f"memory {memory}", f"{last} no word says it: {failure}"
        except InlayError as failure:
            return f"memory {memory}", f"{last} what uses it fails: {failure.diagnostics[0].message}"
        if not np.array_equal(want, got):
            return f"memory {memory}", f"{last} what uses it is wrong"
    return "", ""


def own_cycles(arch: Architecture, command: TiledCommand, run: Run) -> tuple[str, str]:
    """Return which command takes another time than declared; empty texts where none does."""
    assert command.made is not None, "a command that is taken has a stream"
    s = command.made.scheduled
    commands, (_, base) = plan(s.parts[0]), run(command.made)
    if not base:  # a driver without a clock
        return "", ""
    for name in dict.fromkeys(x.name for x in commands):
        first = next(i for i, x in enumerate(commands) if x.name == name)
        made = _made(arch, command, [*commands[:first], *[commands[first]] * _AGAIN, *commands[first:]])
        said, took = made.scheduled.timing.total - s.timing.total, run(made)[1] - base
        if not is_near(said, took):
            return (
                f"cost of {name}",
                f"{said} cycles are predicted of {_AGAIN} of them, and the device takes {took}",
            )
    return "", ""


def _made(arch: Architecture, command: TiledCommand, commands: Sequence[Planned]) -> Made:
    """Return a command with other commands in its stream."""
    assert command.made is not None, "a command that is taken has a stream"
    old = command.made
    (part,) = old.scheduled.parts
    scheduled = of_part(part, commands)
    return Made(scheduled, encoded(arch, scheduled.stream), old.stages)
