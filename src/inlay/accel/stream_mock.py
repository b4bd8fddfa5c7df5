"""The mock of a device that reads a stream: nobody writes it, and it is stricter than the device.

It reads the words by the forms that the encoders have, runs instructions by their loop nests on memories of
the declared sizes, and takes queues in any order that tokens permit, picked by a seed. It refuses addresses
outside of a memory, reads of what nobody wrote, tokens that are missing or left over, and commands that
touch the same units while nothing orders them, whatever came out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from random import Random

import numpy as np

from inlay.accel.accelerator import Architecture
from inlay.accel.commands import SHARED, Ordered, Place, Planned, Span
from inlay.accel.declare import Access, Dim, Instruction, Memory
from inlay.accel.encode import decoded
from inlay.accel.mock import mock_of
from inlay.accel.nest import formats
from inlay.accel.order import unordered
from inlay.accel.waits import channels, in_tokens
from inlay.arith.expr import Sym
from inlay.base.diagnostics import error
from inlay.bytecode.formula import Arg
from inlay.runtime.calls import DriverCall, opened
from inlay.runtime.driver_arguments import Number, Tensor
from inlay.runtime.native import Callback


class StreamMock:
    """A device that is not there.

    Args:
        arch: the architecture.
        seed: of the order in which queues are taken.
    """

    def __init__(self, arch: Architecture, seed: int = 0) -> None:
        self._arch, self._seed = arch, seed
        self._channels = channels(arch)

    def run(self, words: bytes, region: np.ndarray, rooms: Sequence[np.ndarray] = ()) -> None:
        """Run a stream on a region of the memory outside.

        Args:
            words: the stream.
            region: of the memory outside.
            rooms: memories of the device that are in a memory of the board, in the order of the file.

        Raises:
            RunError: `run.device-failed`.
        """
        stream = [replace(x, command=self._touching(x.command)) for x in decoded(self._arch, words)]
        stream = in_tokens(self._arch, stream)
        if wrong := next(unordered(stream, self._channels), None):
            raise _refused(wrong)
        state = _State(self._arch, region, rooms)
        queues: dict[str, deque[Ordered]] = {}
        for x in stream:
            queues.setdefault(x.command.queue, deque()).append(x)
        tokens, random = [0] * len(self._channels), Random(self._seed)
        while ready := [q for q, p in queues.items() if p and all(tokens[t] for t in p[0].pops)]:
            x = queues[random.choice(ready)].popleft()
            for t in x.pops:
                tokens[t] -= 1
            state.run(x.command)
            for t in x.pushes:
                tokens[t] += 1

    def _touching(self, c: Planned) -> Planned:
        """Return a command with what it touches."""
        d = self._arch.description
        if c.name in d.copies:
            return _copy_spans(self._arch, c)
        if c.name not in d.instructions:
            return c
        i = d.instructions[c.name]
        names = {id(m): name for name, m in d.memories.items()}
        spans: dict[bool, list[Span]] = {True: [], False: []}
        for name, x in i.operands.items():
            index = _units(self._arch, i, c, name)
            span = Span(names[id(x.memory)], int(index.min()), int(index.max()) + 1)
            spans[x.access is Access.READ].append(span)
        return replace(c, reads=tuple(spans[True]), writes=tuple(spans[False]))


def _copy_spans(arch: Architecture, c: Planned) -> Planned:
    copy, n = arch.description.copies[c.name], c.numbers
    name = next(k for k, m in arch.description.memories.items() if m is copy.chip)
    unit = arch.number(copy.chip.unit).value or 1
    height, across = n["top"] + n["y"] + n["bottom"], n["left"] + n["x"] + n["right"]
    at = c.places["chip"].at
    there = Span(name, at, at + height * across)
    last = n["dram"] + (n["y"] - 1) * n["stride"] + n["x"]
    if copy.is_inside:
        to = next(k for k, m in arch.description.memories.items() if m is copy.target)
        inside = (Span(to, n["dram"], last),) if n["y"] and n["x"] else ()
        return replace(c, reads=(there,), writes=inside)
    outer = (Span(SHARED, n["dram"] * unit, last * unit),) if n["y"] and n["x"] else ()
    return (
        replace(c, reads=outer, writes=(there,))
        if copy.into_chip
        else replace(c, reads=(there,), writes=outer)
    )


def _units(arch: Architecture, i: Instruction, c: Planned, name: str) -> np.ndarray:
    """Return the addresses of the units of an operand, an axis for each of its dims."""
    dims = {id(d): n for n, d in arch.description.dims.items()}
    place: Place = c.places[name]
    sizes = [c.numbers[dims[id(e)]] for e in i.operands[name].shape if isinstance(e, Dim)]
    index = np.full(sizes, place.at, np.int64)
    for axis, (n, stride) in enumerate(zip(sizes, place.stride, strict=True)):
        index += (np.arange(n) * stride).reshape([-1 if a == axis else 1 for a in range(len(sizes))])
    return index


@lru_cache(maxsize=64)
def _compiled(arch: Architecture, i: Instruction) -> tuple[Callback, tuple[str, ...], tuple[Sym, ...]]:
    """Return the loop nest of an instruction as code, the names of its arrays, and its dims."""
    code, order, dims = mock_of(arch, i, {})
    arrays = [Tensor(at) for at in range(len(order))]
    ints = [Number((Arg(at),)) for at in range(len(dims))]
    return opened(DriverCall(i.name, code, (*arrays, *ints))), order, dims


class _State:
    """Memories of a device while a stream runs."""

    def __init__(self, arch: Architecture, region: np.ndarray, rooms: Sequence[np.ndarray]) -> None:
        self._arch, self._region = arch, region
        self._bytes: dict[str, np.ndarray] = {}
        self._written: dict[str, np.ndarray] = {}
        for name, m in arch.description.memories.items():
            if isinstance(m, Memory):
                unit, size = arch.number(m.unit).value or 1, arch.number(m.size).value or 0
                self._bytes[name] = np.empty((size // unit, unit), np.uint8)
                self._written[name] = np.zeros(size // unit, bool)
        for name, room in zip(arch.borrowed, rooms, strict=bool(rooms)):
            unit = self._bytes[name].shape[1]
            self._bytes[name] = room[: room.size // unit * unit].reshape(-1, unit)
        for memory in self._bytes.values():
            memory[...] = 0xA5

    def run(self, c: Planned) -> None:
        """Do what a command says."""
        d = self._arch.description
        for span in (*c.reads, *c.writes):
            held = self._region.size if span.memory == SHARED else len(self._bytes[span.memory])
            if span.first < 0 or span.last > held:
                raise _refused(
                    f"{c.name} touches {span.memory or 'what is outside'} at {span.first} to {span.last}: "
                    f"it has {held}"
                )
        if c.name in d.copies:
            self._copy(c)
        elif c.name in d.instructions:
            self._instruction(d.instructions[c.name], c)

    def _copy(self, c: Planned) -> None:
        copy, n = self._arch.description.copies[c.name], c.numbers
        span = (c.writes if copy.into_chip else c.reads)[0]
        memory, written = self._bytes[span.memory], self._written[span.memory]
        unit = memory.shape[1]
        if copy.is_inside:
            self._move(c, span)
            return
        outer = self._region[: self._region.size // unit * unit].reshape(-1, unit)
        rows = n["dram"] + np.arange(n["y"])[:, None] * n["stride"] + np.arange(n["x"])[None, :]
        if copy.into_chip:
            pads = ((n["top"], n["bottom"]), (n["left"], n["right"]), (0, 0))
            fill = np.uint8(n["value"] & 0xFF)
            tile = np.pad(outer[rows], pads, constant_values=fill)
            memory[span.first : span.last], written[span.first : span.last] = tile.reshape(-1, unit), True
            return
        self._read(c, span.memory, np.arange(span.first, span.last))
        outer[rows] = memory[span.first : span.last].reshape(*rows.shape, unit)

    def _move(self, c: Planned, span: Span) -> None:
        """Move rows from one memory of the device to another."""
        n = c.numbers
        self._read(c, span.memory, np.arange(span.first, span.last))
        rows = n["dram"] + np.arange(n["y"])[:, None] * n["stride"] + np.arange(n["x"])[None, :]
        for there in c.writes:
            moved = self._bytes[span.memory][span.first : span.last]
            self._bytes[there.memory][rows] = moved.reshape(*rows.shape, -1)
            self._written[there.memory][rows] = True

    def _read(self, c: Planned, memory: str, index: np.ndarray) -> None:
        if not self._written[memory][index].all():
            missing = int(index[~self._written[memory][index]].min())
            raise _refused(f"{c.name} reads {memory} at {missing}, which nobody wrote")

    def _instruction(self, i: Instruction, c: Planned) -> None:
        d = self._arch.description
        names = {id(m): name for name, m in d.memories.items()}
        compiled, order, dims = _compiled(self._arch, i)
        arrays: dict[str, np.ndarray] = {}
        places: list[tuple[str, str, np.ndarray]] = []
        for name, x in i.operands.items():
            memory, index = names[id(x.memory)], _units(self._arch, i, c, name)
            if x.access is not Access.WRITE:
                self._read(c, memory, index.ravel())
            shape = [self._arch.number(e).value for e in x.shape if not isinstance(e, Dim)]
            at, lanes = 0, int(np.prod([n or 1 for n in shape], dtype=np.int64))
            for key, dtype in formats(x).items():
                size = lanes * dtype.numpy.itemsize
                found = np.ascontiguousarray(self._bytes[memory][index][..., at : at + size])
                arrays[f"{name}.{key}" if key else name] = found.view(dtype.numpy).reshape(
                    *index.shape, *(n or 1 for n in shape)
                )
                at += size
            if x.access is not Access.READ:
                places.append((name, memory, index))
        values = {x.sym: c.numbers[n] for n, x in d.dims.items() if n in c.numbers}
        values |= {x.sym: c.numbers[n] for n, x in i.immediates.items()}
        compiled([arrays[n] for n in order], [values[s] for s in dims])
        for name, memory, index in places:
            raw = arrays[name].view(np.uint8).reshape(*index.shape, -1)
            self._bytes[memory][index, : raw.shape[-1]] = raw
            self._written[memory][index] = True


def _refused(why: str) -> Exception:
    return error("run.device-failed", f"the mock refuses: {why}")
