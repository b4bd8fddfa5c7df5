"""Steps that are repeated, laid over a loop that was unrolled: fixed-function hardware for whole layers.

    y, h, c = p.repeat(step, over=gates, start=(h0, c0), times=(1, 128))

The step is laid over the values that the program has last, which says what the states before it are; then
over these, and so on until the first row of the sequence has been read. Constants of a step are the same in
all of them. Rows that steps read and leave are as `analysis/rows.py` says.

Values inside have several readers, all of them inside; what is read elsewhere has to be a result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from inlay.accel.overlay import Mismatch, Overlay
from inlay.accel.pattern import Node, Repeat, Repeated, below
from inlay.analysis.blocks import values
from inlay.analysis.loops import loops_of, turns_of
from inlay.analysis.rows import Row, row_of, rows_of
from inlay.ir.expr import Call, Expr, Function, OpRef, Var
from inlay.ir.types import TensorType


def lay_repeated(o: Overlay, results: Sequence[Repeated], last: Var) -> None:
    """Lay a repeated step, and what is in front of it, over a program.

    Results that nothing reads get no value.

    Args:
        o: the overlay, which gets operations and values.
        results: what the step leaves; of one repeat.
        last: the rows, or where the program keeps none the first state after the last step.

    Raises:
        Mismatch: it is something else.
    """
    repeat = results[0].repeat
    o.shared = True
    rows = rows_of(o.block.calls, last)
    o.calls += [c for row in rows for c in row.calls]
    orders = (rows[::-1], rows) if len(rows) > 1 else (rows,)  # the last turn sets the last row, or the first
    laid, ends = _first_of(o, repeat, orders, last)
    for node, e in zip((repeat.over, *repeat.start), (laid.source, *laid.states), strict=True):
        o.lay(node, e, inner=True)
    values: dict[int | None, Expr] = dict(enumerate(ends))
    if rows:
        values[None] = last
    read = _read_elsewhere(o)
    for r in results:
        if r.state in values and values[r.state] in read:
            o.values[r] = values[r.state]
    o.attrs[repeat.row] = {"backward": int(laid.backward), "turns": laid.turns}
    results_found = [o.values[r] for r in results if r in o.values]
    if wrong := next((v for v in read if v not in results_found), None):
        raise Mismatch(len(o.calls), f"'{wrong.name}' is read elsewhere, too")


def _first_of(
    o: Overlay, repeat: Repeat, orders: Sequence[Sequence[Row]], last: Var
) -> tuple[_Laid, list[Expr]]:
    """Lay the turns over rows, those of the last turn first, in the first of some orders that fits."""
    failures: list[Mismatch] = []
    for rows in orders:
        tried = o.copy()
        laid = _Laid(tried, repeat)
        try:
            ends = laid.steps(rows, last)
        except Mismatch as failure:
            failures.append(failure)
        else:
            o.take(tried)
            return laid, ends
    raise max(failures, key=lambda m: m.depth)


class _Laid:
    """A step being laid over one turn after the other, from the last to the first.

    Attributes:
        source: the sequence.
        states: before the turn that was laid last.
        turns: laid so far.
        backward: whether the last turn reads the first row.
    """

    def __init__(self, o: Overlay, repeat: Repeat) -> None:
        self._o, self._repeat = o, repeat
        self._inside = {x: None for step in repeat.steps for x in below(step)}
        self.source: Expr
        self.states: list[Expr] = []
        self.turns = 0
        self.backward = False

    def steps(self, rows: Sequence[Row], last: Expr) -> list[Expr]:
        """Lay all steps; return the states after the last one.

        Raises:
            Mismatch: they are something else, or not as many.
        """
        wanted: list[Expr | None] = [rows[0].value if rows else last, *[None] * (len(self._repeat.steps) - 1)]
        ends, number = list[Expr](), 0
        while True:
            made = self._step(wanted)
            ends = ends or made
            number, extent = self._row(number)
            kept = rows[self.turns] if self.turns < len(rows) else None
            if rows and (kept is None or kept.number != number or kept.value is not made[0]):
                raise self._mismatch("a row that is kept is not the first state of its turn")
            self.turns += 1
            if number == (extent - 1 if self.backward else 0):
                break
            wanted = [*self.states]
        low, high = self._repeat.times
        if not low <= self.turns <= high or (rows and self.turns != len(rows)):
            raise self._mismatch(f"{self.turns} turns: {low} to {high}")
        return ends

    def _step(self, wanted: Sequence[Expr | None]) -> list[Expr]:
        """Lay one step over the states after it; return them all."""
        o, steps = self._o, self._repeat.steps
        before = {x: o.attrs.pop(x, None) for x in self._inside}
        for x in (*self._inside, self._repeat.row, *self._repeat.states):
            o.values.pop(x, None)
        for step, e in zip(steps, wanted, strict=True):
            if e is not None:
                o.lay(step, e, inner=False)
        missing: list[Node] = [
            x for x in (*steps, self._repeat.row, *self._repeat.states) if x not in o.values
        ]
        if missing:
            raise self._mismatch("a state that the first one does not depend on")
        if any(
            attrs is not None and _numbers(attrs) != _numbers(o.attrs.get(x, {}))
            for x, attrs in before.items()
        ):
            raise self._mismatch("a turn with other attributes than the next one")
        self.states = [o.values[x] for x in self._repeat.states]
        return [o.values[x] for x in steps]

    def _row(self, after: int) -> tuple[int, int]:
        """Return which row of the sequence a turn reads, and how many there are."""
        o = self._o
        row = row_of(o.block.calls, o.values[self._repeat.row])
        if row is None:
            raise self._mismatch("a turn reads no row of a sequence")
        source, number = row.whole, row.number
        assert isinstance(source.type, TensorType), "rows are read of tensors"
        extent = source.type.shape[0].value
        if extent is None:
            raise self._mismatch(f"a sequence of {source.type.shape[0]} rows: a number of them")
        if self.turns == 0:
            self.source, self.backward = source, number == 0 and extent > 1
            wanted = 0 if self.backward else extent - 1
        else:
            wanted = after + 1 if self.backward else after - 1
        if source is not self.source or number != wanted:
            raise self._mismatch(f"row {number} is read where row {wanted} of the sequence is next")
        o.calls += row.calls
        return number, extent

    def _mismatch(self, reason: str) -> Mismatch:
        return Mismatch(len(self._o.calls), reason)


def loops_missed(function: Function, patterns: Mapping[str, Repeat]) -> Iterator[tuple[Call, str]]:
    """Yield operations in loops that are still loops, with the reason why they are in no repeated step.

    Args:
        function: a function of the program.
        patterns: with a repeated step, by name.
    """
    for loop in loops_of(function):
        count = "an unknown number of" if loop.bound is None else str(loop.bound)
        least = "" if loop.exact or loop.bound is None else "at most "
        reasons = [
            f"{name}: '{loop.var.name}' has {least}{count} turns: a number from {r.times[0]} to {r.times[1]}"
            if not loop.exact or turns_of(loop, r.times[1]) is None
            else f"{name}: its step is no turn of '{loop.var.name}'"
            for name, r in patterns.items()
        ]
        for value in values(loop.function.body):
            if isinstance(value, Call) and isinstance(value.callee, OpRef):
                yield value, "; ".join(reasons)


def _numbers(attrs: dict[str, Any]) -> dict[str, Any]:
    """Return attributes but for the factors of a requantize, which are compared as values."""
    return {n: x for n, x in attrs.items() if n != "factors"}


def _read_elsewhere(o: Overlay) -> list[Var]:
    """Return values inside that others read than operations inside."""
    inside = {id(c) for c in o.calls}
    made = [v for v, c in o.block.calls.items() if id(c) in inside]
    own = {id(c): c for c in o.calls}
    reads = Counter(a for c in own.values() for a in c.args if isinstance(a, Var))
    return [v for v in made if o.block.uses.get(v, 0) > reads[v]]
