"""The commands of a match for a tile: copies in, instructions, copies out, in the order of the program.

    for each tile of the result:
        for each stage:
            for each tile of its reductions:
                bring in what of its operands is not there
                for each block and each index that the instruction does not run over: a command
        copy the tile of the result out

A tile of an operand stands in one of several slots of its memory, and stays until its slot is needed: what
the next tile wants again is not brought twice, and the rest of it comes while this one is computed. An
operand that stays in the device between matches (`resident`) has no tiles and no copies.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from inlay.accel.accelerator import Architecture
from inlay.accel.commands import SHARED, Place, Planned, Span
from inlay.accel.declare import Access, Dim
from inlay.accel.group import Group, Step, Tensor, command_cycles, copy_of, sums_of
from inlay.accel.layout import Axis, Laid
from inlay.accel.resident import Resident
from inlay.accel.stages import Untiled
from inlay.accel.unify import Unified
from inlay.arith.expr import Sym

MOST_COMMANDS = 20_000
"""Commands of a stream beyond which a match is left to others."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a match is divided.

    Attributes:
        counts: for each loop the steps of a tile, in blocks.
        order: loops over the result, the outermost first.
        slots: tiles of each operand that are in the device at once, in the order of `buffers`.
    """

    counts: Mapping[Sym, int]
    order: tuple[Sym, ...]
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """Room for an operand in the device.

    Attributes:
        laid: what stands in it.
        tensor: whose part; None for sums.
        users: operands that are in it, as positions of steps and names.
    """

    laid: Laid
    tensor: Tensor | None
    users: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """Where a match is computed.

    Attributes:
        group: its instructions.
        residents: its operands that stay in the device.
        rooms: units of memories that its tiles may take, where that is not all of them.
        moves: of results that stay in another memory than they are written to, who moves their tiles.
    """

    group: Group
    residents: Mapping[Laid, Resident] = field(default_factory=dict[Laid, Resident])
    rooms: Mapping[str, int] = field(default_factory=dict[str, int])
    moves: Mapping[Laid, str] = field(default_factory=dict[Laid, str])

    def room(self, memory: str) -> int:
        """Return the units of a memory that tiles may take."""
        return self.rooms.get(memory, self.group.arch.units(memory))

    def buffers(self) -> list[Buffer]:
        """Return the operands that need room for tiles; sums are one for all who read them."""
        made: list[Buffer] = []
        sums: dict[object, list[tuple[int, str]]] = {}
        for at, step in enumerate(self.group.steps):
            inner = dict(sums_of(step))
            for name, x in step.operands.items():
                if name in inner:
                    sums.setdefault(inner[name], []).append((at, name))
                elif x not in self.residents or x in self.moves:
                    made.append(Buffer(x, self.group.tensors[x], ((at, name),)))
        steps = self.group.steps
        return made + [Buffer(steps[u[0][0]].operands[u[0][1]], None, tuple(u)) for u in sums.values()]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A match in a stream.

    Attributes:
        setting: where it is computed.
        tiling: its tiles.
        tensors: where operands stand that copies bring.
        starts: of memories of the device whose first unit is not the first of its tiles, that unit.
    """

    setting: Setting
    tiling: Tiling
    tensors: Mapping[Laid, Tensor]
    starts: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def group(self) -> Group:
        """Its instructions."""
        return self.setting.group

    def sizes(self) -> dict[str, int]:
        """Return how many units of each memory its tiles take."""
        found: dict[str, int] = {}
        for b, slots in zip(self.setting.buffers(), self.tiling.slots, strict=True):
            taken = slots * _size(b.laid.tile(self.tiling.counts))
            found[b.laid.memory] = found.get(b.laid.memory, 0) + taken
        return found


def plan(part: Part) -> list[Planned]:
    """Return the commands of a match.

    Raises:
        Untiled: a memory is too small, a copy cannot do what is asked of it, or commands are too many.
    """
    return _Planning(part).run()


@dataclass(slots=True)
class _Room:
    """The slots of a buffer.

    Attributes:
        bases: address of each slot.
        holds: the tile in each: where its loops begin.
        used: when each was asked for last.
    """

    buffer: Buffer
    bases: list[int]
    holds: list[tuple[int, ...] | None]
    used: list[int]


@dataclass(frozen=True, slots=True)
class _Operand:
    """An operand of commands in tiles of one size: where it is, and how far apart its units are."""

    name: str
    memory: str
    steps: Mapping[Sym, int]
    stride: tuple[int, ...]
    reach: int
    is_read: bool


@dataclass(frozen=True, slots=True)
class _Form:
    """What the commands of an instruction have in common in tiles of one size: all but where they begin."""

    name: str
    queue: str
    numbers: Mapping[str, int]
    cycles: int
    operands: tuple[_Operand, ...]


@dataclass(slots=True)
class _Planning:
    part: Part
    commands: list[Planned] = field(default_factory=list[Planned])
    rooms: dict[tuple[int, str], _Room] = field(default_factory=dict[tuple[int, str], _Room])
    forms: dict[tuple[int, ...], _Form] = field(default_factory=dict[tuple[int, ...], _Form])
    now: int = 0

    @property
    def group(self) -> Group:
        return self.part.group

    @property
    def tiling(self) -> Tiling:
        return self.part.tiling

    def run(self) -> list[Planned]:
        self._allocate()
        g, t = self.group, self.tiling
        for begin in _tiles(t.order, g.blocks, t.counts):
            count = {s: min(t.counts[s], g.blocks[s] - begin[s]) for s in t.order}
            for at, step in enumerate(g.steps):
                self._step(at, step, begin, count)
            self._out(len(g.steps) - 1, begin, count)
        return self.commands

    def _allocate(self) -> None:
        """Give every slot an address; slots are there all the time, so one stands behind the other."""
        top = dict(self.part.starts)
        setting = self.part.setting
        for b, slots in zip(setting.buffers(), self.tiling.slots, strict=True):
            size = _size(b.laid.tile(self.tiling.counts))
            first = top.get(b.laid.memory, 0)
            top[b.laid.memory] = first + slots * size
            if top[b.laid.memory] > setting.room(b.laid.memory):
                raise Untiled(f"{b.laid.memory} is too small for a tile")
            made = _Room(b, [first + i * size for i in range(slots)], [None] * slots, [0] * slots)
            self.rooms.update(dict.fromkeys(b.users, made))

    def _slot(self, key: tuple[int, str], begin: Mapping[Sym, int]) -> tuple[int, bool]:
        """Return where a tile stands, and whether it was there; else its slot is the one used longest ago."""
        found = self.rooms[key]
        tile = tuple(begin.get(s, 0) for s in sorted(found.buffer.laid.loops, key=lambda s: s.key))
        self.now += 1
        there = tile in found.holds
        slot = found.holds.index(tile) if there else min(range(len(found.used)), key=found.used.__getitem__)
        found.holds[slot], found.used[slot] = tile, self.now
        return found.bases[slot], there

    def _step(self, at: int, step: Step, begin: Mapping[Sym, int], count: Mapping[Sym, int]) -> None:
        g, t = self.group, self.tiling
        reductions = tuple(x.sym for x in step.reductions)
        runs = {x.sym for s, e in step.main.meaning.loops if e.value is None and (x := step.main.axes[s])}
        outer = [x.sym for x in step.main.stage.loops if x.sym in g.blocks and x.sym not in runs]
        for first in _tiles(reductions, g.blocks, t.counts):
            starts = {**begin, **first}
            counts = {**count, **{s: min(t.counts[s], g.blocks[s] - first[s]) for s in reductions}}
            bases = {name: self._bring(at, name, starts, counts) for name in step.operands}
            is_first = not any(first.values())
            for index in itertools.product(*(range(counts[s]) for s in outer)):
                here = dict(zip(outer, index, strict=True))
                if step.clear is not None and is_first and not any(here.get(s, 0) for s in reductions):
                    written = step.main.meaning.instruction.written
                    only = step.clear.meaning.instruction.written
                    self._run(
                        step.clear, {only: step.operands[written]}, {only: bases[written]}, here, counts
                    )
                self._run(step.main, step.operands, bases, here, counts)
            if len(self.commands) > MOST_COMMANDS:
                raise Untiled(f"more than {MOST_COMMANDS} commands")

    def _bring(self, at: int, name: str, begin: Mapping[Sym, int], count: Mapping[Sym, int]) -> int:
        """Return where the tile of an operand stands; copy it in if it does not yet."""
        resident = self._resident(at, name)
        if resident is not None:
            return resident.at(self.group.steps[at].operands[name], begin)
        base, there = self._slot((at, name), begin)
        b = self.rooms[at, name].buffer
        if not there and b.tensor is not None and b.laid.access is Access.READ:
            self.commands += copies(self.group.arch, self.part.tensors[b.laid], base, begin, count)
        return base

    def _out(self, at: int, begin: Mapping[Sym, int], count: Mapping[Sym, int]) -> None:
        name = self.group.steps[at].main.meaning.instruction.written
        if self._resident(at, name) is not None:
            return
        base, _ = self._slot((at, name), begin)
        laid = self.rooms[at, name].buffer.laid
        mover = self.part.setting.moves.get(laid)
        tensor = self.part.tensors[laid] if mover is None else _inside(self.part, laid, mover)
        self.commands += copies(self.group.arch, tensor, base, begin, count)

    def _resident(self, at: int, name: str) -> Resident | None:
        """Return where an operand stays, if its instruction works there."""
        x = self.group.steps[at].operands[name]
        return None if x in self.part.setting.moves else self.part.setting.residents.get(x)

    def _run(
        self,
        u: Unified,
        operands: Mapping[str, Laid],
        bases: Mapping[str, int],
        here: Mapping[Sym, int],
        counts: Mapping[Sym, int],
    ) -> None:
        """Issue a command of an instruction."""
        key = (id(u), *counts.values())
        form = self.forms.get(key)
        if form is None:
            form = self.forms[key] = self._form(u, operands, counts)
        places: dict[str, Place] = {}
        reads: list[Span] = []
        writes: list[Span] = []
        for x in form.operands:
            begin = bases[x.name]
            for s, n in here.items():
                begin += x.steps.get(s, 0) * n
            places[x.name] = Place(begin, x.stride)
            (reads if x.is_read else writes).append(Span(x.memory, begin, begin + x.reach))
        self.commands.append(
            Planned(form.name, form.queue, form.numbers, places, tuple(reads), tuple(writes), form.cycles)
        )

    def _form(self, u: Unified, operands: Mapping[str, Laid], counts: Mapping[Sym, int]) -> _Form:
        """Return what commands of an instruction have in common in tiles of some sizes."""
        i, description = u.meaning.instruction, self.group.arch.description
        sizes = {
            s: 1 if (x := u.axes[s]) is None else counts[x.sym] for s, e in u.meaning.loops if e.value is None
        }
        made: list[_Operand] = []
        for name, x in operands.items():
            stays = None if x in self.part.setting.moves else self.part.setting.residents.get(x)
            steps = _steps(x, stays.extents if stays is not None else x.tile(counts))
            stride = [0 if (loop := u.axes[s]) is None else steps.get(loop.sym, 0) for s in sizes]
            strided = sum(isinstance(e, Dim) for e in i.operands[name].shape)
            reach = sum(d * (n - 1) for d, n in zip(stride, sizes.values(), strict=True)) + 1
            is_read = i.operands[name].access is Access.READ
            made.append(_Operand(name, x.memory, steps, tuple(stride[:strided]), reach, is_read))
        dims = {d.sym: name for name, d in description.dims.items()}
        numbers = {dims[e.atom]: sizes[s] for s, e in u.meaning.loops if isinstance(e.atom, Sym)}
        for name, value in numbers.items():
            high = description.dims[name].high
            if high is not None and value > high:
                raise Untiled(f"{name} = {value}: at most {high}")
        cycles, queue = command_cycles(self.group.arch, u, sizes), _name_of(description.queues, i.queue)
        return _Form(i.name, queue, {**numbers, **u.immediates}, cycles, tuple(made))


def _tiles(
    loops: Sequence[Sym], blocks: Mapping[Sym, int], counts: Mapping[Sym, int]
) -> Iterator[dict[Sym, int]]:
    for begin in itertools.product(*(range(0, blocks[s], counts[s]) for s in loops)):
        yield dict(zip(loops, begin, strict=True))


def _size(shape: Sequence[int]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size


def _steps(x: Laid, extents: Sequence[int]) -> dict[Sym, int]:
    """Return how many units a step of each loop is in an array of some extents."""
    found: dict[Sym, int] = {}
    stride = 1
    for axis, extent in zip(reversed(x.axes), reversed(extents), strict=True):
        for s, step in axis.terms:
            found[s] = found.get(s, 0) + step * stride
        stride *= extent
    return found


def _inside(part: Part, x: Laid, mover: str) -> Tensor:
    """Return a result that stays in another memory as what its tiles are copied to, with its border."""
    r = part.setting.residents[x]
    axes = zip(x.axes, r.before, r.extents, strict=True)
    whole = tuple(replace(a, first=a.first + before, extent=extent) for a, before, extent in axes)
    return Tensor(replace(x, axes=whole), mover, r.base * x.unit, is_between=True)


def _name_of(named: Mapping[str, object], wanted: object) -> str:
    return next(name for name, x in named.items() if x is wanted)


@dataclass(frozen=True, slots=True)
class _Run:
    """Units along an axis of a tile: `length` from `start`, of `extent` that there are; what is around."""

    start: int
    length: int
    before: int
    after: int
    extent: int

    @property
    def is_whole(self) -> bool:
        return self.length == self.extent and not self.before and not self.after


def copies(
    arch: Architecture, tensor: Tensor, base: int, begin: Mapping[Sym, int], count: Mapping[Sym, int]
) -> Iterator[Planned]:
    """Yield the copies of a tile; axes that are dense in both memories are one.

    Raises:
        Untiled: the copy engine cannot put so much around it.
    """
    x, copy = tensor.laid, copy_of(arch, tensor.copy)
    runs = _merged([_run(axis, begin, count) for axis in x.axes])
    inner = runs[-copy.dims :]
    if x.outside is None and any(r.before or r.after for r in runs):
        raise Untiled(f"a tile of {x.name} is larger than its tensor")
    if copy.pad is None and any(r.before or r.after for r in runs):
        raise Untiled(f"{tensor.copy} puts nothing around a tile of {x.name}, and the pattern pads it")
    low, high = (0, 0) if copy.pad is None else copy.pad.ends
    if any(r.before or r.after for r in runs) and not low <= (x.outside or 0) <= high:
        numbers = str(low) if low == high else f"{low} to {high}"
        raise Untiled(f"{tensor.copy} puts {numbers} around a tile of {x.name}: {x.outside or 0} is there")
    if any(r.before or r.after for r in runs[: -copy.dims]):
        raise Untiled(f"{tensor.copy} puts nothing around more than {copy.dims} axes")
    while len(inner) < 2:
        inner = [_Run(0, 1, 0, 0, 1), *inner]
    rows, columns = inner
    most = copy.pad.most if copy.pad is not None else 0
    if max(rows.before, rows.after, columns.before, columns.after) > most:
        raise Untiled(f"{tensor.copy} puts at most {most} units around a tile")
    step = (rows.before + rows.length + rows.after) * (columns.before + columns.length + columns.after)
    outer = runs[: -copy.dims]
    for n, index in enumerate(itertools.product(*(range(r.length) for r in outer))):
        at = 0
        for r, i in zip(outer, index, strict=True):
            at = at * r.extent + r.start + i
        at = (at * rows.extent + rows.start) * columns.extent + columns.start
        most = copy.most or max(columns.length, 1)
        for first in range(0, max(columns.length, 1), most):
            part = replace(columns, length=min(most, columns.length - first))
            yield _moved(arch, tensor, base + n * step + first, at + first, rows, part)


def _run(axis: Axis, begin: Mapping[Sym, int], count: Mapping[Sym, int]) -> _Run:
    first = axis.first + sum(step * begin[s] for s, step in axis.terms)
    last = first + axis.reach(count)
    low, high = min(max(first, 0), axis.extent), max(min(last, axis.extent), 0)
    if high <= low:  # all of it is outside
        return _Run(0, 0, last - first, 0, axis.extent)
    return _Run(low, high - low, low - first, last - high, axis.extent)


def _merged(runs: Sequence[_Run]) -> list[_Run]:
    made: list[_Run] = []
    for r in reversed(runs):
        if made and made[-1].is_whole and not r.before and not r.after:
            inner = made.pop()
            r = _Run(r.start * inner.extent, r.length * inner.extent, 0, 0, r.extent * inner.extent)
        made.append(r)
    return made[::-1] or [_Run(0, 1, 0, 0, 1)]


def _moved(arch: Architecture, tensor: Tensor, chip: int, at: int, rows: _Run, columns: _Run) -> Planned:
    x, copy = tensor.laid, copy_of(arch, tensor.copy)
    y, width = (rows.length, columns.length) if rows.length and columns.length else (0, columns.length)
    numbers = {
        "y": y, "x": width, "stride": columns.extent if copy.dims > 1 else 0,
        "top": rows.before, "bottom": rows.after,
        "left": columns.before, "right": columns.after, "value": x.outside or 0,
        "dram": tensor.at // x.unit + at,
    }  # fmt: skip
    if not y:  # nothing is read: all rows are put there
        numbers |= {
            "x": 0,
            "top": rows.before + rows.length,
            "left": columns.before + columns.length + columns.after,
        }
        numbers |= {"bottom": rows.after, "right": 0, "dram": tensor.at // x.unit}
    height = rows.before + rows.length + rows.after
    across = columns.before + columns.length + columns.after
    there = Span(x.memory, chip, chip + height * across)
    first = tensor.at + at * x.unit
    outside = Span(SHARED, first, first + ((y - 1) * columns.extent + width) * x.unit) if y else None
    outer = () if outside is None or not tensor.is_between else (outside,)
    queue = _name_of(arch.description.queues, copy.queue)
    latency, rate = arch.number(copy.latency).value or 0, arch.number(copy.bytes_per_cycle).value or 1
    moving = -(-y * width * x.unit // rate)
    if copy.is_inside:  # it does not have the memory of the board
        memory, at = _name_of(arch.description.memories, copy.target), numbers["dram"]
        outer = (Span(memory, at, at + (y - 1) * columns.extent + width),)
        latency, moving = latency + moving, 0
    reads, writes = (outer, (there,)) if copy.into_chip else ((there,), outer)
    chips = {"chip": Place(chip)}
    return Planned(tensor.copy, queue, numbers, chips, reads, writes, latency, moving, is_copy=True)
