"""Declarations of what moves and orders commands: copy engines, how queues wait, words of a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inlay.accel.declare import Imm, Memory, Queue, Shared, Size
from inlay.arith.expr import Int, to_int
from inlay.base.diagnostics import error


@dataclass(frozen=True, slots=True)
class Pad:
    """What a copy can put around what it brings into the device.

    Attributes:
        most: units on each side of its last two axes.
        value: of every element there: what a command says, or a number where it always is that one.
    """

    most: int
    value: Imm | int

    @property
    def ends(self) -> tuple[int, int]:
        """The least and the greatest number."""
        return (self.value, self.value) if isinstance(self.value, int) else (self.value.low, self.value.high)


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """A path of a copy engine: rows of units, any distance apart in the board's memory, dense in the device.

    Between two memories of the device rows are dense in the source, any distance apart in the target. So a
    value stays in the device where its instruction writes another memory than those that read it.

    Attributes:
        source, target: one memory of the board and one of the device, or two of the device.
        queue: where its commands wait.
        dims: 1 for one row, 2 for several.
        pad: what it can put around a tile.
        bytes_per_cycle: of the memory of the board, which all copies share.
        latency: cycles before the first byte.
        most: units that one command moves at most, of a copy of one row that puts nothing around; None for
            any. More of them are several commands.
    """

    source: Shared | Memory
    target: Shared | Memory
    queue: Queue
    dims: int = 1
    pad: Pad | None = None
    bytes_per_cycle: Size = 8
    latency: Size = 0
    most: int | None = None

    @property
    def chip(self) -> Memory:
        """The memory of the device in which rows are dense."""
        private = self.source if isinstance(self.source, Memory) else self.target
        assert isinstance(private, Memory), "checked with the class"
        return private

    @property
    def into_chip(self) -> bool:
        """Whether it brings something into the device."""
        return isinstance(self.target, Memory) and not self.is_inside

    @property
    def is_inside(self) -> bool:
        """Whether it moves something between two memories of the device."""
        return isinstance(self.target, Memory) and isinstance(self.source, Memory)


@dataclass(frozen=True, slots=True, eq=False)
class Token:
    """How a queue waits for another: a command pushes a token when it ends, another takes it to begin.

    Tokens are taken in the order in which they were pushed.

    Attributes:
        source, target: queues of the command that pushes and of the one that waits.
        push, pop: names of the flags of commands.
    """

    source: Queue
    target: Queue
    push: str
    pop: str


class Interlock:
    """Hardware that orders queues by itself.

    A command begins when all before it have ended that touch the same, if one of both writes. Compared are
    addresses in memories of the device, in the order of the stream, whatever the queue; what is in the memory
    of the board is not.

    Args:
        queues: that it orders, all of the device.
    """

    def __init__(self, *queues: Queue) -> None:
        self.queues = queues


@dataclass(frozen=True, slots=True, eq=False)
class AtMost:
    """A command that waits until at most some commands of a queue are outstanding: given, and not ended.

    The stream is read no further until then, so all that stands behind it waits, whatever its queue. It is
    an attribute of the class, and has an encoding: `c.count` is how many may be outstanding.

    Attributes:
        queue: whose commands are counted.
        most: the largest count that can be said; with 0 it waits for all of them.
    """

    queue: Queue
    most: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class EventCommand:
    """What sets an event, or waits for one."""


class Events:
    """Numbered registers of one bit: a command sets one, and another one waits for it and clears it.

    `signal` sets the event `c.event` when all before it in its queue have ended; behind `wait` its queue goes
    on when the event is set, and clears it. Both have an encoding, with `c.queue` and `c.event`. Which number
    is used when, and when it is free again, is the compiler's.

    Args:
        count: how many there are.
        source, target: queues, where these registers are between two of them alone.
    """

    def __init__(self, count: int, source: Queue | None = None, target: Queue | None = None) -> None:
        self.count, self.source, self.target = count, source, target
        self.signal, self.wait = EventCommand(), EventCommand()


@dataclass(frozen=True, slots=True, eq=False)
class Nop:
    """A command that does nothing but wait and push: it orders queues that share no token."""


Order = Token | Interlock | AtMost | Events
"""How queues wait for each other."""


@dataclass(frozen=True, slots=True)
class Field:
    """Some bits of a word; `at` is the position of the lowest."""

    at: int
    bits: int
    signed: bool

    def holds(self, value: int) -> bool:
        """Whether a number fits."""
        half = 1 << (self.bits - 1)
        return -half <= value < half if self.signed else 0 <= value < 2 * half


@dataclass(frozen=True, slots=True)
class Written:
    """A word with a value in each of its fields; those that were not said are 0."""

    word: Word
    values: Mapping[str, Int]


class Word:
    """A word of a stream: fields from the lowest bit on, `name:bits`, with an `s` behind those with a sign.

    Args:
        bits: of the word, a multiple of 8.
        fields: as above, separated by spaces.
    """

    def __init__(self, bits: int, fields: str) -> None:
        self.bits, self.fields = bits, dict[str, Field]()
        at = 0
        for text in fields.split():
            name, _, size = text.partition(":")
            width = int(size.rstrip("s"))
            self.fields[name] = Field(at, width, size.endswith("s"))
            at += width
        if at > bits or bits % 8:
            raise error(
                "accel.declaration", f"found fields of {at} bits in a word of {bits}, a multiple of 8"
            )

    def __call__(self, **values: Size) -> Written:
        """Return a word.

        Raises:
            CompileError: `accel.declaration` for a field that it does not have.
        """
        if unknown := [name for name in values if name not in self.fields]:
            raise error("accel.declaration", f"found the field {unknown[0]}, needed {', '.join(self.fields)}")
        return Written(self, {name: to_int(value) for name, value in values.items()})


def joined(words: Sequence[Written]) -> Written:
    """Return words that are one command as one: fields have the number of their word before their name."""
    whole = Word(sum(x.word.bits for x in words), "")
    values: dict[str, Int] = {}
    at = 0
    for number, x in enumerate(words):
        whole.fields |= {
            f"{number}.{n}": Field(at + f.at, f.bits, f.signed) for n, f in x.word.fields.items()
        }
        values |= {f"{number}.{n}": value for n, value in x.values.items()}
        at += x.word.bits
    return Written(whole, values)


class Stream:
    """Commands are words, one after the other, that a device reads by itself.

    Args:
        run: the function of the driver's library that runs a stream.
        end: the last word.
        align: of operands in the memory of the board, in bytes.
    """

    def __init__(self, run: str, end: Written, align: int = 1) -> None:
        self.run, self.end, self.align, self.nop = run, end, align, Nop()
