"""Operands in the memories of a device: which elements are a unit, and where units stand.

The last axes of an operand of an instruction are one unit of its memory. What a tensor has of these loops is
divided into blocks; its other indices stay, so a tensor is a dense array of units:

    x[n, c, h, w] with a unit of 16 along c        units[n, c / 16, h, w] of 16 bytes
    w[k, c, r, s] with a unit of 16 c by 16 k      units[k / 16, c / 16, r, s] of 256 bytes

Blocks that are not full are filled with zeros. In the memory of the board tensors stand as such arrays; a
tile is a part of one, dense in the memory of the device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from inlay.accel.accelerator import Architecture
from inlay.accel.declare import Access, Memory, Size
from inlay.accel.nest import formats
from inlay.accel.stages import Loop, Untiled, Value
from inlay.accel.unify import Bound, Unified
from inlay.arith.dtype import DType
from inlay.arith.expr import Int, Sym, coefficient, symbols
from inlay.runtime.streams import Blocks


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of an array of units.

    Attributes:
        terms: loops (of blocks, where they are divided) with the steps that each makes.
        first: the index where all loops are 0.
        extent: units.
    """

    terms: tuple[tuple[Sym, int], ...]
    first: int
    extent: int

    def reach(self, counts: Mapping[Sym, int]) -> int:
        """Return how many units loops of some length go through."""
        return 1 + sum(step * (counts[s] - 1) for s, step in self.terms)


@dataclass(frozen=True, slots=True)
class FieldLayout:
    """A field of a record, or all that an operand is.

    Attributes:
        value: whose elements these are; None for lanes that hold nothing.
        dtype: of elements.
        lanes: for each axis of a unit its length, and the axis of the value that it divides; -1 where the
            value is the same along it.
        single: for values that are one lane each: lane and value.
    """

    value: Value | None
    dtype: DType
    lanes: tuple[tuple[int, int], ...]
    single: tuple[tuple[int, Value], ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes in a unit."""
        return int(np.prod([n for n, _ in self.lanes], dtype=np.int64)) * self.dtype.numpy.itemsize


@dataclass(frozen=True, slots=True, eq=False)
class Laid:
    """An operand of an instruction as an array of units.

    Attributes:
        name: of the operand.
        memory: of the device.
        unit: bytes.
        axes: of the array.
        fields: what a unit holds, in order.
        outside: what is around it; None for nothing.
        access: of the instruction.
        loops: that it depends on.
    """

    name: str
    memory: str
    unit: int
    axes: tuple[Axis, ...]
    fields: tuple[FieldLayout, ...]
    outside: int | None
    access: Access
    loops: frozenset[Sym]

    @property
    def units(self) -> int:
        """Units of the whole array."""
        return int(np.prod([a.extent for a in self.axes], dtype=np.int64))

    @property
    def whole(self) -> Value | None:
        """The value, where it is no record."""
        return self.fields[0].value if len(self.fields) == 1 else None

    def tile(self, counts: Mapping[Sym, int]) -> tuple[int, ...]:
        """Return the extents of a tile."""
        return tuple(a.reach(counts) for a in self.axes)


def block_lanes(u: Unified) -> dict[Sym, int]:
    """Return the loops of a stage that units divide, with the lanes of a unit."""
    found: dict[Sym, int] = {}
    for sym, extent in u.meaning.loops:
        loop = u.axes[sym]
        if extent.value is not None and loop is not None:
            found[loop.sym] = extent.value
    return found


def laid(
    arch: Architecture, u: Unified, operand: str, lanes: Mapping[Sym, int], launches: frozenset[Sym]
) -> Laid:
    """Return an operand as an array of units.

    Args:
        arch: with the sizes of units.
        u: the instruction.
        operand: its name.
        lanes: of all loops that are divided.
        launches: loops that are launches of their own: their axes are left out.

    Raises:
        Untiled: it has no such form.
    """
    declared = u.meaning.instruction.operands[operand]
    name = next(n for n, m in arch.description.memories.items() if m is declared.memory)
    assert isinstance(declared.memory, Memory), "instructions that are unified work in the device"
    unit = arch.number(declared.memory.unit).value or 1
    fields: list[FieldLayout] = []
    axes: tuple[Axis, ...] | None = None
    outside: int | None = None
    units = {x.sym for s in u.unit_of(operand) if (x := u.axes[s]) is not None}
    for key, dtype in formats(declared).items():
        found = u.bound.get((operand, key), ())
        for made in (_axes(b, lanes, launches, units) for b in found if b.stage_at):
            if axes is not None and made != axes:
                raise Untiled(f"the fields of {operand} have different axes")
            axes = made
        fields.append(_field(arch, u, operand, found, dtype, launches))
        outside = next((b.value.outside for b in found if b.value.outside is not None), outside)
    if sum(f.bytes for f in fields) > unit:
        raise Untiled(f"{operand} has more bytes than a unit of {name}")
    return Laid(
        operand,
        name,
        unit,
        axes or (),
        tuple(fields),
        outside,
        declared.access,
        frozenset(s for a in axes or () for s, _ in a.terms),
    )


def _axes(b: Bound, lanes: Mapping[Sym, int], launches: frozenset[Sym], units: set[Sym]) -> tuple[Axis, ...]:
    made: list[Axis] = []
    for e, extent in zip(b.stage_at, b.value.buffer.shape, strict=True):
        inside = symbols(e)
        if any(s in launches for s in inside):
            continue
        if extent.value is None:
            raise Untiled(f"an axis of {extent}: streams have numbers")
        if inside and inside[0] in units:
            made.append(Axis(((inside[0], 1),), 0, -(-extent.value // lanes[inside[0]])))
            continue
        if any(s in lanes for s in inside):
            raise Untiled("a loop is divided in one operand and not in another")
        terms = tuple((s, _number(coefficient(e, s))) for s in inside)
        made.append(Axis(terms, e.constant, extent.value))
    return tuple(made)


def _number(e: Int | None) -> int:
    if e is None or e.value is None or e.value < 1:
        raise Untiled("an index is not affine")
    return e.value


def _field(
    arch: Architecture,
    u: Unified,
    operand: str,
    found: Sequence[Bound],
    dtype: DType,
    launches: frozenset[Sym],
) -> FieldLayout:
    extents, unit = dict(u.meaning.loops), u.unit_of(operand)
    shape = [
        arch.number(e).value or 1 for e in u.meaning.instruction.operands[operand].shape if _is_fixed(arch, e)
    ]
    if found and all(e.value is not None for b in found for e in b.at):  # lanes by number
        return FieldLayout(
            None, dtype, ((shape[-1], -1),), tuple((b.at[0].value or 0, b.value) for b in found)
        )
    if not found:
        return FieldLayout(None, dtype, tuple((n, -1) for n in shape))
    (b,) = found
    kept = [e for e in b.stage_at if not any(s in launches for s in symbols(e))]
    lanes = [(extents[s].value or 1, _position(kept, u.axes[s])) for s in unit]
    return FieldLayout(b.value, dtype, tuple(lanes))


def _is_fixed(arch: Architecture, e: Size) -> bool:
    return arch.number(e).value is not None


def _position(at: Sequence[Int], loop: Loop | None) -> int:
    return next((i for i, e in enumerate(at) if loop is not None and loop.sym in symbols(e)), -1)


def packed(x: Laid, arrays: Mapping[Value, np.ndarray]) -> np.ndarray:
    """Return an operand as an array of units, [units, bytes], from its values without axes of launches."""
    made = np.zeros((x.units, x.unit), np.uint8)
    at = 0
    for f in x.fields:
        if f.value is not None or f.single:
            units = _single(f, arrays) if f.value is None else _blocked(x, f, arrays[f.value])
            made[:, at : at + f.bytes] = np.ascontiguousarray(units).view(np.uint8).reshape(-1, f.bytes)
        at += f.bytes
    return made


def _single(f: FieldLayout, arrays: Mapping[Value, np.ndarray]) -> np.ndarray:
    unit = np.zeros((1, f.lanes[0][0]), f.dtype.numpy)
    for lane, value in f.single:
        unit[0, lane] = arrays[value].ravel()[0]
    return unit


def _blocked(x: Laid, f: FieldLayout, array: np.ndarray) -> np.ndarray:
    """Return [units, lanes ...] of a value."""
    return blocks_of(x, f).pack(array, x.units)


def blocks_of(x: Laid, f: FieldLayout) -> Blocks:
    """Return how a field of an operand is an array of units."""
    return Blocks(x.unit, f.dtype.numpy.str, f.lanes)


def unpacked(x: Laid, units: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Return the value of an operand from its units; `shape` is without axes of launches."""
    (f,) = x.fields
    return blocks_of(x, f).unpack(units, shape)
