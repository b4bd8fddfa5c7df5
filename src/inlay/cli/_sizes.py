"""Sizes for dims that nobody gave: guessed together, so that they fit, and tried again where not.

What the checks of a program demand of its dims is written beside it (`pipeline/relations.py`). Sizes
are found by a search that takes steps back: dims in the order of the entry, for each first the sizes
that people use, then one that solves a relation in which it is the last unknown, then small numbers.
A relation is looked at when all its dims have sizes. Dims that no relation joins are found apart.

Relations of sizes that the running program computes are not written anywhere. Where a check fails all
the same, the numbers of its message and other common sizes are tried, one dim at a time or all dims
at one size; whatever leads to another failure is where the search goes on.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from inlay.base.diagnostics import Collector, InlayError, RunError, error_of
from inlay.base.registry import suggestion
from inlay.base.usual_sizes import is_batch
from inlay.bytecode import formula
from inlay.bytecode.formula import Arg, Formula
from inlay.bytecode.program import RELATIONS, Entry, Program
from inlay.bytecode.spec import TensorSpec, leaves

_USUAL = (
    8,
    1,
    2,
    4,
    16,
    32,
    64,
    128,
    3,
    5,
    7,
    *(1 << k for k in range(8, 21)),
    48,
    96,
    160,
    192,
    224,
    320,
    416,
    640,
)
"""Sizes tried first."""

_SMALL = (*range(1, 513), 0)
"""Sizes tried last."""

_AGAIN = (1, 2, 4, 16, 32, 64, 256, 512, 1024, 4096, 16384)
"""Sizes tried on the running program."""

_MOST_STEPS = 2_000_000
"""Steps of formulas that the search for one group of dims may evaluate: about a second."""

_MOST_TRIES = 48
"""Runs of a program to find sizes that fit."""

_MOST_ELEMENTS = 1 << 26
"""Of all inputs together, when sizes are tried on the running program."""

RETRIED = ("run.check-failed", "run.bad-dims")
"""What a run says where sizes do not fit together."""

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Relation:
    """A formula over the symbols of an entry that must be 0, or at least a number.

    Attributes:
        value: the formula.
        least: the least value that is right; None where only 0 is.
        why: what it is for.
        always: whether every run gets there.
    """

    value: Formula
    least: int | None
    why: str
    always: bool = True

    @property
    def dims(self) -> tuple[int, ...]:
        """Positions of the symbols in it, in ascending order."""
        return tuple(sorted({s.index for s in self.value if isinstance(s, Arg)}))

    def holds(self, sizes: Sequence[int]) -> bool:
        """Whether it holds for sizes of all symbols."""
        found = formula.evaluate(self.value, sizes)
        return found is not None and (found == 0 if self.least is None else found >= self.least)


def relations_of(program: Program, entry: Entry) -> tuple[Relation, ...]:
    """Return what an entry requires, that its dims are sizes, and what checks inside demand."""
    found = [Relation((*r.value, "not"), None, r.text) for r in entry.requirements]
    for spec in leaves(entry.inputs):
        found += [Relation(d.value, 0, "a size") for d in spec.dims if d.value is not None]
    positions = {s.name: i for i, s in enumerate(entry.symbols)}
    written = json.loads(program.properties.get(RELATIONS, "{}"))
    for r in written.get(entry.name, ()):
        value = tuple(_step(s, positions) for s in r["value"])
        if formula.check(value, len(positions)) is None:
            found.append(Relation(value, r["least"], r["why"], r["always"]))
    return tuple(dict.fromkeys(r for r in found if r.dims))


def _step(written: int | str | list[str], positions: Mapping[str, int]) -> int | Arg | str:
    """Read a step of a formula: a list of a name is a dim."""
    return Arg(positions.get(written[0], -1)) if isinstance(written, list) else written


@dataclass(frozen=True, slots=True)
class Sizes:
    """A choice of sizes for the symbols of an entry.

    Attributes:
        names: of the symbols.
        given: sizes that the user gave, by position.
        relations: what should hold.
        values: the choice.
    """

    names: tuple[str, ...]
    given: Mapping[int, int]
    relations: tuple[Relation, ...]
    values: tuple[int, ...]

    @property
    def guessed(self) -> tuple[int, ...]:
        """Positions of the symbols whose sizes nobody gave."""
        return tuple(i for i in range(len(self.names)) if i not in self.given)

    def violated(self) -> tuple[Relation, ...]:
        """Return the relations that do not hold, those that every run gets to first."""
        found = [r for r in self.relations if not r.holds(self.values)]
        return tuple(sorted(found, key=lambda r: not r.always))

    def with_fixed(self, fixed: Mapping[int, int]) -> Sizes:
        """Return sizes with some as said, the others as they are where they fit, else others."""
        kept = {i: (v,) for i, v in enumerate(self.values)}
        pinned = {**fixed, **self.given}
        return replace(self, values=_solved(self.names, pinned, self.relations, kept))

    def advice(self) -> str:
        """Return a hint for who has to give sizes: the dims at fault and what would do."""
        violated = next(iter(self.violated()), None)
        if violated is None:
            shown = ", ".join(f"{self.names[i]}={self.values[i]}" for i in self.guessed)
            last = self.names[self.guessed[-1]] if self.guessed else ""
            return shown and (
                f"nobody said how large they are: {shown}; give sizes by --dim {last}=SIZE, or "
                "arrays by --inputs"
            )
        parts = [f"{self.names[i]}={self.values[i]}" for i in violated.dims]
        text = f"{' and '.join(parts)} cannot be ({violated.why})"
        for i in violated.dims:
            fitting = self._fitting(i)
            if fitting:
                rest = " or ".join(map(str, fitting[1:]))
                return f"{text}: try --dim {self.names[i]}={fitting[0]}" + (rest and f", or {rest}")
        return f"{text}: give both by --dim NAME=SIZE" if len(parts) > 1 else text

    def _fitting(self, position: int) -> list[int]:
        """Return some sizes of one dim with which all relations hold, the others as they are."""
        found: list[int] = []
        values = list(self.values)
        mine = [r for r in self.violated() if position in r.dims]
        others = [r for r in self.relations if position in r.dims]
        for size in dict.fromkeys((*_near(values[position]), *_USUAL)):
            values[position] = size
            if len(found) < 3 and all(r.holds(values) for r in (*mine, *others)):
                found.append(size)
        return found


def _near(size: int) -> Iterator[int]:
    """Give numbers from a size on, in both directions."""
    for k in range(1, 65):
        yield size + k
        if size - k > 0:
            yield size - k


def guess(program: Program, entry: Entry, given: Mapping[str, int]) -> Sizes:
    """Return sizes for an entry: as given, else such that what is known to be demanded holds.

    Raises:
        CompileError: `option.bad-value` for sizes of dims that the entry does not have.
    """
    names = tuple(s.name for s in entry.symbols)
    findings = Collector()
    for name in given:
        if name not in names:
            findings.error(
                "option.bad-value",
                f"found --dim {name}, which is no dim of the inputs",
                hint=suggestion(name, names, f"there are {', '.join(sorted(names)) or 'none'}"),
            )
    findings.raise_if_fatal()
    pinned = {i: given[name] for i, name in enumerate(names) if name in given}
    relations = relations_of(program, entry)
    return Sizes(names, pinned, relations, _solved(names, pinned, relations, {}))


# --------------------------------------------------------------------------- the search


def _solved(
    names: Sequence[str],
    pinned: Mapping[int, int],
    relations: Sequence[Relation],
    first: Mapping[int, tuple[int, ...]],
) -> tuple[int, ...]:
    """Return sizes with which relations hold: all, else those that every run gets to, else some."""
    wanted = [
        (pinned[i],) if i in pinned else tuple(dict.fromkeys((*first.get(i, ()), *_usual(name))))
        for i, name in enumerate(names)
    ]
    values = [sizes[0] for sizes in wanted]
    free = [i for i in range(len(names)) if i not in pinned]
    for group in _groups(free, relations):
        mine = [r for r in relations if not group.isdisjoint(r.dims)]
        for demanded in (mine, [r for r in mine if r.always]):
            if _Search(sorted(group), wanted, demanded, values).run():
                break
    return tuple(values)


def _usual(name: str) -> tuple[int, ...]:
    """Return the sizes to try for a dim; one item for what is called a batch."""
    return (1, *_USUAL) if is_batch(name) else _USUAL


def _groups(free: Sequence[int], relations: Sequence[Relation]) -> list[set[int]]:
    """Return the dims to choose, together where a relation joins them."""
    groups: list[set[int]] = [{i} for i in free]
    for r in relations:
        joined = [g for g in groups if not g.isdisjoint(r.dims)]
        if len(joined) > 1:
            groups = [g for g in groups if g.isdisjoint(r.dims)] + [set[int]().union(*joined)]
    return groups


class _Search:
    """A search for sizes of some dims; `values` has those of all, and the result at the end."""

    def __init__(
        self,
        dims: Sequence[int],
        wanted: Sequence[Sequence[int]],
        relations: Sequence[Relation],
        values: list[int],
    ) -> None:
        self._dims = dims
        self._wanted = wanted
        self._values = values
        self._left = _MOST_STEPS
        self._ready: list[list[Relation]] = [[] for _ in dims]
        for r in relations:
            self._ready[max(k for k, i in enumerate(dims) if i in r.dims)].append(r)

    def run(self) -> bool:
        """Search; leave the values as they were where nothing is found."""
        before = list(self._values)
        levels = [self._options(0)]
        while levels and self._left > 0:
            at = len(levels) - 1
            size = next(levels[-1], None)
            if size is None:
                levels.pop()
                continue
            self._values[self._dims[at]] = size
            if not self._fits(at):
                continue
            if at + 1 == len(self._dims):
                return True
            levels.append(self._options(at + 1))
        self._values[:] = before
        return False

    def _fits(self, at: int) -> bool:
        for r in self._ready[at]:
            self._left -= len(r.value)
            if not r.holds(self._values):
                return False
        return True

    def _options(self, at: int) -> Iterator[int]:
        wanted = self._wanted[self._dims[at]]
        yield from wanted
        derived = {n for r in self._ready[at] for n in self._roots(r, at)}
        yield from sorted(derived.difference(wanted))
        yield from (n for n in _SMALL if n not in derived and n not in wanted)

    def _roots(self, r: Relation, at: int) -> Iterator[int]:
        """Give sizes at which a relation may begin to hold, if it grows evenly with the dim."""
        values, i = list(self._values), self._dims[at]

        def beyond(size: int) -> int | None:
            values[i] = size
            self._left -= len(r.value)
            found = formula.evaluate(r.value, values)
            return None if found is None else found - (r.least or 0)

        low, high = 0, 1 << 12
        for _ in range(6):
            a, b = beyond(low), beyond(high)
            if a is None or b is None or a == b:
                return
            guess = low - a * (high - low) // (b - a)
            yield from (n for n in range(guess - 1, guess + 2) if n >= 0)
            if not 0 <= guess < 1 << 40 or guess in (low, high):
                return
            low, high = guess, guess + 64


# --------------------------------------------------------------------------- the running program


def run_fitting(
    run: Callable[[Mapping[str, np.ndarray]], Arrays],
    inputs_for: Callable[[Sequence[int]], Arrays],
    shapes: Callable[[Sequence[int]], int],
    sizes: Sizes,
) -> tuple[Arrays, Arrays]:
    """Run with sizes, and with others where a check fails; return what was given, and the outputs.

    Args:
        run: the program.
        inputs_for: makes inputs for sizes.
        shapes: counts their elements.
        sizes: the first choice.

    Raises:
        RunError: what the first run said, with a hint which dims are at fault; anything else at
            once.
    """
    first: RunError | None = None
    tried: set[tuple[int, ...]] = set()
    seen: set[str] = set()
    waiting = iter([sizes])
    while (choice := next(waiting, None)) is not None and len(tried) < _MOST_TRIES:
        if choice.values in tried:
            continue
        tried.add(choice.values)
        inputs = inputs_for(choice.values)
        try:
            return inputs, run(inputs)
        except RunError as failure:
            if first is None:
                first = failure
            if failure.ids[0] not in RETRIED or not sizes.guessed:
                if len(tried) > 1:
                    continue
                raise _hinted(failure, sizes) from failure
            kind = re.sub(r"(found|needed|least) -?\d+", "", str(failure))
            if kind not in seen:
                seen.add(kind)
                waiting = _others(choice, failure, shapes)
    assert first is not None, "there was a first run"
    raise _hinted(first, sizes) from first


def _others(sizes: Sizes, failure: RunError, shapes: Callable[[Sequence[int]], int]) -> Iterator[Sizes]:
    """Give other choices after a failure, the likely ones first."""
    said = [int(n) for n in re.findall(r"\d+", failure.diagnostics[0].message) if len(n) < 10]
    order = sorted(sizes.guessed, key=lambda i: sizes.values[i] not in said)
    for n in dict.fromkeys(n for n in (*said, *_AGAIN) if n > 0):
        for fixed in (*({i: n} for i in order), dict.fromkeys(order, n)):
            found = sizes.with_fixed(fixed)
            if shapes(found.values) <= _MOST_ELEMENTS:
                yield found


def _hinted(failure: RunError, sizes: Sizes) -> InlayError:
    """Return a failure with a hint which sizes to give, if sizes are to blame."""
    if failure.ids[0] not in RETRIED:
        return failure
    hint = sizes.advice()
    return error_of(replace(d, hint=d.hint or hint) for d in failure.diagnostics)


def shape_of(spec: TensorSpec, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of an input for sizes of the symbols."""
    values = (formula.evaluate(d.value, sizes) if d.value else None for d in spec.dims)
    return tuple(max(v or 0, 0) for v in values)


def elements(entry: Entry, sizes: Sequence[int]) -> int:
    """Return how many elements the inputs of an entry have."""
    return sum(math.prod(shape_of(spec, sizes)) for spec in leaves(entry.inputs))
