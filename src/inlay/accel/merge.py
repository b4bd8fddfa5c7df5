"""Several matches as one stream: values between them stay in the region, and weights come early.

    conv -> conv -> sum        a stream each: every value goes to the host and comes back in another form
    conv; conv; sum            one stream: the array of units that one match stores is what the next one loads

A value between two matches has the same units on both sides, or they are not merged. It stays in the device
where that has room for it (`resident`), or leaves it and comes back. Tiles of a match stand
behind those of the match before in each memory, as far as there is room, so that the first copies of the
next match do not wait for its last instructions; the number of its slots is also tried as if memories were
half as large. What is fastest in simulated time is taken, of all that was tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from inlay.accel.accelerator import Architecture
from inlay.accel.commands import Planned
from inlay.accel.declare import Access
from inlay.accel.group import Tensor, align_of
from inlay.accel.keep import choices, settings_of
from inlay.accel.layout import Laid
from inlay.accel.member import Member, form_of
from inlay.accel.plan import MOST_COMMANDS, Part, Setting, Tiling, plan
from inlay.accel.reorder import earlier
from inlay.accel.resident import Kept, placed
from inlay.accel.stages import Untiled
from inlay.accel.tile import Scheduled, result_of, search, with_rooms
from inlay.accel.waits import in_order
from inlay.ir.expr import Expr

_MOST_TRIED = 3
"""Tilings that are simulated for a match where values stay."""


_MOST_ORDERED = 2
"""Streams that get tokens and are simulated, of those whose order was looked for."""


@dataclass(frozen=True, slots=True)
class _Draft:
    """A stream without tokens.

    Attributes:
        parts, brought, result, bytes: as of `Scheduled`.
        planned, commands: match after match, and so that copies begin early.
        cycles: what those take without tokens.
    """

    parts: tuple[Part, ...]
    brought: tuple[Tensor, ...]
    result: Tensor
    bytes: int
    planned: Sequence[Planned]
    commands: Sequence[Planned]
    cycles: int


@dataclass(slots=True)
class Merging:
    """What merges matches of an architecture, and remembers the tiles that were found for settings."""

    arch: Architecture
    found: dict[object, Tiling] = field(default_factory=dict[object, Tiling])

    def merged(self, members: Sequence[Member]) -> Scheduled:
        """Return matches, in the order of the program, as one stream.

        Raises:
            Untiled: a value between two of them has another form on each side, or commands are too many.
        """
        first = members[0].group.launches
        if any([x.extent for x in m.group.launches] != [x.extent for x in first] for m in members):
            raise Untiled("matches run over other images")
        drafts: list[_Draft] = []
        for kept in choices(self.arch, members):
            try:
                drafts += self._drafts(members, kept)
            except Untiled:
                if not drafts:
                    raise
        drafts.sort(key=lambda d: d.cycles)
        streams = [(d, d.commands) for d in drafts[:_MOST_ORDERED]] + [(drafts[0], drafts[0].planned)]
        made = (Scheduled(d.parts, d.brought, d.result, d.bytes, *in_order(self.arch, x)) for d, x in streams)
        return min(made, key=lambda s: s.timing.total)

    def _drafts(self, members: Sequence[Member], kept: Sequence[Kept]) -> Iterator[_Draft]:
        """Yield streams in which some values stay, with slots for all of a memory, and for half of it."""
        arch, residents = self.arch, placed(self.arch, kept)
        assert residents is not None, "what stays has room"
        settings = settings_of(members, kept, residents)
        tensors, brought, size = _tensors(arch, members, settings)
        result = tensors[-1][result_of(members[-1].group).laid]
        tilings = [self._tiling(m, s) for m, s in zip(members, settings, strict=True)]
        fills = [(k.lower, f) for k, r in zip(kept, residents, strict=True) for f in k.fills(arch, r)]
        before: list[tuple[int, ...]] = []
        for share in (1, 2):
            parts = _placed(settings, tilings, tensors, share)
            slots = [p.tiling.slots for p in parts]
            if slots == before:
                return
            before = slots
            planned = [c for at, p in enumerate(parts) for c in (*(f for n, f in fills if n == at), *plan(p))]
            if len(planned) > MOST_COMMANDS:
                raise Untiled(f"more than {MOST_COMMANDS} commands")
            yield _Draft(parts, brought, result, size, planned, *earlier(planned))

    def _tiling(self, m: Member, setting: Setting) -> Tiling:
        """Return the tiles of a match where values stay; those that it has by itself where nothing does."""
        (alone,) = m.scheduled.parts
        if not setting.residents and not setting.rooms:
            return alone.tiling
        key = (m.group, frozenset(setting.residents), tuple(sorted(setting.rooms.items())))
        if key not in self.found:
            self.found[key] = search([setting], _MOST_TRIED).parts[0].tiling
        return self.found[key]


def _tensors(
    arch: Architecture, members: Sequence[Member], settings: Sequence[Setting]
) -> tuple[list[dict[Laid, Tensor]], tuple[Tensor, ...], int]:
    """Return where operands of each match are outside, those that the host brings, and the bytes."""
    at = 0
    known: dict[Expr, list[Tensor]] = {}
    found: list[dict[Laid, Tensor]] = []
    brought: list[Tensor] = []
    for number, m in enumerate(members):
        mine: dict[Laid, Tensor] = {}
        inner, last = {x.result for x in members[:number]}, number == len(members) - 1
        for x, old in m.group.tensors.items():
            if x in settings[number].residents:  # it stays, or is moved to where it stays
                continue
            source = m.sources.get(x.whole) if x.whole is not None else None
            same = (
                [t for t in known.get(source, ()) if form_of(t.laid) == form_of(x)]
                if source is not None
                else []
            )
            if same:
                mine[x] = Tensor(x, old.copy, same[0].at, source in inner, number)
                continue
            if source in inner:
                raise Untiled("a value has another form for who reads it than for who computes it")
            align = align_of(arch, x.unit)
            at = -(-at // align) * align
            mine[x] = Tensor(x, old.copy, at, x.access is not Access.READ and not last, number)
            at += mine[x].bytes
            if source is not None:
                known.setdefault(source, []).append(mine[x])
            if x.access is Access.READ:
                brought.append(mine[x])
        found.append(mine)
    return found, tuple(brought), at


def _placed(
    settings: Sequence[Setting],
    tilings: Sequence[Tiling],
    tensors: Sequence[Mapping[Laid, Tensor]],
    share: int,
) -> tuple[Part, ...]:
    """Return where tiles of each match begin: behind those of the match before, or at the front."""
    made: list[Part] = []
    ends: dict[str, int] = {}
    for setting, tiling, own in zip(settings, tilings, tensors, strict=True):
        part = Part(setting, with_rooms(setting, tiling, share), own)
        starts: dict[str, int] = {}
        for memory, size in part.sizes().items():
            begin = ends.get(memory, 0)
            starts[memory] = begin if begin + size <= setting.room(memory) else 0
            ends[memory] = starts[memory] + size
        made.append(replace(part, starts=starts))
    return tuple(made)
