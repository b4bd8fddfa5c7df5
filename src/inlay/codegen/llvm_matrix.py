"""Matrix units: sums in tile registers, where the machine has an instruction for them.

A buffer of scope `MATRIX` is cut into tiles of the rows and columns of the nests that touch it, each in a
register of its own while the buffer lives. What is left of the registers takes turns to hold the factors; a
factor that is still in one is not loaded again. Registers are configured for the shapes of a buffer, once
for as many neighbors as have the same, because that takes as long as ten products.

A buffer that does not fit, or that something else touches, is in memory and its loops run as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from inlay.arith.expr import symbols
from inlay.codegen.llvm_builder import Builder
from inlay.codegen.llvm_index import IndexEmitter, constant_of
from inlay.codegen.llvm_memory import Memory
from inlay.codegen.llvm_ops import Operations
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.matrices import (
    MatrixAdd,
    MatrixCopy,
    MatrixNest,
    MatrixZero,
    Operand,
    match_matrix,
    matrix_loops,
)
from inlay.loop.stmt import Alloc, For, LoopKind, Stmt, Store
from inlay.loop.walk import child_stmts, loads_of, stmts_below, stores_of
from inlay.machine.matrix_units import MatrixInstruction, matrix_instructions
from inlay.machine.target import Target

_BYTES = 64
"""Of a configuration, and of a row of a tile at most."""


@dataclass(frozen=True, slots=True)
class TileShapes:
    """How registers are configured.

    Attributes:
        rows, columns: of sums.
        steps, width: of the factors; no steps where no product is added.
        sums: registers that hold sums.
        firsts: registers that hold first factors; the others hold second ones.
        registers: of the unit.
    """

    rows: int
    columns: int
    steps: int
    width: int
    sums: int
    firsts: int
    registers: int

    def text(self) -> str:
        """Return the bytes that say so to the unit, as LLVM writes them."""
        data = bytearray(_BYTES)
        data[0] = 1
        for i in range(self.registers):
            rows, columns = self.rows, 4 * self.columns
            if self.sums <= i < self.sums + self.firsts:
                columns = self.steps * self.width
            elif i >= self.sums + self.firsts:
                rows, columns = self.steps, self.columns * self.width
            data[16 + 2 * i] = columns
            data[48 + i] = rows
        return "".join(f"\\{byte:02X}" for byte in data)


@dataclass(slots=True)
class _Turns:
    """Registers that hold one factor after another, the oldest given first."""

    registers: list[int]
    held: dict[tuple[str, ...], int] = field(default_factory=dict[tuple[str, ...], int])


class MatrixEmitter:
    """Writes matrix nests as instructions.

    Attributes:
        configurations: shapes that the function configures registers for, in order of first use.
    """

    def __init__(
        self, builder: Builder, index: IndexEmitter, ops: Operations, memory: Memory, target: Target
    ) -> None:
        self._builder = builder
        self._index = index
        self._ops = ops
        self._memory = memory
        self._instructions = matrix_instructions(target.arch, target.features)
        self._shapes: dict[Alloc, TileShapes | None] = {}
        self._tiles: dict[Buffer, dict[int, int]] = {}
        self._present: TileShapes | None = None
        self._live: TileShapes | None = None
        self._turns: tuple[_Turns, _Turns] = (_Turns([]), _Turns([]))
        self._place: tuple[int, str] | None = None
        self.configurations: list[TileShapes] = []

    # ------------------------------------------------------------------ registers

    def shapes_of(self, s: Alloc) -> TileShapes | None:
        """Return how registers hold a buffer; None if they do not."""
        if s not in self._shapes:
            fits = bool(self._instructions) and s.buffer.scope == Scope.MATRIX
            self._shapes[s] = _shapes(s, self._instructions) if fits else None
        return self._shapes[s]

    def prepare(self, s: Stmt) -> None:
        """Configure registers in front of a statement, if all in it want the same."""
        wanted = self._wanted(s)
        if len(wanted) == 1:
            self._configure(wanted.pop())
        elif wanted:
            self._present = None

    def leave(self, s: Stmt) -> None:
        """Forget how registers are configured, behind a statement that does it in several ways."""
        if len(self._wanted(s)) > 1:
            self._present = None

    def _wanted(self, s: Stmt) -> set[TileShapes]:
        if not self._instructions:
            return set()
        found = (self.shapes_of(x) for x in stmts_below(s) if isinstance(x, Alloc))
        return {x for x in found if x is not None}

    def _configure(self, shapes: TileShapes) -> None:
        if self._present == shapes:
            return
        if shapes not in self.configurations:
            self.configurations.append(shapes)
        self._call("ldtilecfg", f"ptr @{configuration_name(shapes)}")
        self._present = shapes

    def add(self, buffer: Buffer, shapes: TileShapes) -> None:
        """Keep a buffer in registers; `prepare` has been called."""
        sums = shapes.sums
        self._tiles[buffer] = {}
        self._live = shapes
        self._turns = (
            _Turns(list(range(sums, sums + shapes.firsts))),
            _Turns(list(range(sums + shapes.firsts, shapes.registers))),
        )

    # ------------------------------------------------------------------ instructions

    def nest(self, s: For) -> bool:
        """Write a matrix nest; False if its sums are in memory."""
        loops, store = matrix_loops(s)
        if not isinstance(store, Store):
            return False
        found = match_matrix(loops, store)
        if isinstance(found, str) or found.sums.buffer not in self._tiles:
            return False
        tile = self._tile(found.sums)
        match found:
            case MatrixZero():
                self._call("tilezero", f"i8 {tile}")
            case MatrixAdd():
                first, second = (self._factor(x, i) for i, x in enumerate((found.a, found.b)))
                name = self._instruction(found).intrinsic
                self._call(name.partition(".")[2], f"i8 {tile}, i8 {first}, i8 {second}")
            case MatrixCopy():
                self._memory.changed((found.to.buffer,))
                self._call("tilestored64", f"i8 {tile}, {self._address(found.to)}")
        return True

    def _instruction(self, x: MatrixAdd) -> MatrixInstruction:
        found = _instruction_for(x, self._instructions)
        assert found is not None, "asked when the buffer was given registers"
        return found

    def _tile(self, sums: Operand) -> int:
        """Return the register of some sums: the next one where they have none yet."""
        at = constant_of(self._index.linear(sums.start))
        assert at is not None, "sums in registers are at numbers"
        tiles = self._tiles[sums.buffer]
        return tiles.setdefault(at, len(tiles))

    def _factor(self, x: Operand, side: int) -> int:
        """Return the register that holds a factor, after loading it there if it has to be."""
        turns, shapes = self._turns[side], self._live
        assert shapes is not None, "a buffer has registers"
        region = self._builder.regions[-1]
        if self._place != (id(region), region.label):
            for each in self._turns:
                each.held.clear()
            self._place = (id(region), region.label)
        where = self._address(x)
        key = (where, str(self._memory.version(x.buffer)))
        register = turns.held.pop(key, None)
        if register is None:
            register = turns.registers.pop(0)
            for old in [k for k, r in turns.held.items() if r == register]:
                del turns.held[old]
            self._call("tileloadd64", f"i8 {register}, {where}")
            if side == 1 and x.pitch == shapes.columns * shapes.width:
                size = shapes.steps * shapes.columns * shapes.width
                self._memory.emit_prefetch(x.buffer, self._memory.address(x.buffer, x.start), size)
        else:
            turns.registers.remove(register)
        turns.registers.append(register)
        turns.held[key] = register
        return register

    def _address(self, x: Operand) -> str:
        """Return the arguments that say where a matrix is in memory."""
        pointer = self._memory.address(x.buffer, x.start)
        pitch = self._index.linear(x.pitch * x.buffer.dtype.itemsize)
        return f"ptr {pointer}, i64 {self._index.value(pitch)}"

    def _call(self, name: str, arguments: str) -> None:
        types = ", ".join(x.split()[0] for x in arguments.split(", "))
        self._ops.declared.add(f"declare void @llvm.x86.{name}({types})")
        self._builder.line(f"call void @llvm.x86.{name}({arguments})")


def configuration_name(shapes: TileShapes) -> str:
    """Return the symbol of a configuration."""
    s = shapes
    return f"inlay.tiles.{s.rows}.{s.columns}.{s.steps}.{s.width}.{s.sums}.{s.firsts}"


def configuration_text(shapes: TileShapes) -> str:
    """Return the definition of a configuration."""
    head = f"@{configuration_name(shapes)} = private unnamed_addr constant"
    return f'{head} [{_BYTES} x i8] c"{shapes.text()}", align {_BYTES}\n'


# ---------------------------------------------------------------------- facts about statements


def _shapes(s: Alloc, instructions: tuple[MatrixInstruction, ...]) -> TileShapes | None:
    """Return how registers hold the buffer of an allocation, if they can."""
    b = s.buffer
    nests = list(_nests(s.body, b))
    touched = sum(x.buffer is b for x in stores_of(s.body)) + sum(x.buffer is b for x in loads_of(s.body))
    if touched != sum(1 + isinstance(x, MatrixAdd) for x in nests) or any(
        _has_own(x, s) for x in stmts_below(s.body)
    ):
        return None
    written_out = {x.var for x in stmts_below(s.body) if isinstance(x, For) and _is_written_out(x)}
    additions = [x for x in nests if isinstance(x, MatrixAdd)]
    sizes = {(x.rows, x.columns) for x in nests}
    steps = {(x.steps, x.width) for x in additions}
    if len(sizes) != 1 or len(steps) != 1:
        return None
    if any(not written_out.issuperset(symbols(x.sums.start)) for x in nests):
        return None
    if any(_instruction_for(x, instructions) is None for x in additions):
        return None
    [(rows, columns)], [(count, width)] = sizes, steps
    total = 1
    for extent in b.shape:
        total *= extent.value or 0
    kind = instructions[0].kind
    sums = total // (rows * columns)
    if (
        total % (rows * columns)
        or not 1 <= sums <= kind.registers - 2
        or rows > kind.rows
        or columns > kind.columns
    ):
        return None
    # Half of the registers, even where fewer would do: so that neighbors differ in their shapes alone.
    held = max(sums, kind.registers // 2)
    return TileShapes(rows, columns, count, width, held, (kind.registers - held) // 2, kind.registers)


def _has_own(x: Stmt, s: Alloc) -> bool:
    return isinstance(x, Alloc) and x is not s and x.buffer.scope == Scope.MATRIX


def _is_written_out(s: For) -> bool:
    return s.kind is LoopKind.UNROLL or s.extent == 1


def _nests(s: Stmt, b: Buffer) -> Iterator[MatrixNest]:
    """Yield the matrix nests in a statement that touch a buffer."""
    loops, inner = matrix_loops(s)
    if loops and isinstance(inner, Store):
        found = match_matrix(loops, inner)
        if not isinstance(found, str) and found.sums.buffer is b:
            yield found
        return
    for child in child_stmts(s):
        yield from _nests(child, b)


def _instruction_for(x: MatrixAdd, instructions: tuple[MatrixInstruction, ...]) -> MatrixInstruction | None:
    for found in instructions:
        kind = found.kind
        formats = (x.a.buffer.dtype, x.b.buffer.dtype)
        if formats == (kind.first, kind.second) and x.width == kind.width and x.steps <= kind.steps:
            return found
    return None
