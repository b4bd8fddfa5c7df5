"""Larger streams than matches: those that take transposes in, and several matches that are one stream.

What is done to each element is the same whatever the order of axes is. So a match of that kind between
transposes computes, from what those are of, what stands behind them; a device that has its own arrays of
units needs none of them.

Matches become one stream where each but the last is read by others of them alone. So no way leads out of
such a set and back into it, and one value comes out of it. Sets are as large as they can be; those of
products alone are offered as well, for what is between them may be faster on another device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from inlay.accel.tiled import TiledCommand, Tiler
from inlay.ir.expr import Call, Expr, OpRef, Var
from inlay.ops.layout import PermAttrs

_MOST_COMMANDS = 8_000
"""Commands of matches that are merged: their order is looked for in one piece."""

Matches = Mapping[Var, TiledCommand]
"""Matches of a block by the value that each computes, in the order of the program."""


class Member(Protocol):
    """A match that may be one of a set."""

    @property
    def calls(self) -> Sequence[Call]:
        """The operations that it does."""
        ...

    @property
    def operands(self) -> Sequence[Expr]:
        """The values that it reads, without constants."""
        ...

    @property
    def length(self) -> int:
        """How many commands it has."""
        ...


M = TypeVar("M", bound=Member)


def larger(
    tiler: Tiler, calls: Mapping[Var, Call], uses: Mapping[Var, int], matches: Matches
) -> Iterator[TiledCommand]:
    """Yield the larger streams of a block.

    Args:
        tiler: of the architecture.
        calls, uses: of the block: what its values are, and how often each is read.
        matches: without reasons against them.
    """
    known = dict(matches)
    for match in matches.values():
        for var, found in _without_transposes(tiler, calls, uses, match):
            known[var] = found
            yield found
    in_order = {var: known[var] for var in calls if var in known}
    products = {var: m for var, m in in_order.items() if m.stages[0].product is not None}
    seen: set[tuple[int, ...]] = set()
    for chain in (*chains(in_order, uses), *chains(products, uses)):
        mine = tuple(map(id, chain))
        found = tiler.merge(chain) if mine not in seen else None
        seen.add(mine)
        if found is not None:
            yield found


def _without_transposes(
    tiler: Tiler, calls: Mapping[Var, Call], uses: Mapping[Var, int], match: TiledCommand
) -> Iterator[tuple[Var, TiledCommand]]:
    """Yield a match with the transposes around it, where there are such."""
    (stages,) = match.stages
    result, operands = match.result, match.operands
    behind = [(v, c) for v, c in calls.items() if _transpose_of(c) is not None and c.args[0] is result]
    if (
        stages.product is not None
        or len(behind) != 1
        or not isinstance(result, Var)
        or uses.get(result) != 1
        or match.has_axes
    ):
        return
    ((var, last),) = behind
    perm = _transpose_of(last) or ()
    before = [(x, calls.get(x), uses.get(x)) for x in operands if isinstance(x, Var)]
    inverse = tuple(perm.index(axis) for axis in range(len(perm)))
    if any(c is None or _transpose_of(c) != inverse or n != 1 for _, c, n in before):
        return
    named: dict[Expr, Expr] = {x: c.args[0] for x, c, _ in before if c is not None}
    named[result] = var
    inner = tuple(c for _, c, _ in before if c is not None)
    found = tiler.renamed(match, named, (*inner, *match.calls, last))
    if found is not None:
        yield var, found


def _transpose_of(call: Call) -> tuple[int, ...] | None:
    if not isinstance(call.callee, OpRef) or call.callee.op.name != "transpose":
        return None
    attrs = call.callee.attrs
    assert isinstance(attrs, PermAttrs), "a transpose has its axes"
    return tuple(attrs.perm)


def chains(matches: Mapping[Var, M], uses: Mapping[Var, int]) -> Iterator[Sequence[M]]:
    """Yield sets of two matches or more, as large as they can be, in the order of the program."""
    taken: set[Var] = set()
    for last in reversed(list(matches)):
        if last in taken:
            continue
        inside = _grown(last, matches, uses, taken)
        taken |= inside
        if len(inside) > 1:
            yield [m for var, m in matches.items() if var in inside]


def _grown(last: Var, matches: Mapping[Var, M], uses: Mapping[Var, int], taken: set[Var]) -> set[Var]:
    """Return a match and all before it that only those are there for."""
    inside: set[Var] = set()
    read: Counter[Expr] = Counter()
    wanted: set[Expr] = set()
    pending, size = [last], 0
    while pending:
        var = pending[0]
        inside.add(var)
        size += matches[var].length
        read.update(x for call in matches[var].calls for x in call.args)
        wanted.update(matches[var].operands)
        pending = [
            v
            for v in matches
            if v in wanted and v not in inside and v not in taken and uses[v] == read[v]
            and size + matches[v].length <= _MOST_COMMANDS
        ]  # fmt: skip
    return inside
