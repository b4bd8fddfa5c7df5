"""Numbers for sizes over dims: those that somebody says, else the bounds of dims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from inlay.arith.bounds import Range, bounds, exactly
from inlay.arith.expr import Int, Sym, evaluate, symbols
from inlay.arith.solve import Facts
from inlay.ir.conform import dim_range
from inlay.ir.expr import Function


@dataclass(frozen=True, slots=True)
class DimSizes:
    """Sizes of the dims of a function.

    Attributes:
        said: the numbers that they have, by symbol.
        ranges: what the others may be.
        names: of all dims.
    """

    said: Mapping[Sym, int]
    ranges: Mapping[Sym, Range]
    names: tuple[str, ...]

    def number(self, size: Int) -> int | None:
        """Return a size as a number: the largest that it can be; None where that has no bound."""
        mentioned = symbols(size)
        if all(s in self.said for s in mentioned):
            return evaluate(size, self.said)
        if any(s not in self.said and s not in self.ranges for s in mentioned):
            return None
        return bounds(size, self.ranges).high

    def exact(self, size: Int) -> int | None:
        """Return a size for one choice of all dims: what was said, else their bounds; None without."""
        values = {s: r.high for s, r in self.ranges.items() if r.high is not None} | dict(self.said)
        return evaluate(size, values) if all(s in values for s in symbols(size)) else None

    def with_size(self, sym: Sym, size: int) -> DimSizes:
        """Return the same with another size of one dim."""
        said = {**self.said, sym: size}
        return DimSizes(said, {**self.ranges, sym: exactly(size)}, self.names)

    @property
    def used(self) -> dict[str, int]:
        """The sizes that numbers are for, by name: what was said, else bounds."""
        found = {s.name: r.high for s, r in self.ranges.items() if r.high is not None}
        return found | {s.name: n for s, n in self.said.items()}

    @property
    def unbounded(self) -> tuple[str, ...]:
        """The dims that nothing bounds."""
        return tuple(n for n in self.names if n not in self.used)


def dim_sizes(function: Function, said: Mapping[str, int]) -> DimSizes:
    """Return sizes for the dims of a function, given numbers for some of them by name."""
    ranges: dict[Sym, Range] = {}
    for d in function.dims:
        ranges[d.sym] = dim_range(d, Facts(ranges))
    known = {d.sym: said[d.sym.name] for d in function.dims if d.sym.name in said}
    exact = {s: exactly(n) for s, n in known.items()}
    return DimSizes(known, ranges | exact, tuple(d.sym.name for d in function.dims))
