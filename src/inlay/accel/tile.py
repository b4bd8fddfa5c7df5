"""Which tiles: those that fit memories, limits of instructions and copies, and take least simulated time.

Candidates are the ways to divide each loop into a few equal parts, with every order of loops over the result.
A formula ranks them (cycles of instructions against bytes, and what cannot overlap), and the best few are
planned, ordered by tokens and simulated. Room that is left becomes further slots, so that tiles come while
others are computed. The search is counted in commands, not in seconds: it gives the same on every machine.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from inlay.accel.commands import Ordered, Planned
from inlay.accel.declare import Access
from inlay.accel.estimate import Estimate, tile_units
from inlay.accel.group import Group, Tensor
from inlay.accel.plan import Buffer, Part, Setting, Tiling, plan
from inlay.accel.simulate import Timing
from inlay.accel.stages import Loop, Untiled
from inlay.accel.waits import in_order
from inlay.arith.expr import Sym

SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64)
"""Into how many parts a loop may be divided."""
SIMULATED = 20_000
"""Commands that a search simulates, beyond the first candidate."""
_MOST_RANKED = 4
_MOST_SLOTS = 4
_MOST_FAILED = 200
_MOST_LOOKED_AT = _MOST_RANKED + _MOST_FAILED


@dataclass(frozen=True, slots=True, eq=False)
class Scheduled:
    """Matches as a stream.

    Attributes:
        parts: the matches, in order; one, or several whose values stay in the region.
        tensors: what the host brings: operands and constants.
        result: what the host takes.
        bytes: of the region.
        stream: its commands, with tokens or what else orders them (`waits`).
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
    for setting, counts, order in ranked:
        if tried >= most or (best is not None and spent > SIMULATED):
            break
        try:
            found = schedule(setting, Tiling(counts, order, _slots(setting, counts)))
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


_Ranked = tuple[Setting, Mapping[Sym, int], tuple[Sym, ...]]
"""A way to compute a match, the sizes of its tiles, and the order of loops over the result."""


@dataclass(slots=True)
class _Lowest:
    """Those with the lowest estimates, of many; of equal ones those that came first."""

    found: list[tuple[int, int, _Ranked]] = field(default_factory=list[tuple[int, int, _Ranked]])
    count: int = 0

    def takes(self, cycles: int) -> bool:
        """Whether something with an estimate is one of them."""
        return len(self.found) < _MOST_LOOKED_AT or cycles < -self.found[0][0]

    def add(self, cycles: int, ranked: _Ranked) -> None:
        """Add one."""
        self.count += 1
        if self.takes(cycles):
            full = len(self.found) == _MOST_LOOKED_AT
            (heapq.heapreplace if full else heapq.heappush)(self.found, (-cycles, -self.count, ranked))


def _best_first(ways: Sequence[Setting], *, windows: bool) -> list[_Ranked]:
    """Return the tilings that fit with the lowest estimates, the lowest first."""
    lowest = _Lowest()
    for setting in ways:
        _rank(setting, lowest, windows=windows)
    return [x for *_, x in sorted(lowest.found, key=lambda x: (-x[0], -x[1]))]


def _too_small(setting: Setting) -> Iterator[str]:
    """Yield the memories in which not even the smallest tiles stand side by side."""
    least = dict.fromkeys(setting.group.blocks, 1)
    needed = setting.buffers()
    for memory in dict.fromkeys(b.laid.memory for b in needed):
        size = sum(tile_units(b, least) for b in needed if b.laid.memory == memory)
        if size > setting.room(memory):
            yield f"{memory} has {setting.room(memory)} units, and the smallest tiles take {size}"


def _rank(setting: Setting, lowest: _Lowest, *, windows: bool) -> None:
    """Add the tilings of a group that fit, with an estimate of their time."""
    group = setting.group
    result = group.steps[-1].operands[group.steps[-1].main.meaning.instruction.written].loops
    loops = list(group.blocks)
    choices = [_counts(group, s, is_whole=not windows and s not in result) for s in loops]
    order_of = [s for s in loops if s in result]
    estimate = Estimate(setting)
    for chosen in itertools.product(*choices):
        counts = dict(zip(loops, chosen, strict=True))
        if not estimate.fits(counts):
            continue
        known = estimate.of(counts)
        if not lowest.takes(known.least):
            continue
        moving = [s for s in order_of if counts[s] < group.blocks[s]]
        still = [s for s in order_of if s not in moving]
        for outer in itertools.permutations(moving):
            lowest.add(known.cycles(outer), (setting, counts, (*still, *outer)))


def _counts(group: Group, s: Sym, *, is_whole: bool) -> list[int]:
    """Return lengths of tiles of a loop, the longest first; of a window that is not divided, its own."""
    n = group.blocks[s]
    if is_whole and group.loops[s].name in ("kh", "kw"):
        return [n]
    return list(dict.fromkeys(-(-n // parts) for parts in SPLITS if parts <= n))


def _slots(setting: Setting, counts: Mapping[Sym, int], share: int = 1) -> tuple[int, ...]:
    """Return how many tiles of each operand are in the device at once, in a part of each memory."""
    needed = setting.buffers()
    left = {b.laid.memory: setting.room(b.laid.memory) // share for b in needed}
    sizes = [tile_units(b, counts) for b in needed]
    for b, size in zip(needed, sizes, strict=True):
        left[b.laid.memory] -= size
    slots, useful = [1] * len(needed), [_useful(setting.group, b, counts) for b in needed]
    for most in range(2, _MOST_SLOTS + 1):
        for at, (b, size) in enumerate(zip(needed, sizes, strict=True)):
            if slots[at] == most - 1 and most <= useful[at] and size <= left[b.laid.memory]:
                slots[at] += 1
                left[b.laid.memory] -= size
    return tuple(slots)


def with_rooms(setting: Setting, tiling: Tiling, share: int) -> Tiling:
    """Return a tiling with as many slots as fit into a part of each memory; as it is where one does not."""
    if not Estimate(setting, share).fits(tiling.counts):
        return tiling
    return replace(tiling, slots=_slots(setting, tiling.counts, share))


def _useful(group: Group, b: Buffer, counts: Mapping[Sym, int]) -> int:
    """Return how many tiles of an operand there are; sums, which one queue alone touches, need one."""
    if b.tensor is None:
        return 1
    tiles = 1
    for s in b.laid.loops:
        tiles *= -(-group.blocks[s] // counts[s])
    return tiles
