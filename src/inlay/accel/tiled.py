"""A match for instructions in the memories of a device: its stages, and the schedule that was found for it.

What it looks like depends on shapes and attributes alone, so matches that differ in constants have one
schedule.
Whether multipliers round as the program does depends on constants; it is decided where they are known,
before a match is offered.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from inlay.accel.accelerator import Architecture
from inlay.accel.encode import encoded
from inlay.accel.group import UNFINISHED, groups
from inlay.accel.member import Form, Member, forms_in
from inlay.accel.merge import Merging
from inlay.accel.pattern import Node
from inlay.accel.plan import Part, Setting
from inlay.accel.rounding import reach, terms
from inlay.accel.stages import Stages, Untiled, Value, forms_of
from inlay.accel.tile import Scheduled, search
from inlay.accel.unify import Meaning, meanings
from inlay.accel.waits import said_of
from inlay.arith.expr import Int
from inlay.ir.expr import Call, Const, Expr

_MOST_WAYS, _MOST_FITTED = 4, 200


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """What was made for all matches of some shapes.

    Attributes:
        scheduled: the schedule.
        words: of its stream.
        stages: of the matches that it was made for; those of others have their values in the same order.
    """

    scheduled: Scheduled
    words: bytes
    stages: tuple[Stages, ...]


@dataclass(frozen=True)
class TiledCommand:
    """A match that a stream computes.

    Attributes:
        pattern: that was found.
        calls: the operations that it does, the result last.
        stages: what they are: of each match that is in it.
        made: the schedule, and the words of its stream; None where there are reasons.
        reasons: all that speaks against it.
    """

    pattern: str
    calls: tuple[Call, ...]
    stages: tuple[Stages, ...]
    made: Made | None
    reasons: tuple[str, ...]

    def cycles(self, arch: Architecture) -> Int:
        """Return how long it takes, over the dims of the program."""
        assert self.made is not None, "it is offered without reasons"
        one = arch.number(type(arch.device).launch_cycles) + self.made.scheduled.timing.total
        for loop in self.made.scheduled.launches:
            one = one * loop.extent
        return one

    @property
    def total(self) -> int:
        """The cycles of a launch, without what starting it takes."""
        assert self.made is not None, "it is offered without reasons"
        return self.made.scheduled.timing.total

    @property
    def length(self) -> int:
        """How many commands its stream has."""
        assert self.made is not None, "it is offered without reasons"
        return len(self.made.scheduled.stream)

    @property
    def result(self) -> Expr:
        """The value of the program that it computes."""
        return self.stages[-1].found[self.stages[-1].result]

    @property
    def operands(self) -> tuple[Expr, ...]:
        """The values that it reads, without constants; of a single match."""
        values = self.stages[0].values.values()
        found = (v.source for v in values if v.source is not None and not v.is_constant)
        return tuple(dict.fromkeys(x for x in found if x is not self.result))

    @property
    def has_axes(self) -> bool:
        """Whether a constant is another one along an axis of its result."""
        return any(v.is_constant and v.buffer.shape for s in self.stages for v in s.values.values())

    @property
    def note(self) -> str:
        """What explanations say of its schedule."""
        assert self.made is not None, "it is offered without reasons"
        s, t = self.made.scheduled, self.made.scheduled.timing
        several = len(s.parts) > 1
        of = f"{len(s.parts)} matches" if several else f"tiles of {_tiles(s.parts[0])}"
        hidden = f"{t.hidden * 100 // t.moving} %" if t.moving else "nothing"
        return (
            f"a stream of {len(s.stream)} commands in {t.total} cycles, {of}; "
            f"{said_of(s.parts[0].group.arch, s.stream)}; "
            f"{t.moving} cycles of copies, {hidden} of that while instructions run"
        )

    def values(self, part: int) -> dict[Value, Value]:
        """Return for each value of the schedule of a match the one that it is here."""
        assert self.made is not None, "it is run without reasons"
        theirs, own = self.made.stages[part], self.stages[part]
        return dict(zip(theirs.values.values(), own.values.values(), strict=True))

    def member(self) -> Member:
        """Return a single match as one that may be merged with others."""
        assert self.made is not None, "it is offered without reasons"
        values = self.values(0).items()
        sources = {v: own.source for v, own in values if own.source is not None and not own.is_constant}
        return Member(self.made.scheduled, sources)


def _tiles(part: Part) -> str:
    names = {x.sym: x.name for x in part.group.loops.values()}
    return (
        ", ".join(
            f"{names[loop]} {n} of {part.group.blocks[loop]}"
            for loop, n in part.tiling.counts.items()
            if n < part.group.blocks[loop]
        )
        or "everything"
    )


class Tiler:
    """Finds schedules for one architecture; equal shapes are searched once."""

    def __init__(self, arch: Architecture) -> None:
        self._arch = arch
        self._made: dict[str, Made | str] = {}

    @cached_property
    def _merging(self) -> Merging:
        return Merging(self._arch)

    @cached_property
    def _meanings(self) -> list[Meaning]:
        return list(meanings(self._arch))

    def command(
        self,
        pattern: str,
        calls: tuple[Call, ...],
        result: Node,
        found: Mapping[Node, Expr],
        attrs: Mapping[Node, Mapping[str, Any]],
        reasons: Sequence[str],
    ) -> TiledCommand:
        """Return the command for a match; why it cannot be is in it."""
        if reasons:
            return TiledCommand(pattern, calls, (), None, tuple(reasons))
        failures: dict[str, None] = {}
        for form in forms_of(attrs):
            try:
                stages = Stages.of(result, found, attrs, form)
                made = self._schedule(pattern, stages)
            except Untiled as failure:
                failures[str(failure)] = None
                continue
            try:
                _check_numbers(stages)
            except Untiled as failure:
                return TiledCommand(pattern, calls, (), None, (str(failure),))
            return TiledCommand(pattern, calls, (stages,), made, ())
        # The nearest miss: a form that an instruction has, and that something else is in the way of.
        near = [x for x in failures if not x.startswith(UNFINISHED)] or list(failures)
        return TiledCommand(pattern, calls, (), None, tuple(near[:1]))

    def renamed(
        self, match: TiledCommand, named: Mapping[Expr, Expr], calls: tuple[Call, ...]
    ) -> TiledCommand | None:
        """Return a match with other operands and another result; None where it has no stream.

        Args:
            match: that was found, of one tensor that is computed element by element.
            named: the value that each of its values is to be.
            calls: the operations that it does then.
        """
        (old,) = match.stages
        found = {node: named.get(e, e) for node, e in old.found.items()}
        try:
            stages = Stages.of(old.result, found, old.attrs, old.form)
            return TiledCommand(match.pattern, calls, (stages,), self._schedule(match.pattern, stages), ())
        except Untiled:
            return None

    def merge(self, commands: Sequence[TiledCommand]) -> TiledCommand | None:
        """Return matches, in the order of the program, as one stream; None where they cannot be one.

        It is one stream where that takes less time than they take by themselves.
        """
        commands = self._fitting(commands)
        members = [c.member() for c in commands]
        numbers: dict[Expr, int] = {}
        said = [
            [numbers.setdefault(e, len(numbers)) for e in m.sources.values()]
            + [c.stages[0].key, c.stages[0].form]
            for m, c in zip(members, commands, strict=True)
        ]
        key = str(said)
        if key not in self._made:
            try:
                found = self._merging.merged(members)
                stages = tuple(c.made.stages[0] for c in commands if c.made is not None)
                self._made[key] = Made(found, encoded(self._arch, found.stream), stages)
            except Untiled as failure:
                self._made[key] = str(failure)
        made = self._made[key]
        if isinstance(made, str):
            return None
        pattern = f"merged_{len(commands)}"
        whole = tuple(x for c in commands for x in c.calls)
        return TiledCommand(pattern, whole, tuple(c.stages[0] for c in commands), made, ())

    def _fitting(self, commands: Sequence[TiledCommand]) -> list[TiledCommand]:
        """Return matches with arrays of units as products read and write them, where there are such ways.

        What is done to each element can be done in many orders of axes, products in few.
        """
        known: dict[Expr, Form] = {}
        made = list(commands)
        for at in sorted(range(len(made)), key=lambda n: made[n].stages[0].product is None):
            if made[at].stages[0].product is None:
                made[at] = self._fitted(made[at], known)
            for e, form in made[at].member().forms():
                known.setdefault(e, form)
        return made

    def _fitted(self, match: TiledCommand, known: Mapping[Expr, Form]) -> TiledCommand:
        """Return a match whose arrays have known forms; itself where it cannot have them."""
        (stages,) = match.stages
        wanted = {e: f for e, f in known.items() if e in (*match.operands, match.result)}
        if not wanted or all(wanted.get(e, f) == f for e, f in match.member().forms()):
            return match
        sources = {v: v.source for v in stages.values.values() if v.source is not None and not v.is_constant}
        numbers = {e: n for n, e in enumerate((*match.operands, match.result))}
        key = f"{match.pattern} {stages.key} as {sorted((numbers[e], f) for e, f in wanted.items())}"
        if key not in self._made:
            try:
                ways = groups(self._arch, stages, self._meanings, _MOST_FITTED)
                fitting = [g for g in ways if all(wanted.get(e, f) == f for e, f in forms_in(g, sources))]
                found = search([Setting(g) for g in fitting[:_MOST_WAYS]])
                self._made[key] = Made(found, encoded(self._arch, found.stream), (stages,))
            except Untiled as failure:
                self._made[key] = str(failure)
        made = self._made[key]
        return match if isinstance(made, str) else replace(match, made=made)

    def _schedule(self, pattern: str, stages: Stages) -> Made:
        key = f"{pattern} {stages.key}"
        if key not in self._made:
            try:
                ways = itertools.islice(groups(self._arch, stages, self._meanings), _MOST_WAYS)
                found = search([Setting(g) for g in ways])
                self._made[key] = Made(found, encoded(self._arch, found.stream), (stages,))
            except Untiled as failure:
                self._made[key] = str(failure)
        known = self._made[key]
        if isinstance(known, str):
            raise Untiled(known)
        return known


def constants(parts: Sequence[Stages], array_of: Mapping[Expr, np.ndarray]) -> dict[Value, np.ndarray]:
    """Return the constants of matches as their instructions read them.

    Args:
        parts: the matches.
        array_of: arrays of the constants of the program.

    Raises:
        Untiled: a multiplier of the device cannot round as the program does.
    """
    found: dict[Value, np.ndarray] = {}
    for stages in parts:
        found |= _constants_of(stages, array_of)
    return found


def _constants_of(stages: Stages, array_of: Mapping[Expr, np.ndarray]) -> dict[Value, np.ndarray]:
    found: dict[Value, np.ndarray] = {}
    for v in stages.values.values():
        if v.is_constant and v.source is not None:
            shape = [e.value or 0 for e in v.buffer.shape]
            found[v] = array_of[v.source].reshape(shape)
    for v in stages.values.values():
        if v.factor is not None:
            low, high = reach(stages, v.factor, found)
            made = terms(v.factor, [array_of[x] for x in v.factor.operands], low, high)
            found[v] = made[v.part == "shift"].reshape([e.value or 0 for e in v.buffer.shape])
    return found


def _check_numbers(stages: Stages) -> None:
    """Refuse a match whose multipliers cannot round as the program does, where constants are known."""
    sources = [v.source for v in stages.values.values() if v.is_constant and v.source is not None]
    sources += [x for v in stages.values.values() if v.factor is not None for x in v.factor.operands]
    known: dict[Expr, np.ndarray] = {
        x: x.value for x in sources if isinstance(x, Const) and isinstance(x.value, np.ndarray)
    }
    if len(known) == len(set(sources)):
        _constants_of(stages, known)
