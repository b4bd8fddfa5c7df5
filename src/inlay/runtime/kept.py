"""Values of state as sessions have them between runs: results of the runtime.

There may be room behind them (`inlay.runtime.growing`), or a second memory beside (`inlay.runtime.updating`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from inlay.runtime.structure import Structure


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """A state as its entry has it.

    Attributes:
        value: an array, or a result of the runtime, in whose memory there may be room.
        dtype: of its elements: a result of bfloat16 shows its bits.
        axis: where the first axis of the value is for everybody else.
    """

    value: Any
    dtype: np.dtype[Any]
    axis: int = 0

    def array(self) -> np.ndarray:
        """Return it as others see it: a read-only view, which stays as it is."""
        return self.view()

    def view(self) -> np.ndarray:
        """Return it as others see it, for who looks at it only now."""
        found = np.moveaxis(np.asarray(self.value).view(self.dtype), 0, self.axis)
        found.flags.writeable = False
        return found

    def compact(self) -> Kept:
        """Return a copy in memory of its own, without room."""
        return Kept(np.array(np.asarray(self.value), order="C"), self.dtype, self.axis)


@dataclass(slots=True, eq=False)
class Pair:
    """What belongs to a state that is updated where it is.

    Attributes:
        spare: memory that may be written over and has the value of a run ago; None where there is none.
        told: where that differs from the state, as the entry said it.
        is_own: whether the memory of the state is nobody else's, so that it can be spare one day.
    """

    spare: Any = None
    told: tuple[Any, ...] = ()
    is_own: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Updated(Kept):
    """A state with a second memory, which the next run updates and gives back as the state."""

    pair: Pair = field(default_factory=Pair)

    def array(self) -> np.ndarray:
        """Return a read-only view, whose memory is never written again."""
        self.pair.is_own = False
        return self.view()

    def compact(self) -> Kept:
        """Return it without the second memory."""
        return Updated(self.value, self.dtype, self.axis, Pair(is_own=self.pair.is_own))


def shown(value: Structure | Kept) -> Structure:
    """Return a value of a state as others see it."""
    return value.array() if isinstance(value, Kept) else value
