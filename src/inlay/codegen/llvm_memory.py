"""Buffers in emitted code: addresses, vector loads and stores, and buffers that live in registers.

**Memory.** An element's address is the buffer's pointer, plus index parts from the outermost loop
inward (each partial pointer is computed where it changes), plus a constant. A vector access is

    stride 0    one scalar
    stride 1    one vector load or store, masked where lanes are off
    near        a few vector loads that stay inside the touched range, and shuffles
    in a window vector loads across, of what all steps of a loop need, and a transposition
    otherwise   a gather or scatter

**Registers.** A `REGISTER` buffer is cut into *cells*, vectors as wide as the vector loops that
access it, and each cell is an SSA value: stores replace it, loops carry it, branches merge it.
No memory, no promotion pass. This needs indices that are numbers when code is emitted; a buffer
with other indices gets an allocation on the stack instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

from inlay.arith.dtype import DType
from inlay.arith.expr import Int, Sym, coefficient
from inlay.base.diagnostics import InternalError
from inlay.codegen.llvm_builder import Builder, Carried
from inlay.codegen.llvm_index import LANE, IndexEmitter, Linear, Split, constant_of, number
from inlay.codegen.llvm_ops import Operations
from inlay.codegen.llvm_prefetch import LINE, Ahead, moved
from inlay.codegen.llvm_transpose import transposed
from inlay.codegen.llvm_types import Value, memory_element, register_type, suffix, vector
from inlay.loop.buffer import Buffer, flat_index
from inlay.loop.scalar import Load
from inlay.machine.target import MASKED_BYTES

MAX_SHUFFLED_LOADS = 4
"""Contiguous loads that are worth it in place of a gather."""


@dataclass(frozen=True, slots=True)
class Window:
    """Which step of a loop is written that loads neighbors, each in lanes that are far apart.

    Attributes:
        var: of the loop.
        step: from 0.
        count: of all steps, a power of two.
    """

    var: Sym
    step: int
    count: int


@dataclass(slots=True)
class Registers:
    """A buffer in registers: cells of `width` elements (0: scalars); None = undefined so far."""

    dtype: DType
    width: int
    cells: list[str | None]

    @property
    def type(self) -> str:
        """The LLVM type of a cell."""
        return register_type(self.dtype, self.width)


class Memory:
    """Loads and stores of the buffers in scope."""

    def __init__(self, builder: Builder, index: IndexEmitter, ops: Operations) -> None:
        self.builder = builder
        self.index = index
        self.ops = ops
        self.pointers: dict[Buffer, str] = {}
        self.registers: dict[Buffer, Registers] = {}
        self.window: Window | None = None
        self.prefetch: dict[str, Ahead] = {}
        self._version: dict[Buffer, int] = {}
        self._flat: dict[tuple[Buffer, tuple[Int, ...]], Int] = {}
        self.needs_zero = False

    # ------------------------------------------------------------------ buffers

    def add_pointer(self, buffer: Buffer, pointer: str) -> None:
        """Note where a buffer is in memory."""
        self.pointers[buffer] = pointer

    def add_stack(self, buffer: Buffer) -> None:
        """Give a buffer bytes in the frame of the function."""
        total = prod(self._extent(buffer, e) for e in buffer.shape)
        element = memory_element(buffer.dtype)
        self.pointers[buffer] = self.builder.alloca(f"[{max(total, 1)} x {element}], align 64")

    def add_registers(self, buffer: Buffer, width: int) -> None:
        """Keep a buffer in cells of so many elements."""
        total = prod(self._extent(buffer, e) for e in buffer.shape)
        count = -(-total // max(width, 1))
        self.registers[buffer] = Registers(buffer.dtype, width, [None] * count)

    def _extent(self, buffer: Buffer, extent: Int) -> int:
        value = constant_of(self.index.linear(extent))
        if value is None:
            raise InternalError(
                f"buffer {buffer.name} of scope {buffer.scope} has the extent {extent}, which is no number",
                where="codegen.llvm",
            )
        return value

    def flat(self, buffer: Buffer, indices: tuple[Int, ...]) -> Int:
        """Return the distance of an element from the start, in elements."""
        key = (buffer, indices)
        found = self._flat.get(key)
        if found is None:
            found = self._flat[key] = flat_index(buffer, indices)
        return found

    def changed(self, buffers: Iterable[Buffer]) -> None:
        """Forget what was loaded from buffers: they are about to be written."""
        for b in buffers:
            self._version[b] = self._version.get(b, 0) + 1

    def version(self, buffer: Buffer) -> int:
        """Return a number that differs whenever the buffer may have been written in between."""
        return self._version.get(buffer, 0)

    def address(self, buffer: Buffer, flat: Int) -> str:
        """Return the address of an element of a buffer in memory, by its distance from the start."""
        return self._address(buffer, self.index.split(self.index.linear(flat)))

    def is_wide(self, buffer: Buffer, indices: tuple[Int, ...]) -> bool:
        """Whether an access differs by lane."""
        return self.index.is_vector(self.index.linear(self.flat(buffer, indices)))

    # ------------------------------------------------------------------ access

    def load(self, buffer: Buffer, indices: tuple[Int, ...], mask: Value | None) -> Value:
        """Return an element, or a vector of them where the index differs by lane."""
        where = self.index.split(self.index.linear(self.flat(buffer, indices)))
        if buffer in self.registers:
            return self._read_cell(buffer, where)
        version = self._version.get(buffer, 0)
        dtype = buffer.dtype
        element = memory_element(dtype)
        lanes = self.index.width
        match where.stride:
            case 0:
                pointer = self._address(buffer, where)
                if mask is not None:
                    pointer = self._safe_pointer(pointer, mask)
                text = f"load {element}, ptr {pointer}, align {dtype.itemsize}"
                return self.ops.from_memory(self.builder.load(text, version), dtype, 0)
            case 1:
                pointer = self._address(buffer, where)
                text = self._contiguous(vector(element, lanes), pointer, dtype, mask)
                size = lanes * dtype.itemsize
                bits = self._loaded(text, version, buffer, pointer, size, where.constant)
            case _ if (near := self._near(where, dtype, mask)) is not None:
                bits = self._shuffled(buffer, where, near, version, mask)
            case int() if mask is None and (window := self._window(buffer, indices)) is not None:
                bits = self._column(buffer, where, window, version)
            case _:
                pointers = self._addresses(buffer, where)
                on = self._mask_text(mask)
                text = (
                    f"call {vector(element, lanes)} @llvm.masked.gather.{suffix(element, lanes)}"
                    f".v{lanes}p0(<{lanes} x ptr> align {dtype.itemsize} {pointers}, {on}, "
                    f"{vector(element, lanes)} zeroinitializer)"
                )
                bits = self.builder.load(text, version)
        return self.ops.from_memory(bits, dtype, lanes)

    def _contiguous(self, type: str, pointer: str, dtype: DType, mask: Value | None) -> str:
        if mask is None:
            return f"load {type}, ptr {pointer}, align {dtype.itemsize}"
        name = f"llvm.masked.load.{suffix(memory_element(dtype), self.index.width)}.p0"
        return (
            f"call {type} @{name}(ptr align {dtype.itemsize} {pointer}, "
            f"{self._mask_text(mask)}, {type} zeroinitializer)"
        )

    def group(self, buffer: Buffer, indices: tuple[Int, ...], sym: Sym, count: int) -> Split | None:
        """Return where a few elements next to each other are, for each lane.

        Args:
            buffer: in memory.
            indices: over `sym`, the number of an element.
            sym: 0 to `count` - 1.
            count: elements for each lane.

        Returns:
            None if they are not next to each other, or those of neighboring lanes neither the same nor
            next to each other.
        """
        flat = self.flat(buffer, indices)
        if buffer in self.registers or coefficient(flat, sym) != 1:
            return None
        self.index.env[sym] = number(0)
        where = self.index.split(self.index.linear(flat))
        return where if where.stride in (0, count) else None

    def load_group(self, load: Load, where: Split, count: int, lanes: range, mask: Value | None) -> str:
        """Return the elements of `group` of some lanes; if all have the same ones, as one integer."""
        buffer = load.buffer
        element, size = memory_element(buffer.dtype), buffer.dtype.itemsize
        version = self._version.get(buffer, 0)
        if where.stride == 0:
            pointer = self._address(buffer, where)
            if mask is not None:
                pointer = self._safe_pointer(pointer, mask)
            return self.builder.load(f"load i{8 * size * count}, ptr {pointer}, align {size}", version)
        total = len(lanes) * count
        pointer = self._address(buffer, replace(where, constant=where.constant + lanes.start * count))
        type = vector(element, total)
        if mask is not None and self._has_all_lanes(buffer, load.indices, count):
            # Some processors mask no bytes. Where no lane is wanted, the other indices may be anything.
            on, base = self.ops.any_lane(mask), self._base(buffer)
            pointer = self.builder.pure(
                f"select i1 {on.text}, ptr {pointer}, ptr {base}", (on.text, pointer, base)
            )
            mask = None
        if mask is None:
            text = f"load {type}, ptr {pointer}, align {size}"
        else:
            all_lanes = self.ops.widen(mask, self.index.width)
            chosen = ", ".join(f"i32 {lane}" for lane in lanes for _ in range(count))
            on = self.builder.pure(
                f"shufflevector {all_lanes.typed}, {all_lanes.type} poison, <{total} x i32> <{chosen}>",
                (all_lanes.text,),
            )
            text = (
                f"call {type} @llvm.masked.load.{suffix(element, total)}.p0(ptr align {size} {pointer}, "
                f"<{total} x i1> {on}, {type} zeroinitializer)"
            )
        return self._loaded(text, version, buffer, pointer, total * size)

    def _loaded(self, text: str, version: int, buffer: Buffer, pointer: str, size: int, at: int = 0) -> str:
        """Return the value of a load, and ask for what is next: once, where it is loaded already."""
        before = self.builder.position
        bits = self.builder.load(text, version)
        if self.builder.position != before:
            self.emit_prefetch(buffer, pointer, size, at)
        return bits

    def _has_all_lanes(self, buffer: Buffer, indices: tuple[Int, ...], count: int) -> bool:
        """Whether a buffer has groups for all lanes wherever it has one for any: panels have."""
        shape = [constant_of(self.index.linear(e)) or 0 for e in buffer.shape]
        if buffer.strides is not None or len(shape) < 2 or 0 in shape or shape[-1] != count:
            return False
        lane = self.index.split(self.index.linear(indices[-2]))
        known = lane.stride == 1 and not lane.scalar and lane.constant >= 0
        return known and lane.constant + self.index.width <= shape[-2]

    def store(self, buffer: Buffer, indices: tuple[Int, ...], value: Value, mask: Value | None) -> None:
        """Write an element, or a vector of them where index or value differs by lane."""
        where = self.index.split(self.index.linear(self.flat(buffer, indices)))
        if value.dtype != buffer.dtype:
            value = self.ops.cast(value, buffer.dtype)
        if buffer in self.registers:
            self._write_cell(buffer, where, value, mask)
            return
        self.changed((buffer,))
        lanes = self.index.width
        size = buffer.dtype.itemsize
        if where.stride == 0:
            self._store_uniform(buffer, where, value, mask)
            return
        value = self.ops.widen(value, lanes)
        bits = self.ops.to_memory(value)
        element = memory_element(buffer.dtype)
        typed = f"{vector(element, lanes)} {bits}"
        if where.stride == 1:
            pointer = self._address(buffer, where)
            if mask is None:
                self.builder.line(f"store {typed}, ptr {pointer}, align {size}")
                return
            # A narrowing in front would join the store. Where one lane is on, LLVM 22 then writes all bits of
            # the wide number, beyond the element.
            kept = self.builder.define(f"freeze {typed}")
            typed = f"{vector(element, lanes)} {kept}"
            name = f"llvm.masked.store.{suffix(element, lanes)}.p0"
            self.builder.line(
                f"call void @{name}({typed}, ptr align {size} {pointer}, {self._mask_text(mask)})"
            )
            return
        pointers = self._addresses(buffer, where)
        name = f"llvm.masked.scatter.{suffix(element, lanes)}.v{lanes}p0"
        self.builder.line(
            f"call void @{name}({typed}, <{lanes} x ptr> align {size} {pointers}, {self._mask_text(mask)})"
        )

    def _store_uniform(self, buffer: Buffer, where: Split, value: Value, mask: Value | None) -> None:
        """All lanes write one place: the last one wanted wins, as in the serial loop."""
        pointer = self._address(buffer, where)
        element, size = memory_element(buffer.dtype), buffer.dtype.itemsize
        if mask is None or not mask.lanes:
            if value.lanes:
                value = self.ops.extract(value, value.lanes - 1)
            if mask is None:
                bits = self.ops.to_memory(value)
                self.builder.line(f"store {element} {bits}, ptr {pointer}, align {size}")
                return
            mask = self.ops.widen(mask, max(self.index.width, 1))
        value = self.ops.widen(value, mask.lanes)
        for lane in range(mask.lanes):
            on, one = self.ops.extract(mask, lane), self.ops.extract(value, lane)

            def write(one: Value = one) -> list[Carried]:
                bits = self.ops.to_memory(one)
                self.builder.line(f"store {element} {bits}, ptr {pointer}, align {size}")
                return []

            self.builder.branch(on.text, write, list)

    # ------------------------------------------------------------------ addresses

    def _address(self, buffer: Buffer, where: Split) -> str:
        """Return the address of the first lane."""
        emit = self.builder
        size = buffer.dtype.itemsize
        pointer = self._base(buffer)
        by_depth: dict[int, Linear] = {}
        for product, c in where.scalar.items():
            depth = emit.depth_of_all(product)
            by_depth.setdefault(depth, {})[product] = c * size
        for depth in sorted(by_depth):
            offset = self.index.scalar(by_depth[depth])
            text = f"getelementptr i8, ptr {pointer}, i64 {offset}"
            pointer = emit.pure(text, (pointer, offset), cheap=True)
        if where.constant:
            text = f"getelementptr i8, ptr {pointer}, i64 {where.constant * size}"
            pointer = emit.pure(text, (pointer,), cheap=True)
        return pointer

    def _base(self, buffer: Buffer) -> str:
        pointer = self.pointers.get(buffer)
        if pointer is None:
            raise InternalError(f"buffer {buffer.name} is not in scope", where="codegen.llvm")
        return pointer

    def _addresses(self, buffer: Buffer, where: Split) -> str:
        """Return a vector of addresses."""
        lanes = self.index.width
        base = self._address(buffer, where)
        varying = where.lanes if where.stride is None else {(LANE,): where.stride}
        scaled = {p: c * buffer.dtype.itemsize for p, c in varying.items()}
        offsets = self.index.lanes(scaled)
        text = f"getelementptr i8, ptr {base}, <{lanes} x i64> {offsets}"
        return self.builder.pure(text, (base, offsets), cheap=True)

    def _safe_pointer(self, pointer: str, mask: Value) -> str:
        """Return an address that may be read whatever the mask: a zero where no lane is on."""
        on = self.ops.any_lane(mask)
        self.needs_zero = True
        return self.builder.pure(f"select i1 {on.text}, ptr {pointer}, ptr @inlay.zero", (on.text, pointer))

    def _mask_text(self, mask: Value | None) -> str:
        lanes = self.index.width
        if mask is None:
            return f"<{lanes} x i1> splat (i1 true)"
        return self.ops.widen(mask, lanes).typed

    def _near(self, where: Split, dtype: DType, mask: Value | None) -> tuple[int, ...] | None:
        """Return the distances of the lanes if a few contiguous loads cover all of them.

        Under a mask only of elements that processors leave out one by one, each of which one lane reads.
        """
        distances = self.index.distances(where)
        if distances is None or self.index.width <= MAX_SHUFFLED_LOADS:
            return None
        if mask is not None and (dtype.itemsize < MASKED_BYTES or len({*distances}) < len(distances)):
            return None
        span = max(distances) - min(distances) + 1
        return distances if span <= MAX_SHUFFLED_LOADS * self.index.width else None

    def _shuffled(
        self, buffer: Buffer, where: Split, distances: Sequence[int], version: int, mask: Value | None
    ) -> str:
        """Load elements at known distances with contiguous loads inside the touched range.

        Load j covers elements from j*lanes on; the last one is moved back to end with the range. A
        range that is shorter than a vector is loaded as a shorter one, or under a mask. Where lanes are off,
        each load has the mask of the lanes that read it.
        """
        emit, lanes = self.builder, self.index.width
        element, size = memory_element(buffer.dtype), buffer.dtype.itemsize
        type, low = vector(element, lanes), min(distances)
        span = max(distances) - low + 1
        if mask is None and span < lanes and (size < MASKED_BYTES or span & (span - 1) == 0):
            pointer = self._address(buffer, Split(where.constant + low, where.scalar, 1, {}))
            short, chosen = vector(element, span), ", ".join(f"i32 {d - low}" for d in distances)
            loaded = emit.load(f"load {short}, ptr {pointer}, align {size}", version)
            text = f"shufflevector {short} {loaded}, {short} poison, <{lanes} x i32> <{chosen}>"
            return emit.pure(text, (loaded,))
        starts = [*range(0, span - lanes, lanes), max(0, span - lanes)]
        result = ""
        for start in starts:
            at = Split(where.constant + low + start, where.scalar, 1, {})
            pointer = self._address(buffer, at)
            if mask is None and span >= lanes:
                text = f"load {type}, ptr {pointer}, align {size}"
            else:
                read = {distance - low - start: lane for lane, distance in enumerate(distances)}
                on = self._mask_of([read.get(place) for place in range(lanes)], mask)
                text = (
                    f"call {type} @llvm.masked.load.{suffix(element, lanes)}.p0(ptr align {size} "
                    f"{pointer}, <{lanes} x i1> {on}, {type} zeroinitializer)"
                )
            loaded = emit.load(text, version)
            wanted: list[str] = []
            for lane, distance in enumerate(distances):
                place = distance - low - start
                if 0 <= place < lanes:
                    wanted.append(f"i32 {place if not result else lanes + place}")
                else:
                    wanted.append(f"i32 {lane}" if result else "i32 poison")
            a, b = (result, loaded) if result else (loaded, "poison")
            text = f"shufflevector {type} {a}, {type} {b}, <{lanes} x i32> <{', '.join(wanted)}>"
            result = emit.pure(text, (a, b))
        return result

    def _mask_of(self, readers: Sequence[int | None], mask: Value | None) -> str:
        """Return which elements of a load are read, by the lane that reads each, if one does."""
        lanes = self.index.width
        if mask is None:
            on = ", ".join(f"i1 {'false' if lane is None else 'true'}" for lane in readers)
            return f"<{on}>"
        all_lanes = self.ops.widen(mask, lanes)
        chosen = ", ".join(f"i32 {lanes if lane is None else lane}" for lane in readers)
        type = vector("i1", lanes)
        text = f"shufflevector {all_lanes.typed}, {type} zeroinitializer, <{lanes} x i32> <{chosen}>"
        return self.builder.pure(text, (all_lanes.text,))

    def _window(self, buffer: Buffer, indices: tuple[Int, ...]) -> Window | None:
        """Return the window that an access is in, if each step of it is the next element of every lane."""
        w = self.window
        if w is None or self.index.width % w.count or coefficient(self.flat(buffer, indices), w.var) != 1:
            return None
        return w

    def _column(self, buffer: Buffer, where: Split, window: Window, version: int) -> str:
        """Load what all steps of a window need, row by row, and return a step: others find it all done."""
        element, size = memory_element(buffer.dtype), buffer.dtype.itemsize

        def row(k: int) -> str:
            at = where.constant - window.step + k * (where.stride or 0)
            pointer = self._address(buffer, Split(at, where.scalar, 1, {}))
            return self.builder.load(
                f"load {vector(element, window.count)}, ptr {pointer}, align {size}", version
            )

        return transposed(self.builder, [row(k) for k in range(self.index.width)], element, window.count)[
            window.step
        ]

    def emit_prefetch(self, buffer: Buffer, pointer: str, size: int, at: int = 0) -> None:
        """Write the prefetches that a loop's notes ask for, one per cache line.

        Args:
            buffer: what is loaded from.
            pointer: where.
            size: bytes that are loaded.
            at: of the place of the first element, the number that is known.
        """
        ahead = self.prefetch.get(buffer.name)
        if ahead is None:
            return
        first, end = ahead.distance, ahead.distance + size
        if ahead.lines is not None:
            row = constant_of(self.index.linear(buffer.shape[-1]))
            if row is None or at % row:
                return
            end = first + LINE * ahead.lines
            steps = moved(ahead, self.index)
            offset = self.index.value(steps)
            pointer = self.builder.pure(f"getelementptr i8, ptr {pointer}, i64 {offset}", (pointer, offset))
        for distance in range(first, end, LINE):
            text = f"getelementptr i8, ptr {pointer}, i64 {distance}"
            there = self.builder.pure(text, (pointer,), cheap=True)
            self.builder.line(f"call void @llvm.prefetch.p0(ptr {there}, i32 0, i32 2, i32 1)")

    # ------------------------------------------------------------------ registers

    def _cell(self, buffer: Buffer, where: Split) -> tuple[Registers, int, int]:
        """Return the cells of a buffer and cell number and offset of an access."""
        registers = self.registers[buffer]
        if where.scalar or where.lanes or where.stride not in (0, 1):
            raise InternalError(
                f"register buffer {buffer.name} is accessed at an index that is no number",
                where="codegen.llvm",
            )
        width = max(registers.width, 1)
        cell, offset = divmod(where.constant, width)
        crosses = where.stride != 0 and offset + self.index.width > width
        if not 0 <= cell < len(registers.cells) or crosses:
            raise InternalError(
                f"register buffer {buffer.name} is accessed at element {where.constant} with "
                f"stride {where.stride} and cells of {width}",
                where="codegen.llvm",
            )
        return registers, cell, offset

    def _read_cell(self, buffer: Buffer, where: Split) -> Value:
        registers, cell, offset = self._cell(buffer, where)
        text = registers.cells[cell]
        value = Value(text if text is not None else "poison", buffer.dtype, registers.width)
        if not registers.width:
            return value
        return (
            self.ops.part(value, offset, self.index.width)
            if where.stride == 1
            else self.ops.extract(value, offset)
        )

    def _write_cell(self, buffer: Buffer, where: Split, value: Value, mask: Value | None) -> None:
        registers, cell, offset = self._cell(buffer, where)
        old = registers.cells[cell]
        before = Value(old if old is not None else "poison", buffer.dtype, registers.width)
        if where.stride == 1:
            value = self.ops.widen(value, registers.width)
            if mask is not None:
                value = self.ops.select(mask, value, before)
            registers.cells[cell] = value.text
            return
        if value.lanes:
            if mask is not None:
                raise InternalError(f"all lanes of a masked loop write one element of register {buffer.name}")
            value = self.ops.extract(value, value.lanes - 1)
        if registers.width:
            element = self.ops.extract(before, offset)
        else:
            element = before
        if mask is not None:
            value = self.ops.select(self.ops.any_lane(mask), value, element)
        if registers.width:
            value = self.ops.insert(before, value, offset)
        registers.cells[cell] = value.text

    def carried(self, buffers: Iterable[Buffer]) -> list[tuple[Registers, int]]:
        """Return the cells that stores to these buffers may change."""
        found = [self.registers[b] for b in buffers if b in self.registers]
        return [(r, i) for r in found for i in range(len(r.cells))]


def carried_values(cells: Iterable[tuple[Registers, int]]) -> list[Carried]:
    """Return the present values of cells, undefined ones as poison."""
    out: list[Carried] = []
    for registers, i in cells:
        value = registers.cells[i]
        out.append(Carried(registers.type, "poison" if value is None else value))
    return out


def set_cells(cells: Iterable[tuple[Registers, int]], values: Iterable[str]) -> None:
    """Replace the values of cells."""
    for (registers, i), value in zip(cells, values, strict=True):
        registers.cells[i] = None if value == "poison" else value
