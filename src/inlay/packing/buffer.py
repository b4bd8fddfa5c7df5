"""What is packed: buffers with a lifetime, and a plan that gives each an offset.

A buffer lives in [lower, upper): two buffers conflict if these intervals intersect. Times are
plain integers with no meaning beyond their order. Sizes and offsets are in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Buffer:
    """Bytes that are needed for a time.

    Attributes:
        id: names it in reports.
        lower: first moment at which it is needed.
        upper: first moment after that at which it is not.
        size: bytes.
        alignment: its offset is a multiple of this.
    """

    id: str
    lower: int
    upper: int
    size: int
    alignment: int = 1

    @property
    def takes_space(self) -> bool:
        """Whether it can conflict with anything."""
        return self.size > 0 and self.upper > self.lower


@dataclass(frozen=True, slots=True)
class Plan:
    """Offsets for buffers.

    Attributes:
        offsets: of each buffer, in the order they were given.
        peak: bytes that the plan needs.
        lower_bound: bytes that any plan needs.
        steps: effort that was spent: placements of one buffer, tried or done.
        moment: the critical moment, at which what lives needs the most bytes; None without buffers.
            What lives then is the reason for the lower bound, unless the search raised it further.
    """

    offsets: tuple[int, ...]
    peak: int
    lower_bound: int
    steps: int = 0
    moment: int | None = None

    @property
    def gap(self) -> float:
        """How far above the lower bound it is, as a fraction of the bound."""
        return self.peak / self.lower_bound - 1 if self.lower_bound else 0.0

    @property
    def proved(self) -> bool:
        """Whether no plan is smaller."""
        return self.peak == self.lower_bound

    def within(self, capacity: int) -> bool | None:
        """Return whether a plan is within a capacity: this one, none at all, or None if nobody knows."""
        if self.peak <= capacity:
            return True
        return False if self.lower_bound > capacity else None


def peak_of(buffers: Sequence[Buffer], offsets: Sequence[int]) -> int:
    """Return the bytes that offsets need."""
    ends = (o + b.size for b, o in zip(buffers, offsets, strict=True) if b.takes_space)
    return max(ends, default=0)


def align(offset: int, alignment: int) -> int:
    """Return the next multiple of the alignment."""
    return -(-offset // alignment) * alignment
