"""Which values stay in the device between matches of one stream.

Those that may stay are tried from all on. Where they do not fit together, or a match has too little room left
for its tiles, the largest that is there meanwhile leaves the device. How little is too little is tried both
ways: the tiles that a match has by itself, and the smallest ones. What is fastest is for who simulates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from inlay.accel.accelerator import Architecture
from inlay.accel.estimate import Estimate
from inlay.accel.member import Member, form_of
from inlay.accel.plan import Setting
from inlay.accel.resident import Kept, Resident, placed, rooms_of
from inlay.arith.expr import Sym
from inlay.packing.bounds import critical_moment
from inlay.packing.buffer import Buffer


def choices(arch: Architecture, members: Sequence[Member]) -> Iterator[tuple[Kept, ...]]:
    """Yield sets of values that may stay together: none, and as many as have room."""
    yield ()
    all_that_may = [k for k in _values(members) if k.can_stay(arch)]
    seen: list[tuple[Kept, ...]] = [()]
    for own_tiles in (False, True):
        found = _fitting(arch, members, all_that_may, own_tiles=own_tiles)
        if found not in seen:
            seen.append(found)
            yield found


def settings_of(
    members: Sequence[Member], kept: Sequence[Kept], residents: Sequence[Resident]
) -> list[Setting]:
    """Return where each match is computed.

    Args:
        members: the matches.
        kept: the values that stay.
        residents: where each is.
    """
    made: list[Setting] = []
    for number, m in enumerate(members):
        mine = {x: r for k, r in zip(kept, residents, strict=True) for at, x in k.operands if at == number}
        moves = {
            k.writer: mover
            for k in kept
            if k.writer in mine and k.memory != k.writer.memory and (mover := k.mover(m.group.arch))
        }
        made.append(Setting(m.group, mine, rooms_of(kept, residents, number), moves))
    return made


def _values(members: Sequence[Member]) -> Iterator[Kept]:
    """Yield what each match but the last computes, where those that read it see it in the same form."""
    for lower, m in enumerate(members[:-1]):
        written = m.scheduled.result.laid
        readers = [
            (at, x)
            for at, other in enumerate(members)
            for x in other.group.tensors
            if at > lower and x.whole is not None and other.sources.get(x.whole) is m.result
        ]
        if readers and all(form_of(x) == form_of(written) for _, x in readers):
            blocks: dict[Sym, int] = {}
            for at, _ in readers:
                blocks |= members[at].group.blocks
            yield Kept(((lower, written), *readers), blocks)


def _fitting(
    arch: Architecture, members: Sequence[Member], kept: Sequence[Kept], *, own_tiles: bool
) -> tuple[Kept, ...]:
    """Return values that have room together, and leave enough for tiles."""
    left = list(kept)
    while left:
        residents = placed(arch, left)
        if residents is None:
            buffers = [Buffer("", k.lower, k.upper, k.units) for k in left]
            crowded = critical_moment(buffers).moment
        else:
            settings = settings_of(members, left, residents)
            least = [_counts(m, own_tiles=own_tiles) for m in members]
            crowded = next(
                (n for n, (s, c) in enumerate(zip(settings, least, strict=True)) if not Estimate(s).fits(c)),
                None,
            )
        if crowded is None:
            break
        there = [k for k in left if k.lower <= crowded < k.upper]
        left.remove(max(there, key=lambda k: k.units))
    return tuple(left)


def _counts(m: Member, *, own_tiles: bool) -> Mapping[Sym, int]:
    """Return the tiles that a match needs room for."""
    (alone,) = m.scheduled.parts
    return alone.tiling.counts if own_tiles else dict.fromkeys(m.group.blocks, 1)
