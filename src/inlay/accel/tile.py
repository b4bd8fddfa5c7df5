"""Which tiles: those that fit memories, limits of instructions and copies, and take least simulated time.

Candidates are the ways to divide each loop into a few equal parts, with every order of loops over the result.
A formula ranks them (cycles of instructions against bytes, and what cannot overlap), and the best few are
planned, ordered by tokens and simulated. Room that is left becomes further slots, so that tiles come while
others are computed. The search is counted in commands, not in seconds: it gives the same on every machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from inlay.accel.accelerator import Architecture
from inlay.accel.commands import Ordered, Planned
from inlay.accel.declare import Access
from inlay.accel.group import Group, Tensor, command_cycles, copy_of
from inlay.accel.order import Channel, Ordering
from inlay.accel.plan import Buffer, Part, Setting, Tiling, plan
from inlay.accel.simulate import Timing, simulate
from inlay.accel.stages import Loop, Untiled
from inlay.arith.expr import Sym

SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64)
"""Into how many parts a loop may be divided."""
SIMULATED = 20_000
"""Commands that a search simulates, beyond the first candidate."""
_MOST_RANKED = 8
_MOST_SLOTS = 4
_MOST_FAILED = 200


@dataclass(frozen=True, slots=True, eq=False)
class Scheduled:
    """Matches as a stream.

    Attributes:
        parts: the matches, in order; one, or several whose values stay in the region.
        tensors: what the host brings: operands and constants.
        result: what the host takes.
        bytes: of the region.
        stream: its commands, with tokens.
        timing: what it takes for one launch, without what starting it takes.
        tried: candidates that were simulated.
    """

    parts: tuple[Part, ...]
    tensors: tuple[Tensor, ...]
    result: Tensor
    bytes: int
    stream: tuple[Ordered, ...]
    timing: Timing
    tried: int = 1

    @property
    def launches(self) -> tuple[Loop, ...]:
        """Loops that are launches of their own, the one loop over images at most."""
        return self.parts[0].group.launches


def channels(arch: Architecture) -> tuple[Channel, ...]:
    """Return the queues of tokens, in the order of the declaration."""
    names = {id(q): name for name, q in arch.description.queues.items()}
    return tuple(Channel(names[id(t.source)], names[id(t.target)]) for t in arch.description.order)


def search(ways: Sequence[Setting], most: int = _MOST_RANKED) -> Scheduled:
    """Return the fastest schedule that is found of several ways to compute a match.

    Args:
        ways: groups, and where they are computed.
        most: tilings that are simulated.

    Raises:
        Untiled: none fits.
    """
    ranked = _best_first(ways, windows=False) or _best_first(ways, windows=True)
    if not ranked:
        raise Untiled("; ".join(dict.fromkeys(x for s in ways for x in _too_small(s))))
    best: Scheduled | None = None
    reasons: dict[str, None] = {}
    spent = tried = failed = 0
    for _, _, tiling, setting in ranked:
        if tried >= most or (best is not None and spent > SIMULATED):
            break
        try:
            found = schedule(setting, tiling)
        except Untiled as failure:
            reasons[str(failure)] = None
            failed += 1
            if failed > _MOST_FAILED:
                break
            continue
        tried += 1
        spent += len(found.stream)
        if best is None or found.timing.total < best.timing.total:
            best = found
    if best is None:
        raise Untiled("; ".join(reasons))
    return replace(best, tried=tried)


def schedule(setting: Setting, tiling: Tiling) -> Scheduled:
    """Return the stream for a tiling, and what it takes."""
    part = Part(setting, tiling, setting.group.tensors)
    return of_part(part, plan(part))


def of_part(part: Part, commands: Iterable[Planned]) -> Scheduled:
    """Return the stream of some commands for a match by itself, and what it takes."""
    group = part.group
    stream, timing = in_order(group.arch, commands)
    brought = tuple(t for t in group.tensors.values() if t.laid.access is Access.READ)
    return Scheduled((part,), brought, result_of(group), group.bytes, stream, timing)


def result_of(group: Group) -> Tensor:
    """Return the result of a match, as it is copied out."""
    step = group.steps[-1]
    return group.tensors[step.operands[step.main.meaning.instruction.written]]


def in_order(arch: Architecture, commands: Iterable[Planned]) -> tuple[tuple[Ordered, ...], Timing]:
    """Return commands with tokens, and what they take."""
    found = channels(arch)
    ordering = Ordering(found)
    for command in commands:
        ordering.add(command)
    stream = tuple(ordering.ordered())
    return stream, simulate(stream, len(found))


def _best_first(ways: Sequence[Setting], *, windows: bool) -> list[tuple[int, int, Tiling, Setting]]:
    """Return tilings that fit, those with the lowest estimate first, with what tells equal ones apart."""
    found = ((setting, x) for setting in ways for x in _ranked(setting, windows=windows))
    numbered = [(cycles, number, t, setting) for number, (setting, (cycles, t)) in enumerate(found)]
    return sorted(numbered, key=lambda x: x[:2])


def _too_small(setting: Setting) -> Iterator[str]:
    """Yield the memories in which not even the smallest tiles stand side by side."""
    least = dict.fromkeys(setting.group.blocks, 1)
    needed = setting.buffers()
    for memory in dict.fromkeys(b.laid.memory for b in needed):
        size = sum(_tile_units(b, least) for b in needed if b.laid.memory == memory)
        if size > setting.room(memory):
            yield f"{memory} has {setting.room(memory)} units, and the smallest tiles take {size}"


def _ranked(setting: Setting, *, windows: bool) -> Iterator[tuple[int, Tiling]]:
    """Yield the tilings of a group that fit, with an estimate of their time."""
    group = setting.group
    result = group.steps[-1].operands[group.steps[-1].main.meaning.instruction.written].loops
    loops = list(group.blocks)
    choices = [_counts(group, s, is_whole=not windows and s not in result) for s in loops]
    order_of = [s for s in loops if s in result]
    needed = setting.buffers()
    estimate = _Estimate(group, needed)
    rooms = {b.laid.memory: setting.room(b.laid.memory) for b in needed}
    for chosen in itertools.product(*choices):
        counts = dict(zip(loops, chosen, strict=True))
        slots = _slots(group, needed, counts, rooms)
        if slots is None:
            continue
        moving = [s for s in order_of if counts[s] < group.blocks[s]]
        still = [s for s in order_of if s not in moving]
        for cycles, order in estimate.of(counts, ((*still, *x) for x in itertools.permutations(moving))):
            yield cycles, Tiling(counts, order, slots)


def _counts(group: Group, s: Sym, *, is_whole: bool) -> list[int]:
    """Return lengths of tiles of a loop, the longest first; of a window that is not divided, its own."""
    n = group.blocks[s]
    if is_whole and group.loops[s].name in ("kh", "kw"):
        return [n]
    return list(dict.fromkeys(-(-n // parts) for parts in SPLITS if parts <= n))


def _tile_units(x: Buffer, counts: Mapping[Sym, int]) -> int:
    units = 1
    for n in x.laid.tile(counts):
        units *= n
    return units


def _slots(
    group: Group, needed: Sequence[Buffer], counts: Mapping[Sym, int], rooms: Mapping[str, int]
) -> tuple[int, ...] | None:
    """Return how many tiles of each operand are in the device at once, or None where one does not fit."""
    left = dict(rooms)
    sizes = [_tile_units(b, counts) for b in needed]
    for b, size in zip(needed, sizes, strict=True):
        left[b.laid.memory] -= size
    if min(left.values(), default=0) < 0:
        return None
    slots, useful = [1] * len(needed), [_useful(group, b, counts) for b in needed]
    for most in range(2, _MOST_SLOTS + 1):
        for at, (b, size) in enumerate(zip(needed, sizes, strict=True)):
            if slots[at] == most - 1 and most <= useful[at] and size <= left[b.laid.memory]:
                slots[at] += 1
                left[b.laid.memory] -= size
    return tuple(slots)


def fits(setting: Setting, counts: Mapping[Sym, int]) -> bool:
    """Whether tiles of some sizes stand side by side."""
    needed = setting.buffers()
    return (
        _slots(setting.group, needed, counts, {b.laid.memory: setting.room(b.laid.memory) for b in needed})
        is not None
    )


def with_rooms(setting: Setting, tiling: Tiling, share: int) -> Tiling:
    """Return a tiling with as many slots as fit into a part of each memory; as it is where one does not."""
    needed = setting.buffers()
    rooms = {b.laid.memory: setting.room(b.laid.memory) // share for b in needed}
    slots = _slots(setting.group, needed, tiling.counts, rooms)
    return tiling if slots is None else replace(tiling, slots=slots)


def _useful(group: Group, b: Buffer, counts: Mapping[Sym, int]) -> int:
    """Return how many tiles of an operand there are; sums, which one queue alone touches, need one."""
    if b.tensor is None:
        return 1
    tiles = 1
    for s in b.laid.loops:
        tiles *= -(-group.blocks[s] // counts[s])
    return tiles


class _Estimate:
    """About how many cycles tilings of a group take: the longer of computing and moving, and the ends."""

    def __init__(self, group: Group, needed: Sequence[Buffer]) -> None:
        self._group = group
        self._moved = [(b, *self._copy(b.tensor)) for b in needed if b.tensor is not None]

    def _copy(self, tensor: Tensor) -> tuple[int, int]:
        """Return latency and bytes in a cycle of who brings a tensor."""
        arch, copy = self._group.arch, copy_of(self._group.arch, tensor.copy)
        return arch.number(copy.latency).value or 0, arch.number(copy.bytes_per_cycle).value or 1

    def of(
        self, counts: Mapping[Sym, int], orders: Iterable[tuple[Sym, ...]]
    ) -> Iterator[tuple[int, tuple[Sym, ...]]]:
        """Yield the cycles for each order of the loops over the result."""
        blocks = self._group.blocks
        tiles = {s: -(-blocks[s] // counts[s]) for s in blocks}
        each = [
            latency * _copies(b, counts) + _tile_units(b, counts) * b.laid.unit // rate
            for b, latency, rate in self._moved
        ]
        computing, ends = self._computing(counts, tiles), sum(each)
        for order in orders:
            times = (_times(b, order, tiles) for b, *_ in self._moved)
            yield max(computing, sum(n * cycles for n, cycles in zip(times, each, strict=True))) + ends, order

    def _computing(self, counts: Mapping[Sym, int], tiles: Mapping[Sym, int]) -> int:
        total = 0
        for step in self._group.steps:
            u, commands = step.main, 1
            sizes: dict[Sym, int] = {}
            runs: set[Sym] = set()
            for s, extent in u.meaning.loops:
                loop = u.axes[s]
                if extent.value is None:
                    sizes[s] = 1 if loop is None else counts[loop.sym]
                    runs |= set() if loop is None else {loop.sym}
            for x in u.stage.loops:
                if x.sym in tiles:
                    commands *= tiles[x.sym] if x.sym in runs else self._group.blocks[x.sym]
            total += commands * command_cycles(self._group.arch, u, sizes)
        return total


def _times(b: Buffer, order: Sequence[Sym], tiles: Mapping[Sym, int]) -> int:
    """Return how often a tile of an operand is brought, if one stays until the next one comes."""
    reductions = [s for s in b.laid.loops if s not in order]
    depends = [at for at, s in enumerate(order) if s in b.laid.loops and tiles[s] > 1]
    split = any(tiles[s] > 1 for s in reductions)
    times = 1
    for at, s in enumerate(order):
        times *= tiles[s] if split or (depends and at <= depends[-1]) else 1
    for s in reductions:
        times *= tiles[s]
    return times


def _copies(b: Buffer, counts: Mapping[Sym, int]) -> int:
    """Return about how many copies a tile takes: one for each index of axes before the last two."""
    shape = b.laid.tile(counts)
    inner = all(n == a.extent for n, a in zip(shape[-2:], b.laid.axes[-2:], strict=True))
    copies = 1
    for n in shape[:-2]:
        copies *= 1 if inner else n
    return copies
