"""A match whose instructions are chosen: its loops, what stands in which memory, what copies bring.

steps     one for each stage: the instruction, and the one that sets a sum to 0 before it
tensors   what is brought in or out, as arrays of units in the memory of the board
sums      what only lives in the device
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from inlay.accel.accelerator import Architecture
from inlay.accel.declare import Access, Instruction
from inlay.accel.engines import Copy, Stream
from inlay.accel.layout import Laid, block_lanes, laid
from inlay.accel.stages import Loop, Stage, Stages, Untiled, Value, clearing
from inlay.accel.unify import Meaning, Unified, unify
from inlay.arith.expr import Sym, lit, symbols

MOST_WAYS = 4
UNFINISHED = "no instruction computes what is done to each element"


@dataclass(frozen=True, slots=True)
class Step:
    """A stage and its instructions.

    Attributes:
        main: what computes it.
        clear: what sets a sum to 0 first.
        operands: of `main`, by name.
    """

    main: Unified
    clear: Unified | None
    operands: Mapping[str, Laid]

    @property
    def reductions(self) -> tuple[Loop, ...]:
        """The loops that are not over the result."""
        inside = {s for e in self.main.stage.at for s in symbols(e)}
        return tuple(x for x in self.main.stage.loops if x.sym not in inside)


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """What copies bring in or out.

    Attributes:
        laid: as units.
        copy: who brings it; its name.
        at: bytes from the base of the region in the memory of the board.
        is_between: whether one stream writes it and reads it again.
        part: of a stream: the number of the match whose operand it is.
    """

    laid: Laid
    copy: str
    at: int
    is_between: bool = False
    part: int = 0

    @property
    def bytes(self) -> int:
        """Bytes in the memory of the board."""
        return self.laid.units * self.laid.unit


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """A match whose instructions are chosen.

    Attributes:
        arch: the architecture.
        steps: in order.
        result: the value that it computes.
        loops: all, by symbol; those over the result first.
        blocks: how far each goes, in blocks where units divide it.
        tensors: by their operands.
        launches: loops that are launches of their own, the one loop over images at most.
        bytes: of all tensors in the memory of the board.
    """

    arch: Architecture
    steps: tuple[Step, ...]
    result: Value
    loops: Mapping[Sym, Loop]
    blocks: Mapping[Sym, int]
    tensors: Mapping[Laid, Tensor]
    launches: tuple[Loop, ...]
    bytes: int


def groups(
    arch: Architecture, found: Stages, meanings: Sequence[Meaning], most: int = MOST_WAYS
) -> Iterator[Group]:
    """Yield the ways to compute a match, those with fewer cycles of instructions first.

    Args:
        arch: the architecture.
        found: the match.
        meanings: of its instructions.
        most: ways of one stage that are followed: those with the fewest cycles.

    Raises:
        Untiled: there is none.
    """
    launches = tuple(x for x in found.loops if x.extent.value is None)
    if any(x is not found.loops[0] for x in launches):
        raise Untiled(f"an axis of {launches[-1].extent}: streams have numbers")
    ways = [_ways(arch, stage, meanings, found) for stage in found.stages]
    failures: dict[str, None] = {}
    any_group = False
    for chosen in sorted(_together(ways, most), key=lambda c: sum(_cycles(arch, u) for u, _ in c)):
        try:
            group = _group(arch, chosen, launches)
        except Untiled as failure:
            failures[str(failure)] = None
            continue
        any_group = True
        yield group
    if not any_group:
        raise Untiled("; ".join(failures) or "no instruction computes a part of it")


_Way = tuple[Unified, Unified | None]


def _together(ways: Sequence[Sequence[_Way]], most: int) -> Iterator[tuple[_Way, ...]]:
    """Yield ways of all stages: the fastest of the first, each with the fastest that divide the same blocks.

    What is done to each element can be done along any axis where all its constants are one number, and the
    fastest of all may be none along which sums stand.
    """
    first, *rest = ways
    for way in first[:most]:
        blocks = block_lanes(way[0])
        fitting = ([w for w in x if _divides_alike(w[0], blocks)] or x for x in rest)
        yield from itertools.product([way], *(x[:most] for x in fitting))


def _divides_alike(u: Unified, blocks: Mapping[Sym, int]) -> bool:
    mine = block_lanes(u)
    return all(mine.get(x.sym, 1) == blocks.get(x.sym, 1) for x in u.stage.loops)


def _ways(arch: Architecture, stage: Stage, meanings: Sequence[Meaning], found: Stages) -> list[_Way]:
    """Return the instructions that compute a stage, fastest first."""
    ways: list[_Way] = []
    for u in (u for m in meanings for u in unify(m, stage, found.values)):
        clear = _clearing(u, meanings, found) if stage.is_sum else None
        if clear is not None or not stage.is_sum:
            ways.append((u, clear))
    if not ways:
        if not stage.is_sum:
            raise Untiled(f"{UNFINISHED}: {found.told(stage)}")
        each = "" if any(x.name == "ic" for x in stage.loops) else " of each channel by itself"
        raise Untiled(f"no instruction computes a sum of products{each}: {found.told(stage)}")
    ways.sort(key=lambda way: _cycles(arch, way[0]))
    return ways


def _clearing(u: Unified, meanings: Sequence[Meaning], found: Stages) -> Unified | None:
    written = u.meaning.instruction.written
    memory = u.meaning.instruction.operands[written].memory
    for m in meanings:
        i = m.instruction
        if i.operands[i.written].memory is memory and i.queue is u.meaning.instruction.queue:
            for c in unify(m, clearing(u.stage), found.values):
                mine = [u.axes[s] for e in u.meaning.at for s in symbols(e)]
                if [c.axes[s] for e in m.at for s in symbols(e)] == mine:
                    return c
    return None


def _cycles(arch: Architecture, u: Unified) -> int:
    """Return the cycles of all commands of a stage, if a command could be as large as its dims."""
    sizes: dict[Sym, int] = {}
    commands = 1
    taken: set[Sym] = set()
    for sym, extent in u.meaning.loops:
        loop = u.axes[sym]
        if loop is None:
            sizes[sym] = 1
            continue
        taken.add(loop.sym)
        if extent.value is None:
            sizes[sym] = loop.extent.value or 1
        else:
            commands *= -(-(loop.extent.value or 1) // extent.value)
    for loop in u.stage.loops:
        if loop.sym not in taken:
            commands *= loop.extent.value or 1
    return commands * command_cycles(arch, u, sizes)


def command_cycles(arch: Architecture, u: Unified, sizes: Mapping[Sym, int]) -> int:
    """Return the cycles of a command, for the lengths of its instruction's loops."""
    dims = [(extent.atom, sizes[sym]) for sym, extent in u.meaning.loops if isinstance(extent.atom, Sym)]
    dims += [(x.sym, u.immediates[name]) for name, x in u.meaning.instruction.immediates.items()]
    return _cycles_of(arch, u.meaning.instruction, tuple(dims))


@functools.lru_cache(maxsize=1 << 14)
def _cycles_of(arch: Architecture, i: Instruction, dims: tuple[tuple[Sym, int], ...]) -> int:
    found = arch.number(i.cycles, {s: lit(n) for s, n in dims}).value
    assert found is not None, "cycles are over dims, immediates and parameters"
    return found


def _group(arch: Architecture, chosen: Sequence[_Way], launches: tuple[Loop, ...]) -> Group:
    lanes: dict[Sym, int] = {}
    for u, _ in chosen:
        mine = block_lanes(u)
        for loop in u.stage.loops:
            before = lanes.setdefault(loop.sym, mine.get(loop.sym, 1))
            if before != mine.get(loop.sym, 1):
                raise Untiled(f"the blocks of {loop.name} differ from one instruction to the next")
    divided = {s: n for s, n in lanes.items() if n > 1}
    away = frozenset(x.sym for x in launches)
    steps: list[Step] = []
    for u, clear in chosen:
        operands = {n: laid(arch, u, n, divided, away) for n in u.meaning.instruction.operands}
        steps.append(Step(u, clear, operands))
    loops = {x.sym: x for u, _ in chosen for x in u.stage.loops if x not in launches}
    blocks = {s: -(-(x.extent.value or 1) // divided.get(s, 1)) for s, x in loops.items()}
    result = chosen[-1][0].stage.result
    _check_sums(steps)
    tensors, size = _tensors(arch, steps)
    return Group(arch, tuple(steps), result, loops, blocks, tensors, launches, size)


def sums_of(step: Step) -> Iterator[tuple[str, Value]]:
    """Yield operands of a step that only live in the device."""
    for name, x in step.operands.items():
        value = x.whole
        if value is not None and value.source is None and value.factor is None:
            yield name, value


def _check_sums(steps: Sequence[Step]) -> None:
    seen: dict[Value, Laid] = {}
    for step in steps:
        for name, value in sums_of(step):
            x = step.operands[name]
            before = seen.setdefault(value, x)
            if (before.memory, before.unit, before.axes) != (x.memory, x.unit, x.axes):
                raise Untiled(f"sums are in {before.memory}, and read from {x.memory} in another form")


def _tensors(arch: Architecture, steps: Sequence[Step]) -> tuple[dict[Laid, Tensor], int]:
    made: dict[Laid, Tensor] = {}
    at = 0
    for step in steps:
        inner = {name for name, _ in sums_of(step)}
        for name, x in step.operands.items():
            if name in inner:
                continue
            copy = _copy(arch, x)
            align = align_of(arch, x.unit)
            at = -(-at // align) * align
            made[x] = Tensor(x, copy, at)
            at += made[x].bytes
    if steps[-1].operands[steps[-1].main.meaning.instruction.written] not in made:
        raise Untiled(
            "its result stays in the device: no instruction brings it to a memory that is copied out"
        )
    return made, at


def align_of(arch: Architecture, unit: int) -> int:
    """Return to what operands with such units are aligned in the memory of the board, in bytes."""
    emit = type(arch.device).emit
    align = emit.align if isinstance(emit, Stream) else 1
    return unit if unit % align == 0 else unit * align


def _copy(arch: Architecture, x: Laid) -> str:
    """Return the name of the copy that brings an operand in or out."""
    into = x.access is Access.READ
    for name, copy in arch.description.copies.items():
        is_its = arch.description.memories[x.memory] is copy.chip and not copy.is_inside
        if is_its and copy.into_chip is into:
            return name
    raise Untiled(f"no copy brings anything {'to' if into else 'from'} {x.memory}")


def copy_of(arch: Architecture, name: str) -> Copy:
    """Return a copy by its name."""
    return arch.description.copies[name]
