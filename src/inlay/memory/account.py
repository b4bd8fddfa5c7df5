"""What a program takes of each memory, in bytes, and what is alive when it takes most.

Made of the plans that the program was compiled with and of its constants, for sizes of its dims:

    block      values with a place in it, for the whole call: at its critical moment some bytes of it are
               values, some were lost to alignment, and the rest is what packing could not use
    results    of the entry, and copies of those that do not own their bytes; out of a memory of fixed places
               they are the caller's and not in its sum
    values     allocated while the program runs, and tensors that the virtual machine makes
    scratch    of the kernel that runs, where nobody could plan it: for so many threads
    functions  what is called and has memory of its own, with all of the above (`timeline`)
    regions    of devices that are programmed by streams, as long as the program is loaded
    constants  in the file, or copied to the memory of a device

The sum without constants, with all copies, is what the runtime counts (`runtime.usage`): equal where the
plan is static, else an upper bound for calls that make each value once. Moments are the phases of kernels in
program order.

**Bound.** At each moment what is alive is needed, rounded up to the alignment; no plan of these values in
this order takes less than the most of that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from inlay.base.span import Span
from inlay.machine.memory import Pool, PoolKind
from inlay.memory.plan import CONSTANTS, REGIONS, Counted, FunctionPlan, MemoryPart, Origin, Stored
from inlay.memory.size_classes import ALIGNMENT
from inlay.memory.timeline import Heap, Item, Sizes, Timeline, steps_of
from inlay.packing.buffer import align


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
        block: of the entry, there; in memories of a fixed size the sum of all blocks.
        live, alignment, unused: parts of the block where the most of it is in use: values, what they are
            rounded up by, and the rest.
        results, copies, values, machine, scratch: what is allocated beside blocks, at most.
        functions: what calls of functions have, at most at once.
        calls: the same at each moment, as `steps`.
        constants: that are there as long as the program is loaded.
        regions: likewise, what streams of devices work in.
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
    functions: int = 0
    calls: tuple[int, ...] = ()
    constants: int = 0
    regions: int = 0
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
        """Bytes of a call, and of what is there as long as the program is loaded."""
        return self.peak + self.constants + self.regions

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
    functions = [p for p in plans if p.name not in left and p.name not in (CONSTANTS, REGIONS)]
    names = [p.name for p in around.pools] or [""]
    loaded = {what: dict.fromkeys(names, 0) for what in (CONSTANTS, REGIONS)}
    for what, part in ((p.name, part) for p in plans if p.name in loaded for part in p.parts):
        loaded[what][part.memory or first] += part.block.value or 0
    loaded[CONSTANTS][first] += around.constants
    main = next((p for p in functions if p.name == entry), FunctionPlan(entry, (), ()))
    made = (
        replace(
            _account(name, main, functions, first, around),
            constants=loaded[CONSTANTS][name],
            regions=loaded[REGIONS][name],
        )
        for name in names
    )
    return tuple(a for a in made if a.memory == first or a.total)


def _account(
    memory: str, main: FunctionPlan, functions: Sequence[FunctionPlan], first: str, around: Around
) -> Account:
    """Return the account of a memory, without what is there as long as the program is loaded."""
    pool = next((p for p in around.pools if p.name == memory), Pool(memory, PoolKind.HEAP))
    heap = Heap({p.name: p for p in functions}, memory, first, around.sizes, around.threads)
    parts = [(p, part) for p in functions for part in p.parts if (part.memory or first) == memory]
    sized = [
        (c, heap.size_of(c, main, None))
        for c in (*main.counted, *main.machine)
        if (c.memory or first) == memory
    ]
    own = [(m, around.sizes(m.bytes) or 0) for plan, part in parts if plan is main for m in part.members]
    if pool.kind is PoolKind.HEAP:
        t, always = heap.timeline(main), 0
    else:
        # Copies that leave a memory of fixed places are the caller's, elsewhere.
        sized_here = [(c, n) for c, n in sized if c.origin is not Origin.COPY]
        t, always = _fixed(main, parts, own, sized_here, pool, around)
    best = max(range(len(t.needed)), key=lambda k: t.needed[k])
    fullest = t.alive.index(max(t.alive)) + 1
    live = always + sum(size for m, size in own if m.first <= fullest <= m.last)
    return Account(
        memory,
        pool.kind,
        pool.bytes,
        block=t.block,
        live=live,
        alignment=max(t.alive) - live,
        unused=t.block - max(t.alive),
        **_sums(sized, around),
        functions=max(t.calls),
        calls=tuple(t.calls),
        inputs=around.inputs if pool is around.pools[0] else 0,
        peak=max(t.steps),
        lower_bound=t.needed[best],
        unshared=sum(around.sizes(part.total) or 0 for _, part in parts),
        buffers=sum(part.planned for _, part in parts),
        steps=tuple(t.steps),
        moment=best + 1,
        at=main.where(best + 1),
        held=_held(own, [(c, n, heap.last_of(c, main)[0]) for c, n in sized], main, best + 1, t.calls[best]),
        is_exact=t.is_exact and not heap.unknown,
        unknown=tuple(heap.unknown),
    )


def _fixed(
    main: FunctionPlan,
    parts: Sequence[tuple[FunctionPlan, MemoryPart]],
    own: Sequence[tuple[Stored, int]],
    beside: Sequence[tuple[Counted, int]],
    pool: Pool,
    around: Around,
) -> tuple[Timeline, int]:
    """Return what is in a memory of a fixed size, and the bytes there of functions that are called.

    Each function has a part of its own there, which is there all the time.
    """
    blocks = [(plan, around.sizes(part.block) or ALIGNMENT) for plan, part in parts]
    always, block = sum(n for plan, n in blocks if plan is not main), sum(n for _, n in blocks)
    items = [Item(m.first, m.last, align(n, pool.alignment)) for m, n in own]
    alive = [always + n for n in steps_of(items, main)]
    more = steps_of([Item(c.first, c.last, n) for c, n in beside], main)
    steps = [block + n for n in more[: max(main.moments, 1)]] + more[max(main.moments, 1) :]
    return Timeline(block, alive, steps, alive, [0] * len(alive), kept=0, spare=0, is_exact=True), always


def _sums(sized: Sequence[tuple[Counted, int]], around: Around) -> dict[str, Any]:
    """Return what is allocated beside blocks, by what it is; of scratch memory what is there at once."""
    found = {o: [size for c, size in sized if c.origin is o] for o in Origin}
    scratch = (max if around.threads == 1 else sum)([0, *found[Origin.SCRATCH]])
    return {
        "results": sum(found[Origin.RESULT]),
        "copies": sum(found[Origin.COPY]),
        "values": sum(found[Origin.VALUE]),
        "machine": sum(found[Origin.MACHINE]),
        "scratch": scratch,
    }


def _held(
    own: Sequence[tuple[Stored, int]],
    counted: Sequence[tuple[Counted, int, int]],
    main: FunctionPlan,
    moment: int,
    called: int,
) -> tuple[Held, ...]:
    found = [
        Held(m.names, size, "block", main.kernel(m.first), main.kernel(m.last), "", _nodes(m.spans))
        for m, size in own
        if m.first <= moment <= m.last
    ]
    for c, size, last in counted:
        if c.first <= moment <= last:
            begin, end = main.kernel(c.first), main.kernel(last)
            found.append(Held((c.name,), size, str(c.origin), begin, end, c.why, _nodes((c.span,))))
    if called:
        name = main.kernel(moment)
        found.append(Held((f"what a {name} has",), called, "function", name, name))
    return tuple(sorted(found, key=lambda h: -h.bytes))


def _nodes(spans: Iterable[Span]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(s) for s in spans if s))
