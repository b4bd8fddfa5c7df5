"""Matches that are to be in one stream, and what their operands look like to each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from inlay.accel.group import Group
from inlay.accel.layout import Laid
from inlay.accel.stages import Value
from inlay.accel.tile import Scheduled
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
