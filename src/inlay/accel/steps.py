"""Several commands for one match: where results that only they see are, and what scratch memory all need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from inlay.accel.accelerator import Architecture
from inlay.accel.choices import choose, scratch_of
from inlay.accel.declare import Access
from inlay.accel.match import Command
from inlay.arith.bounds import bounds
from inlay.arith.expr import Int, lit, product
from inlay.base.diagnostics import error
from inlay.ir.expr import Expr
from inlay.ir.types import TensorType

_LINE = 64
"""Where tensors begin, in bytes."""


@dataclass(frozen=True, slots=True)
class Room:
    """The scratch memory of a command with those before it.

    Attributes:
        values: where results of commands before are, in bytes from its start.
        temps: for each command, where operands are that only it has: scratch memory, and what it writes
            and nothing reads.
        bytes: of all; 0 for none.
    """

    values: Mapping[Expr, Int]
    temps: tuple[Mapping[str, Int], ...]
    bytes: Int


def room_of(arch: Architecture, command: Command) -> Room:
    """Return the scratch memory of a command, over the dims of the program."""
    values: dict[Expr, Int] = {}
    temps: list[dict[str, Int]] = []
    end = lit(0)
    for c in command.steps:
        if c is not command:
            value = c.operands[c.instruction.written]
            values[value], end = _after(end, _bytes(value))
        own: dict[str, Int] = {}
        for name, size in _own(arch, c).items():
            own[name], end = _after(end, size)
        temps.append(own)
    if end == 0 and (values or any(temps)):
        end = lit(_LINE)  # operands of no elements have an address, too
    return Room(values, tuple(temps), end)


def _own(arch: Architecture, c: Command) -> dict[str, Int]:
    """Return the operands that only a command has, with their bytes."""
    operands = c.instruction.operands
    names = [n for n, x in operands.items() if x.access is Access.SCRATCH]
    names += [n for n in c.instruction.writes if n not in c.operands]
    return {
        n: product(arch.number(e, c.sizes) for e in operands[n].shape) * operands[n].dtype.itemsize
        for n in names
    }


def _after(end: Int, size: Int) -> tuple[Int, Int]:
    """Return where so many bytes begin behind others, and end."""
    at = (end + (_LINE - 1)) // _LINE * _LINE
    return at, at + size


def _bytes(value: Expr) -> Int:
    assert isinstance(value.type, TensorType), "results of commands are tensors"
    return product(value.type.shape) * value.type.dtype.itemsize


def choices_said(arch: Architecture, command: Command) -> str:
    """Return which choices a command has, for explanations."""
    own = {c.sym: name for name, c in arch.description.choices.items()}
    said = [f"{own[s]} = {e}" for c in command.steps for s, e in c.sizes.items() if s in own]
    return f"{command.instruction.name} with {', '.join(said)}" if said else ""


def chosen_for(arch: Architecture, command: Command, kernel: str, free: Callable[[], int | None]) -> Command:
    """Return a command whose choices fit into what is free where its kernel is called.

    Raises:
        CompileError: `accel.no-room`.
    """
    if room_of(arch, command).bytes == 0 or (left := free()) is None:
        return command
    needed = sum((_bytes(c.operands[c.instruction.written]) + _LINE for c in command.before), lit(0))
    unread = (
        _own(arch, c)[n] + _LINE for c in command.steps for n in c.instruction.writes if n not in c.operands
    )
    needed = sum(unread, needed)
    most = bounds(needed, {}).high
    reasons = (
        [f"values between commands take {needed} bytes: {left} are free"]
        if most is None or most > left
        else []
    )
    left -= most or 0
    made: list[Command] = []
    for c in command.steps if not reasons else ():
        chosen, why = choose(arch, c.instruction, c.sizes, left)
        reasons += [f"{c.instruction.name}: {w}" for w in why]
        made.append(replace(c, sizes={**c.sizes, **chosen}))
        left -= bounds(scratch_of(arch, c.instruction, made[-1].sizes), {}).high or 0
    if reasons:
        raise error("accel.no-room", f"found no room where {kernel} is called: {'; '.join(reasons)}")
    return replace(made[-1], before=tuple(made[:-1]))
