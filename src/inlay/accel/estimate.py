"""About how long tilings of a match take: what ranks them, before the best are planned and simulated.

The longer of computing and moving, and the ends, where neither hides the other. Looked at are thousands, so
what depends on a few loops is kept by their lengths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inlay.accel.group import Step, Tensor, command_cycles, copy_of
from inlay.accel.plan import Buffer, Setting
from inlay.arith.expr import Sym


@dataclass(frozen=True, slots=True)
class _Copy:
    """Who brings a tensor: its latency, bytes in a cycle, and units of a command at most."""

    latency: int
    rate: int
    most: int | None

    def cycles(self, commands: int, units: int, unit: int) -> int:
        """Return about how long a tile is moved."""
        if self.most is not None:
            commands = max(commands, -(-units // self.most))
        return self.latency * commands + units * unit // self.rate


class Estimate:
    """Estimates of tilings of a match.

    Args:
        setting: where it is computed.
        share: tiles may take one part in so many of each memory.
    """

    def __init__(self, setting: Setting, share: int = 1) -> None:
        self._group = setting.group
        self._needed = setting.buffers()
        last = setting.group.steps[-1]
        self._result = last.operands[last.main.meaning.instruction.written].loops
        self._loops = [sorted(b.laid.loops, key=lambda s: s.key) for b in self._needed]
        self._rooms = {b.laid.memory: setting.room(b.laid.memory) // share for b in self._needed}
        self._copies = [None if b.tensor is None else self._copy(b.tensor) for b in self._needed]
        self._known: list[dict[tuple[int, ...], tuple[int, int]]] = [{} for _ in self._needed]
        self._steps = [(step, *self._loops_of(step)) for step in setting.group.steps]

    def _copy(self, tensor: Tensor) -> _Copy:
        arch, copy = self._group.arch, copy_of(self._group.arch, tensor.copy)
        latency, rate = arch.number(copy.latency).value or 0, arch.number(copy.bytes_per_cycle).value or 1
        return _Copy(latency, rate, copy.most)

    def _loops_of(self, step: Step) -> tuple[dict[Sym, Sym | None], list[Sym]]:
        """Return the loop of the match under each loop of an instruction, and those that are left."""
        u = step.main
        runs = {s: None if (x := u.axes[s]) is None else x.sym for s, e in u.meaning.loops if e.value is None}
        taken = set(runs.values())
        left = [x.sym for x in u.stage.loops if x.sym in self._group.blocks and x.sym not in taken]
        return runs, left

    def _tile(self, at: int, counts: Mapping[Sym, int]) -> tuple[int, int]:
        """Return the units of a tile, and the cycles that it is moved; of sums none."""
        key = tuple(counts[s] for s in self._loops[at])
        found = self._known[at].get(key)
        if found is None:
            b, copy = self._needed[at], self._copies[at]
            units = tile_units(b, counts)
            cycles = 0 if copy is None else copy.cycles(_copies(b, counts), units, b.laid.unit)
            found = self._known[at][key] = units, cycles
        return found

    def fits(self, counts: Mapping[Sym, int]) -> bool:
        """Whether tiles of some sizes stand side by side."""
        left = dict(self._rooms)
        for at, b in enumerate(self._needed):
            left[b.laid.memory] -= self._tile(at, counts)[0]
        return all(n >= 0 for n in left.values())

    def of(self, counts: Mapping[Sym, int]) -> OfTiles:
        """Return what is known of tiles of some sizes, whatever the order of loops."""
        blocks = self._group.blocks
        tiles = {s: -(-blocks[s] // counts[s]) for s in blocks}
        moved = [
            _moved(b.laid.loops, self._result, tiles, self._tile(at, counts)[1])
            for at, b in enumerate(self._needed)
            if b.tensor is not None
        ]
        return OfTiles(tiles, moved, self._computing(counts, tiles))

    def _computing(self, counts: Mapping[Sym, int], tiles: Mapping[Sym, int]) -> int:
        total = 0
        for step, runs, left in self._steps:
            commands = 1
            for s in left:
                commands *= self._group.blocks[s]
            for s in runs.values():
                commands *= 1 if s is None else tiles[s]
            sizes = {s: 1 if x is None else counts[x] for s, x in runs.items()}
            total += commands * command_cycles(self._group.arch, step.main, sizes)
        return total


@dataclass(frozen=True, slots=True)
class OfTiles:
    """What is known of tiles of some sizes.

    Attributes:
        tiles: of each loop.
        moved: what copies bring or take.
        computing: cycles of instructions.
    """

    tiles: Mapping[Sym, int]
    moved: Sequence[Moved]
    computing: int

    @property
    def least(self) -> int:
        """The cycles in the best order: each tile is moved once at least."""
        moving = 0
        for x in self.moved:
            times = x.reductions
            for s in x.depends:
                times *= self.tiles[s]
            moving += times * x.cycles
        return max(self.computing, moving) + self.ends

    @property
    def ends(self) -> int:
        """The cycles in which one tile of each is moved, and nothing is computed."""
        return sum(x.cycles for x in self.moved)

    def cycles(self, order: Sequence[Sym]) -> int:
        """Return the cycles for an order of the loops over the result, of those that are divided.

        A tile stays until another one of its operand is needed: it is brought for each turn of the loops up
        to the last that it depends on. One whose reductions are divided is brought for each turn of all.
        """
        moving = 0
        for x in self.moved:
            turns = times = 1
            for s in order:
                turns *= self.tiles[s]
                if x.is_split or s in x.depends:
                    times = turns
            moving += times * x.reductions * x.cycles
        return max(self.computing, moving) + self.ends


@dataclass(frozen=True, slots=True)
class Moved:
    """An operand that copies bring or take.

    Attributes:
        cycles: of a tile.
        depends: the loops over the result that divide it.
        reductions: into how many tiles other loops divide it.
    """

    cycles: int
    depends: frozenset[Sym]
    reductions: int

    @property
    def is_split(self) -> bool:
        """Whether reductions divide it."""
        return self.reductions > 1


def _moved(loops: frozenset[Sym], result: frozenset[Sym], tiles: Mapping[Sym, int], cycles: int) -> Moved:
    reductions = 1
    for s in loops - result:
        reductions *= tiles[s]
    return Moved(cycles, frozenset(s for s in loops & result if tiles[s] > 1), reductions)


def tile_units(x: Buffer, counts: Mapping[Sym, int]) -> int:
    """Return the units of a tile."""
    units = 1
    for n in x.laid.tile(counts):
        units *= n
    return units


def _copies(b: Buffer, counts: Mapping[Sym, int]) -> int:
    """Return about how many copies a tile takes: one for each index of axes before the last two."""
    shape = b.laid.tile(counts)
    inner = all(n == a.extent for n, a in zip(shape[-2:], b.laid.axes[-2:], strict=True))
    copies = 1
    for n in shape[:-2]:
        copies *= 1 if inner else n
    return copies
