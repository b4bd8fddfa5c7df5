"""Random programs about what is pending: blocks whose bytes are shared, tasks, waits and failures.

Each function has a tensor of its own and writes through overlapping views of it; it reads those and
what it was given. Calls are tasks, in chains and nested; what they get is overwritten behind them.
Integers are read from tensors, decide branches, and are returned. Now and then a kernel fails. With
cells, functions have one of their own or that of their caller, and write and read it. With closures, some
calls are of closures that hold arguments, and what calls gave goes through lists before it is read; neither
holds what is written in place, as no program that is compiled has it so.
"""

from __future__ import annotations

import random

import numpy as np

from inlay.bytecode.builder import FunctionBuilder, ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import AccessCode, Entry, HostBody, Kernel, Program
from tests.unit.runtime.programs import spec

WIDTH = 3
"""Elements of every tensor."""
BLOCK = 8
"""Elements of a block."""


class BrokenError(Exception):
    """What a kernel raises."""


def mix(tensors: list[np.ndarray], integers: list[int]) -> None:
    """out = 3 out + reversed source + k, modulo."""
    source, out = tensors
    out[...] = (3 * out + source[::-1].copy() + integers[0]) % 1009


def move(tensors: list[np.ndarray], integers: list[int]) -> None:
    """out = source + k; fails for a few values."""
    source, out = tensors
    values = source + integers[0]
    if values.sum() % 37 == 7:
        raise BrokenError(int(values.sum()))
    out[...] = values


CALLBACKS = {"mix": mix, "move": move}


class FlowGenerator:
    """Writes one program x: i64[3] -> two tensors."""

    def __init__(self, seed: int, *, cells: bool = False, closures: bool = False) -> None:
        self.random = random.Random(seed)
        self.cells = cells
        self.closures = closures
        self.program = ProgramBuilder()
        read, write, both = AccessCode.READ, AccessCode.WRITE, AccessCode.READ_WRITE
        self.kernels = [
            self.program.kernel(Kernel("mix", (read, both), 1, HostBody("mix"))),
            self.program.kernel(Kernel("move", (read, write), 1, HostBody("move"))),
        ]

    def program_of(self) -> Program:
        main = self.program.function("main", [Kind.TENSOR], [Kind.TENSOR, Kind.TENSOR])
        self.functions: list[FunctionBuilder] = []
        for i in range(self.random.randint(1, 4)):
            params = [Kind.TENSOR, Kind.INT]
            if self.cells and self.random.random() < 0.5:
                params.append(Kind.CELL)
            self.functions.append(self.program.function(f"task{i}", params, [Kind.INT, Kind.TENSOR]))
        _Body(self, main, -1).write()
        for index, f in enumerate(self.functions):
            _Body(self, f, index).write()
        x = spec("x", "i64", str(WIDTH), [])
        outputs = (spec("y", "i64", str(WIDTH), []), spec("z", "i64", "", []))
        self.program.entry(Entry("main", main.index, (x,), outputs))
        return self.program.finish(check=False)  # who reads the file verifies it


class _Body:
    """Writes a function: slot numbers of what may be read, of what may be written, of integers.

    Of what is read, some is `kept`: nobody writes it. `lists` are slots of lists with their lengths.
    """

    def __init__(self, g: FlowGenerator, f: FunctionBuilder, index: int) -> None:
        self.g, self.f, self.index, self.random = g, f, index, g.random
        self.readable, self.writable, self.integers = [0], [], []
        self.kept: list[int] = []
        self.lists: list[tuple[int, int]] = []
        self.cell = 2 if Kind.CELL in f.params else -1
        if index >= 0:
            self.integers.append(1)

    def write(self) -> None:
        f = self.f
        f.at(f"function {self.index}")
        if self.g.cells and self.cell < 0:
            f.emit("INT", self.random.randint(0, 9)), f.emit("CELL_NEW")
            self.cell = f.depth - 1
        f.emit("INT", 8 * BLOCK), f.emit("STORAGE", 0, 64)
        f.emit("INT", 0), f.emit("INT", BLOCK), f.emit("TENSOR", "i64", 1)
        block = f.depth - 1
        for _ in range(self.random.randint(2, 5)):
            offset = self.random.randint(0, BLOCK - WIDTH)
            f.emit("COPY", block), f.emit("INT", offset), f.emit("INT", WIDTH), f.emit("ROWS")
            self.writable.append(f.depth - 1)
        # All bytes are written before they are read.
        for offset in {*range(0, BLOCK - WIDTH, WIDTH), BLOCK - WIDTH}:
            f.emit("COPY", 0)
            f.emit("COPY", block), f.emit("INT", offset), f.emit("INT", WIDTH), f.emit("ROWS")
            f.emit("INT", 0), f.emit("INVOKE", self.g.kernels[1])
        self.readable += self.writable
        for _ in range(self.random.randint(2, 10)):
            self.statement()
        total = self.total()
        if self.index < 0:
            f.emit("COPY", self.random.choice(self.writable)), f.emit("OWN")
            f.emit("COPY", total), f.emit("TO_TENSOR", "i64")
        else:
            f.emit("COPY", total)
            f.emit("COPY", self.random.choice(self.readable)), f.emit("OWN")
        f.emit("RETURN")

    def statement(self) -> None:
        choices = [self.invoke, self.invoke, self.assign, self.read]
        if self.index + 1 < len(self.g.functions):
            choices += [self.spawn, self.spawn]
        if self.integers:
            choices.append(self.branch)
        if self.cell >= 0:
            choices += [self.write_cell, self.read_cell]
        if self.g.closures and self.kept:
            choices.append(self.join)
        if any(length for _, length in self.lists):
            choices += [self.first, self.rest]
        self.random.choice(choices)()

    def number(self) -> None:
        """Push an integer: a small one, or one that was read."""
        if self.integers and self.random.random() < 0.5:
            self.f.emit("COPY", self.random.choice(self.integers))
            self.f.emit("INT", 50), self.f.emit("MOD")
        else:
            self.f.emit("INT", self.random.randint(0, 9))

    def invoke(self) -> None:
        f = self.f
        f.at(f"node {f.depth} of {self.index}")
        f.emit("COPY", self.random.choice(self.readable))
        f.emit("COPY", self.random.choice(self.writable))
        self.number()
        f.emit("INVOKE", self.random.choice(self.g.kernels))

    def assign(self) -> None:
        self.f.emit("COPY", self.random.choice(self.writable))
        self.f.emit("COPY", self.random.choice(self.readable))
        self.f.emit("ASSIGN")

    def read(self) -> None:
        """Push an element."""
        f = self.f
        f.emit("COPY", self.random.choice(self.readable))
        f.emit("INT", self.random.randrange(WIDTH)), f.emit("ROW"), f.emit("TO_INT")
        self.integers.append(f.depth - 1)

    def spawn(self) -> None:
        f = self.f
        if self.g.closures and self.random.random() < 0.5:
            self.spawn_closure()
        else:
            f.emit("COPY", self.random.choice(self.readable))
            self.number()
            callee = self.random.choice(self.g.functions[self.index + 1 :])
            if Kind.CELL in callee.params:
                f.emit("COPY", self.cell)
            f.emit("SPAWN", callee)
        self.integers.append(f.depth - 2)
        self.readable.append(f.depth - 1)
        self.kept.append(f.depth - 1)

    def spawn_closure(self) -> None:
        """Call a closure that holds one argument, or more."""
        f = self.f
        callee = self.random.choice(self.g.functions[self.index + 1 :])
        held = self.random.randint(1, len(callee.params))
        arguments = (self.keep, self.number, lambda: f.emit("COPY", self.cell))
        for position, argument in enumerate(arguments[: len(callee.params)], 1):
            argument()
            if position == held:
                f.emit("CLOSURE", callee, held)
        f.emit("SPAWN_CLOSURE", len(callee.params) - held, 2)

    def keep(self) -> None:
        """Push a tensor that nobody writes."""
        if self.kept:
            self.f.emit("COPY", self.random.choice(self.kept))
        else:
            self.f.emit("COPY", self.random.choice(self.readable)), self.f.emit("OWN")

    def join(self) -> None:
        """Push a list: another one, or none, with a tensor in front."""
        f = self.f
        f.emit("COPY", self.random.choice(self.kept))
        slot, length = self.random.choice([(-1, 0), *self.lists])
        if slot < 0:
            f.emit("CONSTRUCT", 0, 0)
        else:
            f.emit("COPY", slot)
        f.emit("CONSTRUCT", 1, 2)
        self.lists.append((f.depth - 1, length + 1))

    def first(self) -> None:
        """Push the first tensor of a list."""
        slot, _ = self.random.choice([x for x in self.lists if x[1]])
        self.f.emit("COPY", slot), self.f.emit("FIELD", 0)
        self.readable.append(self.f.depth - 1)
        self.kept.append(self.f.depth - 1)

    def rest(self) -> None:
        """Push what follows the first tensor of a list."""
        slot, length = self.random.choice([x for x in self.lists if x[1]])
        self.f.emit("COPY", slot), self.f.emit("FIELD", 1)
        self.lists.append((self.f.depth - 1, length - 1))

    def write_cell(self) -> None:
        self.f.emit("COPY", self.cell)
        self.number()
        self.f.emit("CELL_WRITE")

    def read_cell(self) -> None:
        """Push what the cell holds."""
        self.f.emit("COPY", self.cell), self.f.emit("CELL_READ")
        self.integers.append(self.f.depth - 1)

    def branch(self) -> None:
        """Do something, or not."""
        f = self.f
        end = f.label()
        f.emit("COPY", self.random.choice(self.integers)), f.emit("INT", 3), f.emit("MOD")
        f.emit("JUMP_IF_FALSE", end)
        self.random.choice([self.invoke, self.assign])()
        f.place(end)

    def total(self) -> int:
        """Push the sum of all integers; return its slot."""
        self.f.emit("INT", 0)
        for slot in self.integers:
            self.f.emit("COPY", slot), self.f.emit("ADD")
        return self.f.depth - 1
