"""Packs storages whose sizes are integers over dims, for every value of those.

Packing needs numbers. Sizes are therefore sorted into *classes*: a size is `c * u` with a number `c`
and a unit `u` that is a primitive polynomial over dims (`b*s` for `1536*b*s` and `6144*b*s`; 1 for
plain numbers). Within a class all sizes and offsets are multiples of `u`, so packing the numbers `c`
packs the sizes, for every value of the dims. Classes lie behind each other. Coefficients are rounded
up to the alignment where that is small in comparison; else the rounded size is a unit of its own, so
that every offset stays aligned whatever the dims are.

The packing is done by `packing` and always checked by its independent checker. The lower bound of a
class is the largest sum of sizes in use at one position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from inlay.arith.expr import Int, ceildiv, lit
from inlay.memory.lifetimes import Storage
from inlay.packing.buffer import Buffer
from inlay.packing.plan import plan as pack

ALIGNMENT = 64
"""Bytes; every storage of a block begins at a multiple of it."""

SEARCH_STEPS = 4_000
"""Effort of the search behind the greedy orders; see `packing.plan`."""

_ROUNDING = 16
"""A coefficient is rounded up to the alignment when that adds less than 1/16 of it."""


@dataclass(frozen=True, slots=True)
class Packed:
    """The storages of one class: `offset * unit` from the beginning of the class.

    Attributes:
        unit: what all sizes are multiples of.
        size: of the class, in units.
        bound: no packing is smaller, in units.
        offsets: of each storage, in units.
    """

    unit: Int
    size: int
    bound: int
    offsets: Mapping[Storage, int]


def pack_chains(storages: Sequence[Storage]) -> list[Packed]:
    """Pack the storages of each chain by themselves."""
    chains = sorted({s.chain for s in storages})
    return [packed for n in chains for packed in pack_classes([s for s in storages if s.chain == n])]


def pack_classes(storages: Sequence[Storage]) -> list[Packed]:
    """Pack storages of one memory, class by class; numbers first."""
    classes: dict[Int, list[tuple[Storage, int]]] = {}
    for storage in storages:
        unit, count = _unit(storage.bytes)
        classes.setdefault(unit, []).append((storage, count))
    ordered = sorted(classes.items(), key=lambda item: (item[0].value is None, item[0].key))
    return [_pack_class(unit, members) for unit, members in ordered]


def _unit(size: Int) -> tuple[Int, int]:
    """Return a unit and how many of it a storage of this size takes, aligned."""
    if size.value is not None:
        return lit(1), -(-size.value // ALIGNMENT) * ALIGNMENT
    factor = 0
    for _, c in size.terms:
        factor = gcd(factor, c)
    rounded = -(-factor // ALIGNMENT) * ALIGNMENT
    if (rounded - factor) * _ROUNDING <= factor:
        return size // factor, rounded
    return ceildiv(size, ALIGNMENT) * ALIGNMENT, 1


def _pack_class(unit: Int, members: Iterable[tuple[Storage, int]]) -> Packed:
    pairs = list(members)
    # A class of symbolic unit counts in units; its offsets need no alignment beyond that.
    step = gcd(*(count for _, count in pairs)) or 1  # all may be empty
    buffers = [Buffer(s.name, s.start, s.end + 1, count // step) for s, count in pairs]
    result = pack(buffers, steps=SEARCH_STEPS)
    offsets = {s: o * step for (s, _), o in zip(pairs, result.offsets, strict=True)}
    return Packed(unit, result.peak * step, result.lower_bound * step, offsets)
