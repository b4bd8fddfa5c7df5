"""What schedules ask of a processor. The values come from above, with the code generator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from inlay.arith.dtype import DType


class Target(Protocol):
    """Parameters of one core. A code generator's own description may serve as one."""

    @property
    def vector_bytes(self) -> int:
        """Width of a vector register."""
        ...

    @property
    def vector_registers(self) -> int:
        """How many vector registers there are."""
        ...

    @property
    def has_fma(self) -> bool:
        """Whether a multiplication and addition with one rounding is one instruction."""
        ...

    @property
    def l1_bytes(self) -> int:
        """Size of the data cache nearest to the core."""
        ...

    @property
    def l2_bytes(self) -> int:
        """Size of the next cache."""
        ...


@dataclass(frozen=True, slots=True)
class GenericTarget:
    """Plain numbers: the default is a processor with 16 registers of 32 bytes."""

    vector_bytes: int = 32
    vector_registers: int = 16
    l1_bytes: int = 32 << 10
    l2_bytes: int = 512 << 10
    has_fma: bool = True


def lanes(target: Target, dtype: DType) -> int:
    """Return how many elements of a format fill a vector register, at least one."""
    return max(1, target.vector_bytes // max(1, dtype.itemsize))
