"""What an algorithm is: a function from an instance, a goal and a number of steps to offsets."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from inlay.packing.instance import Instance, Watch

Offsets: TypeAlias = Sequence[int]
"""In units of the instance, in the order of its buffers."""


@dataclass(frozen=True, slots=True)
class Task:
    """What an algorithm is to do.

    Attributes:
        instance: what to place.
        goal: stop at a plan of this peak or less, in units.
        steps: the most that it may spend: placements of one buffer, tried or done.
        seed: which of several ways to go, where an algorithm has a choice.
        watch: who is told how far it is.
    """

    instance: Instance
    goal: int
    steps: int
    seed: int = 0
    watch: Watch | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What an algorithm found.

    Attributes:
        offsets: a plan; None where the steps were too few for one, or there is none within the goal.
        steps: what it spent.
        bound: if not 0, no plan is smaller than so many units, which is more than the goal.
    """

    offsets: Offsets | None
    steps: int
    bound: int = 0


class Algorithm(Protocol):
    """A packing algorithm. The same task has the same result on every machine."""

    def __call__(self, task: Task) -> Found:
        """Do a task."""
        ...


def unpacked(found: tuple[bytes | None, int], bound: int = 0) -> Found:
    """Return what a function of the extension module found."""
    data, steps = found
    if data is None:
        return Found(None, steps, bound)
    offsets = array("q")
    offsets.frombytes(data)
    return Found(offsets, steps, bound)
