"""Several matches as one stream: values between them stay in the region, and weights come early.

    conv -> conv -> sum        a stream each: every value goes to the host and comes back in another form
    conv; conv; sum            one stream: the array of units that one match stores is what the next one loads

A value between two matches has the same units on both sides, or they are not merged. Tiles of a match stand
behind those of the match before in each memory, as far as there is room, so that the first copies of the
next match do not wait for its last instructions; the number of its slots is also tried as if memories were
half as large. What is fastest in simulated time is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from inlay.accel.accelerator import Architecture
from inlay.accel.commands import Planned
from inlay.accel.declare import Access
from inlay.accel.group import Group, Tensor, align_of
from inlay.accel.layout import Laid
from inlay.accel.plan import MOST_COMMANDS, Part, plan, room
from inlay.accel.reorder import earlier
from inlay.accel.stages import Untiled, Value
from inlay.accel.tile import Scheduled, in_order, result_of, with_rooms
from inlay.ir.expr import Expr

Form = tuple[int, tuple[int, ...], str]
"""What two arrays of units must have in common to be one."""


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """A match that is to be in a stream.

    Attributes:
        scheduled: by itself.
        sources: the values of the program that its operands and its result are; constants are left out.
    """

    scheduled: Scheduled
    sources: Mapping[Value, Expr]

    @property
    def group(self) -> Group:
        """The instructions of the match."""
        return self.scheduled.parts[0].group

    @property
    def result(self) -> Expr:
        """The value that it computes."""
        value = self.scheduled.result.laid.whole
        assert value is not None, "a result is no record"
        return self.sources[value]

    def forms(self) -> Iterator[tuple[Expr, Form]]:
        """Yield the arrays of units that its operands and its result are."""
        return forms_in(self.group, self.sources)


def forms_in(group: Group, sources: Mapping[Value, Expr]) -> Iterator[tuple[Expr, Form]]:
    """Yield the arrays of units that values of the program are in a match."""
    for x in group.tensors:
        if x.whole is not None and x.whole in sources:
            yield sources[x.whole], form_of(x)


def form_of(x: Laid) -> Form:
    """Return what an array of units looks like, wherever it came from."""
    fields = [(f.dtype.name, f.lanes) for f in x.fields]
    return x.unit, tuple(a.extent for a in x.axes), str(fields)


def merged(arch: Architecture, members: Sequence[Member]) -> Scheduled:
    """Return matches, in the order of the program, as one stream.

    Raises:
        Untiled: a value between two of them has another form on each side, or commands are too many.
    """
    first = members[0].group.launches
    if any([x.extent for x in m.group.launches] != [x.extent for x in first] for m in members):
        raise Untiled("matches run over other images")
    tensors, brought, size = _tensors(arch, members)
    best: Scheduled | None = None
    for share in (1, 2):
        parts = _placed(members, tensors, share)
        commands = [c for p in parts for c in plan(p)]
        if len(commands) > MOST_COMMANDS:
            raise Untiled(f"more than {MOST_COMMANDS} commands")
        for order in (commands, earlier(commands)):
            best = _faster(
                arch, best, parts, order, (brought, tensors[-1][result_of(members[-1].group).laid], size)
            )
    assert best is not None, "one order at least was tried"
    return best


def _faster(
    arch: Architecture,
    best: Scheduled | None,
    parts: tuple[Part, ...],
    commands: Sequence[Planned],
    outside: tuple[tuple[Tensor, ...], Tensor, int],
) -> Scheduled:
    """Return the faster one of a stream and the best one so far."""
    stream, timing = in_order(arch, commands)
    if best is not None and best.timing.total <= timing.total:
        return best
    brought, result, size = outside
    return Scheduled(parts, brought, result, size, stream, timing)


def _tensors(
    arch: Architecture, members: Sequence[Member]
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
    members: Sequence[Member], tensors: Sequence[Mapping[Laid, Tensor]], share: int
) -> tuple[Part, ...]:
    """Return where tiles of each match begin: behind those of the match before, or at the front."""
    made: list[Part] = []
    ends: dict[str, int] = {}
    for m, own in zip(members, tensors, strict=True):
        (alone,) = m.scheduled.parts
        tiling = with_rooms(alone.group, alone.tiling, share)
        part = replace(alone, tensors=own, tiling=tiling)
        starts: dict[str, int] = {}
        for memory, size in part.sizes().items():
            begin = ends.get(memory, 0)
            starts[memory] = begin if begin + size <= room(m.group, memory) else 0
            ends[memory] = starts[memory] + size
        made.append(replace(part, starts=starts))
    return tuple(made)
