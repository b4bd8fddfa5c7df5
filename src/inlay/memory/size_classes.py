"""Packs storages whose sizes are integers over dims, for every value of those.

Packing needs numbers. Sizes are therefore sorted into *classes*: a size is `k * u` with a number `k`
and a unit `u` that is a primitive polynomial over dims (`b*s` for `1536*b*s` and `6144*b*s`; 1 for
plain numbers). Classes lie behind each other, and inside a class the numbers are packed.

**Alignment.** A packing of the numbers gives each storage a number p, so that of two storages which are
in use at the same time, one lies above the other: `p_j >= p_i + k_i`. The storage is then at

    offset_i = 64 * floor(p_i * u / 64) + 64 * depth_i

where `depth_j` is 0 for a storage with nothing below it, and else the largest `depth_i` of those
below it that are in use at the same time, plus one unless `p_j` is a multiple of 64. That keeps the
two apart for every value u >= 0, by cases:

* `p_j` is a multiple of 64: `offset_j = p_j * u + 64 * depth_j >= p_i * u + k_i * u + 64 * depth_i`,
  and the offset of i is at most `p_i * u + 64 * depth_i`.
* It is not: `offset_j > p_j * u - 64 + 64 * (depth_i + 1) >= p_i * u + k_i * u + 64 * depth_i`.

So every offset is aligned, all sizes of one unit share bytes whatever the dims are, and the block is at
most `64 * (deepest + 1)` bytes larger than the packing of the numbers. Large numbers are rounded up to the
alignment, where that adds little, so that mostly the small ones pay for it.

Sizes that are rounded up themselves, and sums with a number, are `k * u` and a *rest*: at most `64 * r`
bytes more. Then `depth_j` is larger by `r_i`, too. A size of one summand that is rounded up to the
alignment has no rest: offsets are multiples of it, so what is apart by `k_i * u` is apart by that.

**Units that others cover.** Where facts about dims say that a unit is never less than another one (`b*s`
and `b`, if `s >= 1`), storages of the lesser unit take bytes of the greater one wherever those are free
anyway, that is, where the packing does not become larger by them.

The packing is done by `packing` and always checked by its independent checker. The lower bound of a
class is the largest sum of sizes in use at one position.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

from inlay.arith.bounds import Range, bounds
from inlay.arith.expr import Atom, FloorDiv, Int, Monomial, Sym, ceildiv, from_atom, lit
from inlay.memory.activations import Storage
from inlay.packing.buffer import Buffer, align
from inlay.packing.plan import plan as pack

ALIGNMENT = 64
"""Bytes; every storage of a block begins at a multiple of it."""

SEARCH_STEPS = 4_000
"""Effort of the search behind the greedy orders; see `packing.plan`."""

_ROUNDING = 16
"""A number is rounded up to the alignment when that adds less than 1/16 of it."""

_TRIES = 20_000
"""How many placements are tried to find storages of a lesser unit room in a greater one."""


@dataclass(frozen=True, slots=True)
class Member:
    """A storage of a class: `count` units, and `rest` times the alignment."""

    storage: Storage
    count: int
    rest: int = 0


@dataclass(frozen=True, slots=True)
class Packed:
    """The storages of one class.

    Attributes:
        unit: what sizes are multiples of.
        size: bytes of the class, a multiple of the alignment.
        bound: bytes that no packing of the class can do without.
        offsets: of each storage, from the beginning of the class.
    """

    unit: Int
    size: Int
    bound: Int
    offsets: Mapping[Storage, Int]


def pack_chains(storages: Sequence[Storage], ranges: Mapping[Sym, Range] | None = None) -> list[Packed]:
    """Pack the storages of each chain by themselves."""
    chains = sorted({s.chain for s in storages})
    return [p for n in chains for p in pack_classes([s for s in storages if s.chain == n], ranges)]


def pack_classes(storages: Sequence[Storage], ranges: Mapping[Sym, Range] | None = None) -> list[Packed]:
    """Pack storages of one memory, class by class; numbers first.

    Args:
        storages: of one memory.
        ranges: what is known of the dims in their sizes.
    """
    classes: dict[Int, list[Member]] = {}
    for storage in storages:
        unit, count, rest = measure(storage.bytes)
        classes.setdefault(unit, []).append(Member(storage, count, rest))
    ordered = sorted(classes.items(), key=lambda item: (item[0].value is None, item[0].key))
    if ranges is not None:
        ordered = _covered(dict(ordered), ranges)
    return [_pack_class(unit, members) for unit, members in ordered]


def measure(size: Int) -> tuple[Int, int, int]:
    """Return a unit u, a number k, and a rest r: from an aligned offset on, the size ends not after
    `align(k * u) + 64 * r`.
    """
    if size.value is not None:
        return lit(1), align(size.value, ALIGNMENT), 0
    plain, rounded = _without_rounding(size)
    if plain.value is not None or any(c < 0 for _, c in plain.terms):
        plain, rounded = size, 0
    number = plain.constant
    plain = plain - number
    # Multiples of the alignment all, so that the last of the summands is rounded with the whole.
    is_multiple = all(c % ALIGNMENT == 0 for _, c in size.terms)
    rest = -(-number // ALIGNMENT) + rounded - (is_multiple and rounded > 0)
    factor = 0
    for _, c in plain.terms:
        factor = gcd(factor, c)
    up = align(factor, ALIGNMENT)
    count = up if (up - factor) * _ROUNDING <= factor else factor
    return plain // factor, count, rest


def _without_rounding(size: Int) -> tuple[Int, int]:
    """Return a sum without the rounding of its summands, and how many are rounded.

    `64 * r * ((e + 63) // 64)` is at most `r * e + 63 * r`.
    """
    plain, rounded = lit(0), 0
    for monomial, c in size.terms:
        term = Int(((monomial, c),))
        match monomial:
            case (FloorDiv(numerator=above, denominator=below),) if (
                below.value == ALIGNMENT and above.constant >= ALIGNMENT - 1 and c > 0 and c % ALIGNMENT == 0
            ):
                times = c // ALIGNMENT
                plain = plain + (above - (ALIGNMENT - 1)) * times
                rounded += times
            case _:
                plain = plain + term
    return plain, rounded


def _pack_class(unit: Int, members: Sequence[Member]) -> Packed:
    step = gcd(*(m.count for m in members)) or 1  # all may be empty
    result = pack(_buffers(members, step), steps=SEARCH_STEPS)
    at = [offset * step for offset in result.offsets]
    depths = _depths(members, at)
    offsets = {
        m.storage: _aligned_down(unit * p) + ALIGNMENT * depth
        for m, p, depth in zip(members, at, depths, strict=True)
    }
    size = result.peak * step
    block = unit * size if size % ALIGNMENT == 0 else ceildiv(unit * size, ALIGNMENT) * ALIGNMENT
    deepest = max((d + m.rest for m, d in zip(members, depths, strict=True)), default=0)
    return Packed(unit, block + ALIGNMENT * deepest, unit * (result.lower_bound * step), offsets)


def _buffers(members: Sequence[Member], step: int = 1) -> list[Buffer]:
    return [Buffer(m.storage.name, m.storage.start, m.storage.end + 1, m.count // step) for m in members]


def _aligned_down(offset: Int) -> Int:
    if all(c % ALIGNMENT == 0 for _, c in offset.terms):
        return offset
    return offset // ALIGNMENT * ALIGNMENT


def _depths(members: Sequence[Member], at: Sequence[int]) -> list[int]:
    """Return the depth of each storage; see the head of this file.

    Cost: quadratic, but linear where every offset is a multiple of the alignment and nothing has a rest.
    """
    depths = [0] * len(members)
    uneven = [p % ALIGNMENT != 0 for p in at]
    if not any(uneven) and not any(m.rest for m in members):
        return depths
    order = sorted((i for i, m in enumerate(members) if m.count), key=lambda i: (at[i], i))
    for position, j in enumerate(order):
        upper, storage = at[j], members[j].storage
        for i in order[:position]:
            below, other = members[i], members[i].storage
            if at[i] + below.count <= upper and other.start <= storage.end and storage.start <= other.end:
                depths[j] = max(depths[j], depths[i] + below.rest + uneven[j])
    return depths


# ------------------------------------------------------------------------------- covered units


def _covered(classes: dict[Int, list[Member]], ranges: Mapping[Sym, Range]) -> list[tuple[Int, list[Member]]]:
    """Move storages to classes of greater units in which they cost nothing."""
    # The largest units first: what they leave over takes part in the next.
    for unit in sorted(classes, key=lambda u: (-_degree(u), u.key)):
        for lesser in [u for u in classes if u != unit]:
            times = _times(lesser, unit, ranges)
            if times is None:
                continue
            moved = _fitting(classes[unit], [replace(m, count=m.count * times) for m in classes[lesser]])
            taken = {m.storage for m in moved}
            classes[unit] += moved
            classes[lesser] = [m for m in classes[lesser] if m.storage not in taken]
    return [(unit, members) for unit, members in classes.items() if members]


def _degree(unit: Int) -> int:
    return max((len(monomial) for monomial, _ in unit.terms), default=0)


def _times(lesser: Int, unit: Int, ranges: Mapping[Sym, Range]) -> int | None:
    """Return a number n with `lesser <= n * unit`, found term by term; None for none.

    A term `c * m` is at most `c * m'` where m' has all factors of m, and others that are 1 at least.
    Terms with negative factors are at most 0, since atoms are not negative here.
    """
    terms = dict(unit.terms)
    if any(c < 0 for c in terms.values()) or not terms:
        return None
    atoms = {a for e in (lesser, unit) for monomial, _ in e.terms for a in monomial}
    low = {a: bounds(from_atom(a), ranges).low for a in atoms}
    if any(x is None or x < 0 for x in low.values()):
        return None
    needed: Counter[Monomial] = Counter()
    for monomial, c in lesser.terms:
        if c <= 0:
            continue
        cover = next((m for m in terms if _at_most(Counter(monomial), Counter(m), low)), None)
        if cover is None:
            return None
        needed[cover] += c
    return max((-(-n // terms[m]) for m, n in needed.items()), default=0)


def _at_most(a: Counter[Atom], b: Counter[Atom], low: Mapping[Atom, int | None]) -> bool:
    """Whether a product of atoms is at most another one."""
    return a <= b and all((low[atom] or 0) >= 1 for atom in b - a)


def _fitting(members: Sequence[Member], more: Sequence[Member]) -> list[Member]:
    """Return those of some more storages that go with members at no cost."""
    peak = _peak(members)
    if _peak([*members, *more]) <= peak:
        return list(more)
    found: list[Member] = []
    tries = _TRIES // (len(members) + len(more))
    for member in sorted(more, key=lambda m: -m.count)[:tries]:
        if _peak([*members, *found, member]) <= peak:
            found.append(member)
    return found


def _peak(members: Sequence[Member]) -> int:
    return pack(_buffers(members), steps=0).peak
