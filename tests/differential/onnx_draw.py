"""What a call is drawn with: choices, shapes, values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray
F32, F64, F16 = np.dtype("float32"), np.dtype("float64"), np.dtype("float16")
INTS = tuple(map(np.dtype, ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")))
I64 = np.dtype("int64")


@dataclass
class Draw:
    """A source of choices, and the node that they make up."""

    seed: int
    inputs: list[Array | None] = field(default_factory=list[Any])
    attrs: dict[str, Any] = field(default_factory=dict[str, Any])
    constant: set[int] = field(default_factory=set[int])
    outputs: int = 1

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def int(self, low: int, high: int) -> int:
        """Return a number from low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def chance(self, p: float) -> bool:
        """Return True with a probability."""
        return bool(self.rng.random() < p)

    def one(self, *values: Any) -> Any:
        """Return one of the values."""
        return values[self.int(0, len(values) - 1)]

    def shape(self, low: int = 0, high: int = 4, *, least: int = 0) -> tuple[int, ...]:
        """Return a shape; dims of 0 are rarer than others, since they hide what they multiply."""
        dims = [1, 1, 2, 3, 4, 5, 8, 17]
        if least == 0 and self.chance(0.15):
            dims.append(0)
        return tuple(int(self.rng.choice(dims)) for _ in range(self.int(low, high)))

    def array(
        self, shape: tuple[int, ...], dtype: np.dtype, *, special: float = 0.3, scale: float = 3
    ) -> Array:
        """Return values; with a probability some of them are the hard ones of the type."""
        if dtype.kind == "b":
            return self.rng.random(shape) < 0.5
        if dtype.kind == "f":
            x = np.asarray(self.rng.standard_normal(shape) * scale).astype(dtype)
            hard = [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, -0.5, 2.5, 1.0, -1.0]
        else:
            info = np.iinfo(dtype)
            low = max(-10, info.min)
            x = np.asarray(self.rng.integers(low, 11, shape)).astype(dtype)
            hard = [info.min, info.max, 0, 1]
        if self.chance(special):
            mask = self.rng.random(shape) < 0.3
            x = np.where(mask, self.rng.choice(np.array(hard, dtype), shape), x).astype(dtype)
        return x

    def axis(self, rank: int) -> int:
        """Return an axis, negative or not."""
        return self.int(-rank, rank - 1)

    def axes(self, rank: int) -> list[int]:
        """Return some different axes, each negative or not."""
        chosen = [a for a in range(rank) if self.chance(0.5)]
        self.rng.shuffle(chosen)
        return [a - rank * self.chance(0.5) for a in chosen]

    def give(self, *arrays: Array | None, constant: bool = False) -> None:
        """Add inputs; constant ones are initializers in half of the cases, or always."""
        for x in arrays:
            if constant:
                self.constant.add(len(self.inputs))
            self.inputs.append(x)

    def setting(self, x: Array) -> None:
        """Add an input such as axes: an initializer more often than not."""
        self.give(x, constant=self.chance(0.7))


Family = Callable[[Draw, str], None]
"""Draws the inputs and attributes of one call of an operator."""


def like(d: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape that broadcasts with another."""
    kept = shape[d.int(0, len(shape)) if d.chance(0.3) else 0 :]
    return tuple(1 if d.chance(0.3) else n for n in kept)


def a_float(d: Draw) -> np.dtype:
    return d.one(F32, F32, F32, F64, F16)
