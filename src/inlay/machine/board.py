"""Boards: a machine as data. Architectures, devices, memories, engines, queues, links, access.

A known board is a TOML file in `boards/`, found by its name; a user's is a file anywhere
(`board_file` reads both), or is built in Python and `check_board` says what is wrong with it. The
first memory is the host's, and the *host* is a device that addresses it: the first one of the architecture
`native`, where there is one, else the first. It runs the virtual machine. So the order of devices
says which are preferred, and not which can run a program.

**Access.** A device or an engine addresses the memories it lists. Two devices that both address a
memory and are coherent there hand values on in it without a copy; a value goes anywhere else over
*links*, one hop after the other.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from inlay.machine.device import Arch, Coherence, Device, Engine, Link, Order, Queue
from inlay.machine.memory import Keeps, Pool, PoolKind

NATIVE = "native"
"""The architecture of the processor that the compiler itself runs on."""


@dataclass(frozen=True)
class Board:
    """A machine.

    Attributes:
        name: of the board.
        summary: one line for lists.
        devices: among them the host, in order of preference.
        memories: the host's first.
        archs: what the devices are instances of.
        engines, links: who can copy from where to where; links in order of preference.
        queues, orders: of devices whose commands run decoupled.
        coherent: where writes are seen without being told.
        default: name of the device for operations that nothing else decides; the host if empty.
    """

    name: str
    summary: str
    devices: tuple[Device, ...]
    memories: tuple[Pool, ...]
    archs: tuple[Arch, ...] = (Arch(NATIVE, generator="llvm", loader=NATIVE),)
    engines: tuple[Engine, ...] = ()
    links: tuple[Link, ...] = ()
    queues: tuple[Queue, ...] = ()
    orders: tuple[Order, ...] = ()
    coherent: tuple[Coherence, ...] = ()
    default: str = ""

    @functools.cached_property
    def host(self) -> Device:
        """The device that runs the virtual machine."""
        own = [d for d in self.devices if self.memories[0].name in d.memories] or list(self.devices)
        return next((d for d in own if d.arch == NATIVE), own[0])

    @property
    def others(self) -> tuple[Device, ...]:
        """All devices but the host."""
        return tuple(d for d in self.devices if d is not self.host)

    @property
    def default_device(self) -> str:
        """Name of the device for operations that nothing else decides."""
        return self.default or self.host.name

    @functools.cached_property
    def devices_by_name(self) -> dict[str, Device]:
        """The devices, by name."""
        return {d.name: d for d in self.devices}

    @functools.cached_property
    def _memories(self) -> dict[str, Pool]:
        return {m.name: m for m in self.memories}

    def device(self, name: str) -> Device | None:
        """Return a device by name, None where there is none."""
        return self.devices_by_name.get(name)

    def memory(self, name: str) -> Pool | None:
        """Return a memory by name, None where there is none."""
        return self._memories.get(name)

    def arch(self, name: str) -> Arch | None:
        """Return an architecture by name, None where there is none."""
        return next((a for a in self.archs if a.name == name), None)

    def arch_of(self, device: str) -> Arch:
        """Return the architecture of a device of this board."""
        found = self.arch(self.devices_by_name[device].arch)
        assert found is not None, "a checked board knows the architectures of its devices"
        return found

    def stack_of(self, device: str) -> tuple[str, ...]:
        """Return the names of the stacks that a device addresses."""
        return tuple(
            m for m in self.devices_by_name[device].memories if self._memories[m].kind is PoolKind.STACK
        )

    def writable(self, device: str) -> tuple[str, ...]:
        """Return the memories of a device that programs may write: all but those for constants."""
        memories = self.devices_by_name[device].memories
        return tuple(m for m in memories if self._memories[m].kind is not PoolKind.ROM)

    def shared_memories(self, a: str, b: str) -> tuple[str, ...]:
        """Return the memories in which one device may read what the other wrote, without a copy."""
        if a == b:
            return self.writable(a)
        both = set(self.writable(a)) & set(self.writable(b))
        seen = {c.memory for c in self.coherent if a in c.parties and b in c.parties}
        return tuple(m.name for m in self.memories if m.name in both & seen)

    def owner_of(self, memory: str) -> str:
        """Return the device that a value in a memory is said to be on: its owner, else the first."""
        pool = self._memories[memory]
        if pool.owner:
            return pool.owner
        return next((d.name for d in self.devices if memory in d.memories), self.host.name)

    def routes(self, sources: Iterable[str], targets: Iterable[str]) -> tuple[Link, ...]:
        """Return the links from one of some memories to one of others: the fewest that will do.

        Ties are decided by the order of the links. Empty where no route exists. A memory that is in
        both, because the two devices there do not see each other's writes, is reached from another.
        """
        wanted = set(targets)
        starts = [m.name for m in self.memories if m.name in set(sources)]
        ways: dict[str, tuple[Link, ...]] = dict.fromkeys(starts, ())
        found: dict[str, tuple[Link, ...]] = {}
        front = starts
        while front:
            behind: list[str] = []
            for link in self.links:
                if link.source in front and link.target not in found:
                    found[link.target] = (*ways[link.source], link)
                    behind.append(link.target)
            arrived = [m for m in behind if m in wanted]
            if arrived:
                first = min(arrived, key=lambda m: [self.links.index(x) for x in found[m]])
                return found[first]
            front = [m for m in behind if m not in ways]
            ways |= {m: found[m] for m in front}
        return ()

    @property
    def unread(self) -> tuple[str, ...]:
        """What is said of the machine that no plan reads yet: it is there for people."""
        return (
            *(f"keeps of {m.name}" for m in self.memories if m.keeps is not Keeps.RUN),
            *(f"dims of {e.name}" for e in self.engines if e.dims != 1),
            *(f"queues of {e.name}" for e in self.engines if e.queues != 1),
            *(f"queue {q.name} of {q.device}" for q in self.queues),
            *(f"order {o.after} -> {o.waits} of {o.device}" for o in self.orders),
        )

    @property
    def hardware(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Pieces of hardware that several devices share, with the names of those devices."""
        for name in dict.fromkeys(d.shares for d in self.devices if d.shares):
            yield name, tuple(d.name for d in self.devices if d.shares == name)
