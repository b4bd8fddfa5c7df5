"""Architectures, devices, engines, queues and links: what does the work on a machine.

Four things have four names. An *architecture* is how a processor is programmed; a *device* is one
instance of it on this machine; a *code generator* makes code for an architecture and a *loader*
brings that code to a device. Two devices may have one architecture, and two architectures may sit
on one piece of hardware (`shares`), which then runs one of them at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import cast

from inlay.machine.target import HAND_OFF_NS, Fact


@dataclass(frozen=True, slots=True)
class Speed:
    """What an architecture does in a nanosecond, for the roofline estimate of costs.

    Attributes:
        macs_per_ns: multiply-adds of contractions.
        elements_per_ns: elements of cheap element-wise work.
        transcendentals_per_ns: elements of transcendental functions.
        launch_ns: what a kernel costs before it does anything.
    """

    macs_per_ns: float = 40.0
    elements_per_ns: float = 8.0
    transcendentals_per_ns: float = 1.0
    launch_ns: float = 0.0


DESCRIPTION = ".py"
"""What loaders end in that are files: descriptions of accelerators."""


@dataclass(frozen=True, slots=True)
class Arch:
    """An architecture.

    Attributes:
        name: a name that means something to a person (`cortex-m7`, `strawberry`).
        summary: one line for lists.
        generator: name of the code generator; empty where there is none yet, and then a board that
            has it can be planned for and not compiled for.
        loader: name of what brings code to a device; or the file that describes it, if it ends in `.py`.
        operators: names of the operators it runs; None = all that the generator can compile.
        dtypes: names of the element types it handles; None = all.
        parameters: what two boards may build differently, as pairs of name and value.
        detect: whether its figures are guesses, to be replaced by those of the device that is here.
        speed: for costs.
        facts: what code is made for, as names and values of fields of `Target`; what is not said is
            what the back end knows.
    """

    name: str
    summary: str = ""
    generator: str = ""
    loader: str = ""
    operators: tuple[str, ...] | None = None
    dtypes: tuple[str, ...] | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    speed: Speed = Speed()
    detect: bool = False
    facts: tuple[tuple[str, Fact], ...] = ()

    def parameter(self, name: str, default: str = "") -> str:
        """Return a parameter by name."""
        return dict(self.parameters).get(name, default)

    @property
    def hand_off_ns(self) -> int:
        """Kernels that are predicted to take less run on one thread; see `Target`."""
        return cast("int", dict(self.facts).get("hand_off_ns", HAND_OFF_NS))


@dataclass(frozen=True, slots=True)
class Device:
    """Something that runs operations.

    Attributes:
        name: as programs and reports say it (`cpu`, `npu0`).
        arch: name of its architecture. `native` is the processor that the compiler itself runs on.
        memories: names of the memories it can address, the one it prefers first.
        shares: name of a piece of hardware that it has in common with other devices, of which one
            works at a time; empty where it is alone.
    """

    name: str
    arch: str
    memories: tuple[str, ...]
    shares: str = ""

    @property
    def hardware(self) -> str:
        """What only one device uses at a time."""
        return self.shares or self.name


@dataclass(frozen=True, slots=True)
class Engine:
    """Who executes copies: a device itself, or a queue of its own.

    Attributes:
        name: `cpu.memcpy`, `dma0`.
        memories: names of the memories it can address.
        device: the device that does the copying, which can do nothing else meanwhile; empty for an
            engine that works beside the devices.
        dims: most axes of one strided copy.
        queues: how many copies it works on at once.
    """

    name: str
    memories: tuple[str, ...]
    device: str = ""
    dims: int = 1
    queues: int = 1


class OrderKind(StrEnum):
    """How one queue waits for another."""

    TOKEN = "token"
    """Flags that one pushes and the other pops, first in first out."""
    COUNT = "count"
    """Go on when at most so many commands are outstanding."""
    EVENT = "event"
    """Handles that are signalled and waited for."""
    INTERLOCK = "interlock"
    """The hardware compares addresses itself."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue of commands of a device; they start in the order in which they were put.

    Attributes:
        name: `load`, `compute`; qualified by the device in reports.
        device: whose it is.
        depth: how many commands may be outstanding.
    """

    name: str
    device: str
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Order:
    """That commands of queue `waits` can be ordered after commands of queue `after`.

    Attributes:
        device: whose queues they are.
        after: the queue that goes first.
        waits: the queue that waits.
        kind: how.
        most: tokens or outstanding commands that can be told apart.
    """

    device: str
    after: str
    waits: str
    kind: OrderKind
    most: int = 1


@dataclass(frozen=True, slots=True)
class Link:
    """That an engine can copy from one memory to another.

    Attributes:
        source: name of a memory.
        target: name of a memory.
        engine: name of the engine.
        bytes_per_ns: bandwidth.
        latency_ns: before the first byte arrives.
    """

    source: str
    target: str
    engine: str
    bytes_per_ns: float = 8.0
    latency_ns: float = 0.0


@dataclass(frozen=True, slots=True)
class Coherence:
    """That devices and engines see each other's writes to a memory without being told."""

    memory: str
    parties: tuple[str, ...]
