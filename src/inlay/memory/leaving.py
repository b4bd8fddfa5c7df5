"""Which result of an entry is made in the block, and leaves it when the call ends.

A result has an allocation of its own, because its caller keeps it and the block stays. Most of a block is
dead when a result is made, so there it would take nothing. It can leave in two ways, and the runtime takes
the first that there is (`runtime/src/marshal.c`):

* *With the block*, where that is hardly larger: the caller has some bytes more, the next call a new block.
* *As pages*: the system moves whole pages out of the block without copying them, and the runtime's block has
  fresh ones in their place (Linux). Moving takes `MOVE_NS`, and the next call that touches fresh pages
  `PAGE_NS` for each, which is far more than copying them. So this is for results that are small beside what
  is computed for them.

Elsewhere it would be copied, beside the block as before, so it is not put there. One result of an entry is,
the largest that may: who else refers to a block is all that the runtime looks at. None is where results are
copied anyway, or have structure (lists, options), because the runtime copies those in order, with the block.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from inlay.arith.bounds import bounds
from inlay.arith.expr import Int
from inlay.ir.expr import Function, Var
from inlay.ir.kernel import Kernel
from inlay.ir.types import TensorType
from inlay.memory.activations import IN_RESULT, Activation, Storage
from inlay.memory.choose_memories import HOST, Chosen, Known, MemoryOptions
from inlay.memory.dynamic import stored_results
from inlay.memory.size_classes import ALIGNMENT
from inlay.packing.bounds import max_live
from inlay.packing.buffer import Buffer

FEWEST_BYTES = 65_536
"""Of a result that leaves as pages; `INLAY_LIFT_BYTES` of the runtime."""
LARGEST_SHARE = 4
"""A result that leaves as pages is at most this part of the block."""
LEAST_WORK = 40
"""Predicted time of a call whose result leaves as pages, in the time that this takes."""
MOVE_NS, PAGE_NS, PAGE_BYTES = 30_000, 3_000, 4_096
"""Measured on virtual machines of servers: 64 KB, of which the product of 64 x 384 by 384 x 256 takes 47 us,
left in 50 us."""
SMALL_BLOCK = 16_384
"""Bytes of a block that leaves with a result."""

_SMALL_STORAGE, _PART = 4096, 3
"""Storages beyond so many bytes of which a tensor has less than this part stay behind (`is_part` in C)."""


def with_result(
    chosen: Chosen,
    activation: Activation,
    known: Known,
    options: MemoryOptions,
    called: Collection[str],
    kernels: Mapping[str, Kernel],
) -> Chosen:
    """Return choices with a result in the block where one may be; its storage then lives to the end.

    Args:
        chosen: where storages go.
        activation: of an entry or of any other function.
        known: of it when it begins.
        options: whether results leave as pages.
        called: functions that others of the program call.
        kernels: of the program, which say how long they take.
    """
    if not known.is_entry or known.is_recursive or activation.name in called or HOST not in chosen.heap:
        return chosen
    own_results = _own_results(activation.function)
    work = predicted_ns(activation, kernels, lambda x: bounds(x, known.ranges).low or 0)
    inside = [_buffer(s, s.end, known) for s in chosen.heap[HOST]]
    is_small = all(bounds(s.bytes, known.ranges).high is not None for s in chosen.heap[HOST])
    largest = [_buffer(s, s.end, known, least=False) for s in chosen.heap[HOST]] if is_small else []
    fitting: list[tuple[int, Storage]] = []
    for storage, where in chosen.counted.items():
        is_result = where == (HOST, IN_RESULT) and not own_results.isdisjoint(storage.vars)
        if not is_result or storage.unknown(known.symbols) is not None:
            continue
        own = _buffer(storage, activation.positions, known)
        most = max_live([*largest, own]) if is_small else None
        if leaves(own.size, max_live([*inside, own]), most, storage, options, work):
            fitting.append((own.size, storage))
    if not fitting:
        return chosen
    _, found = max(fitting, key=lambda x: x[0])
    found.end = activation.positions
    heap = {**chosen.heap, HOST: _in_order([*chosen.heap[HOST], found])}
    return replace(chosen, heap=heap, counted={s: w for s, w in chosen.counted.items() if s is not found})


def leaves_bank(results: Sequence[Storage], size: int, options: MemoryOptions) -> Storage | None:
    """Return which of the results in a block of fixed places takes it along; the others are copied.

    The runtime lets results go in turn, those that could be pages first, and the last one has the block for
    itself. A small part of a large block is copied or leaves as pages even so.

    Args:
        results: in the order of the entry.
        size: of the block.
        options: whether results leave as pages.
    """

    def is_part(storage: Storage) -> bool:
        return size > _SMALL_STORAGE and (storage.bytes.value or 0) < size // _PART

    def is_lifted(storage: Storage) -> bool:
        return options.lifts and is_part(storage) and (storage.bytes.value or 0) >= FEWEST_BYTES

    *_, last = sorted(results, key=is_lifted, reverse=True)
    return None if is_part(last) and not (is_lifted(last) and len(results) == 1) else last


def _own_results(function: Function) -> frozenset[Var]:
    """Return the storages of results; none where a result shares its storage, or is no tensor."""
    found = [s for leaf, s in stored_results(function) if isinstance(leaf.type, TensorType)]
    storages = frozenset(s for s in found if s is not None)
    return storages if len(storages) == len(stored_results(function)) else frozenset()


def leaves(
    size: int, block: int, most: int | None, storage: Storage, options: MemoryOptions, work: int
) -> bool:
    """Whether a result of so many bytes leaves a block of at least and at most so many without being copied.

    A result that is too small for pages is copied as soon as the block is much larger, whatever the sizes.
    `work` is the predicted time of the call in nanoseconds.
    """
    is_most = most is not None and most <= SMALL_BLOCK and 3 * most <= 5 * size
    if storage.bytes.value is not None and is_most:
        return True
    is_short = work < LEAST_WORK * (MOVE_NS + PAGE_NS * size // PAGE_BYTES)
    return options.lifts and FEWEST_BYTES <= size <= block // LARGEST_SHARE and not is_short


def predicted_ns(
    activation: Activation, kernels: Mapping[str, Kernel], value_of: Callable[[Int], int]
) -> int:
    """Return what the kernels that an activation calls are predicted to take, in nanoseconds.

    Args:
        activation: each kernel counts once, also where its call is in a loop.
        kernels: of the program; what others take is not counted.
        value_of: the value of an expression over the dims.
    """
    found = (kernels[x.kernel].cost_ns for x in activation.kernels if x.kernel in kernels)
    return sum(value_of(time) for time in found if time is not None)


def _buffer(storage: Storage, end: int, known: Known, *, least: bool = True) -> Buffer:
    """Return a storage as it is where dims are as small as they can be, or as large."""
    found = bounds(storage.bytes, known.ranges)
    size = (found.low if least else found.high) or 0
    return Buffer(storage.name, storage.start, end + 1, max(size, 0), ALIGNMENT)


def _in_order(storages: Sequence[Storage]) -> list[Storage]:
    return sorted(storages, key=lambda s: (s.start, s.end))
