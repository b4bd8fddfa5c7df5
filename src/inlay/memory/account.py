"""What a program takes of each memory, in bytes, and what is alive when it takes most.

Made of the plans that the program was compiled with and of its constants, for sizes of its dims:

    block      values with a place in it, for the whole call: at its critical moment some bytes of it are
               values, some were lost to alignment, and the rest is what packing could not use
    results    of the entry, and copies of those that do not own their bytes; out of a memory of fixed places
               they are the caller's and not in its sum
    values     allocated while the program runs, and tensors that the virtual machine makes
    scratch    of the kernel that runs, where nobody could plan it: for so many threads
    constants  in the file, or copied to the memory of a device

The sum without constants, with all copies, is what the runtime counts (`runtime.usage`): equal where the
plan is static, else an upper bound for calls that make each value once. Moments are the phases of kernels in
program order.

**Bound.** At each moment what is alive is needed, rounded up to the alignment; no plan of these values in
this order takes less than the most of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from inlay.arith.expr import Int
from inlay.base.span import Span
from inlay.machine.memory import Pool, PoolKind
from inlay.memory.plan import CONSTANTS, Counted, FunctionPlan, MemoryPart, Origin, Stored
from inlay.memory.size_classes import ALIGNMENT
from inlay.packing.buffer import align

_LONGEST = 80
"""Characters of a formula beyond which it is cut in a message."""

Sizes = Callable[[Int], int | None]
"""Gives the number that a size stands for; None where there is none."""


@dataclass(frozen=True, slots=True)
class Held:
    """What is alive at a moment.

    Attributes:
        names: of the tensors that share these bytes, one after the other.
        bytes: of it.
        origin: `block` for what has a place there, else what it is.
        producer: the kernel that writes it; empty for what is there before.
        user: the kernel that uses it last; empty for what stays.
        why: it has no place in the block; empty where it has.
        nodes: where in the source or the model the tensors come from.
    """

    names: tuple[str, ...]
    bytes: int
    origin: str
    producer: str
    user: str
    why: str = ""
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Account:
    """What a call takes of a memory, in bytes.

    Attributes:
        memory: its name.
        kind: how it comes to its bytes.
        capacity: how many it has; None where nothing bounds them.
        block: the sum of the blocks there.
        live, alignment, unused: parts of the block where the most of it is in use: values, what they are
            rounded up by, and the rest.
        results, copies, values, machine, scratch: what is allocated beside blocks, at most.
        constants: that are there as long as the program is loaded.
        inputs: that the caller has there.
        peak: of one call, without constants and inputs.
        lower_bound: no plan of these values in this order has a smaller peak.
        unshared: bytes of the values in blocks, side by side.
        buffers: how many values blocks have.
        steps: bytes in use at each moment, and behind the last one.
        moment: the number of the moment, from 1, where most is alive.
        at: the kernel and its phase then.
        held: what is alive then, the largest first.
        is_exact: whether a call takes just that, and not at most that.
        unknown: what has no size, or is made again and again, with the reason of each.
    """

    memory: str
    kind: PoolKind
    capacity: int | None
    block: int = 0
    live: int = 0
    alignment: int = 0
    unused: int = 0
    results: int = 0
    copies: int = 0
    values: int = 0
    machine: int = 0
    scratch: int = 0
    constants: int = 0
    inputs: int = 0
    peak: int = 0
    lower_bound: int = 0
    unshared: int = 0
    buffers: int = 0
    steps: tuple[int, ...] = ()
    moment: int = 0
    at: str = ""
    held: tuple[Held, ...] = ()
    is_exact: bool = True
    unknown: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Bytes of a call and of constants."""
        return self.peak + self.constants

    @property
    def proved(self) -> bool:
        """Whether no plan of these values in this order takes less."""
        return self.peak == self.lower_bound


@dataclass(frozen=True, slots=True)
class Around:
    """What the plans do not say.

    Attributes:
        pools: the memories, the host's first.
        sizes: numbers for sizes over dims.
        threads: that scratch memory is for, where each has its own. Where there are several, kernels may
            run at once, and the scratch memory of all is taken to be there all the time.
        constants: bytes in the file.
        inputs: bytes of the inputs of the entry that the caller has.
    """

    pools: Sequence[Pool]
    sizes: Sizes
    threads: int = 1
    constants: int = 0
    inputs: int = 0


@dataclass(slots=True)
class _Sum:
    """What is summed for one memory, over functions."""

    parts: list[tuple[FunctionPlan, MemoryPart]] = field(
        default_factory=list[tuple[FunctionPlan, MemoryPart]]
    )
    counted: list[tuple[FunctionPlan, Counted]] = field(default_factory=list[tuple[FunctionPlan, Counted]])
    constants: int = 0


def accounts_of(
    plans: Sequence[FunctionPlan], entry: str, others: Iterable[str], around: Around
) -> tuple[Account, ...]:
    """Return the account of each memory that a program uses, the host's first.

    Args:
        plans: of all functions, and of constants.
        entry: the function that is called.
        others: entries that are not called, and need nothing.
        around: what the plans do not say.
    """
    left, first = set(others) - {entry}, around.pools[0].name if around.pools else ""
    sums: dict[str, _Sum] = {p.name: _Sum() for p in around.pools} or {"": _Sum()}
    functions = [p for p in plans if p.name not in left and p.name != CONSTANTS]
    for plan in functions:
        for part in plan.parts:
            sums[part.memory or first].parts.append((plan, part))
        for c in (*plan.counted, *plan.machine):
            sums[c.memory or first].counted.append((plan, c))
    for part in (part for p in plans if p.name == CONSTANTS for part in p.parts):
        sums[part.memory or first].constants += part.block.value or 0
    sums[first].constants += around.constants
    main = next((p for p in functions if p.name == entry), FunctionPlan(entry, (), ()))
    single = all(p is main or not (p.parts or p.counted or p.machine) for p in functions)
    made = (_account(name, s, main, around, is_single=single) for name, s in sums.items())
    return tuple(a for a in made if a.memory == first or a.total)


def _account(memory: str, s: _Sum, main: FunctionPlan, around: Around, *, is_single: bool) -> Account:
    pool = next((p for p in around.pools if p.name == memory), Pool(memory, PoolKind.HEAP))
    unknown = _again(s, main) if pool.kind is PoolKind.HEAP else []
    blocks = [
        _number(part.block, f"the block of {plan.name}", around.sizes, unknown) or ALIGNMENT
        for plan, part in s.parts
    ]  # an empty block has room for one empty tensor
    sized = [(plan, c, _counted(c, around, unknown)) for plan, c in s.counted]
    # Copies that leave a memory of fixed places are the caller's, elsewhere.
    stays = pool.kind is not PoolKind.HEAP
    mine = [(c, z) for plan, c, z in sized if plan is main and not (stays and c.origin is Origin.COPY)]
    own = [(m, around.sizes(m.bytes) or 0) for plan, part in s.parts if plan is main for m in part.members]
    # What other functions have is there all the time: when they are called is not looked at.
    always = sum(b for (plan, _), b in zip(s.parts, blocks, strict=True) if plan is not main)
    moments, step = main.moments, ALIGNMENT if pool.kind is PoolKind.HEAP else pool.alignment
    alive = [always + x for x in _steps(((m.first, m.last, align(z, step)) for m, z in own), moments)]
    called = sum(size for plan, _, size in sized if plan is not main)
    beside = [called + x for x in _steps((_life(c, size, moments, around) for c, size in mine), moments)]
    left = alive[-1] if pool.kind is PoolKind.HEAP else 0
    steps = (*(sum(blocks) + x for x in beside[:-1]), beside[-1] + left)
    is_static = is_single and not unknown and _is_exact(sized, around)
    # What may not be allocated in a call proves nothing.
    certain = beside if is_static else [0] * len(beside)
    # Where most is alive: what there is forbids a smaller block.
    best = max(range(len(alive)), key=lambda k: alive[k] + certain[k])
    fullest = alive.index(max(alive)) + 1
    # A block goes with the last of its values where kernels do not overlap, which may be before that moment.
    last = max((m.last for m, _ in own), default=moments)
    is_there = any(x == max(steps) for k, x in enumerate(steps, 1) if k <= last or k > moments)
    live = always + sum(size for m, size in own if m.first <= fullest <= m.last)
    return Account(
        memory,
        pool.kind,
        pool.bytes,
        block=sum(blocks),
        live=live,
        alignment=max(alive) - live,
        unused=sum(blocks) - max(alive),
        **_sums(sized, around),
        constants=s.constants,
        inputs=around.inputs if pool is around.pools[0] else 0,
        peak=max(steps) if moments else max(sum(blocks), *steps),
        lower_bound=alive[best] + certain[best],
        unshared=sum(_number(part.total, "", around.sizes, []) for _, part in s.parts),
        buffers=sum(part.planned for _, part in s.parts),
        steps=steps,
        moment=best + 1,
        at=main.where(best + 1),
        held=_held(own, mine, main, best + 1),
        is_exact=is_static and is_there,
        unknown=tuple(dict.fromkeys(unknown)),
    )


def _again(s: _Sum, main: FunctionPlan) -> list[str]:
    """Return what is said of functions that may be active several times."""
    others = dict.fromkeys(plan.name for plan, _ in (*s.parts, *s.counted) if plan is not main)
    return [f"{name}: a function with memory of its own, which may be active again" for name in others]


def _sums(sized: Sequence[tuple[FunctionPlan, Counted, int]], around: Around) -> dict[str, Any]:
    """Return what is allocated beside blocks, by what it is; of scratch memory what is there at once."""
    found = {o: [size for _, c, size in sized if c.origin is o] for o in Origin}
    scratch = (max if around.threads == 1 else sum)([0, *found[Origin.SCRATCH]])
    return {
        "results": sum(found[Origin.RESULT]),
        "copies": sum(found[Origin.COPY]),
        "values": sum(found[Origin.VALUE]),
        "machine": sum(found[Origin.MACHINE]),
        "scratch": scratch,
    }


def _life(c: Counted, size: int, moments: int, around: Around) -> tuple[int, int, int]:
    """Return between which moments something is there, and its bytes."""
    if c.origin is Origin.SCRATCH and around.threads > 1:
        return 1, moments, size
    return c.first, c.last, size


def _number(size: Int, what: str, sizes: Sizes, unknown: list[str]) -> int:
    found = sizes(size)
    if found is None:
        formula = str(size)
        formula = formula if len(formula) <= _LONGEST else f"{formula[:_LONGEST]}..."
        unknown.append(f"{what}: {formula} bytes, over dims without a size")
    return found or 0


def _counted(c: Counted, around: Around, unknown: list[str]) -> int:
    """Return the bytes of what is allocated while the program runs, once; note where it is unbounded."""
    if c.inside and c.origin is not Origin.SCRATCH:
        unknown.append(f"{c.name}: made anew in every turn of '{c.inside}', for {c.why}")
    if c.bytes is None:
        unknown.append(f"{c.name}: of a size that is known when it is made, for {c.why}")
        return 0
    size = _number(c.bytes, c.name, around.sizes, unknown)
    return align(size, ALIGNMENT) * around.threads if c.per_part and around.threads > 1 else size


def _is_exact(sized: Sequence[tuple[FunctionPlan, Counted, int]], around: Around) -> bool:
    """Whether all of it is allocated in every call: results, and scratch memory for one thread."""
    return all(
        c.origin in (Origin.RESULT, Origin.COPY) or (c.origin is Origin.SCRATCH and around.threads == 1)
        for _, c, _ in sized
    )


def _steps(lives: Iterable[tuple[int, int, int]], moments: int) -> list[int]:
    """Return for each moment, and for the end, the sum of sizes that are alive, given first, last, size."""
    change = [0] * (moments + 3)
    for first, last, size in lives:
        change[max(first, 1)] += size
        change[min(last, moments + 1) + 1] -= size
    return list(accumulate(change))[1 : moments + 2]


def _held(
    own: Sequence[tuple[Stored, int]], counted: Sequence[tuple[Counted, int]], main: FunctionPlan, moment: int
) -> tuple[Held, ...]:
    found = [
        Held(m.names, size, "block", main.kernel(m.first), main.kernel(m.last), "", _nodes(m.spans))
        for m, size in own
        if m.first <= moment <= m.last
    ]
    found += [
        Held(
            (c.name,),
            size,
            str(c.origin),
            main.kernel(c.first),
            main.kernel(c.last),
            c.why,
            _nodes((c.span,)),
        )
        for c, size in counted
        if c.first <= moment <= c.last
    ]
    return tuple(sorted(found, key=lambda h: -h.bytes))


def _nodes(spans: Iterable[Span]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(s) for s in spans if s))
